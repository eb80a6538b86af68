"""What does Fabric's snapshot of this state look like, and does a recorded one hold the same?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from collections.abc import Iterator

from ledger.core.names import BlockNumber, TxId
from ledger.core.state import Entry, StateKey


class SnapshotSource(Protocol):
    """What a snapshot is made from: a ledger as of its last block."""

    def entries(self) -> Iterator[tuple[StateKey, Entry]]:
        """Yield all live entries, in any order."""
        ...

    def tx_ids(self) -> Iterator[TxId]:
        """Yield each distinct claimed id once, in any order."""
        ...

    def config_history(self) -> Iterator[tuple[str, BlockNumber, bytes]]:
        """Yield (chaincode, block, CollectionConfigPackage) of each commit that set collections, in any order."""
        ...


@dataclass(frozen=True, slots=True)
class Difference:
    """The first record that differs."""

    what: str
    key: str | None
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a ledger's state compares with a recorded snapshot."""

    mismatches: int
    """Records that differ, are missing, or are too many."""

    first: Difference | None


def compare_snapshot(source: SnapshotSource, directory: Path) -> Comparison:
    """Compare the state of a ledger with a recorded snapshot, record by record and byte for byte."""
    raise NotImplementedError
