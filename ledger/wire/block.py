"""Which bytes are a block, and is each of its envelopes well formed?

`common.Block` to values of `core.block`, and back (fabric: protoutil/blockutils.go). The data hash is over the plain
concatenation of the envelopes, so bytes could move over the border of two of them without changing it: that an envelope
re-encodes to exactly the bytes it came as is what forbids it. Steps of `check_well_formed`:

1. at least one envelope;
2. a single envelope of type CONFIG needs no more: there is no border in such a block;
3. each envelope decodes, has a payload and a signature;
4. each envelope re-encodes to the same bytes. Unknown fields behind the known ones survive that, as in Go;
5. the data hash of the header is that of the envelopes.
"""

from typing import Any

from fabric_protos.common import common_pb2

from ledger.core.block import Block, Header, check_data_hash
from ledger.core.errors import InvalidBlock, MalformedMessage
from ledger.core.names import BlockNumber
from ledger.wire.messages import parse
from ledger.wire.orderer_metadata import metadata_value


def decode_block(data: bytes) -> Block:
    """Decode a serialized `common.Block`.

    Raises:
        InvalidBlock: It does not decode, or has no header.
    """
    try:
        # Each envelope is looked through for itself: twice would cost every block too much.
        message = parse(common_pb2.Block, data, "Block", looks_for_overflow=False)
    except MalformedMessage as error:
        raise InvalidBlock("block", rule="block message", expected="a common.Block", found=data) from error
    if not message.HasField("header"):
        raise InvalidBlock("block", rule="block header", expected="a header", found="none")
    return block_from(message)


def block_from(message: Any) -> Block:
    """Take the parts of a decoded `common.Block`."""
    header = message.header
    return Block(
        Header(BlockNumber(header.number), header.previous_hash, header.data_hash),
        tuple(message.data.data),
        tuple(message.metadata.metadata),
    )


def encode_block(block: Block) -> bytes:
    """Encode a block as `common.Block`."""
    return bytes(block_message(block).SerializeToString())


def block_message(block: Block) -> Any:
    """Make the `common.Block` message of a block."""
    header = block.header
    return common_pb2.Block(
        header=common_pb2.BlockHeader(
            number=header.number, previous_hash=header.previous_hash, data_hash=header.data_hash
        ),
        data=common_pb2.BlockData(data=block.envelopes),
        metadata=common_pb2.BlockMetadata(metadata=block.metadata),
    )


def is_config_block(block: Block) -> bool:
    """Tell whether a block is a config block: one envelope, and its header says CONFIG."""
    return len(block.envelopes) == 1 and envelope_type(block.envelopes[0]) == common_pb2.CONFIG


def envelope_type(envelope: bytes) -> int | None:
    """Give the header type that an envelope claims, None if there is none to be decoded."""
    try:
        payload = parse(common_pb2.Payload, parse(common_pb2.Envelope, envelope, "Envelope").payload, "Payload")
        if not payload.HasField("header"):
            return None
        return int(parse(common_pb2.ChannelHeader, payload.header.channel_header, "ChannelHeader").type)
    except MalformedMessage:
        return None


def check_well_formed(block: Block) -> None:
    """Check that every envelope of a block is well formed (steps above), and that the data hash is that of all.

    Raises:
        InvalidBlock: One is not; the rule names the step, the subject the envelope.
    """
    if not block.envelopes:
        raise InvalidBlock(f"block {block.number}", rule="empty block", expected="at least one envelope", found=0)
    if not is_config_block(block):
        for index, envelope in enumerate(block.envelopes):
            if split_envelope(envelope) is None:
                check_envelope(f"block {block.number}, envelope {index}", envelope)
    check_data_hash(block)


def check_envelope(subject: str, envelope: bytes) -> None:
    """Check one envelope that is not in the plainest form, by re-encoding it.

    Raises:
        InvalidBlock: It is not well formed.
    """
    try:
        message = parse(common_pb2.Envelope, envelope, "Envelope")
    except MalformedMessage as error:
        raise InvalidBlock(subject, rule="envelope message", expected="a common.Envelope", found=envelope) from error
    if not message.payload:
        raise InvalidBlock(subject, rule="envelope payload", expected="a payload", found="none")
    if not message.signature:
        raise InvalidBlock(subject, rule="envelope signature", expected="a signature", found="none")
    again = bytes(message.SerializeToString())
    if again != envelope:
        raise InvalidBlock(subject, rule="envelope re-encoding", expected=again, found=envelope)


def split_envelope(envelope: bytes) -> tuple[bytes, bytes] | None:
    """Cut an envelope in the plainest form into payload and signature, without a parser.

    Plainest: payload, then signature, both there, shortest lengths, nothing behind. All that honest clients send is.

    Returns:
        Payload and signature, None if the envelope has another form (and may be well formed all the same).
    """
    size = len(envelope)
    if not size or envelope[0] != 0x0A:
        return None
    start, end = plain_field(envelope, 1)
    if end >= size or start == end or envelope[end] != 0x12:
        return None
    signature_start, signature_end = plain_field(envelope, end + 1)
    if signature_end != size or signature_start == signature_end:
        return None
    return envelope[start:end], envelope[signature_start:]


def plain_field(data: bytes, offset: int) -> tuple[int, int]:
    """Read a minimal length at `offset`; return the borders of what it counts, beyond the end if it is none."""
    length = shift = 0
    for position in range(offset, min(offset + 5, len(data))):
        byte = data[position]
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                break
            return position + 1, position + 1 + length
        shift += 7
    return len(data) + 1, len(data) + 1


__all__ = [
    "check_well_formed",
    "decode_block",
    "encode_block",
    "envelope_type",
    "is_config_block",
    "metadata_value",
    "split_envelope",
]
