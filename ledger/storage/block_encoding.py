"""How is a block given back as the bytes of a `common.Block`?  The few fields of that message, written by hand.

The store knows no message library, and needs no more than this: length-delimited fields in ascending order, defaults
left out, as every protobuf library writes them (common/common.proto of Fabric). The envelopes and metadata slots inside
are the bytes that came.
"""

from collections.abc import Iterable

from ledger.core.block import SLOT_COMMIT_HASH, SLOT_COUNT, SLOT_VERDICTS, Block
from ledger.core.encoding import uvarint


def block_message(block: Block) -> bytes:
    """Encode a block as `common.Block`."""
    header = block.header
    head = b"\x08" + uvarint(header.number) if header.number else b""
    head += _field(2, header.previous_hash) if header.previous_hash else b""
    head += _field(3, header.data_hash) if header.data_hash else b""
    return _field(1, head) + _field(2, _repeated(block.envelopes)) + _field(3, _repeated(block.metadata))


def with_own_slots(metadata: tuple[bytes, ...], verdicts: bytes, commit_hash: bytes) -> tuple[bytes, ...]:
    """Put this peer's verdicts and commit hash into the metadata that the orderer sent."""
    slots = [*metadata, *[b""] * (SLOT_COUNT - len(metadata))]
    slots[SLOT_VERDICTS] = verdicts
    slots[SLOT_COMMIT_HASH] = _field(1, commit_hash) if commit_hash else b""  # common.Metadata{value}
    return tuple(slots)


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + uvarint(len(content)) + content


def _repeated(items: Iterable[bytes]) -> bytes:
    return b"".join([_field(1, item) for item in items])
