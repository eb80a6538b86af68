"""Policies: what their texts mean, who satisfies them, and how far they may nest."""

import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.channel_config import ChannelConfig, ConfigGroup, evaluate
from ledger.core.errors import InvalidPolicy
from ledger.core.policy.ast import (
    ImplicitMetaPolicy,
    Node,
    NoRule,
    OutOf,
    Principal,
    Role,
    RolePrincipal,
    SignaturePolicy,
    SignedBy,
)
from ledger.core.policy.evaluate import SignedData, satisfies, valid_identities
from ledger.core.policy.parse import DEPTH_MAX, parse_policy
from ledger.storage.msp_folder import serialize_identity
from ledger.wire.policy import decode_signature_policy, encode_signature_policy
from tests.kit.channel import Channel, all_peers, any_peer
from tests.kit.organisations import shared_organisation

A, B = RolePrincipal("A", Role.PEER), RolePrincipal("B", Role.PEER)

# -- texts


@pytest.mark.parametrize(
    ("text", "rule", "principals"),
    [
        ("AND('A.peer','B.peer')", (OutOf(2, 2), SignedBy(0), SignedBy(1)), (A, B)),
        ("And( 'A.peer' , \"B.peer\" )", (OutOf(2, 2), SignedBy(0), SignedBy(1)), (A, B)),
        ("or('A.peer','A.peer')", (OutOf(1, 2), SignedBy(0), SignedBy(1)), (A, A)),
        ("OutOf(2,'A.peer','B.peer','A.peer')", (OutOf(2, 3), SignedBy(0), SignedBy(1), SignedBy(2)), (A, B, A)),
        ("OUTOF('1', 'A.peer')", (OutOf(1, 1), SignedBy(0)), (A,)),
        ("outof(0, 'A.peer')", (OutOf(0, 1), SignedBy(0)), (A,)),
        ("OutOf(2, 'A.peer')", (OutOf(2, 1), SignedBy(0)), (A,)),
        (
            "OR('A.peer', AND('B.peer', 'A.peer'), 'B.peer')",
            (OutOf(1, 3), SignedBy(0), OutOf(2, 2), SignedBy(1), SignedBy(2), SignedBy(3)),
            (A, B, A, B),
        ),
        ("AND('My-Org.2.member')", (OutOf(1, 1), SignedBy(0)), (RolePrincipal("My-Org.2", Role.MEMBER),)),
        (
            "OR('A.admin','A.client','A.orderer')",
            (OutOf(1, 3), SignedBy(0), SignedBy(1), SignedBy(2)),
            (RolePrincipal("A", Role.ADMIN), RolePrincipal("A", Role.CLIENT), RolePrincipal("A", Role.ORDERER)),
        ),
    ],
)
def test_a_text_means_what_fabrics_tools_make_of_it(
    text: str, rule: tuple[Node, ...], principals: tuple[Principal, ...]
) -> None:
    policy = parse_policy(text)
    assert policy == SignaturePolicy(0, rule, principals)
    assert decode_signature_policy(encode_signature_policy(policy)) == policy


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("AND", 0),
        ("AND()", 4),
        ("AND(", 4),
        ("AND('A.peer'", 12),
        ("AND('A.peer',)", 13),
        ("AND(,'A.peer')", 4),
        ("AND('A.peer' 'B.peer')", 13),
        ("AND('A.peer'))", 13),
        ("AND('A.peer') x", 13),
        ("aND('A.peer')", 0),
        ("NOT('A.peer')", 0),
        ("AND('A.king')", 4),
        ("AND('.peer')", 4),
        ("AND('A_B.peer')", 4),
        ("AND('A.peer\n')", 4),
        ("AND(A.peer)", 4),
        ("AND(1, 'A.peer')", 4),
        ("OutOf('A.peer')", 0),
        ("OutOf(1)", 0),
        ("OutOf(3, 'A.peer')", 0),
        ("OutOf(-1, 'A.peer')", 6),
        ("OutOf(1, 2, 'A.peer')", 9),
        ("OutOf(99999999999999999999, 'A.peer')", 6),
        ("AND(" * (DEPTH_MAX + 1) + "'A.peer'" + ")" * (DEPTH_MAX + 1), 4 * DEPTH_MAX),
    ],
)
def test_what_is_no_policy_text_is_refused_at_its_place(text: str, position: int) -> None:
    with pytest.raises(InvalidPolicy) as refusal:
        parse_policy(text)
    assert refusal.value.rule == f"syntax at character {position}"


# -- evaluation


class Named:
    """Identities are texts such as `A.peer`; a principal asks for MSP and role, MEMBER for the MSP only."""

    def satisfies(self, identity: str, principal: Principal, /) -> bool:
        assert isinstance(principal, RolePrincipal)
        msp_id, role = identity.split(".")
        return msp_id == principal.msp_id and principal.role in (Role.MEMBER, Role[role.upper()])


