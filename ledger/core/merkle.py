"""What does a log of hashes commit to, and how is that proved?  Merkle trees of RFC 6962, section 2.1.

Two trees of the design are of this kind: the transactions of one vBlock, and the VLedger, whose leaves are all vBlock
hashes. Leaf hashes come in ready made (`H(00 | data)`); inner nodes are `H(01 | left | right)`. Verification follows
RFC 9162, sections 2.1.3.2 and 2.1.4.2. Every fast function has a slow, obvious twin at the end, straight from the RFC.

A tree that grows is described by its *complete* subtrees: node (level, index) covers the leaves
`[index << level, (index + 1) << level)` and never changes once they are all there. That is all a disk has to keep.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256

from ledger.core.errors import InvalidProof
from ledger.core.hashing import digest
from ledger.core.names import Digest

NodeAt = Callable[[int, int], Digest]
"""Looks up a complete subtree by (level, index); level 0 are the leaf hashes."""

EMPTY_ROOT = digest(b"")
"""Root of the tree without leaves."""


def leaf_hash(data: bytes) -> Digest:
    """Hash one leaf's data."""
    return Digest(sha256(b"\x00" + data).digest())


def node_hash(left: bytes, right: bytes) -> Digest:
    """Hash two subtrees into the one above them."""
    return Digest(sha256(b"\x01" + left + right).digest())


def tree_hash(leaf_hashes: Sequence[Digest]) -> Digest:
    """Compute the root over leaf hashes: level by level, an odd one moves up as it is."""
    if not leaf_hashes:
        return EMPTY_ROOT
    level: list[bytes] = list(leaf_hashes)
    while len(level) > 1:
        paired = [sha256(b"\x01" + level[i] + level[i + 1]).digest() for i in range(0, len(level) - 1, 2)]
        if len(level) % 2:
            paired.append(level[-1])
        level = paired
    return Digest(level[0])


def completed_by(index: int, leaf: Digest, node_at: NodeAt) -> list[tuple[int, int, Digest]]:
    """List the complete subtrees that appending leaf `index` brings, the leaf itself first.

    Args:
        index: Position of the new leaf, that is, the size before it.
        leaf: Its leaf hash.
        node_at: Finds the complete subtrees there were before.

    Returns:
        (level, index, hash) of each, ascending by level.
    """
    level, done = 0, [(0, index, leaf)]
    while index & 1:
        leaf = node_hash(node_at(level, index - 1), leaf)
        level, index = level + 1, index >> 1
        done.append((level, index, leaf))
    return done


def root_at(size: int, node_at: NodeAt) -> Digest:
    """Compute the root of the first `size` leaves from complete subtrees only."""
    return _range_root(0, size, node_at) if size else EMPTY_ROOT


class GrowingLog:
    """The root of a log that only grows, of which nothing is kept but the roots of its complete subtrees."""

    def __init__(self) -> None:
        """Begin empty."""
        self._peaks: list[Digest] = []
        self._size = 0

    def append(self, leaf: Digest) -> None:
        """Take the next leaf hash in."""
        size = self._size
        while size & 1:
            leaf, size = node_hash(self._peaks.pop(), leaf), size >> 1
        self._peaks.append(leaf)
        self._size += 1

    def root(self) -> Digest:
        """Hash the log as it is."""
        if not self._peaks:
            return EMPTY_ROOT
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = node_hash(peak, root)
        return root


def inclusion_proof(index: int, size: int, node_at: NodeAt) -> tuple[Digest, ...]:
    """Make the audit path of leaf `index` in the tree of the first `size` leaves, from the leaf up.

    Args:
        index: Position of the leaf, in `[0, size)`.
        size: Number of leaves.
        node_at: Finds complete subtrees.
    """
    assert 0 <= index < size, f"leaf {index} of {size}"
    path: list[Digest] = []
    low, high = 0, size
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(_range_root(middle, high, node_at))
            high = middle
        else:
            path.append(_range_root(low, middle, node_at))
            low = middle
    return tuple(reversed(path))


def consistency_proof(first: int, second: int, node_at: NodeAt) -> tuple[Digest, ...]:
    """Prove that the tree of `first` leaves is the beginning of the tree of `second` leaves.

    Args:
        first: The older size, in `[1, second]`.
        second: The newer size.
        node_at: Finds complete subtrees.
    """
    assert 0 < first <= second, f"sizes {first}, {second}"
    path: list[Digest] = []
    low, high, whole = 0, second, True  # `whole`: the older tree begins where this subtree begins, at 0.
    while first != high - low:
        middle = _split(high - low)
        if first <= middle:
            path.append(_range_root(low + middle, high, node_at))
            high = low + middle
        else:
            path.append(_range_root(low, low + middle, node_at))
            first, low, whole = first - middle, low + middle, False
    if not whole:
        path.append(_range_root(low, high, node_at))
    return tuple(reversed(path))


