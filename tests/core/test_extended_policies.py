"""When do enough peers agree?  Fabric's syntax, `any`, `weighted` and names, and the order that a proof needs."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.checkpoint import CheckpointProof, PeerSignature
from ledger.core.checkpoint_proof import (
    CheckpointRules,
    CountedSigner,
    Scope,
    check_proof,
    collect,
    count_signature,
    describe_global_policy,
    global_policy_path,
)
from ledger.core.checkpoint_status import CheckpointState, describe_missing, status_of_height, status_of_proof
from ledger.core.checkpoint_tally import Height
from ledger.core.errors import InvalidPolicy, PolicyNotSatisfied
from ledger.core.policy import extended
from ledger.core.policy.ast import ImplicitMetaPolicy, MetaRule, OutOf, Role, SignedBy
from ledger.core.policy.extended import PeerPrincipal, heaviest
from ledger.core.policy.possible import could_hold, could_satisfy
from ledger.core.policy.text import policy_text
from tests.kit.channel import out_of
from tests.kit.checkpointing import default_bundle, make_bundle, organisations, proof, signature, statement_at
from tests.kit.organisations import Organisation, Signer

ORG1, ORG2, ORG3, ORG4 = MEMBERS = organisations(4)
BUNDLE = default_bundle(4)
STATEMENT = statement_at(10)
ALICE, BOB = ORG1.issue("alice", "peer"), ORG1.issue("bob", "peer")
CHARLIE, DAVE = ORG2.peer, ORG3.peer


def counted(*signers: Signer) -> list[CountedSigner]:
    return [count_signature(STATEMENT, signature(signer, STATEMENT), BUNDLE) for signer in signers]


def holds(text: str, *signers: Signer) -> bool:
    return extended.satisfies(extended.parse(text), counted(*signers))


# -- what a policy means


@pytest.mark.parametrize(
    ("text", "enough", "too_few"),
    [
        ("'Org1MSP.peer'", [ALICE], [CHARLIE]),
        ("OR('Org1MSP.peer', AND('Org2MSP.peer', 'Org3MSP.peer'))", [BOB], [CHARLIE]),
        ("OR('Org1MSP.peer', AND('Org2MSP.peer', 'Org3MSP.peer'))", [CHARLIE, DAVE], [DAVE]),
        ("OutOf(2, 'Org1MSP.peer', 'Org2MSP.peer', 'Org3MSP.peer')", [DAVE, ALICE], [ALICE, BOB]),
        ("AND('Org1MSP.peer', 'Org1MSP.peer')", [ALICE, BOB], [ALICE]),
        ("'Org1MSP.member'", [ALICE], [CHARLIE]),
        ("'Org1MSP.admin'", [], [ALICE]),
        ("'Org1MSP.peer#alice'", [ALICE], [BOB]),
        ("AND('Org1MSP.peer#alice', 'Org1MSP.peer#bob')", [BOB, ALICE], [ALICE, CHARLIE]),
        ("any(1)", [DAVE], []),
        ("any(3)", [ALICE, BOB, CHARLIE], [ALICE, BOB]),
        ("AND(any(3), 'Org1MSP.peer')", [CHARLIE, DAVE, ALICE], [ALICE, BOB]),
        ("weighted(3, 'Org1MSP.peer'=2, 'Org2MSP.peer'=1, 'Org3MSP.peer'=1)", [ALICE, CHARLIE], [CHARLIE, DAVE]),
        ("weighted(3, 'Org1MSP.peer'=2, 'Org2MSP.peer'=1)", [CHARLIE, BOB], [ALICE, BOB]),
        ("weighted(2, 'Org1MSP.peer#alice'=1, 'Org1MSP.peer'=1)", [ALICE, BOB], [ALICE]),
        ("or('Org2MSP.peer')", [CHARLIE], [ALICE]),
    ],
)
def test_policy_holds_for_those_and_not_for_these(text: str, enough: list[Signer], too_few: list[Signer]) -> None:
    if enough:
        assert holds(text, *enough)
    assert not holds(text, *too_few)


def test_in_weighted_each_principal_counts_once() -> None:
    assert not holds("weighted(2, 'Org1MSP.peer'=1, 'Org2MSP.peer'=1)", ALICE, BOB)


def test_in_weighted_a_signer_stands_for_one_principal_and_the_best_assignment_counts() -> None:
    weights = "weighted({}, 'Org1MSP.peer'=5, 'Org1MSP.peer#alice'=3, 'Org1MSP.member'=1)"
    for signers in permutations((ALICE, BOB)):
        assert holds(weights.format(8), *signers), "alice stands for herself, bob for any peer"
        assert not holds(weights.format(9), *signers)


def heaviest_slowly(weights: Sequence[tuple[PeerPrincipal, int]], signers: Sequence[CountedSigner]) -> int:
    """The slow twin: tries every assignment."""
    best = 0
    for chosen in product([None, *range(len(weights))], repeat=len(signers)):
        used = [index for index in chosen if index is not None]
        able = all(i is None or signer.is_a(weights[i][0]) for i, signer in zip(chosen, signers, strict=True))
        if len(set(used)) == len(used) and able:
            best = max(best, sum(weights[index][1] for index in used))
    return best


PRINCIPALS = [
    PeerPrincipal(msp_id, role, name)
    for msp_id, role, name in [
        ("Org1MSP", Role.PEER, None), ("Org1MSP", Role.MEMBER, None), ("Org1MSP", Role.PEER, "alice"),
        ("Org1MSP", Role.PEER, "bob"), ("Org2MSP", Role.PEER, None), ("Org2MSP", Role.MEMBER, None),
    ]
]  # fmt: skip


@given(
    weights=st.lists(st.tuples(st.sampled_from(PRINCIPALS), st.integers(1, 5)), max_size=5, unique_by=lambda p: p[0]),
    signers=st.lists(st.sampled_from([ALICE, BOB, CHARLIE, DAVE]), max_size=4, unique_by=lambda s: s.serialized),
)
def test_weight_is_that_of_the_best_of_all_assignments(
    weights: list[tuple[PeerPrincipal, int]], signers: list[Signer]
) -> None:
    assert heaviest(weights, counted(*signers)) == heaviest_slowly(weights, counted(*signers))


def test_evaluation_is_greedy_in_the_order_of_the_signatures_as_fabrics_is() -> None:
    text = "AND('Org1MSP.peer', 'Org1MSP.peer#alice')"
    assert holds(text, BOB, ALICE)
    assert not holds(text, ALICE, BOB), "the first leaf uses alice up"


# -- reading


@pytest.mark.parametrize(
    "text",
    [
        "", "AND(", "AND()", "'Org1MSP'", "'Org1MSP.boss'", "'Org1MSP.peer#'", "Org1MSP.peer", "any(0)", "any(x)",
        "any(1, 2)", "weighted(1)", "weighted(0, 'Org1MSP.peer'=1)", "weighted(2, 'Org1MSP.peer'=1)",
        "weighted(1, 'Org1MSP.peer'=0)", "weighted(1, 'Org1MSP.peer'=1, 'Org1MSP.peer'=1)", "weighted(1, any(1)=1)",
        "OutOf('Org1MSP.peer')", "OutOf(3, 'Org1MSP.peer')", "any(2) any(2)", "'Org1MSP.peer', 'Org2MSP.peer'",
        "ANY(2)", "nobody(1)",
    ],
)  # fmt: skip
def test_text_that_is_no_policy_is_refused_by_syntax(text: str) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        extended.parse(text)
    assert refused.value.rule == "syntax"


def test_text_that_is_too_long_is_refused_by_length() -> None:
    with pytest.raises(InvalidPolicy) as refused:
        extended.parse("'Org1MSP.peer'" + " " * extended.TEXT_LENGTH_MAX)
    assert refused.value.rule == "length"


def test_depth_of_a_policy_costs_no_stack() -> None:
    depth = 10_000
    assert holds("OR(" * depth + "'Org1MSP.peer'" + ")" * depth, ALICE)
    assert not holds("AND(" * depth + "'Org1MSP.peer'" + ")" * depth, DAVE)


# -- the channel's own policy


@pytest.mark.parametrize(
    "text",
    [
        "any(2)",
        "any(3)",
        "weighted(3, 'Org1MSP.peer'=2, 'Org2MSP.peer'=1, 'Org3MSP.peer'=1)",
        "weighted(4, 'Org1MSP.peer'=2, 'Org2MSP.peer'=2, 'Org3MSP.peer'=1, 'Org4MSP.peer'=1)",
        "OR('Org1MSP.peer', AND('Org2MSP.peer', 'Org3MSP.peer'))",
    ],
)
def test_in_fabrics_messages_a_policy_means_the_same(text: str) -> None:
    """Goal: GCVP and LCVP of one text agree.  Method: every set of signers, one a peer, in sorted order."""
    bundle = make_bundle(MEMBERS, text)
    policy = extended.parse(text)
    peers = [ALICE, BOB, CHARLIE, DAVE, ORG4.peer]
    for size in range(len(peers) + 1):
        for chosen in combinations(peers, size):
            signers = counted(*chosen)
            found = collect(STATEMENT, signers, bundle, CheckpointRules())
            assert (found is not None) == extended.satisfies(policy, signers), [signer.name for signer in signers]


@pytest.mark.parametrize("text", ["'Org1MSP.peer#alice'", "AND(any(2), 'Org1MSP.peer')"])
def test_what_fabrics_messages_can_not_say_is_refused(text: str) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        extended.as_signature_policy(extended.parse(text), ["Org1MSP", "Org2MSP"])
    assert refused.value.rule == "channel policy"


@pytest.mark.parametrize(("count", "expected"), [(20, "5000 coalitions"), (21, "20 principals")])
def test_weights_with_too_many_coalitions_are_refused(count: int, expected: str) -> None:
    weights = ", ".join(f"'Org{number}MSP.peer'=1" for number in range(count))
    with pytest.raises(InvalidPolicy) as refused:
        extended.as_signature_policy(extended.parse(f"weighted(10, {weights})"), ["Org1MSP"])
    assert (refused.value.rule, refused.value.expected) == ("channel policy", f"at most {expected}")


def test_without_a_policy_for_checkpoints_the_one_for_endorsements_counts() -> None:
    assert global_policy_path(BUNDLE) == "/Channel/Application/Endorsement"
    assert describe_global_policy(BUNDLE) == "MAJORITY Endorsement (/Channel/Application/Endorsement)"
    own = make_bundle(MEMBERS, "AND('Org1MSP.peer', OR('Org2MSP.peer', 'Org3MSP.peer'))")
    assert global_policy_path(own) == "/Channel/Application/Checkpoint"
    expected = "AND('Org1MSP.peer', OR('Org2MSP.peer', 'Org3MSP.peer')) (/Channel/Application/Checkpoint)"
    assert describe_global_policy(own) == expected


@pytest.mark.parametrize(
    ("rule", "needed"), [(MetaRule.ANY, 1), (MetaRule.MAJORITY, 3), (MetaRule.ALL, 4)], ids=["any", "majority", "all"]
)
def test_organisations_are_counted_by_the_implicit_rule(rule: MetaRule, needed: int) -> None:
    bundle = make_bundle(MEMBERS, ImplicitMetaPolicy("Endorsement", rule))
    peers = [organisation.peer for organisation in MEMBERS]
    for count in range(len(peers) + 1):
        signers = counted(*peers[:count])
        assert (collect(STATEMENT, signers, bundle, CheckpointRules()) is not None) == (count >= needed)


# -- proofs


GREEDY = "AND('Org1MSP.peer', 'Org1MSP.peer#alice')"


def rules(local: str | None = None, *, either: bool = False) -> CheckpointRules:
    return CheckpointRules(extended.parse(local) if local else None, either)


def test_collector_finds_the_order_in_which_a_policy_holds() -> None:
    bundle = make_bundle(MEMBERS, "any(2)")
    found = collect(STATEMENT, counted(ALICE, BOB), bundle, rules(GREEDY))
    assert found is not None
    evidence, scope = found
    assert scope is Scope.FULL
    assert evidence == proof(STATEMENT, BOB, ALICE)


def test_proof_is_judged_in_its_own_order() -> None:
    bundle = make_bundle(MEMBERS, "any(2)")
    assert check_proof(proof(STATEMENT, BOB, ALICE), bundle, rules(GREEDY))
    with pytest.raises(PolicyNotSatisfied) as refused:
        check_proof(proof(STATEMENT, ALICE, BOB), bundle, rules(GREEDY))
    assert refused.value.rule == "local policy"


def test_proof_that_does_not_satisfy_the_channel_is_refused_by_the_global_policy() -> None:
    with pytest.raises(PolicyNotSatisfied) as refused:
        check_proof(proof(STATEMENT, ALICE, CHARLIE), BUNDLE, rules("'Org1MSP.peer'"))
    assert refused.value.rule == "global policy"
    assert refused.value.expected == "/Channel/Application/Endorsement"


def test_empty_proof_satisfies_nothing() -> None:
    with pytest.raises(PolicyNotSatisfied):
        check_proof(CheckpointProof(STATEMENT, ()), BUNDLE, rules())


def test_whatever_the_collector_makes_holds_for_whoever_checks_it() -> None:
    """Also with signers that a greedy evaluation wastes: one organisation with several peers, and names."""
    policies = ["any(2)", "AND('Org1MSP.peer', OutOf(2, 'Org1MSP.peer', 'Org2MSP.peer', 'Org3MSP.peer'))"]
    local = ["AND('Org1MSP.peer', 'Org1MSP.peer#alice')", "any(3)", None]
    seen: set[Scope] = set()
    for gcvp, lcvp in product(policies, local):
        bundle = make_bundle(MEMBERS, gcvp)
        for size in range(5):
            for chosen in combinations([ALICE, BOB, CHARLIE, DAVE], size):
                found = collect(STATEMENT, counted(*chosen), bundle, rules(lcvp))
                if found is not None:
                    assert check_proof(found[0], bundle, rules(lcvp))
                    seen.add(found[1])
    assert seen == {Scope.FULL}


TEXTS = [
    "any(2)", "any(4)", GREEDY, "AND('Org1MSP.peer', OutOf(2, 'Org1MSP.peer', 'Org2MSP.peer', 'Org3MSP.peer'))",
    "weighted(3, 'Org1MSP.peer'=2, 'Org2MSP.peer'=1)", "OR('Org1MSP.admin', AND('Org3MSP.peer', any(3)))",
    "OutOf(0, 'Org1MSP.admin')",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_quick_no_is_said_only_where_no_order_holds(text: str) -> None:
    """Goal: the short cut loses nothing.  Method: the slow twin tries every order of every set of signers."""
    policy = extended.parse(text)
    for size in range(5):
        for chosen in combinations([ALICE, BOB, CHARLIE, DAVE], size):
            signers = counted(*chosen)
            holds_somehow = any(extended.satisfies(policy, order) for order in permutations(signers))
            assert could_satisfy(policy, signers) or not holds_somehow


def test_quick_no_is_said_where_organisations_are_missing() -> None:
    def possible(*signers: Signer) -> bool:
        everyone = counted(*signers)
        return could_hold(
            BUNDLE.config,
            global_policy_path(BUNDLE),
            lambda principal: any(BUNDLE.msps.satisfies(one.identity, principal) for one in everyone),
        )

    assert not possible(ALICE, BOB, CHARLIE)
    assert possible(ALICE, CHARLIE, DAVE)
    assert not could_hold(BUNDLE.config, "/Channel/Application/Nothing", lambda _: True)


def test_local_scope_is_given_only_where_either_policy_prunes() -> None:
    signers = counted(ALICE)
    assert collect(STATEMENT, signers, BUNDLE, rules("'Org1MSP.peer'")) is None
    found = collect(STATEMENT, signers, BUNDLE, rules("'Org1MSP.peer'", either=True))
    assert found == (proof(STATEMENT, ALICE), Scope.LOCAL)
    with pytest.raises(PolicyNotSatisfied):
        check_proof(found[0], BUNDLE, rules("'Org1MSP.peer'", either=True))


# -- what people are told


def height(*signers: Signer, members: Sequence[Organisation] = MEMBERS, policy: str | None = None) -> Height:
    return Height(STATEMENT, make_bundle(members, policy), True, tuple(counted(*signers)))


@pytest.mark.parametrize(
    ("policy", "local", "signers", "missing"),
    [
        (None, None, [ALICE, BOB], ("2 more signatures: Org2MSP and Org3MSP or Org2MSP and Org4MSP or "
                                    "Org3MSP and Org4MSP",)),
        (None, None, [ALICE, CHARLIE], ("1 more signature: Org3MSP or Org4MSP",)),
        ("AND('Org1MSP.peer', 'Org2MSP.peer')", None, [CHARLIE], ("1 more signature: Org1MSP",)),
        ("any(2)", None, [ALICE], ("1 more signature: Org1MSP or Org2MSP or Org3MSP or others",)),
        ("AND('Org1MSP.peer', OR('Org2MSP.peer', 'Org3MSP.peer'))", None, [ALICE],
         ("1 more signature: Org2MSP or Org3MSP",)),
        ("any(1)", "any(2)", [ALICE], ("local policy: 1 more signature: any other peer",)),
        ("any(1)", "'Org1MSP.peer#alice'", [BOB], ("local policy: 1 more signature: Org1MSP.peer#alice",)),
        ("any(1)", "weighted(3, 'Org1MSP.peer'=2, 'Org2MSP.peer'=1)", [BOB],
         ("local policy: 1 more signature: Org2MSP.peer",)),
        ("any(2)", "any(2)", [BOB],
         ("1 more signature: Org1MSP or Org2MSP or Org3MSP or others",
          "local policy: 1 more signature: any other peer")),
    ],
)  # fmt: skip
def test_status_says_what_is_missing(
    policy: str | None, local: str | None, signers: list[Signer], missing: tuple[str, ...]
) -> None:
    pending = height(*signers, policy=policy)
    assert describe_missing(pending, rules(local)) == missing
    status = status_of_height(pending, rules(local))
    assert (status.state, status.missing, status.signed_here) == (CheckpointState.PENDING, missing, True)
    assert [(one.msp_id, one.signed.identity) for one in status.signers] == [
        (signer.msp_id, signer.serialized) for signer in signers
    ]


def test_status_of_a_valid_checkpoint_shows_its_proof_whole_and_in_order() -> None:
    counts_here = height(ALICE, policy="any(2)")
    valid = replace(counts_here, valid=proof(STATEMENT, DAVE, ALICE))
    status = status_of_height(valid, rules())
    assert (status.state, status.missing, status.signed_here) == (CheckpointState.VALID, (), True)
    assert [(one.msp_id, one.name) for one in status.signers] == [("Org3MSP", "peer0"), ("Org1MSP", "alice")]
    local = replace(counts_here, local=proof(STATEMENT, ALICE))
    status = status_of_height(local, rules("'Org1MSP.peer'", either=True))
    assert status.state is CheckpointState.LOCAL
    assert status.missing == ("1 more signature: Org1MSP or Org2MSP or Org3MSP or others",)


def test_status_of_a_record_names_its_signers_where_the_configuration_is_known() -> None:
    known = status_of_proof(proof(STATEMENT, BOB, CHARLIE), BUNDLE, CheckpointState.VALID)
    assert [(one.msp_id, one.name) for one in known.signers] == [("Org1MSP", "bob"), ("Org2MSP", "peer0")]
    unknown = status_of_proof(proof(STATEMENT, BOB), None, CheckpointState.VALID)
    assert [(one.msp_id, one.name) for one in unknown.signers] == [("", "")]
    stranger = CheckpointProof(STATEMENT, (PeerSignature(b"?", b""),))
    assert status_of_proof(stranger, BUNDLE, CheckpointState.VALID).signers[0].msp_id == ""


def test_policies_are_shown_as_they_would_be_written() -> None:
    assert policy_text(out_of(2, ("A", Role.PEER), ("B", Role.ADMIN), ("C", Role.MEMBER))) == (
        "OutOf(2, 'A.peer', 'B.admin', 'C.member')"
    )
    odd = out_of(1, ("A", Role.PEER))
    nested = type(odd)(0, (OutOf(1, 2), OutOf(2, 2), SignedBy(0), SignedBy(5), SignedBy(0)), odd.principals)
    assert policy_text(nested) == "OR(AND('A.peer', nobody), 'A.peer')"
    assert policy_text(type(odd)(0, (), ())) == "nobody"
