"""Whom must one ask, so that a transaction's endorsement policies will hold?  Sets of organisations, smallest first.

Before anybody has signed, it is known which organisations have a peer to be asked, not who that peer is. So a policy is
evaluated over *supposed* peers, one an organisation: a supposed peer is a member and a peer of its organisation and
nothing else. What the real ones are worth is seen when their endorsements are validated.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, islice

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

SETS_TRIED_MAX = 2_000
"""Sets that are tried before all organisations together are taken, less those that are not needed."""


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


def layouts(
    bundle: Bundle, policies: Sequence[ApplicationPolicy], msp_ids: Sequence[str], first: str
) -> Iterator[tuple[str, ...]]:
    """Yield sets of organisations of which a peer each satisfies all policies.

    Sets with `first` come first, small ones before large ones. None is empty: a transaction needs an endorsement even
    where its policies ask for nobody's.

    Args:
        bundle: The configuration in force.
        policies: Endorsement policies of all chaincodes that the transaction touches.
        msp_ids: Organisations that have a peer to be asked, each once.
        first: The organisation that is asked anyway.
    """
    others = [msp_id for msp_id in msp_ids if msp_id != first]
    beginnings = [(first,), ()] if first in msp_ids else [()]
    found = False
    for beginning in beginnings:
        sets = (beginning + more for count in range(len(others) + 1) for more in combinations(others, count))
        for some in islice(sets, SETS_TRIED_MAX):
            if some and is_enough(bundle, policies, some):
                found = True
                yield some
    if not found and msp_ids and is_enough(bundle, policies, msp_ids):
        yield thinned(bundle, policies, msp_ids)


def thinned(bundle: Bundle, policies: Sequence[ApplicationPolicy], msp_ids: Sequence[str]) -> tuple[str, ...]:
    """Leave out, from the last on, every organisation that is not needed."""
    kept = list(msp_ids)
    for msp_id in reversed(msp_ids):
        less = [one for one in kept if one != msp_id]
        if less and is_enough(bundle, policies, less):
            kept = less
    return tuple(kept)


__all__ = ["is_enough", "layouts"]
