"""What does the store need of a key-value database?  Ordered keys, atomic batches, snapshots; nothing else.

Two engines implement it and pass one suite: `engine_leveldb` on disk, `engine_memory` for tests. Everything that the
database holds is derived from the segments: it is never repaired, only made again.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol


class Batch(Protocol):
    """Changes that take effect together or not at all."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key when the batch is written."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove a key when the batch is written."""
        ...

    def write(self) -> None:
        """Write the batch and sync.

        Raises:
            StorageFailed: The disk failed; whether the batch is there shows at the next opening.

        Durability: it survives a power cut. There is no write without a sync: LevelDB begins a new log now and then
        without syncing the one before, so a later, synced batch could survive an earlier one that was not.
        """
        ...


class Snapshot(Protocol):
    """The database at one moment. Safe to use from several threads; after `close` every call raises StorageFailed.

    What can't be read back as it was written raises DatabaseDamaged: no reading leaves anything out, a range neither.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        ...

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs with `start <= key < stop` in the order of the bytes; `stop` None is unbounded."""
        ...

    def close(self) -> None:
        """Let the database drop what only this snapshot still sees."""
        ...


class Engine(Protocol):
    """A database, opened by one process. Keys are not empty and begin with an ASCII letter."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key now, or None. For the thread that writes; others read through a snapshot."""
        ...

    def batch(self) -> Batch:
        """Begin a batch."""
        ...

    def snapshot(self) -> Snapshot:
        """Freeze what is there."""
        ...

    def statistics(self) -> str:
        """Describe levels, compactions and stalls, for people and metrics."""
        ...

    def close(self) -> None:
        """Close the database; open snapshots fail from then on."""
        ...


OpenEngine = Callable[[Path], Engine]
"""Opens or creates the database in a folder; raises DatabaseDamaged or StorageFailed."""


def after_prefix(prefix: bytes) -> bytes | None:
    """Give the first key behind all keys with a prefix; None if there is no such bound."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
