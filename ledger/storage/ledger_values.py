"""What does the store say of itself?  The values that its readers and the people who prune work with."""

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.core.block import Block, Header
from ledger.core.names import BlockNumber, Digest
from ledger.core.vblock import Leaf


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block as the segments hold it, whole or with the bodies of its invalid transactions gone."""

    header: Header
    """Header as received."""

    metadata: tuple[bytes, ...]
    """Metadata slots as received from the orderer."""

    verdicts: bytes
    """One validation code per transaction."""

    commit_hash: bytes
    """Commit hash of the block; empty for block 0."""

    is_config: bool
    """Whether it is a config block."""

    leaves: tuple[Leaf, ...]
    """What the vBlock's tree says of each transaction."""

    envelopes: tuple[bytes | None, ...]
    """Every envelope in order; None for a body that was pruned (or not read)."""

    @property
    def number(self) -> BlockNumber:
        """The number in the header."""
        return self.header.number

    @property
    def is_whole(self) -> bool:
        """Whether every envelope is there."""
        return None not in self.envelopes

    @property
    def lacks_valid(self) -> bool:
        """Whether valid transactions are missing, as below the checkpoint that a ledger was joined from."""
        return any(leaf.verdict == 0 and one is None for leaf, one in zip(self.leaves, self.envelopes, strict=True))

    def block(self) -> Block:
        """Give the block back as received; it must be whole."""
        envelopes = tuple(envelope for envelope in self.envelopes if envelope is not None)
        assert len(envelopes) == len(self.envelopes), f"block {self.number} is not whole"
        return Block(self.header, envelopes, self.metadata)


@dataclass(frozen=True, slots=True)
class BlockSummary:
    """What is known of a block without reading it; pruning changes none of it."""

    number: BlockNumber
    block_hash: Digest
    vblock_hash: Digest
    tx_root: Digest
    commit_hash: bytes
    verdicts: bytes
    is_config: bool
    last_config: BlockNumber
    """Number of the newest config block at or below this one."""

    @property
    def valid_count(self) -> int:
        """Number of its valid transactions."""
        return self.verdicts.count(0)


@dataclass(frozen=True, slots=True)
class ConfigBlock:
    """A place in the trail of config blocks."""

    number: BlockNumber
    envelope_digest: Digest
    """SHA-256 of its one envelope."""


@dataclass(frozen=True, slots=True)
class CollectionCommit:
    """A commit of a chaincode definition that set collections."""

    namespace: str
    block: BlockNumber
    package: bytes
    """Serialized CollectionConfigPackage."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Somebody who needs whole blocks from a height on for a while."""

    number: BlockNumber
    """No block at or above this may be pruned."""

    owner: str
    """Who asked, for people to read."""

    seconds_left: float
    """Time after which the pin ends by itself."""


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What pruning to a height would do."""

    low: BlockNumber
    """First block that is whole now."""

    high: BlockNumber
    """First block that would be whole afterwards: blocks `[low, high)` would go."""

    transactions_by_verdict: Mapping[int, int]
    """How many transactions of these blocks have which verdict; those other than 0 lose their bodies."""

    bytes_freed: int
    """Size of the files that would go."""

    files: tuple[str, ...]
    """Their names."""

    pins: tuple[Pin, ...]
    """Pins in force, those that hold this back among them."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A prunable file that was copied and read back."""

    name: str
    size: int
    sha256: Digest


@dataclass(frozen=True, slots=True)
class PruneRecord:
    """One durable step of the prune point."""

    prune_point: BlockNumber
    """Highest block that is gone from then on."""

    receipt: bytes
    """What the caller wants kept of it for ever, opaque here."""


@dataclass(frozen=True, slots=True)
class CheckpointWork:
    """What computing a checkpoint took; depends on what changed, not on what there is."""

    entries: int
    """Changed entries looked at."""

    pages_read: int
    """Tree pages read."""

    pages_written: int
    """Tree pages written or removed."""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes on disk by what they are."""

    kept: int
    prunable: int
    records: int
    database: int
