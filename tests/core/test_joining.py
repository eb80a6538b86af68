"""Does each check of what a joiner gets refuse what is not so, by its own rule?"""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.core.block import Block, Header
from ledger.core.checkpoint import Statement
from ledger.core.checkpoint_proof import CheckpointRules
from ledger.core.errors import InvalidBlock, InvalidCheckpoint, InvalidProof, PolicyNotSatisfied, Refused
from ledger.core.hashing import data_hash, digest
from ledger.core.joining import (
    CHUNK_BITS_MAX,
    BlockHead,
    HeadChain,
    JoinOffer,
    StateChunk,
    check_checkpoint_block,
    check_chunk,
    check_is_of,
    check_leaves,
    check_offer,
    chunk_bits,
    chunk_of,
    chunk_path,
    chunk_proof,
)
from ledger.core.merkle import leaf_hash as log_leaf
from ledger.core.merkle import slow_tree_hash
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId, Digest, TxId, TxIndex
from ledger.core.orderer_signatures import OrdererMetadata
from ledger.core.policy import extended
from ledger.core.state import Entry, StateKey, Version
from ledger.core.state_tree import StateLeaf, StateProof, bit_at, path_of, slow_root, slow_subtree, value_hash
from ledger.core.vblock import Leaf, VBlockHeader, tx_root, vblock_hash
from ledger.wire.orderer_metadata import orderer_metadata
from tests.kit.channel import CHANNEL, Channel
from tests.kit.checkpointing import default_bundle, organisations, proof

CHANNEL_ID = ChannelId(CHANNEL)


def rule_of(error: pytest.ExceptionInfo[Refused]) -> str:
    return error.value.rule


# -- heads and leaves


def some_leaves(number: int, count: int = 3) -> tuple[Leaf, ...]:
    return tuple(
        Leaf(TxIndex(index), 11 if index == 1 else 0, digest(b"%d %d" % (number, index)), TxId(f"id {number} {index}"))
        for index in range(count)
    )


def chain(count: int) -> tuple[list[BlockHead], Statement]:
    """Heads of a chain, and what is signed of it, derived by the plain rules."""
    heads: list[BlockHead] = []
    hashes: list[Digest] = []
    previous, named = ZERO_DIGEST, b""
    for number in map(BlockNumber, range(count)):
        leaves = some_leaves(number)
        commit_hash = digest(b"commit %d" % number) if number else b""
        head = BlockHead(number, named, digest(b"data %d" % number), 3, 2, tx_root(leaves), commit_hash)
        named = head.block_hash
        header = VBlockHeader(number, previous, head.block_hash, 3, 2, head.tx_root, commit_hash)
        previous = vblock_hash(CHANNEL_ID, header)
        heads.append(head)
        hashes.append(previous)
    root = slow_tree_hash([log_leaf(each) for each in hashes])
    return heads, Statement(CHANNEL_ID, BlockNumber(count - 1), previous, root, digest(b"state"))


def follow(heads: list[BlockHead], statement: Statement, genesis_hash: Digest | None = None) -> None:
    following = HeadChain(statement, genesis_hash or chain(1)[0][0].block_hash)
    for head in heads:
        following.add(head)
    following.finish()


