"""Which database needs no disk?  A sorted dictionary with the contract of `engine`, for tests and short-lived use.

What it holds is gone when it is closed; a test that reopens keeps the object and opens it again with `reopened`.
"""

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ledger.core.errors import StorageFailed


class MemoryBatch:
    """Changes that wait for their engine."""

    def __init__(self, engine: "MemoryEngine") -> None:
        """Begin with no changes."""
        self._engine = engine
        self._changes: list[tuple[bytes, bytes | None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key when the batch is written."""
        self._changes.append((key, value))

    def delete(self, key: bytes) -> None:
        """Remove a key when the batch is written."""
        self._changes.append((key, None))

    def write(self) -> None:
        """Write the batch; there is nothing to sync."""
        self._engine.apply(self._changes)


class MemorySnapshot:
    """A dictionary that nobody changes any more."""

    def __init__(self, pairs: dict[bytes, bytes]) -> None:
        """Share the pairs; the engine copies them before it changes them."""
        self._pairs: dict[bytes, bytes] | None = pairs
        self._keys: list[bytes] | None = None

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        return self._open().get(key)

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs of a range."""
        pairs = self._open()
        if self._keys is None:
            self._keys = sorted(pairs)
        low = bisect_left(self._keys, start)
        high = len(self._keys) if stop is None else bisect_left(self._keys, stop)
        keys = self._keys[low:high]
        for key in keys:
            self._open()
            yield key, pairs[key]

    def close(self) -> None:
        """Forget the pairs."""
        self._pairs = None

    def _open(self) -> dict[bytes, bytes]:
        if self._pairs is None:
            raise StorageFailed("the database was closed")
        return self._pairs


class MemoryEngine:
    """A database in a dictionary."""

    def __init__(self, directory: Path | None = None) -> None:
        """Begin empty; the folder is not used."""
        self._pairs: dict[bytes, bytes] = {}
        self._shared = False
        self._snapshots: list[MemorySnapshot] = []

    def reopened(self, directory: Path | None = None) -> Self:
        """Give the same database again, as opening a folder would."""
        return self

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key now, or None."""
        return self._pairs.get(key)

    def batch(self) -> MemoryBatch:
        """Begin a batch."""
        return MemoryBatch(self)

    def apply(self, changes: list[tuple[bytes, bytes | None]]) -> None:
        """Make all changes of a batch."""
        if self._shared:  # Snapshots keep what they saw.
            self._pairs, self._shared, self._snapshots = dict(self._pairs), False, []
        for key, value in changes:
            if value is None:
                self._pairs.pop(key, None)
            else:
                self._pairs[key] = value

    def snapshot(self) -> MemorySnapshot:
        """Freeze what is there."""
        self._shared = True
        snapshot = MemorySnapshot(self._pairs)
        self._snapshots.append(snapshot)
        return snapshot

    def statistics(self) -> str:
        """Describe the contents."""
        return f"{len(self._pairs)} keys in memory"

    def close(self) -> None:
        """Close the snapshots of the present contents."""
        for snapshot in self._snapshots:
            snapshot.close()
        self._snapshots = []
