"""Merkle trees of RFC 6962 against its known answers and against a slow twin written from its section 2.1."""

from collections.abc import Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.errors import InvalidProof
from ledger.core.merkle import (
    EMPTY_ROOT,
    completed_by,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root_at,
    tree_hash,
    verify_consistency,
    verify_inclusion,
)
from ledger.core.names import Digest

INPUTS = [
    bytes.fromhex(each)
    for each in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
"""The leaves that implementations of RFC 6962 share as test input."""

ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
"""Roots over the first 1 to 8 of them."""


def h(data: bytes) -> bytes:
    return sha256(data).digest()


def twin(leaves: Sequence[bytes]) -> bytes:
    """The tree hash over leaf data, by the RFC's own recursion."""
    if not leaves:
        return h(b"")
    if len(leaves) == 1:
        return h(b"\x00" + leaves[0])
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return h(b"\x01" + twin(leaves[:k]) + twin(leaves[k:]))


class Kept:
    """A tree that keeps its complete subtrees, as a disk would."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.nodes: dict[tuple[int, int], Digest] = {}
        for index, data in enumerate(leaves):
            for level, at, value in completed_by(index, leaf_hash(data), self.node):
                assert self.nodes.setdefault((level, at), value) == value, "a complete subtree never changes"

    def node(self, level: int, index: int) -> Digest:
        return self.nodes[level, index]


def some_leaves(count: int) -> list[bytes]:
    return [b"leaf %d" % index for index in range(count)]


def test_the_roots_of_rfc_6962_over_its_shared_input() -> None:
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert tree_hash([]) == EMPTY_ROOT == root_at(0, Kept([]).node)
    for size, expected in enumerate(ROOTS, start=1):
        leaves = INPUTS[:size]
        assert tree_hash([leaf_hash(each) for each in leaves]).hex() == expected
        assert root_at(size, Kept(INPUTS).node).hex() == expected
        assert twin(leaves).hex() == expected


@pytest.mark.parametrize("count", [*range(1, 40), 63, 64, 65, 100, 127, 128, 129])
def test_every_size_has_the_root_of_the_twin_also_when_the_tree_has_grown_on(count: int) -> None:
    leaves = some_leaves(130)
    assert tree_hash([leaf_hash(each) for each in leaves[:count]]) == twin(leaves[:count])
    assert root_at(count, Kept(leaves).node) == twin(leaves[:count])


def test_every_leaf_of_every_small_tree_is_proved_and_nothing_else() -> None:
    for size in range(1, 18):
        leaves = some_leaves(size)
        kept, root = Kept(leaves), twin(leaves)
        for index in range(size):
            proof = inclusion_proof(index, size, kept.node)
            verify_inclusion(leaf_hash(leaves[index]), index, size, proof, root)
            for other in range(size):
                if other != index:
                    with pytest.raises(InvalidProof):
                        verify_inclusion(leaf_hash(leaves[index]), other, size, proof, root)


@given(size=st.integers(2, 300), at=st.data())
def test_a_changed_proof_of_inclusion_names_what_is_wrong(size: int, at: st.DataObject) -> None:
    leaves = some_leaves(size)
    kept, root = Kept(leaves), twin(leaves)
    index = at.draw(st.integers(0, size - 1))
    leaf, proof = leaf_hash(leaves[index]), list(inclusion_proof(index, size, kept.node))
    broken = at.draw(st.integers(0, len(proof) - 1))
    changed = [*proof[:broken], Digest(h(proof[broken])), *proof[broken + 1 :]]
    for kind, args in (
        ("root", (leaf, index, size, changed, root)),
        ("root", (leaf_hash(b"another"), index, size, proof, root)),
        ("root", (leaf, index, size, proof, h(root))),
        ("proof length", (leaf, index, size, [*proof, Digest(root)], root)),
        ("proof length", (leaf, index, size, proof[:-1], root)),
        ("leaf index", (leaf, size, size, proof, root)),
        ("leaf index", (leaf, -1, size, proof, root)),
    ):
        with pytest.raises(InvalidProof) as refusal:
            verify_inclusion(*args)
        assert refusal.value.rule == kind


def test_an_inner_node_is_no_leaf() -> None:
    """Goal: the prefixes keep leaves and nodes apart.  Method: pass two hashes off as the data of a leaf."""
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    root = twin([b"a", b"b"])
    with pytest.raises(InvalidProof) as refusal:
        verify_inclusion(leaf_hash(left + right), 0, 1, (), root)
    assert refusal.value.rule == "root"


@given(sizes=st.tuples(st.integers(1, 200), st.integers(1, 200)).map(sorted))
def test_an_older_tree_is_proved_to_be_the_beginning_of_a_newer_one(sizes: list[int]) -> None:
    first, second = sizes
    leaves = some_leaves(second)
    proof = consistency_proof(first, second, Kept(leaves).node)
    verify_consistency(first, second, proof, twin(leaves[:first]), twin(leaves))
    changed = twin([b"another", *leaves[1:first]])
    with pytest.raises(InvalidProof):
        verify_consistency(first, second, proof, changed, twin(leaves))
    with pytest.raises(InvalidProof):
        verify_consistency(first, second, proof, twin(leaves[:first]), twin([*leaves, b"more"]))
    with pytest.raises(InvalidProof):
        verify_consistency(first, second, [*proof, Digest(h(b""))], twin(leaves[:first]), twin(leaves))
    if proof:
        with pytest.raises(InvalidProof):
            verify_consistency(first, second, proof[:-1], twin(leaves[:first]), twin(leaves))


def test_history_that_was_rewritten_is_not_consistent() -> None:
    """Every leaf of the older tree in turn is replaced in the newer one, whose own proof then fails."""
    for first in range(1, 12):
        leaves = some_leaves(12)
        for at in range(first):
            rewritten = [*leaves[:at], b"rewritten", *leaves[at + 1 :]]
            proof = consistency_proof(first, 12, Kept(rewritten).node)
            with pytest.raises(InvalidProof) as refusal:
                verify_consistency(first, 12, proof, twin(leaves[:first]), twin(rewritten))
            assert refusal.value.rule in ("older root", "newer root")


@pytest.mark.parametrize(("first", "second"), [(0, 1), (2, 1), (-1, 1)])
def test_sizes_that_cannot_be_are_refused(first: int, second: int) -> None:
    with pytest.raises(InvalidProof) as refusal:
        verify_consistency(first, second, (), EMPTY_ROOT, EMPTY_ROOT)
    assert refusal.value.rule == "sizes"
