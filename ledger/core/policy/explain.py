"""What does a policy come to?  The smallest sets that satisfy it, who can block it, and who could forge it.

A policy is asked about supposed signers: as many of each kind as it has use for, each exactly what one of its
principals asks for. A set that satisfies it is *smallest* if it does so only whole. Whoever is in every smallest set
can *block* it alone; a set that meets every smallest set can block it together. Whoever makes up a smallest set could
*forge* what the policy protects, if they agreed to, or if their keys were stolen: the fewer they are, the weaker it is.

Greedy evaluation depends on the order of signatures; here a set counts if some order of it satisfies.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, permutations

from ledger.core.channel_config import ChannelConfig, evaluate, group_at
from ledger.core.policy import extended
from ledger.core.policy.ast import (
    CombinedPrincipal,
    IdentityPrincipal,
    Principal,
    Role,
    RolePrincipal,
    SignaturePolicy,
    SignedBy,
    UnitPrincipal,
)
from ledger.core.policy.evaluate import satisfies
from ledger.core.policy.extended import AnyPeers, ExtendedPolicy, PeerPrincipal, Signature, Weighted
from ledger.core.policy.text import principal_text

SETS_TRIED_MAX = 20_000
"""Sets that are tried of each kind; a policy that needs more is explained as far as that goes."""

ORDERS_MAX = 24
"""Orders in which a set is evaluated."""

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a policy comes to."""

    smallest: tuple[Names, ...]
    """The smallest sets that satisfy it, fewest signers first."""

    blocking: tuple[Names, ...]
    """The smallest sets without which it can't be satisfied, fewest signers first."""

    complete: bool
    """Whether these are all; a policy of very many principals is explained as far as its smallest sets go."""

    fewest: int
    """Number of signers that are enough, if they are the right ones: what a forger needs. 0: nobody is needed."""


@dataclass(frozen=True, slots=True)
class Supposed:
    """Somebody who is what one principal asks for; `copy` tells several of a kind apart."""

    principal: Principal | PeerPrincipal | None
    """None: any peer."""

    copy: int

    def is_a(self, principal: PeerPrincipal) -> bool:
        """Whether this signer is what a principal of an extended policy describes."""
        own = self.principal
        if not isinstance(own, PeerPrincipal) or own.msp_id != principal.msp_id:
            return False
        return principal.name in (None, own.name) and is_of_role(own.role, principal.role)

    @property
    def name(self) -> str:
        """For people."""
        if self.principal is None:
            return "any peer"
        return str(self.principal) if isinstance(self.principal, PeerPrincipal) else principal_text(self.principal)


class SupposedMembers:
    """Judges supposed signers."""

    def satisfies(self, identity: Supposed, principal: Principal, /) -> bool:
        """Tell whether a supposed signer is what a principal asks for."""
        own = identity.principal
        if isinstance(own, RolePrincipal) and isinstance(principal, RolePrincipal):
            return own.msp_id == principal.msp_id and is_of_role(own.role, principal.role)
        if isinstance(principal, RolePrincipal) and isinstance(own, UnitPrincipal):
            return own.msp_id == principal.msp_id and principal.role == Role.MEMBER
        if isinstance(principal, CombinedPrincipal):
            return own == principal or all(self.satisfies(identity, inner) for inner in principal.principals)
        return own == principal


def is_of_role(own: int, wanted: int) -> bool:
    """Tell whether somebody of a role has another: everybody is a member."""
    return own == wanted or wanted == Role.MEMBER


def explain_signature_policy(policy: SignaturePolicy) -> Explanation:
    """Explain a signature policy, such as a chaincode's."""
    used = Counter(policy.principals[node.index] for node in policy.rule if isinstance(node, SignedBy))
    candidates = [Supposed(principal, copy) for principal, count in used.items() for copy in range(count)]
    members = SupposedMembers()
    return explain(candidates, lambda signers: satisfies(policy, signers, members))