@given(count=st.integers(1, 40))
def test_the_heads_of_any_chain_are_those_that_were_signed(count: int) -> None:
    heads, statement = chain(count)
    follow(heads, statement)


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "number": ({"number": 7}, "block number"),
    "previous hash": ({"previous_hash": bytes(32)}, "previous hash"),
    "data hash": ({"data_hash": bytes(32)}, "previous hash"),
    "transactions": ({"transaction_count": 4}, "vBlock hash"),
    "valid ones": ({"valid_count": 3}, "vBlock hash"),
    "transaction root": ({"tx_root": Digest(bytes(32))}, "vBlock hash"),
    "commit hash": ({"commit_hash": bytes(32)}, "vBlock hash"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_head_that_was_changed_is_refused(what: str) -> None:
    """Goal: every member of a head is under what was signed.  Method: one of block 3 of 6 is another."""
    heads, statement = chain(6)
    change, rule = CHANGES[what]
    heads[3] = replace(heads[3], **change)
    with pytest.raises(InvalidBlock) as caught:
        follow(heads, statement)
    assert rule_of(caught) == rule


def test_heads_that_are_too_few_or_too_many_are_refused() -> None:
    heads, statement = chain(6)
    with pytest.raises(InvalidBlock) as caught:
        follow(heads[:-1], statement)
    assert rule_of(caught) == "block count"
    with pytest.raises(InvalidBlock) as caught:
        follow(chain(7)[0], statement)
    assert rule_of(caught) == "block count"


def test_a_chain_from_another_genesis_block_is_refused_at_its_first_head() -> None:
    heads, statement = chain(2)
    with pytest.raises(InvalidBlock) as caught:
        follow(heads, statement, digest(b"another"))
    assert rule_of(caught) == "genesis block"


def test_a_false_log_root_is_refused() -> None:
    heads, statement = chain(5)
    with pytest.raises(InvalidBlock) as caught:
        follow(heads, replace(statement, vledger_root=digest(b"another")))
    assert rule_of(caught) == "VLedger root"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"verdict": 11}, "leaf count"),
        ({"envelope_digest": digest(b"another")}, "transaction root"),
        ({"tx_id": TxId("another")}, "transaction root"),
        ({"index": TxIndex(1)}, "leaf count"),
    ],
)
def test_a_leaf_that_was_changed_is_refused(change: dict[str, Any], rule: str) -> None:
    head, leaves = chain(1)[0][0], list(some_leaves(0))
    check_leaves(head, leaves)
    leaves[0] = replace(leaves[0], **change)
    with pytest.raises(InvalidBlock) as caught:
        check_leaves(head, leaves)
    assert rule_of(caught) == rule


def test_two_verdicts_that_were_swapped_are_refused() -> None:
    """Goal: the counts alone are not enough.  Method: another transaction is the invalid one."""
    head, leaves = chain(1)[0][0], list(some_leaves(0))
    leaves[0], leaves[1] = replace(leaves[0], verdict=11), replace(leaves[1], verdict=0)
    with pytest.raises(InvalidBlock) as caught:
        check_leaves(head, leaves)
    assert rule_of(caught) == "transaction root"


def test_leaves_that_are_missing_or_too_many_are_refused() -> None:
    head, leaves = chain(1)[0][0], some_leaves(0)
    for found in (leaves[:-1], (), some_leaves(0, 4)):
        with pytest.raises(InvalidBlock) as caught:
            check_leaves(head, found)
        assert rule_of(caught) == "leaf count"


def test_leaves_are_those_of_the_block_where_it_is_known_whole() -> None:
    """Goal: members can't sign leaves that are not those of the block.  Method: leaves of other envelopes."""
    envelopes = (b"one", b"two")
    leaves = tuple(Leaf(TxIndex(at), 0, digest(each), TxId("")) for at, each in enumerate(envelopes))
    block = Block(Header(BlockNumber(0), b"", data_hash(envelopes)), envelopes, ())
    head = BlockHead(BlockNumber(0), b"", block.header.data_hash, 2, 2, tx_root(leaves), b"")
    check_is_of(block, head)
    check_leaves(head, leaves, block)
    false = (leaves[0], replace(leaves[1], envelope_digest=digest(b"three")))
    with pytest.raises(InvalidBlock) as caught:
        check_leaves(replace(head, tx_root=tx_root(false)), false, block)
    assert rule_of(caught) == "envelope digests"


# -- the block at the checkpoint


def checkpoint_block(channel: Channel) -> tuple[Block, BlockHead, OrdererMetadata]:
    block = channel.block(channel.draft().envelope())
    head = BlockHead(block.number, block.header.previous_hash, block.header.data_hash, 1, 1, ZERO_DIGEST, b"")
    return block, head, orderer_metadata(block, channel.bundle)


def test_the_block_at_the_checkpoint_is_whole_and_signed_and_names_the_last_config_block() -> None:
    channel = Channel()
    block, head, metadata = checkpoint_block(channel)
    check_checkpoint_block(block, head, metadata, channel.bundle, BlockNumber(0))
    cases: list[tuple[str, tuple[Block, BlockHead, OrdererMetadata]]] = [
        ("block hash", (replace(block, header=replace(block.header, previous_hash=b"x")), head, metadata)),
        ("data hash", (replace(block, envelopes=(*block.envelopes, b"more")), head, metadata)),
        ("orderer signatures", (block, head, replace(metadata, signed=()))),
    ]
    for rule, parts in cases:
        with pytest.raises(InvalidBlock) as caught:
            check_checkpoint_block(*parts, channel.bundle, BlockNumber(0))
        assert rule_of(caught) == rule
    with pytest.raises(InvalidBlock) as caught:
        check_checkpoint_block(block, head, metadata, channel.bundle, BlockNumber(1))
    assert rule_of(caught) == "last config index"


