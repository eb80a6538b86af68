"""The state tree against a twin written from the design's formulas: roots, proofs, and the pages it is kept in."""

import struct
from collections.abc import Mapping
from hashlib import sha256
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.core.errors import InvalidProof
from ledger.core.names import NEVER, ZERO_DIGEST, BlockNumber, Digest, TxIndex
from ledger.core.paged_tree import EMPTY, LEAVES_MAX, PagedTree
from ledger.core.state import HASHED, PUBLIC, Entry, StateKey, Version
from ledger.core.state_tree import (
    StateLeaf,
    StateProof,
    path_of,
    slow_proof,
    slow_root,
    value_hash,
    verify_absence,
    verify_presence,
)


def h(*parts: bytes) -> bytes:
    return sha256(b"".join(parts)).digest()


def lp(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def twin_path(key: StateKey) -> bytes:
    kind, namespace, collection, name = key
    return h(lp(b"peerledger/path/v1"), bytes((kind,)), lp(namespace.encode()), lp(collection.encode()), lp(name))


def twin_value(entry: Entry) -> bytes:
    value, (block, index), metadata, expiry = entry
    return h(lp(value), struct.pack(">QI", block, index), lp(metadata), struct.pack(">Q", expiry))


def twin_root(leaves: Mapping[str, bytes], depth: int = 0) -> bytes:
    """The root over leaves by their path as a text of 256 zeros and ones, which differ from `depth` on."""
    if not leaves:
        return bytes(32)
    if len(leaves) == 1:
        return next(iter(leaves.values()))
    sides = [{bits: leaf for bits, leaf in leaves.items() if bits[depth] == side} for side in "01"]
    return h(b"\x03", twin_root(sides[0], depth + 1), twin_root(sides[1], depth + 1))


def bits_of(path: bytes) -> str:
    return f"{int.from_bytes(path, 'big'):0256b}"


def twin_leaves(values: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {bits_of(path): h(b"\x02", path, value) for path, value in values.items()}


def twin_of(state: Mapping[StateKey, Entry]) -> bytes:
    return twin_root(twin_leaves({twin_path(key): twin_value(entry) for key, entry in state.items()}))


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
KEYS = st.builds(StateKey, st.sampled_from([PUBLIC, HASHED]), NAMES, NAMES, st.binary(max_size=8))
ENTRIES = st.builds(
    Entry,
    st.binary(max_size=8),
    st.builds(Version, st.integers(0, 2**64 - 1).map(BlockNumber), st.integers(0, 2**32 - 1).map(TxIndex)),
    st.binary(max_size=4),
    st.sampled_from([NEVER, 0, 7]),
)
STATES = st.dictionaries(KEYS, ENTRIES, max_size=14)


@given(key=KEYS, entry=ENTRIES)
def test_paths_and_values_are_hashed_as_the_design_says(key: StateKey, entry: Entry) -> None:
    assert path_of(key) == twin_path(key)
    assert value_hash(entry) == twin_value(entry)


def test_names_of_different_parts_never_run_into_each_other() -> None:
    keys = [
        StateKey(PUBLIC, "ab", "c", b"d"), StateKey(PUBLIC, "a", "bc", b"d"), StateKey(PUBLIC, "abc", "", b"d"),
        StateKey(PUBLIC, "ab", "", b"cd"), StateKey(HASHED, "ab", "c", b"d"), StateKey(PUBLIC, "", "abc", b"d"),
    ]  # fmt: skip
    assert len({path_of(key) for key in keys}) == len(keys)


@given(state=STATES)
def test_the_root_of_a_state_is_that_of_the_twin(state: dict[StateKey, Entry]) -> None:
    assert slow_root(state) == twin_of(state)


def test_the_root_without_entries_is_zeros_and_with_one_it_is_the_leaf() -> None:
    key, entry = StateKey(PUBLIC, "n", "", b"k"), Entry(b"v", Version(BlockNumber(1), TxIndex(2)))
    assert slow_root({}) == ZERO_DIGEST
    assert slow_root({key: entry}) == h(b"\x02", twin_path(key), twin_value(entry))


# -- proofs


@given(state=STATES, asked=st.lists(KEYS, min_size=1, max_size=4))
def test_every_key_is_proved_present_or_absent_and_never_both(
    state: dict[StateKey, Entry], asked: list[StateKey]
) -> None:
    root = twin_of(state)
    for key in (*state, *asked):
        proof = slow_proof(state, key)
        if key in state:
            verify_presence(root, key, state[key], proof)
            with pytest.raises(InvalidProof) as refusal:
                verify_absence(root, key, proof)
            assert refusal.value.rule == "other leaf"
        else:
            verify_absence(root, key, proof)
            with pytest.raises(InvalidProof) as refusal:
                verify_presence(root, key, Entry(b"", Version(BlockNumber(0), TxIndex(0))), proof)
            assert refusal.value.rule == "leaf path"


SMALL = {
    StateKey(PUBLIC, "n", "", b"%d" % at): Entry(b"v%d" % at, Version(BlockNumber(at), TxIndex(0))) for at in range(20)
}
ROOT = twin_of(SMALL)
PRESENT = StateKey(PUBLIC, "n", "", b"7")
ABSENT = StateKey(PUBLIC, "n", "", b"no such key")


@pytest.mark.parametrize(
    "changes",
    [{"value": b"v8"}, {"version": Version(BlockNumber(7), TxIndex(1))}, {"metadata": b"m"}, {"expiry": 9}],
)
def test_a_proof_is_of_the_whole_entry(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidProof) as refusal:
        verify_presence(ROOT, PRESENT, SMALL[PRESENT]._replace(**changes), slow_proof(SMALL, PRESENT))  # type: ignore[arg-type]
    assert refusal.value.rule == "value hash"


def test_the_proof_of_another_key_proves_nothing() -> None:
    other = StateKey(PUBLIC, "n", "", b"8")
    with pytest.raises(InvalidProof) as refusal:
        verify_presence(ROOT, PRESENT, SMALL[PRESENT], slow_proof(SMALL, other))
    assert refusal.value.rule == "leaf path"


def test_a_leaf_from_elsewhere_in_the_tree_does_not_prove_absence() -> None:
    """Goal: an absent key can't be a present one whose way was swapped.

    Method: answer for a present key with the genuine way and leaf of every other key.  Each is a true way to a true
    leaf, but the leaf does not share the bits that lead there with the key that was asked for.
    """
    refusals = set()
    for other in SMALL:
        if other != PRESENT:
            with pytest.raises(InvalidProof) as refusal:
                verify_absence(ROOT, PRESENT, slow_proof(SMALL, other))
            refusals.add(refusal.value.rule)
    assert refusals == {"shared bits"}


def test_a_cut_way_with_a_node_passed_off_as_leaf_or_as_empty_proves_nothing() -> None:
    proof = slow_proof(SMALL, PRESENT)
    for depth in range(len(proof.siblings)):
        for leaf in (None, StateLeaf(path_of(ABSENT), Digest(h(b"x")))):
            with pytest.raises(InvalidProof):
                verify_absence(ROOT, PRESENT, StateProof(proof.siblings[:depth], leaf))


def test_a_changed_sibling_or_root_is_found() -> None:
    for key in (PRESENT, ABSENT):
        proof = slow_proof(SMALL, key)
        for at in range(len(proof.siblings)):
            siblings = (*proof.siblings[:at], Digest(h(proof.siblings[at])), *proof.siblings[at + 1 :])
            with pytest.raises(InvalidProof) as refusal:
                if key in SMALL:
                    verify_presence(ROOT, key, SMALL[key], StateProof(siblings, proof.leaf))
                else:
                    verify_absence(ROOT, key, StateProof(siblings, proof.leaf))
            assert refusal.value.rule == "state root"
    with pytest.raises(InvalidProof):
        verify_presence(h(ROOT), PRESENT, SMALL[PRESENT], slow_proof(SMALL, PRESENT))


@pytest.mark.parametrize(
    ("proof", "rule"),
    [
        (StateProof((ZERO_DIGEST,) * 257, None), "proof length"),
        (StateProof((Digest(b"short"),), None), "hash length"),
        (StateProof((), StateLeaf(b"short", ZERO_DIGEST)), "shared bits"),
        (StateProof((), None), "state root"),
    ],
)
def test_proofs_of_another_form_are_refused_before_they_are_hashed(proof: StateProof, rule: str) -> None:
    with pytest.raises(InvalidProof) as refusal:
        verify_absence(ROOT, ABSENT, proof)
    assert refusal.value.rule == rule


# -- pages


class Pages:
    """Pages in a dictionary; counts what is written."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.written = 0

    def get(self, key: bytes) -> bytes:
        return self.kept.get(key, b"")

    def put(self, key: bytes, content: bytes) -> None:
        assert len(key) <= 34
        self.written += 1
        if content:
            self.kept[key] = content
        else:
            self.kept.pop(key, None)


SHARED_BITS = st.sampled_from([0, 1, 5, 6, 7, 12, 13, 30, 63, 200, 255])


@st.composite
def paths(draw: st.DrawFn) -> bytes:
    """A path, often one that has its first bits in common with many others: deep trees come from those."""
    bits = draw(SHARED_BITS)
    tail = draw(st.integers(0, 2 ** min(256 - bits, 16) - 1))
    return (tail << max(256 - bits - 16, 0)).to_bytes(32, "big")


BATCHES = st.lists(st.dictionaries(paths(), st.one_of(st.none(), st.integers(0, 9)), max_size=20), max_size=8)


@settings(max_examples=50)
@given(batches=BATCHES)
def test_the_paged_tree_is_the_twins_after_any_inserts_and_deletes(batches: list[dict[bytes, int | None]]) -> None:
    pages, state = Pages(), dict[bytes, bytes]()
    tree = PagedTree(pages, EMPTY)
    for batch in batches:
        changes = [(path, None if batch[path] is None else h(bytes((batch[path] or 0,)))) for path in sorted(batch)]
        tree.update(changes)
        for path, value in changes:
            if value is None:
                state.pop(path, None)
            else:
                state[path] = value
        assert tree.root.hash == twin_root(twin_leaves(state))
        fresh, twin_pages = Pages(), list(state.items())
        again = PagedTree(fresh, EMPTY)
        again.update(sorted(twin_pages))
        assert again.root.hash == tree.root.hash
        check_proofs(PagedTree(pages, tree.root), state, [path for path, _ in changes])
    tree.update([(path, None) for path in sorted(state)])
    assert (tree.root, pages.kept) == (EMPTY, {}), "an empty tree leaves no page behind"


def check_proofs(tree: PagedTree, state: Mapping[bytes, bytes], asked: list[bytes]) -> None:
    """Each proof ends where the path ends, and leads to the root."""
    for path in asked:
        proof = tree.prove(path)
        value = h(b"\x02", proof.leaf.path, proof.leaf.value_hash) if proof.leaf else ZERO_DIGEST
        bits = bits_of(path)
        for depth in range(len(proof.siblings) - 1, -1, -1):
            sibling = proof.siblings[depth]
            value = h(b"\x03", *((value, sibling) if bits[depth] == "0" else (sibling, value)))
        assert value == tree.root.hash
        if path in state:
            assert proof.leaf == StateLeaf(path, Digest(state[path]))
        else:
            assert proof.leaf is None or proof.leaf.path != path


def test_a_large_tree_keeps_its_root_through_random_work_and_costs_what_changes() -> None:
    """Goal: thousands of leaves, spread as hashes are.  Method: seeded batches; the written pages are counted."""
    random = Random(2026)
    pages, state = Pages(), dict[bytes, bytes]()
    tree = PagedTree(pages, EMPTY)
    for _ in range(6):
        batch = {random.randbytes(32): random.randbytes(32) for _ in range(600)}
        gone = random.sample(sorted(state), len(state) // 3)
        changes = dict[bytes, bytes | None](batch) | dict.fromkeys(gone)
        tree.update(sorted(changes.items()))
        state = {path: value for path, value in (state | batch).items() if path not in gone}
        assert tree.root.hash == twin_root(twin_leaves(state))
    pages.written = 0
    path = min(state)
    tree.update([(path, h(b"new"))])
    assert tree.root.hash == twin_root(twin_leaves(state | {path: h(b"new")}))
    assert pages.written <= 5, "one page, and the groups above it"
    assert all(len(content) <= 64 * LEAVES_MAX for key, content in pages.kept.items() if key[:1] == b"p")
