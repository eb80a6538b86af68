"""When is a block well formed, and which block follows which?

Values of a received block and the checks that need no state (fabric: common/deliverclient/block_verification.go,
protoutil/blockutils.go). `wire.block` makes these values from bytes; signatures are checked by `orderer_signatures`.
"""

from dataclasses import dataclass

from ledger.core.names import BlockNumber

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