def explain_path(config: ChannelConfig, path: str) -> Explanation:
    """Explain the policy at a path of a channel's configuration: of each organisation its peer, client and admin."""
    policy = config.policies.get(path)
    if isinstance(policy, SignaturePolicy):
        return explain_signature_policy(policy)
    used: dict[Principal, int] = {}
    for one in config.policies.values():
        if isinstance(one, SignaturePolicy) and one.rule:
            used |= {principal: 1 for principal in one.principals if not isinstance(principal, IdentityPrincipal)}
    members = SupposedMembers()
    parts = parts_of(config, path)
    candidates = [
        one
        for one in (Supposed(principal, 0) for principal in used)
        if any(evaluate(config, part, (one,), members) for part in parts)
    ]
    return explain(candidates, lambda signers: evaluate(config, path, signers, members))


def parts_of(config: ChannelConfig, path: str) -> list[str]:
    """List the signature policies that an implicit-meta policy rests on, whatever lies between."""
    policy = config.policies.get(path)
    if policy is None or isinstance(policy, SignaturePolicy):
        return [path] if policy is not None else []
    group = path.rpartition("/")[0]
    children = group_at(config.tree, group).groups
    return [part for child in children for part in parts_of(config, f"{group}/{child}/{policy.sub_policy}")]


def explain_extended(policy: ExtendedPolicy) -> Explanation:
    """Explain a checkpoint policy."""
    used: Counter[PeerPrincipal] = Counter()
    anybody = 0
    for node in policy.rule:
        if isinstance(node, Signature):
            used[node.principal] += 1
        elif isinstance(node, Weighted):
            used |= Counter({principal: 1 for principal, _ in node.weights})
        elif isinstance(node, AnyPeers):
            anybody = max(anybody, node.n)
    candidates = [Supposed(principal, copy) for principal, count in used.items() for copy in range(count)]
    candidates += [Supposed(None, copy) for copy in range(anybody)]
    return explain(candidates, lambda signers: extended.satisfies(policy, signers))


def explain(candidates: Sequence[Supposed], holds: Callable[[Sequence[Supposed]], bool]) -> Explanation:
    """Explain a policy over supposed signers."""

    def holds_somehow(signers: Sequence[Supposed]) -> bool:
        return any(holds(order) for order in islice(permutations(signers), ORDERS_MAX))

    satisfying, complete = minimal(candidates, holds_somehow)
    sets = [frozenset(one) for one in satisfying]
    blocking, all_blocking = minimal(candidates, lambda some: bool(sets) and all(set(some) & one for one in sets))
    return Explanation(
        named(satisfying),
        named_blocking(blocking, candidates),
        complete and all_blocking,
        min(map(len, satisfying), default=0),
    )


def minimal(
    candidates: Sequence[Supposed], holds: Callable[[Sequence[Supposed]], bool]
) -> tuple[list[tuple[Supposed, ...]], bool]:
    """Find the smallest sets for which something holds, and whether all were looked at."""
    found: list[tuple[Supposed, ...]] = []
    for tried, some in enumerate(ascending(candidates)):
        if tried >= SETS_TRIED_MAX:
            return found, False
        if not any(set(one) <= set(some) for one in found) and holds(some):
            found.append(some)
    return found, True


def ascending(candidates: Sequence[Supposed]) -> Iterator[tuple[Supposed, ...]]:
    """Yield all sets, small ones first; of several of a kind the first are taken first."""
    for size in range(len(candidates) + 1):
        for some in combinations(candidates, size):
            copies: Counter[object] = Counter()
            for one in some:
                if one.copy != copies[one.principal]:
                    break
                copies[one.principal] += 1
            else:
                yield some


def named(sets: Sequence[tuple[Supposed, ...]]) -> tuple[Names, ...]:
    """Name the signers of each satisfying set, several of a kind with their number, each set once."""
    out: dict[Names, None] = {}
    for some in sets:
        counts = Counter(one.name for one in some)
        out[tuple(name if count == 1 else f"{count} of {name}" for name, count in counts.items())] = None
    return tuple(out)


def named_blocking(sets: Sequence[tuple[Supposed, ...]], candidates: Sequence[Supposed]) -> tuple[Names, ...]:
    """Name who has to stay away: where several of a kind are asked for, all but so many of that kind."""
    supposed = Counter(one.name for one in candidates)
    out: dict[Names, None] = {}
    for some in sets:
        counts = Counter(one.name for one in some)
        out[
            tuple(
                name if supposed[name] == 1 else f"all but {supposed[name] - count} of {name}"
                for name, count in counts.items()
            )
        ] = None
    return tuple(out)


__all__ = ["Explanation", "explain_extended", "explain_path", "explain_signature_policy"]