def verify_inclusion(leaf: Digest, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Check an audit path.

    Args:
        leaf: Leaf hash.
        index: Its position.
        size: Number of leaves of the tree.
        proof: The path, from the leaf up.
        root: Root of the tree.

    Raises:
        InvalidProof: Index, length or root does not fit.
    """
    if not 0 <= index < size:
        raise InvalidProof("inclusion proof", rule="leaf index", expected=f"below {size}", found=index)
    position, last, value = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            raise InvalidProof("inclusion proof", rule="proof length", expected="no more hashes", found=len(proof))
        if position & 1 or position == last:
            value = node_hash(sibling, value)
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            value = node_hash(value, sibling)
        position, last = position >> 1, last >> 1
    if last:
        raise InvalidProof("inclusion proof", rule="proof length", expected="more hashes", found=len(proof))
    if value != root:
        raise InvalidProof("inclusion proof", rule="root", expected=root, found=value)


def verify_consistency(first: int, second: int, proof: Sequence[bytes], first_root: bytes, second_root: bytes) -> None:
    """Check that a tree is the beginning of another.

    Args:
        first: Size of the older tree, at least 1.
        second: Size of the newer tree.
        proof: The consistency path.
        first_root: Root of the older tree.
        second_root: Root of the newer tree.

    Raises:
        InvalidProof: Sizes, length or a root do not fit.
    """
    if not 0 < first <= second:
        raise InvalidProof("consistency proof", rule="sizes", expected=f"1 to {second}", found=first)
    if first == second:
        if proof or first_root != second_root:
            raise InvalidProof("consistency proof", rule="root", expected=first_root, found=second_root)
        return
    path = list(proof) if first & (first - 1) else [first_root, *proof]
    if not path:
        raise InvalidProof("consistency proof", rule="proof length", expected="more hashes", found=0)
    position, last = first - 1, second - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    older = newer = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise InvalidProof("consistency proof", rule="proof length", expected="no more hashes", found=len(proof))
        if position & 1 or position == last:
            older, newer = node_hash(sibling, older), node_hash(sibling, newer)
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            newer = node_hash(newer, sibling)
        position, last = position >> 1, last >> 1
    if last:
        raise InvalidProof("consistency proof", rule="proof length", expected="more hashes", found=len(proof))
    if older != first_root:
        raise InvalidProof("consistency proof", rule="older root", expected=first_root, found=older)
    if newer != second_root:
        raise InvalidProof("consistency proof", rule="newer root", expected=second_root, found=newer)


def _split(count: int) -> int:
    """Largest power of two below `count`, which is at least 2."""
    return 1 << (count - 1).bit_length() - 1


def _range_root(low: int, high: int, node_at: NodeAt) -> Digest:
    """Root over the leaves `[low, high)`, where `low` is a multiple of a power of two not below their number."""
    parts: list[Digest] = []
    while low < high:
        size = 1 << (high - low).bit_length() - 1
        parts.append(node_at(size.bit_length() - 1, low // size))
        low += size
    value = parts.pop()
    while parts:
        value = node_hash(parts.pop(), value)
    return value


# The slow twins: RFC 6962, sections 2.1, 2.1.1 and 2.1.2, word for word in recursion.


def slow_tree_hash(leaf_hashes: Sequence[Digest]) -> Digest:
    """Compute the root by the RFC's own recursion."""
    if not leaf_hashes:
        return EMPTY_ROOT
    if len(leaf_hashes) == 1:
        return leaf_hashes[0]
    k = _slow_split(len(leaf_hashes))
    return node_hash(slow_tree_hash(leaf_hashes[:k]), slow_tree_hash(leaf_hashes[k:]))


def slow_inclusion_proof(index: int, leaf_hashes: Sequence[Digest]) -> tuple[Digest, ...]:
    """Make an audit path by the RFC's own recursion."""
    if len(leaf_hashes) == 1:
        return ()
    k = _slow_split(len(leaf_hashes))
    if index < k:
        return (*slow_inclusion_proof(index, leaf_hashes[:k]), slow_tree_hash(leaf_hashes[k:]))
    return (*slow_inclusion_proof(index - k, leaf_hashes[k:]), slow_tree_hash(leaf_hashes[:k]))


def slow_consistency_proof(first: int, leaf_hashes: Sequence[Digest], whole: bool = True) -> tuple[Digest, ...]:
    """Make a consistency proof by the RFC's own recursion."""
    if first == len(leaf_hashes):
        return () if whole else (slow_tree_hash(leaf_hashes),)
    k = _slow_split(len(leaf_hashes))
    if first <= k:
        return (*slow_consistency_proof(first, leaf_hashes[:k], whole), slow_tree_hash(leaf_hashes[k:]))
    return (*slow_consistency_proof(first - k, leaf_hashes[k:], False), slow_tree_hash(leaf_hashes[:k]))


def _slow_split(count: int) -> int:
    k = 1
    while 2 * k < count:
        k *= 2
    return k