# -- the offer


def offer(**changes: Any) -> tuple[JoinOffer, Digest]:
    config_digest, root = digest(b"config"), digest(b"root")
    from ledger.core.checkpoint import CheckpointRoots

    roots = CheckpointRoots(BlockNumber(9), digest(b"v"), digest(b"l"), root, BlockNumber(5), config_digest)
    signers = [each.peer for each in organisations(3)]
    made = JoinOffer(
        CHANNEL_ID, proof(roots.statement(CHANNEL_ID), *signers[:2]), root, (BlockNumber(0), BlockNumber(5)), 0, 10
    )
    return replace(made, **changes), config_digest


def test_an_offer_holds_under_the_configuration_that_the_trail_leads_to() -> None:
    made, config = offer()
    signers = check_offer(made, CHANNEL_ID, default_bundle(3), config, CheckpointRules())
    assert [each.identity.msp_id for each in signers] == ["Org1MSP", "Org2MSP"]


def test_an_offer_that_does_not_fit_is_refused_by_rule() -> None:
    made, config = offer()
    bundle, none = default_bundle(3), CheckpointRules()
    own = CheckpointRules(extended.parse("'Org3MSP.peer'"))
    few = replace(made, proof=replace(made.proof, signatures=made.proof.signatures[:1]))
    cases: list[tuple[str, type[Refused], Any]] = [
        ("channel", InvalidCheckpoint, (made, ChannelId("another"), bundle, config, none)),
        ("state hash", InvalidCheckpoint, (replace(made, state_root=digest(b"x")), CHANNEL_ID, bundle, config, none)),
        ("state hash", InvalidCheckpoint, (made, CHANNEL_ID, bundle, digest(b"another config"), none)),
        (
            "state hash",
            InvalidCheckpoint,
            (replace(made, config_numbers=(BlockNumber(0), BlockNumber(4))), CHANNEL_ID, bundle, config, none),
        ),
        ("global policy", PolicyNotSatisfied, (few, CHANNEL_ID, bundle, config, none)),
        ("local policy", PolicyNotSatisfied, (made, CHANNEL_ID, bundle, config, own)),
    ]
    for rule, kind, parts in cases:
        with pytest.raises(kind) as caught:
            check_offer(*parts)
        assert rule_of(caught) == rule


# -- chunks


def state_of(seed: int, count: int) -> dict[StateKey, Entry]:
    chance = random.Random(seed)
    return {
        StateKey(0, "asset", "", b"key %d" % chance.randrange(10**6)): Entry(
            b"value %d" % at, Version(BlockNumber(at), TxIndex(0))
        )
        for at in range(count)
    }


def slow_path_proof(state: dict[StateKey, Entry], path: bytes) -> StateProof:
    """The way to any path, as the definition of the tree says it."""
    leaves = [(path_of(key), value_hash(entry)) for key, entry in state.items()]
    siblings: list[Digest] = []
    while len(leaves) > 1:
        depth = len(siblings)
        beside = [leaf for leaf in leaves if bit_at(leaf[0], depth) != bit_at(path, depth)]
        leaves = [leaf for leaf in leaves if bit_at(leaf[0], depth) == bit_at(path, depth)]
        siblings.append(slow_subtree(beside, depth + 1))
    return StateProof(tuple(siblings), StateLeaf(*leaves[0]) if leaves else None)


def cut(state: dict[StateKey, Entry], bits: int) -> list[StateChunk]:
    """All chunks of a state, by brute force."""
    return [
        StateChunk(
            index,
            tuple((key, entry) for key, entry in state.items() if chunk_of(path_of(key), bits) == index),
            chunk_proof(slow_path_proof(state, chunk_path(index, bits)), bits),
        )
        for index in range(1 << bits)
    ]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(0, 40), bits=st.integers(0, 7))