def holds(text: str, *identities: str) -> bool:
    return satisfies(parse_policy(text), identities, Named())


def test_a_leaf_takes_the_first_free_identity_so_that_order_decides() -> None:
    text = "AND('A.member', 'A.peer')"
    assert holds(text, "A.client", "A.peer")
    assert not holds(text, "A.peer", "A.client")  # The peer is used up as a member.


def test_an_identity_counts_once_however_often_it_is_asked_for() -> None:
    assert not holds("AND('A.peer', 'A.peer')", "A.peer")
    assert holds("AND('A.peer', 'A.peer')", "A.peer", "A.peer")
    assert not holds("OutOf(2, 'A.peer', 'A.member', 'A.peer')", "A.peer")


def test_a_gate_that_fails_gives_back_what_it_used() -> None:
    assert holds("OR(AND('A.peer', 'B.peer'), 'A.peer')", "A.peer")
    assert holds("AND(OR(AND('A.peer', 'B.peer'), 'A.member'), OR('C.peer', 'A.peer'))", "A.peer", "A.peer")


def test_a_gate_goes_on_after_it_has_enough_and_uses_up_more() -> None:
    """Fabric evaluates every rule of a gate: a satisfied OR still takes signers from the rules behind it."""
    assert not holds("AND(OR('A.peer', 'B.peer'), 'B.peer')", "A.peer", "B.peer")
    assert holds("AND('B.peer', OR('A.peer', 'B.peer'))", "A.peer", "B.peer")


@pytest.mark.parametrize(
    ("n", "count", "signers", "expected"),
    [
        (0, 2, 0, True),
        (-1, 2, 0, True),
        (1, 2, 0, False),
        (2, 2, 2, True),
        (3, 2, 2, False),
        (0, 0, 0, True),
        (1, 0, 2, False),
    ],
)
def test_a_gate_asks_for_n_of_its_rules_and_none_where_n_is_not_positive(
    n: int, count: int, signers: int, expected: bool
) -> None:
    rule: tuple[Node, ...] = (OutOf(n, count), *(SignedBy(0) for _ in range(count)))
    assert satisfies(SignaturePolicy(0, rule, (A,)), ["A.peer"] * signers, Named()) is expected


@pytest.mark.parametrize("bad", [SignedBy(1), SignedBy(-1), NoRule()])
def test_a_policy_with_a_leaf_that_names_nobody_is_satisfied_by_nobody(bad: Node) -> None:
    for rule in ((bad,), (OutOf(0, 1), bad), (OutOf(1, 2), SignedBy(0), bad)):
        assert not satisfies(SignaturePolicy(0, rule, (A,)), ["A.peer", "A.peer"], Named())
    assert not satisfies(SignaturePolicy(0, (), (A,)), ["A.peer"], Named())


Tree = int | tuple[int, list["Tree"]]
"""A leaf's index, or n and what it is out of."""

TREES: st.SearchStrategy[Tree] = st.recursive(
    st.integers(0, 2), lambda inner: st.tuples(st.integers(-1, 4), st.lists(inner, max_size=4)), max_leaves=12
)


def flat(tree: Tree) -> tuple[Node, ...]:
    if isinstance(tree, int):
        return (SignedBy(tree),)
    return (OutOf(tree[0], len(tree[1])), *(node for inner in tree[1] for node in flat(inner)))


def evaluated_slowly(tree: Tree, free: list[str], principals: Sequence[Principal]) -> list[str] | None:
    """What is still free after a rule has taken its signers; None if it is not satisfied."""
    if isinstance(tree, int):
        for at, identity in enumerate(free):
            if Named().satisfies(identity, principals[tree]):
                return free[:at] + free[at + 1 :]
        return None
    succeeded = 0
    for inner in tree[1]:
        left = evaluated_slowly(inner, free, principals)
        if left is not None:
            succeeded, free = succeeded + 1, left
    return free if succeeded >= tree[0] else None


@given(tree=TREES, identities=st.lists(st.sampled_from(["A.peer", "A.client", "B.peer"]), max_size=6))
def test_any_policy_is_evaluated_as_the_definition_reads(tree: Tree, identities: list[str]) -> None:
    principals = (A, B, RolePrincipal("A", Role.MEMBER))
    policy = SignaturePolicy(0, flat(tree), principals)
    expected = evaluated_slowly(tree, identities, principals) is not None
    assert satisfies(policy, identities, Named()) is expected
    assert decode_signature_policy(encode_signature_policy(policy)) == policy


@pytest.mark.parametrize("n", [1, 2])
def test_ten_thousand_levels_are_evaluated_without_recursion(n: int) -> None:
    depth = 10_000
    assert depth > sys.getrecursionlimit()
    rule: tuple[Node, ...] = (*(OutOf(n, 1) for _ in range(depth)), SignedBy(0))
    assert satisfies(SignaturePolicy(0, rule, (A,)), ["A.peer"], Named()) is (n == 1)


