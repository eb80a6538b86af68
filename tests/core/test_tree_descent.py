"""Going down two state trees together: what differs is found, with few questions, and a liar is noticed."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.core import tree_descent
from ledger.core.errors import InvalidProof
from ledger.core.names import Digest
from ledger.core.paged_tree import EMPTY, PagedTree
from ledger.core.state_tree import StateLeaf
from ledger.core.tree_descent import (
    Branch,
    Hidden,
    LeafDifference,
    Place,
    Subtree,
    asked,
    begin,
    contains,
    grown,
    heard,
    subtree_hash,
)

Leaves = Mapping[bytes, Digest]


class Pages(dict[bytes, bytes]):
    """Pages in memory."""

    def get(self, key: bytes, default: bytes = b"") -> bytes:  # type: ignore[override]  # Of bytes, never None.
        return super().get(key, b"")

    def put(self, key: bytes, content: bytes) -> None:
        self[key] = content


def tree_of(leaves: Leaves) -> PagedTree:
    tree = PagedTree(Pages(), EMPTY)
    tree.update(sorted(leaves.items()))
    return tree


def compared(ours: Leaves, theirs: Leaves, limit: int = 10_000) -> tuple[list[LeafDifference], int, int]:
    """Give what differs, the number of questions, and the number of places that were asked about."""
    own, other = tree_of(ours), tree_of(theirs)
    descent = begin(Digest(other.root.hash), limit)
    questions = places = 0
    while wanted := asked(descent):
        questions, places = questions + 1, places + len(wanted)
        descent = heard(descent, [other.shown(place) for place in wanted], own.shown)
    return list(descent.differences), questions, places


def expected(ours: Leaves, theirs: Leaves) -> list[LeafDifference]:
    """The same by looking at everything."""
    paths = sorted({*ours, *theirs})
    return [
        LeafDifference(path, ours.get(path), theirs.get(path)) for path in paths if ours.get(path) != theirs.get(path)
    ]


def h(text: str) -> Digest:
    return Digest(sha256(text.encode()).digest())


def many(count: int) -> dict[bytes, Digest]:
    return {h(f"path {number}"): h(f"value {number}") for number in range(count)}


# Paths that share long beginnings are rare among hashes; here they are common.
PATHS = st.one_of(
    st.binary(min_size=32, max_size=32),
    st.builds(
        lambda head, tail: head + bytes(30) + tail, st.binary(min_size=1, max_size=1), st.binary(min_size=1, max_size=1)
    ),
)
STATES = st.dictionaries(PATHS, st.binary(min_size=32, max_size=32).map(Digest), max_size=40)


@settings(deadline=None)
@given(common=STATES, ours=STATES, theirs=STATES)
def test_exactly_the_leaves_that_differ_are_found_in_order(common: Leaves, ours: Leaves, theirs: Leaves) -> None:
    mine, other = {**common, **ours}, {**common, **theirs}
    assert compared(mine, other)[0] == expected(mine, other)


@pytest.mark.parametrize("count", [0, 1, 2, 9, 1_000])
def test_equal_trees_take_one_question_and_differ_nowhere(count: int) -> None:
    assert compared(many(count), many(count)) == ([], 1, 1)


@pytest.mark.parametrize("count", [1, 10, 1_000, 20_000])
def test_one_differing_key_takes_a_question_for_each_six_levels(count: int) -> None:
    ours, theirs = many(count), many(count)
    ours[h("path 0")] = h("patched")
    found, questions, places = compared(ours, theirs)
    assert found == [LeafDifference(h("path 0"), h("patched"), h("value 0"))]
    assert questions == places <= 1 + count.bit_length() // tree_descent.LEVELS


def test_keys_that_are_missing_on_one_side_are_found_on_both() -> None:
    ours, theirs = many(5_000), many(5_000)
    for number in range(0, 40, 2):
        del ours[h(f"path {number}")]
        del theirs[h(f"path {number + 1}")]
    found, _, _ = compared(ours, theirs)
    assert found == expected(ours, theirs)
    assert len(found) == 40 and {one.ours is None for one in found} == {True, False}


def test_many_differing_keys_share_their_questions() -> None:
    ours, theirs = many(20_000), many(20_000)
    changed = Random(7).sample(range(20_000), 200)  # A seed, for the same test each time.
    for number in changed:
        ours[h(f"path {number}")] = h("patched")
    found, questions, places = compared(ours, theirs)
    assert found == expected(ours, theirs)
    assert places <= 3 * len(changed), "20,000 leaves in pages of 8 lie some 12 to 14 levels deep"
    assert questions <= 12, questions


def test_an_empty_tree_against_a_full_one_is_all_of_it() -> None:
    full = many(300)
    assert compared(full, {})[0] == expected(full, {})
    assert compared({}, full)[0] == expected({}, full)


def test_descent_ends_at_its_limit_and_says_so() -> None:
    ours, theirs = many(5_000), {path: h("else") for path in many(5_000)}
    own, other = tree_of(ours), tree_of(theirs)
    descent, questions = begin(Digest(other.root.hash), 10), 0
    while wanted := asked(descent):
        descent, questions = heard(descent, [other.shown(place) for place in wanted], own.shown), questions + 1
    assert len(descent.differences) == 10 and descent.is_cut
    assert questions <= 4


def test_some_of_the_answers_are_enough_to_go_on() -> None:
    ours, theirs = many(5_000), {path: h("else") for path in many(5_000)}
    own, other = tree_of(ours), tree_of(theirs)
    descent = begin(Digest(other.root.hash), 10_000)
    while wanted := asked(descent):
        descent = heard(descent, [other.shown(wanted[0])], own.shown)
    assert list(descent.differences) == expected(ours, theirs)


@pytest.mark.parametrize("count", [0, 1, 5, 9, 700])
def test_what_a_tree_shows_is_what_its_leaves_say(count: int) -> None:
    """The paged form against the slow twin: at every place the same hash, and within reach the same leaves."""
    leaves = many(count)
    tree = tree_of(leaves)
    assert subtree_hash(tree.shown(Place(0, bytes(32)))) == tree.root.hash
    for depth in (1, 3, 6, 7, 11, 12, 18):
        for path in [*list(leaves)[:5], h("elsewhere")]:
            kept = int.from_bytes(path, "big") >> (256 - depth) << (256 - depth)
            place = Place(depth, kept.to_bytes(32, "big"))
            below = [StateLeaf(one, value) for one, value in sorted(leaves.items()) if contains(place, one)]
            assert subtree_hash(tree.shown(place)) == subtree_hash(grown(below, depth))


def lied(change: "Sequence[Subtree]", rule: str, ours: Leaves, root: Digest) -> None:
    with pytest.raises(InvalidProof) as refused:
        heard(begin(root), change, tree_of(ours).shown)
    assert refused.value.rule == rule


def test_an_answer_of_another_tree_is_noticed() -> None:
    theirs = many(100)
    root = Digest(tree_of(theirs).root.hash)
    lied([tree_of(many(101)).shown(Place(0, bytes(32)))], "node hash", theirs, root)
    lied([None], "node hash", theirs, root)


def test_an_answer_that_leads_nowhere_is_noticed() -> None:
    theirs = many(100)
    root = Digest(tree_of(theirs).root.hash)
    lied([Hidden(root)], "levels", many(99), root)
    lied([], "number of answers", many(99), root)
    lied([None, None], "number of answers", many(99), root)


def test_a_leaf_where_it_can_not_stand_is_noticed() -> None:
    """Whoever made such a tree agreed on nonsense: a leaf on the wrong side of its parent."""
    left, right = StateLeaf(b"\x00" * 32, h("a")), StateLeaf(b"\xff" * 32, h("b"))
    swapped = Branch(right, left)
    lied([swapped], "leaf path", {}, subtree_hash(swapped))


def test_a_tree_deeper_than_its_paths_is_noticed() -> None:
    deep: Subtree = StateLeaf(bytes(32), h("a"))
    for _ in range(257):
        deep = Branch(deep, None)
    lied([deep], "depth", {}, subtree_hash(deep))
