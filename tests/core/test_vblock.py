"""vBlocks: their hashes against the formulas of the design, written out again, and what a stub keeps."""

import struct
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.merkle import EMPTY_ROOT
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId, Digest, TxId, TxIndex, Verdict
from ledger.core.vblock import Leaf, VBlockHeader, build_vblock, leaf_hash, tx_root, vblock_hash
from tests.kit.channel import CHANNEL, Channel
from tests.kit.transactions import writes


def h(*parts: bytes) -> bytes:
    return sha256(b"".join(parts)).digest()


def lp(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def twin_leaf(leaf: Leaf) -> bytes:
    return h(b"\x00", struct.pack(">IB", leaf.index, leaf.verdict), leaf.envelope_digest, lp(leaf.tx_id.encode()))


def twin_root(leaves: list[bytes]) -> bytes:
    if len(leaves) < 2:
        return leaves[0] if leaves else h(b"")
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return h(b"\x01", twin_root(leaves[:k]), twin_root(leaves[k:]))


def twin_hash(channel: str, header: VBlockHeader) -> bytes:
    return h(
        lp(b"peerledger/vblock/v1"),
        lp(channel.encode()),
        struct.pack(">Q", header.number),
        header.previous_hash,
        header.block_hash,
        struct.pack(">II", header.transaction_count, header.valid_count),
        header.tx_root,
        lp(header.commit_hash),
    )


DIGESTS = st.binary(min_size=32, max_size=32).map(Digest)
LEAVES = st.lists(
    st.builds(
        Leaf,
        index=st.integers(0, 2**32 - 1).map(TxIndex),
        verdict=st.integers(0, 255),
        envelope_digest=DIGESTS,
        tx_id=st.text(st.characters(exclude_categories=["Cs"]), max_size=70).map(TxId),
    ),
    max_size=20,
)
HEADERS = st.builds(
    VBlockHeader,
    number=st.integers(0, 2**64 - 1).map(BlockNumber),
    previous_hash=DIGESTS,
    block_hash=DIGESTS,
    transaction_count=st.integers(0, 2**32 - 1),
    valid_count=st.integers(0, 2**32 - 1),
    tx_root=DIGESTS,
    commit_hash=st.one_of(st.just(b""), DIGESTS),
)


@given(leaves=LEAVES)
def test_the_transactions_of_a_block_have_the_root_that_the_design_gives_them(leaves: list[Leaf]) -> None:
    assert [leaf_hash(each) for each in leaves] == [twin_leaf(each) for each in leaves]
    assert tx_root(leaves) == twin_root([twin_leaf(each) for each in leaves])


@given(channel=st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True), header=HEADERS)
def test_a_header_has_the_hash_that_the_design_gives_it(channel: str, header: VBlockHeader) -> None:
    assert vblock_hash(ChannelId(channel), header) == twin_hash(channel, header)


def test_a_known_answer_for_a_header_of_zeros() -> None:
    header = VBlockHeader(BlockNumber(0), ZERO_DIGEST, ZERO_DIGEST, 0, 0, EMPTY_ROOT, b"")
    expected = sha256(
        bytes.fromhex("00000014") + b"peerledger/vblock/v1" + bytes.fromhex("00000001") + b"c" + bytes(8 + 32 + 32 + 8)
        + bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855") + bytes(4)
    ).digest()  # fmt: skip
    assert vblock_hash(ChannelId("c"), header) == expected


LEAF = Leaf(TxIndex(3), 0, Digest(h(b"envelope")), TxId("id"))


@pytest.mark.parametrize(
    "changes",
    [{"index": 4}, {"verdict": 11}, {"envelope_digest": h(b"another")}, {"tx_id": ""}, {"tx_id": "ie"}],
)
def test_everything_that_a_leaf_says_is_under_its_hash(changes: dict[str, object]) -> None:
    assert leaf_hash(replace(LEAF, **changes)) != leaf_hash(LEAF)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 1},
        {"previous_hash": h(b"1")},
        {"block_hash": h(b"2")},
        {"transaction_count": 1},
        {"valid_count": 1},
        {"tx_root": h(b"3")},
        {"commit_hash": h(b"4")},
    ],
)
def test_everything_that_a_header_says_is_under_its_hash(changes: dict[str, object]) -> None:
    header = VBlockHeader(BlockNumber(0), ZERO_DIGEST, ZERO_DIGEST, 0, 0, EMPTY_ROOT, b"")
    assert vblock_hash(ChannelId("c"), replace(header, **changes)) != vblock_hash(ChannelId("c"), header)  # type: ignore[arg-type]
    assert vblock_hash(ChannelId("d"), header) != vblock_hash(ChannelId("c"), header)


def test_a_vblock_keeps_valid_envelopes_whole_and_of_the_others_a_stub() -> None:
    channel = Channel().define()
    good, bad = channel.draft(writes("asset", "a")), channel.draft(writes("asset", "b"), endorsers=())
    last = channel.draft(writes("asset", "c"))
    envelopes = [good.envelope(), bad.envelope(), last.envelope()]
    outcome = channel.judge(channel.block(*envelopes))
    vblock = build_vblock(ChannelId(CHANNEL), outcome, Digest(h(b"previous")))
    assert [each for each, _ in vblock.valid_envelopes] == [0, 2]  # Never renumbered.
    assert [each for _, each in vblock.valid_envelopes] == [envelopes[0], envelopes[2]]
    stub = vblock.leaves[1]
    assert (stub.index, stub.verdict) == (1, Verdict.ENDORSEMENT_POLICY_FAILURE)
    assert (stub.envelope_digest, stub.tx_id) == (h(envelopes[1]), bad.id())
    header = vblock.header
    assert (header.transaction_count, header.valid_count, header.previous_hash) == (3, 2, h(b"previous"))
    assert header.commit_hash == outcome.commit_hash
    assert vblock.vblock_hash == twin_hash(CHANNEL, header)


def test_a_block_without_any_valid_transaction_has_a_vblock_too() -> None:
    channel = Channel().define()
    outcome = channel.judge(channel.block(channel.draft(writes("asset", "a"), endorsers=()).envelope()))
    vblock = build_vblock(ChannelId(CHANNEL), outcome)
    assert (vblock.header.valid_count, vblock.valid_envelopes) == (0, ())
    assert vblock.header.previous_hash == ZERO_DIGEST
    assert vblock.vblock_hash == twin_hash(CHANNEL, vblock.header)
