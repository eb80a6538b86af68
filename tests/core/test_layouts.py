"""Which organisations must be asked, for which policies?  By hand, and every set against the slow way."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.channel_config import Bundle, ConfigGroup
from ledger.core.policy import layouts as module
from ledger.core.policy.ast import (
    ApplicationPolicy,
    CombinedPrincipal,
    IdentityPrincipal,
    MetaRule,
    Node,
    OutOf,
    PolicyReference,
    Principal,
    Role,
    RolePrincipal,
    SignaturePolicy,
    SignedBy,
    UnitPrincipal,
)
from ledger.core.policy.evaluate import satisfies
from ledger.core.policy.layouts import SUPPOSED, is_enough, layout
from ledger.core.policy.parse import parse_policy
from tests.kit.channel import CHANNEL_DEFAULT, Channel, config_policy, meta, out_of
from tests.kit.checkpointing import default_bundle, organisations
from tests.kit.orderer_node import changed
from tests.kit.organisations import Organisation

ORG = {number: f"Org{number}MSP" for number in range(1, 7)}
ONE, TWO, THREE, FOUR = (ORG[number] for number in range(1, 5))


def plan(*policies: ApplicationPolicy | str, peers: Sequence[str] = (ONE, TWO, THREE), first: str = ONE,
         bundle: Bundle | None = None) -> tuple[str, ...]:  # fmt: skip
    """The layout of policies, by default on a channel of three organisations with a peer each."""
    parsed = [parse_policy(each) if isinstance(each, str) else each for each in policies]
    return layout(bundle or default_bundle(3), parsed, peers, first)


# By hand.


def test_policy_of_the_own_organisation_asks_nobody_else() -> None:
    assert plan(f"OR('{ONE}.peer')") == (ONE,)


def test_either_of_two_is_the_own_one_and_without_it_the_other() -> None:
    either = f"OR('{ONE}.peer','{TWO}.member')"
    assert plan(either) == (ONE,)
    assert plan(either, peers=(TWO, THREE)) == (TWO,)
    assert plan(either, peers=(THREE,)) == ()


def test_all_of_two_are_both() -> None:
    assert plan(f"AND('{TWO}.peer','{ONE}.peer')") == (ONE, TWO)


def test_policy_of_others_keeps_the_own_one_that_was_asked_already() -> None:
    assert plan(f"OR('{TWO}.peer')") == (ONE, TWO)
    assert plan(f"OR('{TWO}.peer')", peers=(TWO, THREE)) == (TWO,)


def test_channels_majority_of_three_is_two_of_them_whoever_fails() -> None:
    assert plan(CHANNEL_DEFAULT) == (ONE, TWO)
    assert plan(CHANNEL_DEFAULT, peers=(ONE, THREE)) == (ONE, THREE)
    assert plan(CHANNEL_DEFAULT, peers=(TWO, THREE)) == (TWO, THREE)
    assert plan(CHANNEL_DEFAULT, peers=(ONE,)) == ()


def test_several_policies_hold_together() -> None:
    both = f"OR('{ONE}.peer','{TWO}.peer')", f"OR('{THREE}.peer','{TWO}.peer')"
    assert plan(*both) == (ONE, TWO)
    assert plan(*both, peers=(ONE, THREE)) == (ONE, THREE)
    assert plan(*both, peers=(ONE,)) == ()
    assert plan(*both, first=TWO) == (TWO,)


def test_other_order_of_peers_is_kept_behind_the_own_one() -> None:
    assert plan(CHANNEL_DEFAULT, peers=(THREE, TWO, ONE), first=TWO) == (TWO, THREE)


@pytest.mark.parametrize(
    "policy",
    [
        "OR('Org9MSP.peer')",
        f"OR('{ONE}.client','{TWO}.admin','{THREE}.orderer')",
        f"AND('{ONE}.peer','{ONE}.peer')",
        PolicyReference("/Channel/Application/Nothing"),
        SignaturePolicy(0, (SignedBy(0),), (UnitPrincipal(ONE, "unit", b"certifiers"),)),
        SignaturePolicy(0, (SignedBy(0),), (IdentityPrincipal(b"somebody"),)),
        SignaturePolicy(0, (SignedBy(0),), (CombinedPrincipal(()),)),
        SignaturePolicy(0, (SignedBy(0),), (CombinedPrincipal((RolePrincipal(ONE, 3), RolePrincipal(TWO, 3))),)),
        SignaturePolicy(0, (), ()),
    ],
    ids=["unknown", "no peers", "two of one", "no policy", "unit", "identity", "nothing", "two at once", "no rule"],
)
def test_what_one_peer_of_each_cannot_meet_has_no_plan(policy: ApplicationPolicy | str) -> None:
    assert plan(policy) == ()


def test_role_and_membership_at_once_are_a_peers() -> None:
    both = CombinedPrincipal((RolePrincipal(TWO, Role.PEER), RolePrincipal(TWO, Role.MEMBER)))
    assert plan(SignaturePolicy(0, (SignedBy(0),), (both,)), first=TWO) == (TWO,)


def test_policy_that_asks_for_nobody_still_asks_for_somebody() -> None:
    """A transaction without an endorsement is none."""
    nobody = SignaturePolicy(0, (OutOf(0, 0),), ())
    assert plan(nobody) == (ONE,)
    assert plan(nobody, peers=(TWO, THREE)) == (TWO,)
    assert plan(nobody, peers=()) == ()
    many = [f"Org{number}MSP" for number in range(2, 20)]
    assert plan(nobody, peers=many) == (TWO,)


def test_reference_is_read_in_the_configuration_in_force() -> None:
    tree = Channel(organisations(2)).tree

    def with_any(group: ConfigGroup) -> ConfigGroup:
        return replace(group, policies={**group.policies, "Endorsement": meta(MetaRule.ANY, "Endorsement")})

    of_any = Channel(organisations(2), tree=changed(tree, ["Application"], with_any)).bundle
    assert plan(CHANNEL_DEFAULT, peers=(ONE, TWO), bundle=of_any) == (ONE,)
    assert plan(CHANNEL_DEFAULT, peers=(ONE, TWO), bundle=default_bundle(2)) == (ONE, TWO)


def test_organisation_that_lets_clients_endorse_cannot_be_planned_for() -> None:
    def by_clients(group: ConfigGroup) -> ConfigGroup:
        policy = config_policy(out_of(1, (ONE, Role.CLIENT)))
        return replace(group, policies={**group.policies, "Endorsement": policy})

    tree = changed(Channel(organisations(3)).tree, ["Application", "Org1"], by_clients)
    bundle = Channel(organisations(3), tree=tree).bundle
    assert plan(CHANNEL_DEFAULT, bundle=bundle) == (ONE, TWO, THREE), "the first one's does not count"


# Many organisations.


def test_majority_of_many_is_found_without_trying_their_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(bundle: Bundle, policies: Sequence[ApplicationPolicy], msp_ids: Sequence[str]) -> bool:
        asked.append(msp_ids)
        return is_enough(bundle, policies, msp_ids)

    monkeypatch.setattr(module, "is_enough", counted)
    many = [f"Org{number}MSP" for number in range(1, 31)]
    half = out_of(15, *((msp_id, Role.PEER) for msp_id in many))
    assert plan(half, peers=many, first="Org9MSP") == ("Org9MSP", *many[:8], *many[9:15])
    assert plan(half, peers=many[16:]) == ()
    assert len(asked) <= len(many) + 1


# Every set, against the slow way.

Tree = int | tuple[int, list["Tree"]]
"""A leaf's principal, or n and what it is out of."""

