"""How do a joiner's questions and their answers travel?  Messages of `ledger.v1.Joining` to and from `core.joining`.

Every length that a hash depends on is checked here; what the contents are worth, `core.joining` checks.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from ledger.core.checkpoint import FORMAT, CheckpointProof
from ledger.core.errors import MalformedMessage
from ledger.core.joining import CHUNK_BITS_MAX, BlockHead, JoinOffer, StateChunk
from ledger.core.names import BlockNumber, ChannelId, Digest, TxId, TxIndex
from ledger.core.state import HASHED, Entry, StateKey, Version
from ledger.core.state_tree import StateLeaf, StateProof
from ledger.core.vblock import Leaf
from ledger.wire.checkpoint import proof_from, put_proof
from ledger.wire.ledger_v1 import joining_pb2 as pb

ANSWER_BYTES_MAX = 64 * 2**20
CONFIG_BLOCKS_MAX = 100_000
DIGEST_BYTES = 32


class BlockQuestion(NamedTuple):
    """Asks for a block, or for what fits of those up to another."""

    channel: ChannelId
    number: BlockNumber
    last: BlockNumber


class ChunkQuestion(NamedTuple):
    """Asks for a chunk of the state."""

    channel: ChannelId
    checkpoint: BlockNumber
    chunk: int


def _parse(kind: Any, data: bytes, subject: str) -> Any:
    if len(data) > ANSWER_BYTES_MAX:
        raise MalformedMessage(subject, rule="length", expected=f"at most {ANSWER_BYTES_MAX} bytes", found=len(data))
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedMessage(subject, rule="protobuf", expected=f"a {subject}", found=data) from error


def _digest(data: bytes, subject: str) -> Digest:
    if len(data) != DIGEST_BYTES:
        raise MalformedMessage(subject, rule="hash length", expected=DIGEST_BYTES, found=len(data))
    return Digest(data)


# -- questions


def encode_offer_question(channel_id: str) -> bytes:
    """Ask what can be joined from."""
    return bytes(pb.OfferRequest(channel=channel_id, format=FORMAT).SerializeToString())


def decode_offer_question(data: bytes) -> ChannelId:
    """Read the channel that is asked about.

    Raises:
        MalformedMessage: It does not decode, or is of another format.
    """
    message = _parse(pb.OfferRequest, data, "join question")
    _check_format(message.format)
    return ChannelId(message.channel)


def encode_block_question(question: BlockQuestion) -> bytes:
    """Ask for a block or a range."""
    return bytes(
        pb.BlockRequest(channel=question.channel, number=question.number, last=question.last).SerializeToString()
    )


def decode_block_question(data: bytes) -> BlockQuestion:
    """Read a question about blocks; raises `MalformedMessage`."""
    message = _parse(pb.BlockRequest, data, "block question")
    return BlockQuestion(ChannelId(message.channel), BlockNumber(message.number), BlockNumber(message.last))


def encode_chunk_question(question: ChunkQuestion) -> bytes:
    """Ask for a chunk."""
    return bytes(
        pb.ChunkRequest(
            channel=question.channel, checkpoint=question.checkpoint, index=question.chunk
        ).SerializeToString()
    )


def decode_chunk_question(data: bytes) -> ChunkQuestion:
    """Read a question about a chunk; raises `MalformedMessage`."""
    message = _parse(pb.ChunkRequest, data, "chunk question")
    return ChunkQuestion(ChannelId(message.channel), BlockNumber(message.checkpoint), message.index)


# -- answers


def encode_offer(offer: JoinOffer) -> bytes:
    """Write an offer."""
    message: Any = pb.Offer(
        format=FORMAT,
        state_root=offer.state_root,
        config_numbers=offer.config_numbers,
        chunk_bits=offer.chunk_bits,
        interval_blocks=offer.interval_blocks,
    )
    put_proof(message.proof, offer.proof)
    return bytes(message.SerializeToString())


def decode_offer(data: bytes) -> JoinOffer:
    """Read an offer.

    Raises:
        MalformedMessage: It does not decode, or its numbers can't be.
    """
    message = _parse(pb.Offer, data, "join offer")
    _check_format(message.format)
    proof: CheckpointProof = proof_from(message.proof)
    numbers = tuple(message.config_numbers)
    ascending = all(one < other for one, other in pairwise(numbers))
    if not numbers or len(numbers) > CONFIG_BLOCKS_MAX or numbers[0] != 0 or not ascending:
        raise MalformedMessage("join offer", rule="config blocks", expected="0 and ascending", found=numbers[:10])
    if numbers[-1] > proof.statement.number:
        raise MalformedMessage(
            "join offer", rule="config blocks", expected=f"at most {proof.statement.number}", found=numbers[-1]
        )
    if message.chunk_bits > CHUNK_BITS_MAX:
        raise MalformedMessage(
            "join offer", rule="chunks", expected=f"at most 2^{CHUNK_BITS_MAX}", found=message.chunk_bits
        )
    return JoinOffer(
        proof.statement.channel,
        proof,
        _digest(message.state_root, "state root"),
        tuple(BlockNumber(number) for number in numbers),
        message.chunk_bits,
        message.interval_blocks,
    )


def encode_block_answer(block: bytes) -> bytes:
    """Write the answer that is a block."""
    return bytes(pb.BlockAnswer(block=block).SerializeToString())


def decode_block_answer(data: bytes) -> bytes:
    """Read the answer that is a block; raises `MalformedMessage`."""
    return bytes(_parse(pb.BlockAnswer, data, "block answer").block)


def encode_heads(heads: Sequence[BlockHead]) -> bytes:
    """Write heads of blocks."""
    message: Any = pb.Heads()
    for head in heads:
        message.heads.add(
            number=head.number, previous_hash=head.previous_hash, data_hash=head.data_hash,
            transaction_count=head.transaction_count, valid_count=head.valid_count, tx_root=head.tx_root,
            commit_hash=head.commit_hash,
        )  # fmt: skip
    return bytes(message.SerializeToString())


def decode_heads(data: bytes) -> tuple[BlockHead, ...]:
    """Read heads of blocks; raises `MalformedMessage`."""
    return tuple(
        BlockHead(
            BlockNumber(head.number),
            head.previous_hash,
            head.data_hash,
            head.transaction_count,
            head.valid_count,
            _digest(head.tx_root, "transaction root"),
            head.commit_hash,
        )
        for head in _parse(pb.Heads, data, "block heads").heads
    )


def encode_leaves(blocks: Sequence[tuple[BlockNumber, Sequence[Leaf]]]) -> bytes:
    """Write the leaves of blocks."""
    message: Any = pb.Leaves()
    for number, leaves in blocks:
        message.blocks.add(
            number=number,
            verdicts=bytes(leaf.verdict for leaf in leaves),
            envelope_digests=b"".join(leaf.envelope_digest for leaf in leaves),
            tx_ids=[leaf.tx_id for leaf in leaves],
        )
    return bytes(message.SerializeToString())


def decode_leaves(data: bytes) -> tuple[tuple[BlockNumber, tuple[Leaf, ...]], ...]:
    """Read the leaves of blocks.

    Raises:
        MalformedMessage: They do not decode, or their numbers of parts differ.
    """
    found = []
    for block in _parse(pb.Leaves, data, "block leaves").blocks:
        count, digests = len(block.verdicts), block.envelope_digests
        if len(block.tx_ids) != count or len(digests) != count * DIGEST_BYTES:
            raise MalformedMessage(
                f"leaves of block {block.number}", rule="leaf parts", expected=count,
                found=f"{len(block.tx_ids)} ids, {len(digests)} bytes of digests",
            )  # fmt: skip
        found.append(
            (
                BlockNumber(block.number),
                tuple(
                    Leaf(
                        TxIndex(index),
                        verdict,
                        Digest(digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]),
                        TxId(block.tx_ids[index]),
                    )
                    for index, verdict in enumerate(block.verdicts)
                ),
            )
        )
    return tuple(found)


def encode_chunk(chunk: StateChunk) -> bytes:
    """Write a chunk of the state."""
    end = chunk.proof.leaf
    message: Any = pb.Chunk(
        index=chunk.index,
        siblings=b"".join(chunk.proof.siblings),
        end=b"" if end is None else end.path + end.value_hash,
    )
    for key, entry in chunk.entries:
        message.entries.add(
            kind=key.kind, namespace=key.namespace, collection=key.collection, key=key.key, value=entry.value,
            block=entry.version.block, index=entry.version.index, metadata=entry.metadata, expiry=entry.expiry,
        )  # fmt: skip
    return bytes(message.SerializeToString())


def decode_chunk(data: bytes) -> StateChunk:
    """Read a chunk of the state; raises `MalformedMessage`."""
    message = _parse(pb.Chunk, data, "state chunk")
    siblings, end = message.siblings, message.end
    if len(siblings) % DIGEST_BYTES or len(end) not in (0, 2 * DIGEST_BYTES):
        raise MalformedMessage("state chunk", rule="hash length", expected=DIGEST_BYTES, found=len(siblings))
    proof = StateProof(
        tuple(Digest(siblings[at : at + DIGEST_BYTES]) for at in range(0, len(siblings), DIGEST_BYTES)),
        StateLeaf(end[:DIGEST_BYTES], Digest(end[DIGEST_BYTES:])) if end else None,
    )
    unknown = [one.kind for one in message.entries if one.kind > HASHED]
    if unknown:
        raise MalformedMessage("state chunk", rule="kind of an entry", expected=f"at most {HASHED}", found=unknown[0])
    entries = tuple(
        (
            StateKey(one.kind, one.namespace, one.collection, one.key),
            Entry(one.value, Version(BlockNumber(one.block), TxIndex(one.index)), one.metadata, one.expiry),
        )
        for one in message.entries
    )
    return StateChunk(message.index, entries, proof)


def _check_format(found: int) -> None:
    if found != FORMAT:
        raise MalformedMessage("joining", rule="format version", expected=FORMAT, found=found)
