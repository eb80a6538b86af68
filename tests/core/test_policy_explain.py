"""What does `peerledger policy explain` say of a policy?  By hand for small ones, by brute force for random ones."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.policy import extended
from ledger.core.policy.explain import Explanation, explain_extended, explain_path, explain_signature_policy
from ledger.core.policy.parse import parse_policy
from ledger.node.rules import genesis_bundle
from tests.kit.paths import VECTORS

Sets = set[frozenset[str]]


def explained(text: str) -> Explanation:
    return explain_signature_policy(parse_policy(text))


def sets_of(found: tuple[tuple[str, ...], ...]) -> Sets:
    return {frozenset(name.strip("'") for name in one) for one in found}


@pytest.mark.parametrize(
    ("text", "smallest", "blocking", "fewest"),
    [
        ("OR('A.peer','B.peer')", [{"A.peer"}, {"B.peer"}], [{"A.peer", "B.peer"}], 1),
        ("AND('A.peer','B.peer')", [{"A.peer", "B.peer"}], [{"A.peer"}, {"B.peer"}], 2),
        (
            "OR('A.peer',AND('B.peer','C.peer'))",
            [{"A.peer"}, {"B.peer", "C.peer"}],
            [{"A.peer", "B.peer"}, {"A.peer", "C.peer"}],
            1,
        ),
        ("AND('A.peer','A.peer')", [{"2 of 'A.peer"}], [{"all but 1 of 'A.peer"}], 2),
    ],
)
def test_small_policies_are_explained(
    text: str, smallest: list[set[str]], blocking: list[set[str]], fewest: int
) -> None:
    found = explained(text)
    assert sets_of(found.smallest) == {frozenset(one) for one in smallest}
    assert sets_of(found.blocking) == {frozenset(one) for one in blocking}
    assert (found.fewest, found.complete) == (fewest, True)


def test_a_member_is_anybody_of_the_organisation() -> None:
    found = explained("AND('A.member','A.peer')")
    assert found.fewest == 2, "one signature counts for one leaf"


def test_weights_are_explained_by_their_coalitions() -> None:
    found = explain_extended(extended.parse("weighted(51, 'Org1.peer'=49, 'Org2.peer'=15, 'Org3.peer'=36)"))
    pairs = {frozenset(pair) for pair in combinations(("Org1.peer", "Org2.peer", "Org3.peer"), 2)}
    assert sets_of(found.smallest) == pairs
    assert sets_of(found.blocking) == pairs


def test_any_k_peers_are_blocked_by_all_but_too_few() -> None:
    found = explain_extended(extended.parse("any(3)"))
    assert found.smallest == (("3 of any peer",),)
    assert found.blocking == (("all but 2 of any peer",),)


def test_a_policy_of_the_channel_is_explained_by_its_organisations() -> None:
    bundle = genesis_bundle((VECTORS / "rich" / "genesis.block").read_bytes())
    found = explain_path(bundle.config, "/Channel/Application/Endorsement")
    organisations = sorted(one.msp_id for one in bundle.application.organisations)
    majority = len(organisations) // 2 + 1
    assert sets_of(found.smallest) == {
        frozenset(f"{msp_id}.peer" for msp_id in some) for some in combinations(organisations, majority)
    }


NAMES = ("A.peer", "B.peer", "C.peer", "D.peer")


@st.composite
def threshold_of(draw: st.DrawFn) -> tuple[str, int, list[str]]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    n = draw(st.integers(1, len(names)))
    return f"OutOf({n}, {', '.join(repr(name) for name in names)})", n, names


@given(threshold_of())
def test_thresholds_agree_with_brute_force(made: tuple[str, int, list[str]]) -> None:
    """Goal: smallest and blocking sets are right.  Method: all subsets of the principals, by counting alone."""
    text, n, names = made
    found = explained(text)
    subsets = [frozenset(one) for one in chain.from_iterable(combinations(names, k) for k in range(len(names) + 1))]
    assert sets_of(found.smallest) == {one for one in subsets if len(one) == n}
    assert sets_of(found.blocking) == {one for one in subsets if len(one) == len(names) - n + 1}