PRINCIPALS: tuple[Principal, ...] = (
    *(RolePrincipal(ORG[number], Role.PEER) for number in range(1, 5)),
    *(RolePrincipal(ORG[number], Role.MEMBER) for number in range(1, 5)),
    RolePrincipal(ONE, Role.CLIENT),
    RolePrincipal("Org9MSP", Role.PEER),
)
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.integers(0, len(PRINCIPALS) - 1),
    lambda inner: st.tuples(st.integers(0, 3), st.lists(inner, max_size=4)),
    max_leaves=8,
)


def flat(tree: Tree) -> tuple[Node, ...]:
    if isinstance(tree, int):
        return (SignedBy(tree),)
    return (OutOf(tree[0], len(tree[1])), *(node for inner in tree[1] for node in flat(inner)))


def taken(tree: Tree, free: frozenset[str]) -> frozenset[str] | None:
    """Who is left when a rule has taken its peers, of whom there is one an organisation; None if it fails."""
    if isinstance(tree, int):
        principal = PRINCIPALS[tree]
        assert isinstance(principal, RolePrincipal)
        if principal.role == Role.CLIENT or principal.msp_id not in free:
            return None
        return free - {principal.msp_id}
    met = 0
    for inner in tree[1]:
        left = taken(inner, free)
        if left is not None:
            met, free = met + 1, left
    return free if met >= tree[0] else None


@pytest.mark.parametrize("exact", [0, module.EXACT_MAX], ids=["thinned", "all sets tried"])
@given(
    trees=st.lists(TREES, min_size=1, max_size=3),
    peers=st.lists(st.sampled_from([ONE, TWO, THREE, FOUR]), unique=True),
    first=st.sampled_from([ONE, TWO]),
)
def test_plan_meets_all_policies_and_is_small_and_there_is_one_whenever_any_set_does(
    exact: int, trees: list[Tree], peers: list[str], first: str
) -> None:
    policies = [SignaturePolicy(0, flat(tree), PRINCIPALS) for tree in trees]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EXACT_MAX", exact)
        found = layout(default_bundle(4), policies, peers, first)
    every = chain.from_iterable(combinations(peers, count) for count in range(1, len(peers) + 1))
    enough = [some for some in map(frozenset, every) if all(taken(tree, some) is not None for tree in trees)]
    if not enough:
        assert found == ()
        return
    assert frozenset(found) in enough and len(set(found)) == len(found)
    with_first = [some for some in enough if first in some or first not in peers]
    if first in peers:
        assert found[0] == first
    if exact:
        assert len(found) == min(map(len, with_first))
    assert not any(some < frozenset(found) for some in with_first), "nobody can be spared"


# What is planned holds for real.


@cache
def members() -> dict[str, Organisation]:
    return {each.msp_id: each for each in organisations(4)}


@given(tree=TREES)
def test_real_peers_of_a_plan_satisfy_the_policy(tree: Tree) -> None:
    bundle = default_bundle(4)
    policy = SignaturePolicy(0, flat(tree), PRINCIPALS)
    found = layout(bundle, [policy], (ONE, TWO, THREE, FOUR), ONE)
    identities = [bundle.msps.deserialize(members()[msp_id].peer.serialized) for msp_id in found]
    assert satisfies(policy, identities, bundle.msps) is bool(found)


def test_supposed_peer_is_a_member_and_a_peer_of_its_organisation_and_nothing_else() -> None:
    for role in Role:
        assert SUPPOSED.satisfies(ONE, RolePrincipal(ONE, role)) is (role in (Role.MEMBER, Role.PEER))
        assert not SUPPOSED.satisfies(ONE, RolePrincipal(TWO, role))
    assert not SUPPOSED.satisfies(ONE, RolePrincipal(ONE, 99))
