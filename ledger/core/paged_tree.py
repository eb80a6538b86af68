"""How is the state tree kept so that a change costs what changed?  Pages of leaves under groups of inner nodes.

The tree that `state_tree` defines, cut into pieces that a key-value store can hold. None of this is part of the hash.

- A *page* holds the leaves of one subtree, at most 8: `path | valueHash` each, ascending. A ninth leaf splits it into
  the two subtrees below; two sister pages with 4 leaves or fewer between them become one again.
- A node of the tree above the pages is *split*. Split nodes have at least 5 leaves below them, so their hash is always
  `node(left, right)`, while a page with one leaf is that leaf and an empty one is zero bytes: the compact rule.
- A *group* holds the nodes of six levels below a split node at depth 0, 6, 12, …, in heap order (the children of node i
  are 2i and 2i + 1): one byte each that counts the leaves of its page (255: it is split), then the hashes, so that two
  sisters lie together as they are hashed; zero bytes at the end are left out. The root's own node is with the caller.

Changes come sorted, so one walk from the root serves all of them: a changed key touches its page and the groups above
it, and keys that lie together share them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

from ledger.core.names import ZERO_DIGEST, Digest
from ledger.core.state_tree import StateLeaf, StateProof, bit_at
from ledger.core.tree_descent import LEVELS, Branch, Hidden, Place, Subtree, child, contains, grown

LEAVES_MAX = 8
"""Leaves that a page holds at most."""

LEAVES_MERGE = 4
"""Leaves that two sister pages hold together when they become one."""

GROUP_LEVELS = 6
"""Levels of inner nodes in one group."""

SPLIT = 255
"""In place of a count of leaves: the node is split."""

_PATH_BYTES = 32
_HASH_BYTES = 32
_COUNTS = 2 << GROUP_LEVELS
_GROUP_BYTES = _COUNTS * (1 + _HASH_BYTES)
_MASKS = bytes(0xFF00 >> bits & 0xFF for bits in range(8))


class Node(NamedTuple):
    """A subtree as its parent knows it."""

    leaf_count: int
    """Number of leaves of its page, or `SPLIT`."""

    hash: bytes
    """Its hash; zero bytes if it is empty."""


EMPTY = Node(0, ZERO_DIGEST)
"""The subtree without leaves, and the root of the empty tree."""


class PageStore(Protocol):
    """Where pages and groups lie, by a key of at most 34 bytes."""

    def get(self, key: bytes) -> bytes:
        """Return the content; empty if there is none."""
        ...

    def put(self, key: bytes, content: bytes) -> None:
        """Keep a content; an empty one removes the key."""
        ...


def page_key(path: bytes, depth: int) -> bytes:
    """Name the page, or the group, of the subtree at a depth on the way to a path."""
    whole, bits = depth >> 3, depth & 7
    prefix = path[:whole]
    if bits:
        prefix += bytes((path[whole] & _MASKS[bits],))
    return prefix + bytes((depth,))


class PagedTree:
    """One version of the tree, from its root node down.

    Args:
        pages: Where its pages lie.
        root: Its root node.
    """

    def __init__(self, pages: PageStore, root: Node) -> None:
        """Stand at the root."""
        self._pages = pages
        self.root = root

    def update(self, changes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Set and remove leaves.

        Args:
            changes: (path, value hash or None to remove), ascending by path, each path once.
        """
        if changes:
            self._changes = changes
            self.root = self._update(self.root, 0, bytearray(), 0, 0, len(changes))

    def prove(self, path: bytes) -> StateProof:
        """Make the proof for a path, whether a leaf stands there or not."""
        siblings: list[Digest] = []
        node, depth, group, slot = self.root, 0, bytearray(), 0
        while node.leaf_count == SPLIT:
            if depth % GROUP_LEVELS == 0:
                group, slot = self._group(path, depth), 1
            side = bit_at(path, depth)
            siblings.append(Digest(_node_at(group, 2 * slot + 1 - side).hash))
            slot = 2 * slot + side
            node = _node_at(group, slot)
            depth += 1
        leaves = self._leaves(node, path, depth)
        while len(leaves) > 1:
            middle = _middle(leaves, depth)
            near, beside = leaves[:middle], leaves[middle:]
            if bit_at(path, depth):
                near, beside = beside, near
            depth += 1
            siblings.append(Digest(_subtree(beside, 0, len(beside), depth)))
            leaves = near
        if not leaves:
            return StateProof(tuple(siblings), None)
        return StateProof(tuple(siblings), _leaf_of(leaves[0]))

    def shown(self, place: Place) -> Subtree:
        """Show `LEVELS` levels of the tree below a place; pages of leaves are shown to their end."""
        path, node, depth, group, slot = place.path, self.root, 0, bytearray(), 0
        while node.leaf_count == SPLIT and depth < place.depth:
            if depth % GROUP_LEVELS == 0:
                group, slot = self._group(path, depth), 1
            slot = 2 * slot + bit_at(path, depth)
            node = _node_at(group, slot)
            depth += 1
        if node.leaf_count != SPLIT:
            leaves = [_leaf_of(raw) for raw in self._leaves(node, path, depth)]
            return grown([leaf for leaf in leaves if contains(place, leaf.path)], place.depth)
        return self._shown(node, place, group, slot, place.depth + LEVELS)

    def _shown(self, node: Node, place: Place, group: bytearray, slot: int, bottom: int) -> Subtree:
        if node.leaf_count != SPLIT:
            return grown([_leaf_of(raw) for raw in self._leaves(node, place.path, place.depth)], place.depth)
        if place.depth == bottom:
            return Hidden(Digest(node.hash))
        if place.depth % GROUP_LEVELS == 0:
            group, slot = self._group(place.path, place.depth), 1
        left, right = (
            self._shown(_node_at(group, 2 * slot + side), child(place, side), group, 2 * slot + side, bottom)
            for side in (0, 1)
        )
        return Branch(left, right)

    def _update(self, node: Node, depth: int, group: bytearray, slot: int, low: int, high: int) -> Node:
        """Apply changes `[low, high)` to a node, which is `slot` of `group`; return the node it becomes."""
        if high - low == 1:
            return self._update_one(node, depth, group, slot, low)
        path = self._changes[low][0]
        if node.leaf_count != SPLIT:
            leaves = self._merged(self._leaves(node, path, depth), low, high)
            if len(leaves) <= LEAVES_MAX:
                return self._put_page(path, depth, leaves)
            if node.leaf_count:
                self._pages.put(b"p" + page_key(path, depth), b"")
            return self._split(path, depth, group, slot, leaves)
        own = depth % GROUP_LEVELS == 0
        if own:
            group, slot = self._group(path, depth), 1
        middle = self._middle_of_changes(low, high, depth)
        left, right = _node_at(group, 2 * slot), _node_at(group, 2 * slot + 1)
        if low < middle:
            left = self._update(left, depth + 1, group, 2 * slot, low, middle)
        if middle < high:
            right = self._update(right, depth + 1, group, 2 * slot + 1, middle, high)
        if left.leaf_count + right.leaf_count <= LEAVES_MERGE:  # A split side counts 255.
            return self._join(path, depth, group, slot, left, right)
        _set_nodes(group, slot, left, right)
        if own:
            self._put_group(path, depth, group)
        return Node(SPLIT, sha256(b"\x03" + left.hash + right.hash).digest())

    def _update_one(self, node: Node, depth: int, group: bytearray, slot: int, index: int) -> Node:
        """Apply one change: the same as `_update`, without recursion, as most of the way is walked alone."""
        path = self._changes[index][0]
        way: list[tuple[bytearray, int, int]] = []
        count = node.leaf_count
        while count == SPLIT:
            if depth % GROUP_LEVELS == 0:
                group, slot = self._group(path, depth), 1
            slot += slot + (path[depth >> 3] >> (7 - (depth & 7)) & 1)
            way.append((group, slot, depth))
            count = group[slot]
            depth += 1
        leaves = self._merged(self._leaves(_node_at(group, slot) if way else node, path, depth), index, index + 1)
        if len(leaves) <= LEAVES_MAX:
            node = self._put_page(path, depth, leaves)
        else:
            self._pages.put(b"p" + page_key(path, depth), b"")
            node = self._split(path, depth, group, slot, leaves)
        count, value = node
        while way:
            group, slot, depth = way.pop()
            at = _COUNTS + _HASH_BYTES * slot
            group[slot] = count
            group[at : at + _HASH_BYTES] = value
            left = slot & ~1
            if count != SPLIT and group[left] + group[left + 1] <= LEAVES_MERGE:
                count, value = self._join(
                    path, depth, group, slot >> 1, _node_at(group, left), _node_at(group, left + 1)
                )
                continue
            at = _COUNTS + _HASH_BYTES * left
            count, value = SPLIT, sha256(b"\x03" + group[at : at + 2 * _HASH_BYTES]).digest()
            if depth % GROUP_LEVELS == 0:
                self._put_group(path, depth, group)
        return Node(count, value)

    def _split(self, path: bytes, depth: int, group: bytearray, slot: int, leaves: list[bytes]) -> Node:
        """Make a split node of more leaves than a page holds."""
        own = depth % GROUP_LEVELS == 0
        if own:
            group, slot = bytearray(_GROUP_BYTES), 1
        middle = _middle(leaves, depth)
        sides = []
        for at, side in ((2 * slot, leaves[:middle]), (2 * slot + 1, leaves[middle:])):
            if len(side) > LEAVES_MAX:
                sides.append(self._split(side[0], depth + 1, group, at, side))
            elif side:
                sides.append(self._put_page(side[0], depth + 1, side))
            else:
                sides.append(EMPTY)
        _set_nodes(group, slot, *sides)
        if own:
            self._put_group(path, depth, group)
        return Node(SPLIT, sha256(b"\x03" + sides[0].hash + sides[1].hash).digest())

    def _join(self, path: bytes, depth: int, group: bytearray, slot: int, left: Node, right: Node) -> Node:
        """Make one page of two small sister pages."""
        prefix = int.from_bytes(path, "big") >> (256 - depth) << (256 - depth)
        first = prefix.to_bytes(_PATH_BYTES, "big")
        second = (prefix | 1 << (255 - depth)).to_bytes(_PATH_BYTES, "big")
        leaves = [*self._leaves(left, first, depth + 1), *self._leaves(right, second, depth + 1)]
        for node, side in ((left, first), (right, second)):
            if node.leaf_count:
                self._pages.put(b"p" + page_key(side, depth + 1), b"")
        _set_nodes(group, slot, EMPTY, EMPTY)
        if depth % GROUP_LEVELS == 0:
            self._put_group(path, depth, group)
        return self._put_page(path, depth, leaves)

    def _merged(self, leaves: list[bytes], low: int, high: int) -> list[bytes]:
        """Apply changes to the leaves of one page."""
        if high - low == 1 and not leaves:
            path, value = self._changes[low]
            return [] if value is None else [path + value]
        by_path = {leaf[:_PATH_BYTES]: leaf for leaf in leaves}
        for path, value in self._changes[low:high]:
            if value is None:
                by_path.pop(path, None)
            else:
                by_path[path] = path + value
        return sorted(by_path.values())

    def _middle_of_changes(self, low: int, high: int, depth: int) -> int:
        """Find the first change that goes right at a depth."""
        changes = self._changes
        if high - low == 1:
            return low if bit_at(changes[low][0], depth) else high
        while low < high:
            middle = (low + high) >> 1
            if bit_at(changes[middle][0], depth):
                high = middle
            else:
                low = middle + 1
        return low

    def _leaves(self, node: Node, path: bytes, depth: int) -> list[bytes]:
        """Read the leaves of a page."""
        if not node.leaf_count:
            return []
        raw = self._pages.get(b"p" + page_key(path, depth))
        assert len(raw) == 64 * node.leaf_count, f"{len(raw)} bytes for {node.leaf_count} leaves at depth {depth}"
        return [raw[at : at + 64] for at in range(0, len(raw), 64)]

    def _put_page(self, path: bytes, depth: int, leaves: list[bytes]) -> Node:
        self._pages.put(b"p" + page_key(path, depth), b"".join(leaves))
        return Node(len(leaves), _subtree(leaves, 0, len(leaves), depth))

    def _group(self, path: bytes, depth: int) -> bytearray:
        return bytearray(self._pages.get(b"g" + page_key(path, depth)).ljust(_GROUP_BYTES, b"\0"))

    def _put_group(self, path: bytes, depth: int, group: bytearray) -> None:
        """Keep a group up to its last node that is not empty."""
        slots = len(group[:_COUNTS].rstrip(b"\0"))
        self._pages.put(b"g" + page_key(path, depth), bytes(group[: _COUNTS + _HASH_BYTES * slots]) if slots else b"")