# -- signature sets, with real keys

ORG1, ORG2 = shared_organisation("Org1MSP"), shared_organisation("Org2MSP")


@pytest.fixture(scope="module")
def channel() -> Channel:
    return Channel()


def signed(signer: object, message: bytes = b"m", identity: bytes | None = None) -> SignedData:
    return SignedData(message, identity or signer.serialized, signer.sign(message))  # type: ignore[attr-defined]


def test_a_copy_counts_once_also_with_other_bytes(channel: Channel) -> None:
    copy = serialize_identity("Org1MSP", b"text\n" + ORG1.peer.certificate.replace(b"\n", b"\r\n"))
    both = (signed(ORG1.peer), signed(ORG1.peer, identity=copy))
    (kept,) = valid_identities(both, channel.bundle.msps)
    assert kept.serialized == ORG1.peer.serialized  # The first one: the signature of the second is not even checked.
    twice = replace(all_peers("Org1MSP", "Org1MSP"), version=0)
    assert not satisfies(twice, valid_identities(both, channel.bundle.msps), channel.bundle.msps)


def test_a_bad_first_copy_does_not_block_a_good_second_one_but_a_good_one_hides_a_bad(channel: Channel) -> None:
    bad = SignedData(b"m", ORG1.peer.serialized, ORG1.peer.sign(b"another message"))
    good = signed(ORG1.peer)
    for data in ((bad, good), (good, bad)):
        assert [each.msp_id for each in valid_identities(data, channel.bundle.msps)] == ["Org1MSP"]
    assert valid_identities((bad, bad), channel.bundle.msps) == ()


def test_strangers_are_dropped_and_the_order_is_kept(channel: Channel) -> None:
    stranger = shared_organisation("StrangerMSP").peer
    garbage = SignedData(b"m", b"\xff", b"")
    found = valid_identities((garbage, signed(ORG2.peer), signed(stranger), signed(ORG1.peer)), channel.bundle.msps)
    assert [each.msp_id for each in found] == ["Org2MSP", "Org1MSP"]
    assert satisfies(any_peer("Org1MSP"), found, channel.bundle.msps)


# -- policies over policies


def meta_config(channel: Channel, rule: int, held: Sequence[bool | None]) -> ChannelConfig:
    """A configuration with one meta policy over groups whose `Writers` hold, don't hold, or are not there."""
    groups = {f"g{at}": ConfigGroup() for at in range(len(held))}
    always, never = SignaturePolicy(0, (OutOf(0, 0),), ()), SignaturePolicy(0, (OutOf(1, 0),), ())
    policies = {f"/Channel/g{at}/Writers": always if one else never for at, one in enumerate(held) if one is not None}
    meta = {"/Channel/Meta": ImplicitMetaPolicy("Writers", rule)}
    return replace(channel.bundle.config, tree=ConfigGroup(groups=groups), policies={**policies, **meta})


ANY, ALL, MAJORITY, UNKNOWN = 0, 1, 2, 7


@pytest.mark.parametrize(
    ("rule", "held", "expected"),
    [
        (ANY, [], True),
        (ALL, [], True),
        (MAJORITY, [], True),
        (ANY, [False, True, False], True),
        (ANY, [False, False], False),
        (ANY, [None], False),
        (ALL, [True, True], True),
        (ALL, [True, False], False),
        (ALL, [True, None], False),
        (MAJORITY, [True], True),
        (MAJORITY, [True, False], False),
        (MAJORITY, [True, True], True),
        (MAJORITY, [True, True, False], True),
        (MAJORITY, [True, False, False], False),
        (MAJORITY, [True, True, False, False], False),
        (MAJORITY, [True, True, True, None], True),
        (UNKNOWN, [], True),
        (UNKNOWN, [False, None], True),
        (UNKNOWN, [False, True], False),
    ],
)
def test_a_meta_policy_counts_the_groups_below_it(
    channel: Channel, rule: int, held: list[bool | None], expected: bool
) -> None:
    assert evaluate(meta_config(channel, rule, held), "/Channel/Meta", ["A.peer"], Named()) is expected


def test_a_path_without_policy_and_a_meta_policy_over_an_unknown_name_hold_for_nobody(channel: Channel) -> None:
    assert not evaluate(meta_config(channel, ANY, [True]), "/Channel/Nothing", ["A.peer"], Named())
    config = meta_config(channel, ANY, [True, True])
    unknown = {**config.policies, "/Channel/Meta": ImplicitMetaPolicy("", ANY)}
    assert not evaluate(replace(config, policies=unknown), "/Channel/Meta", ["A.peer"], Named())
