"""When is a block well formed, and which block follows which?

Values of a received block and the checks that need no state (fabric: common/deliverclient/block_verification.go,
protoutil/blockutils.go). `wire.block` makes these values from bytes; signatures are checked by `orderer_signatures`.
"""

from dataclasses import dataclass

from ledger.core.errors import InvalidBlock
from ledger.core.hashing import data_hash, header_hash
from ledger.core.names import BlockNumber, Digest

SLOT_SIGNATURES = 0
SLOT_LAST_CONFIG = 1
SLOT_VERDICTS = 2
SLOT_ORDERER = 3
SLOT_COMMIT_HASH = 4
SLOT_COUNT = 5


@dataclass(frozen=True, slots=True)
class Header:
    """A block header."""

    number: BlockNumber
    previous_hash: bytes
    data_hash: bytes


@dataclass(frozen=True, slots=True)
class Block:
    """A received block: header, envelopes and metadata slots as they came."""

    header: Header
    envelopes: tuple[bytes, ...]
    """Serialized `common.Envelope`s in order."""

    metadata: tuple[bytes, ...]
    """Metadata slots as received; slots 2 and 4 are a peer's own and are never trusted."""

    @property
    def number(self) -> BlockNumber:
        """The number in the header."""
        return self.header.number


def block_hash(block: Block) -> Digest:
    """Hash a block's header: its name."""
    header = block.header
    return header_hash(header.number, header.previous_hash, header.data_hash)


def check_link(block: Block, number: BlockNumber, previous: Digest | None) -> None:
    """Check that a block follows the last one.

    Args:
        block: The block received.
        number: Number of the next block.
        previous: Header hash of the last block; None where there is none.

    Raises:
        InvalidBlock: It has another number, or names another block before it.
    """
    subject = f"block {block.number}"
    if block.number != number:
        raise InvalidBlock(subject, rule="block number", expected=number, found=block.number)
    if previous is not None and block.header.previous_hash != previous:
        raise InvalidBlock(subject, rule="previous hash", expected=previous, found=block.header.previous_hash)


def check_slots(block: Block) -> None:
    """Check that a block from an orderer has all its metadata slots.

    Raises:
        InvalidBlock: There are fewer.
    """
    if len(block.metadata) < SLOT_COUNT:
        raise InvalidBlock(
            f"block {block.number}", rule="metadata slots", expected=f"at least {SLOT_COUNT}", found=len(block.metadata)
        )


def check_data_hash(block: Block) -> None:
    """Check that the header's data hash is that of the envelopes.

    Raises:
        InvalidBlock: It is another.
    """
    found = data_hash(block.envelopes)
    if found != block.header.data_hash:
        raise InvalidBlock(f"block {block.number}", rule="data hash", expected=block.header.data_hash, found=found)