def _leaf_of(raw: bytes) -> StateLeaf:
    return StateLeaf(raw[:_PATH_BYTES], Digest(raw[_PATH_BYTES:]))


def _node_at(group: bytearray, slot: int) -> Node:
    at = _COUNTS + _HASH_BYTES * slot
    return Node(group[slot], bytes(group[at : at + _HASH_BYTES]))


def _set_nodes(group: bytearray, slot: int, left: Node, right: Node) -> None:
    """Keep both children of a node."""
    at = _COUNTS + 2 * _HASH_BYTES * slot
    group[2 * slot], group[2 * slot + 1] = left.leaf_count, right.leaf_count
    group[at : at + 2 * _HASH_BYTES] = left.hash + right.hash


def _middle(leaves: Sequence[bytes], depth: int) -> int:
    """Find the first leaf that goes right at a depth."""
    return bisect_left(leaves, 1, key=lambda leaf: bit_at(leaf, depth))


def _subtree(leaves: Sequence[bytes], low: int, high: int, depth: int) -> bytes:
    """Hash the subtree of the leaves `[low, high)`, which share their first `depth` bits."""
    if low == high:
        return ZERO_DIGEST
    if high - low == 1:
        return sha256(b"\x02" + leaves[low]).digest()
    at, mask = depth >> 3, 0x80 >> (depth & 7)
    middle = low
    while middle < high and not leaves[middle][at] & mask:
        middle += 1
    depth += 1
    if middle - low == 1:
        left = sha256(b"\x02" + leaves[low]).digest()
    else:
        left = _subtree(leaves, low, middle, depth)
    if high - middle == 1:
        right = sha256(b"\x02" + leaves[middle]).digest()
    else:
        right = _subtree(leaves, middle, high, depth)
    return sha256(b"\x03" + left + right).digest()
