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
from ledger.core.policy.layouts import SUPPOSED, is_enough, layouts
from ledger.core.policy.parse import parse_policy
from tests.kit.channel import CHANNEL_DEFAULT, Channel, config_policy, meta, out_of
from tests.kit.checkpointing import default_bundle, organisations
from tests.kit.orderer_node import changed
from tests.kit.organisations import Organisation

ORG = {number: f"Org{number}MSP" for number in range(1, 7)}
ONE, TWO, THREE, FOUR = (ORG[number] for number in range(1, 5))


def plans(*policies: ApplicationPolicy | str, peers: Sequence[str] = (ONE, TWO, THREE), first: str = ONE,
          bundle: Bundle | None = None) -> list[tuple[str, ...]]:  # fmt: skip
    """All layouts of policies, by default on a channel of three organisations with a peer each."""
    parsed = [parse_policy(each) if isinstance(each, str) else each for each in policies]
    return list(layouts(bundle or default_bundle(3), parsed, peers, first))


# By hand.


def test_policy_of_the_own_organisation_asks_nobody_else_first() -> None:
    assert plans(f"OR('{ONE}.peer')")[0] == (ONE,)


def test_either_of_two_begins_with_the_own_one_and_falls_back_to_the_other() -> None:
    assert plans(f"OR('{ONE}.peer','{TWO}.member')", peers=(ONE, TWO)) == [(ONE,), (ONE, TWO), (TWO,)]


def test_all_of_two_are_both() -> None:
    assert plans(f"AND('{ONE}.peer','{TWO}.peer')", peers=(ONE, TWO)) == [(ONE, TWO)]


def test_policy_of_others_still_begins_with_the_own_one_that_was_asked_already() -> None:
    assert plans(f"OR('{TWO}.peer')", peers=(ONE, TWO)) == [(ONE, TWO), (TWO,)]


def test_channels_majority_of_three_is_any_two_of_them() -> None:
    assert plans(CHANNEL_DEFAULT) == [(ONE, TWO), (ONE, THREE), (ONE, TWO, THREE), (TWO, THREE)]


def test_several_policies_hold_together() -> None:
    assert plans(f"OR('{ONE}.peer','{TWO}.peer')", f"OR('{THREE}.peer','{TWO}.peer')")[:3] == [
        (ONE, TWO), (ONE, THREE), (ONE, TWO, THREE),
    ]  # fmt: skip


def test_own_organisation_without_a_peer_is_no_part_of_a_plan() -> None:
    assert plans(CHANNEL_DEFAULT, peers=(TWO, THREE)) == [(TWO, THREE)]


def test_other_order_of_peers_gives_the_sets_in_that_order() -> None:
    assert plans(CHANNEL_DEFAULT, peers=(THREE, TWO, ONE), first=TWO)[:2] == [(TWO, THREE), (TWO, ONE)]


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
    assert plans(policy) == []


def test_role_and_membership_at_once_are_a_peers() -> None:
    both = CombinedPrincipal((RolePrincipal(TWO, Role.PEER), RolePrincipal(TWO, Role.MEMBER)))
    assert plans(SignaturePolicy(0, (SignedBy(0),), (both,)), first=TWO)[0] == (TWO,)


def test_policy_that_asks_for_nobody_still_asks_for_somebody() -> None:
    """A transaction without an endorsement is none."""
    nobody = SignaturePolicy(0, (OutOf(0, 0),), ())
    found = plans(nobody)
    assert found[0] == (ONE,) and (TWO,) in found
    assert () not in found
    assert plans(nobody, peers=()) == []


def test_reference_is_read_in_the_configuration_in_force() -> None:
    tree = Channel(organisations(2)).tree

    def with_any(group: ConfigGroup) -> ConfigGroup:
        return replace(group, policies={**group.policies, "Endorsement": meta(MetaRule.ANY, "Endorsement")})

    of_any = Channel(organisations(2), tree=changed(tree, ["Application"], with_any)).bundle
    assert plans(CHANNEL_DEFAULT, peers=(ONE, TWO), bundle=of_any)[0] == (ONE,)
    assert plans(CHANNEL_DEFAULT, peers=(ONE, TWO), bundle=default_bundle(2)) == [(ONE, TWO)]


