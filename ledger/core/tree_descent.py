"""Where do two state trees differ?  Going down both together, level by level, only where the hashes differ.

One tree is ours, of the other nothing is known but its root, which somebody trustworthy signed. The machine says which
subtrees it wants to see, and takes the answers in:

    descent = begin(root)
    while wanted := asked(descent):
        descent = heard(descent, (what the other side says of each), own)

A question is a place: the first `depth` bits of a path. Its answer is the tree below it, `LEVELS` levels of it, where
what goes on below is shown as its hash alone. Each answer is hashed and compared with what its parent said, so one
that is not of the tree with that root is noticed at once (`InvalidProof`). A key that differs among n costs about
log2(n) / LEVELS answers, and many places go into one question, so that the number of round trips does not grow with
the number of keys that lie together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from ledger.core.errors import InvalidProof
from ledger.core.names import ZERO_DIGEST, Digest
from ledger.core.state_tree import DEPTH_MAX, StateLeaf, bit_at, leaf_hash, node_hash

LEVELS = 6
"""Levels of a tree that one answer shows of each place: the groups of `paged_tree` have as many."""

PLACES_MAX = 64
"""Places in one question."""


class Place(NamedTuple):
    """A subtree, by the way to it."""

    depth: int
    path: bytes
    """Any path through it, its bits behind the first `depth` zero: 32 bytes."""


class Hidden(NamedTuple):
    """A subtree of two leaves or more of which nothing is shown but its hash."""

    hash: Digest


class Branch(NamedTuple):
    """An inner node and what is below it."""

    left: "Subtree"
    right: "Subtree"


Subtree = StateLeaf | Branch | Hidden | None
"""What is below a place; None where the tree is empty."""

Shown = Callable[[Place], Subtree]
"""Shows a tree of ours below a place, where it ends above it what of it lies there."""


class LeafDifference(NamedTuple):
    """A path at which two trees say different things, or one of them nothing; sorts by its path, which comes once."""

    path: bytes
    ours: Digest | None
    """Value hash."""

    theirs: Digest | None


@dataclass(frozen=True, slots=True)
class Descent:
    """How far the machine has come."""

    open: tuple[tuple[Place, Digest], ...]
    """Places of which the other tree is not seen yet, ascending, with the hash that it has there."""

    differences: tuple[LeafDifference, ...] = ()
    """What was found so far, ascending by path."""

    limit: int = 100
    """Differences that are enough."""

    is_cut: bool = False
    """Whether there are more, or may be."""


def begin(root: Digest, limit: int = 100) -> Descent:
    """Begin at the root of the other tree."""
    return Descent(((Place(0, bytes(32)), root),), limit=limit)


def asked(descent: Descent) -> tuple[Place, ...]:
    """Say which places of the other tree are wanted next; none at the end."""
    if len(descent.differences) >= descent.limit:
        return ()
    return tuple(place for place, _ in descent.open[:PLACES_MAX])


def heard(descent: Descent, answers: Sequence[Subtree], own: Shown) -> Descent:
    """Take in what the other side shows of the first of the places that were asked for, as many as it gave.

    1. There is an answer, and not more than were asked for.
    2. Each has the hash that it must have.
    3. What is hidden is as far below as an answer reaches, so that each answer leads on; leaves stand where they may.

    Raises:
        InvalidProof: A step fails: this is not the tree with that root.
    """
    # 1.
    if not 0 < len(answers) <= len(asked(descent)):
        expected = f"1 to {len(asked(descent))} answers"
        raise InvalidProof(
            "state tree of another peer", rule="number of answers", expected=expected, found=len(answers)
        )
    differences, further = list(descent.differences), []
    for (place, expected_hash), theirs in zip(descent.open, answers, strict=False):
        # 2.
        found = subtree_hash(theirs)
        if found != expected_hash:
            raise InvalidProof("state tree of another peer", rule="node hash", expected=expected_hash, found=found)
        # 3.
        _check_form(place, theirs, place.depth + LEVELS)
        for difference in _compared(place, own(place), theirs, own):
            if isinstance(difference, LeafDifference):
                differences.append(difference)
            else:
                further.append(difference)
    waiting = (*further, *descent.open[len(answers) :])
    is_cut = len(differences) > descent.limit or (len(differences) == descent.limit and bool(waiting))
    return replace(descent, open=waiting, differences=tuple(sorted(differences)[: descent.limit]), is_cut=is_cut)


def subtree_hash(subtree: Subtree) -> Digest:
    """Hash what is below a place."""
    match subtree:
        case None:
            return ZERO_DIGEST
        case StateLeaf(path, value_hash):
            return leaf_hash(path, value_hash)
        case Hidden(known):
            return known
        case Branch(left, right):
            return node_hash(subtree_hash(left), subtree_hash(right))
        case _:
            assert_never(subtree)


def child(place: Place, side: int) -> Place:
    """Step down to the left (0) or the right (1)."""
    path = bytearray(place.path)
    path[place.depth >> 3] |= side << (7 - (place.depth & 7))
    return Place(place.depth + 1, bytes(path))


def contains(place: Place, path: bytes) -> bool:
    """Tell whether a path leads through a place."""
    differing = int.from_bytes(place.path, "big") ^ int.from_bytes(path, "big")
    return len(path) == len(place.path) and differing >> (DEPTH_MAX - place.depth) == 0


def grown(leaves: Sequence[StateLeaf], depth: int) -> Subtree:
    """Show the whole subtree at a depth that holds these leaves, ascending; they share their first bits."""
    if len(leaves) < 2:
        return leaves[0] if leaves else None
    left = [leaf for leaf in leaves if not bit_at(leaf.path, depth)]
    return Branch(grown(left, depth + 1), grown(leaves[len(left) :], depth + 1))


def _check_form(place: Place, subtree: Subtree, bottom: int) -> None:
    match subtree:
        case StateLeaf(path):
            if not contains(place, path):
                expected = f"one that begins with the first {place.depth} bits of {place.path.hex()}"
                raise InvalidProof("state tree of another peer", rule="leaf path", expected=expected, found=path)
        case Hidden():
            if place.depth != bottom:
                raise InvalidProof(
                    "state tree of another peer", rule="levels", expected=f"hidden at depth {bottom}", found=place.depth
                )
        case Branch(left, right):
            if place.depth >= DEPTH_MAX:
                raise InvalidProof("state tree of another peer", rule="depth", expected=DEPTH_MAX, found="more")
            _check_form(child(place, 0), left, bottom)
            _check_form(child(place, 1), right, bottom)
        case None:
            pass


def _compared(
    place: Place, ours: Subtree, theirs: Subtree, own: Shown
) -> Iterator[LeafDifference | tuple[Place, Digest]]:
    """Yield where two subtrees differ, ascending: leaves, and places of which more must be seen."""
    if ours == theirs or subtree_hash(ours) == subtree_hash(theirs):
        return
    match theirs:
        case Hidden(known):
            yield place, known
        case Branch():
            left, right = _sides(place, ours, own)
            yield from _compared(child(place, 0), left, theirs.left, own)
            yield from _compared(child(place, 1), right, theirs.right, own)
        case _:
            yield from _against_one(_leaves(place, ours, own), theirs)


def _against_one(leaves: Iterator[StateLeaf], theirs: StateLeaf | None) -> Iterator[LeafDifference]:
    """Compare leaves of ours, ascending, with the one that the other side has there, or with none."""
    waiting = theirs
    for leaf in leaves:
        if waiting is not None and waiting.path < leaf.path:
            yield LeafDifference(waiting.path, None, waiting.value_hash)
            waiting = None
        if waiting is not None and waiting.path == leaf.path:
            if waiting.value_hash != leaf.value_hash:
                yield LeafDifference(leaf.path, leaf.value_hash, waiting.value_hash)
            waiting = None
        else:
            yield LeafDifference(leaf.path, leaf.value_hash, None)
    if waiting is not None:
        yield LeafDifference(waiting.path, None, waiting.value_hash)


def _sides(place: Place, ours: Subtree, own: Shown) -> tuple[Subtree, Subtree]:
    """Part what we have below a place into what is left and what is right."""
    if isinstance(ours, Hidden):
        ours = own(place)
    match ours:
        case Branch(left, right):
            return left, right
        case StateLeaf(path):
            return (None, ours) if bit_at(path, place.depth) else (ours, None)
        case _:
            assert ours is None, "our own tree shows a node that was asked for"
            return None, None


def _leaves(place: Place, ours: Subtree, own: Shown) -> Iterator[StateLeaf]:
    """Yield all leaves that we have below a place, ascending."""
    if ours is None:
        return
    if isinstance(ours, StateLeaf):
        yield ours
        return
    left, right = _sides(place, ours, own)
    yield from _leaves(child(place, 0), left, own)
    yield from _leaves(child(place, 1), right, own)


__all__ = [
    "LEVELS",
    "PLACES_MAX",
    "Branch",
    "Descent",
    "Hidden",
    "LeafDifference",
    "Place",
    "Shown",
    "Subtree",
    "asked",
    "begin",
    "child",
    "contains",
    "grown",
    "heard",
    "subtree_hash",
]
