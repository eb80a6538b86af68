"""What does the state root commit to, and how is one entry proved present or absent?

The compact sparse Merkle tree of the design, section 3, over all live entries:

    path      = H(lp("peerledger/path/v1") | u8(kind) | lp(namespace) | lp(collection) | lp(key))
    valueHash = H(lp(value) | u64(block) | u32(index) | lp(metadata) | u64(expiryBlock))
    leaf      = H(02 | path | valueHash)            node = H(03 | left | right)

Paths are read most significant bit first. A subtree with no leaf is 32 zero bytes, with one leaf is that leaf,
otherwise `node(left, right)`, even if one side is empty. This module has the definitions, the proofs and a slow twin
over a plain mapping; the form that a disk can keep is in `paged_tree`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from ledger.core.encoding import lp, u8, u32, u64
from ledger.core.errors import InvalidProof
from ledger.core.names import ZERO_DIGEST, Digest
from ledger.core.state import Entry, StateKey

PATH_TAG = lp("peerledger/path/v1")
DEPTH_MAX = 256


@dataclass(frozen=True, slots=True)
class StateLeaf:
    """A leaf, as a proof shows it."""

    path: bytes
    """Where it stands: 32 bytes."""

    value_hash: Digest
    """What it says."""


@dataclass(frozen=True, slots=True)
class StateProof:
    """The way from the root to where a path ends."""

    siblings: tuple[Digest, ...]
    """The subtrees beside the way, from the root down; as many as the end is deep."""

    leaf: StateLeaf | None
    """The leaf at the end, or None where the subtree there is empty."""


def path_of(key: StateKey) -> bytes:
    """Find where an entry stands in the tree."""
    return sha256(PATH_TAG + u8(key.kind) + lp(key.namespace) + lp(key.collection) + lp(key.key)).digest()


def value_hash(entry: Entry) -> Digest:
    """Hash everything about an entry that a future verdict can depend on."""
    block, index = entry.version
    return Digest(sha256(lp(entry.value) + u64(block) + u32(index) + lp(entry.metadata) + u64(entry.expiry)).digest())


def leaf_hash(path: bytes, value: bytes) -> Digest:
    """Hash a leaf."""
    return Digest(sha256(b"\x02" + path + value).digest())


def node_hash(left: bytes, right: bytes) -> Digest:
    """Hash two subtrees into the one above them."""
    return Digest(sha256(b"\x03" + left + right).digest())


def bit_at(path: bytes, depth: int) -> int:
    """Read the bit of a path that decides at a depth, 0 for left."""
    return path[depth >> 3] >> (7 - (depth & 7)) & 1


def verify_presence(root: bytes, key: StateKey, entry: Entry, proof: StateProof) -> None:
    """Check that a state holds exactly this entry.

    Steps: 1. length of the proof; 2. its leaf is at the key's path; 3. and says the entry; 4. the way ends at the root.

    Raises:
        InvalidProof: A step fails.
    """
    _check_length(proof)
    path = path_of(key)
    if proof.leaf is None or proof.leaf.path != path:
        found = "an empty subtree" if proof.leaf is None else proof.leaf.path
        raise InvalidProof("presence proof", rule="leaf path", expected=path, found=found)
    if proof.leaf.value_hash != value_hash(entry):
        raise InvalidProof("presence proof", rule="value hash", expected=value_hash(entry), found=proof.leaf.value_hash)
    _check_root(root, path, proof)


def verify_absence(root: bytes, key: StateKey, proof: StateProof) -> None:
    """Check that a state does not hold a key.

    Steps: 1. length of the proof; 2. the leaf at its end, if there is one, is another one; 3. and shares with the key
    the bits that lead there; 4. the way leads to the root.

    Raises:
        InvalidProof: A step fails.
    """
    _check_length(proof)
    path = path_of(key)
    if proof.leaf is not None:
        if proof.leaf.path == path:
            raise InvalidProof("absence proof", rule="other leaf", expected="a leaf of another key", found=path)
        depth = len(proof.siblings)
        differing = int.from_bytes(proof.leaf.path, "big") ^ int.from_bytes(path, "big")
        if len(proof.leaf.path) != len(path) or differing >> (DEPTH_MAX - depth):
            raise InvalidProof(
                "absence proof", rule="shared bits", expected=f"the first {depth} bits of {path.hex()}",
                found=proof.leaf.path,
            )  # fmt: skip
    _check_root(root, path, proof)


def _check_length(proof: StateProof) -> None:
    if len(proof.siblings) > DEPTH_MAX:
        raise InvalidProof("state proof", rule="proof length", expected="at most 256", found=len(proof.siblings))
    for sibling in proof.siblings:
        if len(sibling) != len(ZERO_DIGEST):
            raise InvalidProof("state proof", rule="hash length", expected=len(ZERO_DIGEST), found=len(sibling))


def _check_root(root: bytes, path: bytes, proof: StateProof) -> None:
    value = ZERO_DIGEST if proof.leaf is None else leaf_hash(proof.leaf.path, proof.leaf.value_hash)
    for depth in range(len(proof.siblings) - 1, -1, -1):
        sibling = proof.siblings[depth]
        value = node_hash(sibling, value) if bit_at(path, depth) else node_hash(value, sibling)
    if value != root:
        raise InvalidProof("state proof", rule="state root", expected=root, found=value)


# The slow twin: the definition, over a plain mapping.


def slow_root(entries: Mapping[StateKey, Entry]) -> Digest:
    """Compute the root of a state as the definition says it."""
    return slow_subtree([(path_of(key), value_hash(entry)) for key, entry in entries.items()], 0)


def slow_subtree(leaves: Sequence[tuple[bytes, Digest]], depth: int) -> Digest:
    """Hash the subtree at a depth that holds these leaves."""
    if not leaves:
        return ZERO_DIGEST
    if len(leaves) == 1:
        return leaf_hash(*leaves[0])
    left = [leaf for leaf in leaves if not bit_at(leaf[0], depth)]
    right = [leaf for leaf in leaves if bit_at(leaf[0], depth)]
    return node_hash(slow_subtree(left, depth + 1), slow_subtree(right, depth + 1))


def slow_proof(entries: Mapping[StateKey, Entry], key: StateKey) -> StateProof:
    """Make the proof for a key, present or absent, as the definition says it."""
    path = path_of(key)
    leaves = [(path_of(other), value_hash(entry)) for other, entry in entries.items()]
    siblings: list[Digest] = []
    while len(leaves) > 1:
        depth = len(siblings)
        beside = [leaf for leaf in leaves if bit_at(leaf[0], depth) != bit_at(path, depth)]
        leaves = [leaf for leaf in leaves if bit_at(leaf[0], depth) == bit_at(path, depth)]
        siblings.append(slow_subtree(beside, depth + 1))
    return StateProof(tuple(siblings), StateLeaf(*leaves[0]) if leaves else None)
