"""Whom must one ask, so that a transaction's endorsement policies will hold?  A set of organisations, a small one.

Before anybody has signed, it is known which organisations have a peer to be asked, not who that peer is. So a policy is
evaluated over *supposed* peers, one an organisation: a supposed peer is a member and a peer of its organisation and
nothing else. What the real ones are worth is seen when their endorsements are validated.

A further peer never makes a policy fail. So what all known organisations together do not satisfy, none of their sets
does; and where one of a set fails, the next set is found among those that are left.
"""

from collections.abc import Sequence
from itertools import combinations

from ledger.core.channel_config import Bundle, evaluate
from ledger.core.policy.ast import (
    ApplicationPolicy,
    CombinedPrincipal,
    PolicyReference,
    Principal,
    Role,
    RolePrincipal,
)
from ledger.core.policy.evaluate import satisfies

EXACT_MAX = 6
"""Organisations up to which every set is tried; of more, one after the other is left out: sets double with each."""


class SupposedPeers:
    """Takes an MSP ID for a peer of that organisation."""

    def satisfies(self, identity: str, principal: Principal, /) -> bool:
        """Tell whether a peer of an organisation is what a principal asks for."""
        match principal:
            case RolePrincipal(msp_id, role):
                return msp_id == identity and role in (Role.MEMBER, Role.PEER)
            case CombinedPrincipal(principals):
                return bool(principals) and all(self.satisfies(identity, inner) for inner in principals)
            case _:
                return False


SUPPOSED = SupposedPeers()


def is_enough(bundle: Bundle, policies: Sequence[ApplicationPolicy], msp_ids: Sequence[str]) -> bool:
    """Tell whether a peer each of some organisations would satisfy all policies."""
    return all(
        evaluate(bundle.config, policy.path, msp_ids, SUPPOSED)
        if isinstance(policy, PolicyReference)
        else satisfies(policy, msp_ids, SUPPOSED)
        for policy in policies
    )


def layout(
    bundle: Bundle, policies: Sequence[ApplicationPolicy], msp_ids: Sequence[str], first: str
) -> tuple[str, ...]:
    """Find organisations of which a peer each satisfies all policies.

    Among few organisations the set is the smallest with `first`, among many one that can spare nobody but `first`.

    Args:
        bundle: The configuration in force.
        policies: Endorsement policies of all chaincodes that the transaction touches.
        msp_ids: Organisations that have a peer to be asked, each once.
        first: The organisation that is asked anyway, and so in the set if it is among them.

    Returns:
        The set, `first` in front; empty if there is none. It never is for policies that ask for nobody: a transaction
        needs an endorsement even then.
    """
    fixed = (first,) if first in msp_ids else ()
    others = tuple(msp_id for msp_id in msp_ids if msp_id != first)
    if not is_enough(bundle, policies, fixed + others):
        return ()
    if len(msp_ids) > EXACT_MAX:
        return thinned(bundle, policies, fixed, others)
    counts = range(0 if fixed else 1, len(others) + 1)
    sets = (fixed + more for count in counts for more in combinations(others, count))
    return next((some for some in sets if is_enough(bundle, policies, some)), ())


def thinned(
    bundle: Bundle, policies: Sequence[ApplicationPolicy], fixed: tuple[str, ...], others: Sequence[str]
) -> tuple[str, ...]:
    """Leave out of others, from the last on, every one that is not needed."""
    kept = (*fixed, *others)
    for msp_id in reversed(others):
        less = tuple(one for one in kept if one != msp_id)
        if less and is_enough(bundle, policies, less):
            kept = less
    return kept


__all__ = ["is_enough", "layout"]
