"""Could any order of these signers satisfy a policy?  A quick no, before the orders are tried one by one.

Here a signature may stand for any number of leaves. Policies have no "not", so what does not hold even then holds in no
order; what does hold still has to be tried. One pass over the rules, whatever their number of orders.
"""

from collections.abc import Callable, Sequence

from ledger.core.channel_config import ChannelConfig, group_at, threshold
from ledger.core.policy.ast import ImplicitMetaPolicy, NoRule, OutOf, Principal, SignaturePolicy, SignedBy
from ledger.core.policy.extended import AnyPeers, ExtendedPolicy, PeerSigner, Signature, Threshold, Weighted, heaviest

IsSomebody = Callable[[Principal], bool]
"""Whether one of the signers is what a principal asks for."""


def could_hold(config: ChannelConfig, path: str, is_somebody: IsSomebody) -> bool:
    """Tell whether the policy at a path of a channel's configuration could hold."""
    policy = config.policies.get(path)
    if policy is None:
        return False
    if isinstance(policy, SignaturePolicy):
        return _could_be_signed(policy, is_somebody)
    return _could_be_implied(config, path.rpartition("/")[0], policy, is_somebody)


def _could_be_implied(config: ChannelConfig, group: str, policy: ImplicitMetaPolicy, is_somebody: IsSomebody) -> bool:
    children = group_at(config.tree, group).groups
    possible = sum(could_hold(config, f"{group}/{child}/{policy.sub_policy}", is_somebody) for child in children)
    return possible >= threshold(policy.rule, len(children))


def _could_be_signed(policy: SignaturePolicy, is_somebody: IsSomebody) -> bool:
    """Go through the tree from its end: what a rule holds is known before the rule."""
    known: list[bool] = []
    for node in reversed(policy.rule):
        match node:
            case SignedBy(index):
                known.append(0 <= index < len(policy.principals) and is_somebody(policy.principals[index]))
            case OutOf(n, count):
                known.append(sum(known.pop() for _ in range(count)) >= n)
            case NoRule():
                known.append(False)
    return bool(known) and known[-1]


def could_satisfy(policy: ExtendedPolicy, signers: Sequence[PeerSigner]) -> bool:
    """Tell whether an extended policy could hold."""
    known: list[bool] = []
    for node in reversed(policy.rule):
        match node:
            case Signature(principal):
                known.append(any(signer.is_a(principal) for signer in signers))
            case AnyPeers(n):
                known.append(len(signers) >= n)
            case Weighted(total, weights):
                known.append(heaviest(weights, signers) >= total)
            case Threshold(n, count):
                known.append(sum(known.pop() for _ in range(count)) >= n)
    return known[-1]


__all__ = ["could_hold", "could_satisfy"]