def test_the_chunks_of_any_state_are_its_entries_and_each_holds_by_itself(seed: int, count: int, bits: int) -> None:
    """Goal: deep trees, and trees that end above the chunks, empty ones too."""
    state = state_of(seed, count)
    chunks = cut(state, bits)
    root = slow_root(state)
    for chunk in chunks:
        check_chunk(chunk, bits, root)
    assert {key: entry for chunk in chunks for key, entry in chunk.entries} == state


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 24), bits=st.integers(0, 6))
def test_a_chunk_with_one_entry_more_less_or_other_is_refused(seed: int, count: int, bits: int) -> None:
    state = state_of(seed, count)
    root, chance = slow_root(state), random.Random(seed)
    chunk = chance.choice([each for each in cut(state, bits) if each.entries])
    key, entry = chunk.entries[0]
    others = [each for each in cut(state_of(seed + 1, 400), bits)[chunk.index].entries if each[0] not in state]
    changed = [
        chunk.entries[1:],
        ((key, entry._replace(value=entry.value + b"!")), *chunk.entries[1:]),
        ((key, entry._replace(version=Version(BlockNumber(99), TxIndex(0)))), *chunk.entries[1:]),
        ((key, entry._replace(metadata=b"m")), *chunk.entries[1:]),
        ((key, entry._replace(expiry=BlockNumber(7))), *chunk.entries[1:]),
        ((key._replace(collection="c"), entry), *chunk.entries[1:]),
        (*chunk.entries, chunk.entries[0]),
        *[(*chunk.entries, other) for other in others[:1]],
    ]
    for entries in changed:
        with pytest.raises(InvalidProof) as caught:
            check_chunk(replace(chunk, entries=entries), bits, root)
        assert rule_of(caught) in {"state root", "chunk of an entry", "entries at the end of the way"}


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(2, 24), bits=st.integers(1, 6))
def test_a_chunk_in_another_one_s_place_is_refused_unless_nothing_is_in_it(seed: int, count: int, bits: int) -> None:
    """Goal: no entries are left out by showing another part of the tree.  Method: every pair of chunks."""
    state = state_of(seed, count)
    root, chunks = slow_root(state), cut(state, bits)
    for mine in chunks:
        for other in chunks:
            if mine.index == other.index or not mine.entries:
                continue
            for false in (replace(other, index=mine.index), replace(mine, entries=(), proof=other.proof)):
                with pytest.raises(InvalidProof):
                    check_chunk(false, bits, root)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 24), bits=st.integers(0, 6))
def test_no_mutated_way_makes_an_empty_chunk_of_a_full_one(seed: int, count: int, bits: int) -> None:
    """Goal: absence must be proved.  Method: ways that are cut, emptied, or end in a leaf of one's choice."""
    state = state_of(seed, count)
    root = slow_root(state)
    for chunk in cut(state, bits):
        if not chunk.entries:
            continue
        key, entry = chunk.entries[0]
        leaf = StateLeaf(path_of(key), value_hash(entry))
        whole = slow_path_proof(state, chunk_path(chunk.index, bits))
        ways = [chunk.proof, whole, *[StateProof(whole.siblings[:depth], whole.leaf) for depth in range(bits + 1)]]
        for way in ways:
            for end in (None, leaf, way.leaf, StateLeaf(bytes(32), digest(b"x"))):
                with pytest.raises(InvalidProof):
                    check_chunk(StateChunk(chunk.index, (), StateProof(way.siblings, end)), bits, root)


def test_a_way_that_is_too_long_or_ends_in_a_foreign_leaf_is_refused_by_rule() -> None:
    state = state_of(1, 8)
    root = slow_root(state)
    chunk = cut(state, 2)[0]
    with pytest.raises(InvalidProof) as caught:
        check_chunk(replace(chunk, proof=StateProof((*chunk.proof.siblings, ZERO_DIGEST), None)), 2, root)
    assert rule_of(caught) == "proof length"
    with pytest.raises(InvalidProof) as caught:
        check_chunk(StateChunk(0, (), StateProof((ZERO_DIGEST,), StateLeaf(b"\xff" * 32, ZERO_DIGEST))), 2, root)
    assert rule_of(caught) == "shared bits"
    with pytest.raises(InvalidProof) as caught:
        check_chunk(StateChunk(0, (), StateProof((ZERO_DIGEST,), StateLeaf(b"", ZERO_DIGEST))), 2, root)
    assert rule_of(caught) == "shared bits"


def test_states_are_cut_by_entries_and_by_bytes() -> None:
    assert chunk_bits(0, 0) == 0
    assert chunk_bits(2_000, 1 << 20) == 0
    assert chunk_bits(2_001, 100) == 1
    assert chunk_bits(10, 8 << 20) == 3
    assert chunk_bits(10**12, 10**15) == CHUNK_BITS_MAX