def test_organisation_that_lets_clients_endorse_cannot_be_planned_for() -> None:
    def by_clients(group: ConfigGroup) -> ConfigGroup:
        policy = config_policy(out_of(1, (ONE, Role.CLIENT)))
        return replace(group, policies={**group.policies, "Endorsement": policy})

    tree = changed(Channel(organisations(3)).tree, ["Application", "Org1"], by_clients)
    bundle = Channel(organisations(3), tree=tree).bundle
    assert plans(CHANNEL_DEFAULT, bundle=bundle)[0] == (ONE, TWO, THREE), "the first one's does not count"


# Many organisations.


@pytest.mark.parametrize("tried", [0, 1, 5])
def test_beyond_the_bound_the_needed_ones_of_all_are_taken(tried: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETS_TRIED_MAX", tried)
    (plan,) = plans(f"AND('{ONE}.peer','{THREE}.peer')", peers=(FOUR, TWO, ONE, THREE), first=TWO)
    assert plan == (ONE, THREE)
    nobody = SignaturePolicy(0, (OutOf(0, 0),), ())
    monkeypatch.setattr(module, "SETS_TRIED_MAX", 0)
    assert plans(nobody, peers=(FOUR, TWO)) == [(FOUR,)]


def test_plan_for_many_organisations_is_found_in_little_time() -> None:
    many = [f"Org{number}MSP" for number in range(1, 31)]
    all_of = out_of(30, *((msp_id, Role.PEER) for msp_id in many))
    assert plans(all_of, peers=many) == [tuple(many)]
    half = out_of(15, *((msp_id, Role.PEER) for msp_id in many))
    (plan,) = plans(half, peers=many)
    assert len(plan) == 15 and is_enough(default_bundle(3), [half], plan)


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


@given(
    trees=st.lists(TREES, min_size=1, max_size=3),
    peers=st.lists(st.sampled_from([ONE, TWO, THREE, FOUR]), unique=True),
    first=st.sampled_from([ONE, TWO]),
)
def test_plans_are_exactly_the_sets_that_meet_all_policies_small_and_own_ones_first(
    trees: list[Tree], peers: list[str], first: str
) -> None:
    policies = [SignaturePolicy(0, flat(tree), PRINCIPALS) for tree in trees]
    found = list(layouts(default_bundle(4), policies, peers, first))
    every = chain.from_iterable(combinations(peers, count) for count in range(1, len(peers) + 1))
    expected = {some for some in map(frozenset, every) if all(taken(tree, some) is not None for tree in trees)}
    assert {frozenset(plan) for plan in found} == expected
    assert len(found) == len(expected), "each set once"
    order = [(first not in plan, len(plan)) for plan in found]
    assert order == sorted(order)
    assert all(plan[0] == first for plan in found if first in plan)


# What is planned holds for real.


@cache
def members() -> dict[str, Organisation]:
    return {each.msp_id: each for each in organisations(4)}


@given(tree=TREES)
def test_real_peers_of_a_plan_satisfy_the_policy(tree: Tree) -> None:
    bundle = default_bundle(4)
    policy = SignaturePolicy(0, flat(tree), PRINCIPALS)
    for plan in layouts(bundle, [policy], (ONE, TWO, THREE, FOUR), ONE):
        identities = [bundle.msps.deserialize(members()[msp_id].peer.serialized) for msp_id in plan]
        assert satisfies(policy, identities, bundle.msps)


def test_supposed_peer_is_a_member_and_a_peer_of_its_organisation_and_nothing_else() -> None:
    for role in Role:
        assert SUPPOSED.satisfies(ONE, RolePrincipal(ONE, role)) is (role in (Role.MEMBER, Role.PEER))
        assert not SUPPOSED.satisfies(ONE, RolePrincipal(TWO, role))
    assert not SUPPOSED.satisfies(ONE, RolePrincipal(ONE, 99))
