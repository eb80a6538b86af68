"""How is LevelDB used?  The only module that names plyvel.

A 32 MiB write buffer keeps compactions few, bloom filters make a look-up of an absent key cheap, and nothing is
compressed: most of what is here are hashes and ids. plyvel lets other threads run inside its calls, so an object that
one thread closes while another reads from it would pull the floor away: every snapshot has a lock, and the database is
closed only behind its snapshots.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakSet

import plyvel

from ledger.core.errors import DatabaseDamaged, StorageFailed

WRITE_BUFFER_BYTES = 32 << 20
BLOCK_CACHE_BYTES = 64 << 20
BLOOM_FILTER_BITS = 10
OPEN_FILES_MAX = 256

_CHUNK = 256
"""Pairs that a range takes from the database at a time."""


class LevelDbBatch:
    """A write batch of one database, always synced."""

    __slots__ = ("_batch", "delete", "put")

    def __init__(self, database: Any) -> None:
        """Begin with no changes."""
        self._batch = database.write_batch(sync=True)
        self.put = self._batch.put
        self.delete = self._batch.delete

    def write(self) -> None:
        """Write the batch and sync; see `engine.Batch`."""
        try:
            self._batch.write()
        except (plyvel.Error, OSError) as error:
            raise StorageFailed(f"writing the database failed: {error}") from error


class LevelDbSnapshot:
    """A LevelDB snapshot."""

    __slots__ = ("__weakref__", "_get", "_lock", "_snapshot")

    def __init__(self, snapshot: Any) -> None:
        """Hold a snapshot until `close`."""
        self._snapshot = snapshot
        self._get = snapshot.get
        self._lock = Lock()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        with self._lock:
            if self._snapshot is None:
                raise StorageFailed("the database was closed")
            try:
                value: bytes | None = self._get(key, verify_checksums=True)
            except (plyvel.Error, OSError) as error:
                raise StorageFailed(f"reading the database failed: {error}") from error
        return value

    def range(self, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs, some hundred taken at a time."""
        with self._lock:
            if self._snapshot is None:
                raise StorageFailed("the database was closed")
            pairs = self._snapshot.iterator(
                start=start, stop=stop, reverse=reverse, verify_checksums=True, fill_cache=False
            )
        try:
            while True:
                with self._lock:
                    if self._snapshot is None:
                        raise StorageFailed("the database was closed")
                    try:
                        chunk = list(islice(pairs, _CHUNK))
                    except (plyvel.Error, OSError) as error:
                        raise StorageFailed(f"reading the database failed: {error}") from error
                yield from chunk
                if len(chunk) < _CHUNK:
                    return
        finally:
            with self._lock:
                if self._snapshot is not None:
                    pairs.close()

    def close(self) -> None:
        """Give the snapshot back; twice is harmless."""
        with self._lock:
            if self._snapshot is not None:
                self._snapshot.close()
                self._snapshot = None


class LevelDbEngine:
    """A LevelDB database in a folder."""

    def __init__(self, directory: Path) -> None:
        """Open or create it.

        Raises:
            DatabaseDamaged: LevelDB finds its files damaged.
            StorageFailed: The disk failed, or another process has it open.
        """
        self.directory = directory
        try:
            self._database = plyvel.DB(
                str(directory),
                create_if_missing=True,
                write_buffer_size=WRITE_BUFFER_BYTES,
                lru_cache_size=BLOCK_CACHE_BYTES,
                bloom_filter_bits=BLOOM_FILTER_BITS,
                max_open_files=OPEN_FILES_MAX,
                compression=None,
                paranoid_checks=False,
            )
        except plyvel.CorruptionError as error:
            raise DatabaseDamaged(f"database {directory} is damaged: {error}; rebuild it from the segments") from error
        except (plyvel.Error, OSError) as error:
            if "CURRENT" in str(error) or "missing files" in str(error):
                raise DatabaseDamaged(
                    f"database {directory} lacks files: {error}; rebuild it from the segments"
                ) from error
            raise StorageFailed(f"opening database {directory} failed: {error}") from error
        self._snapshots: WeakSet[LevelDbSnapshot] = WeakSet()
        self._lock = Lock()
        self._closed = False

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key now, or None."""
        try:
            value: bytes | None = self._database.get(key, verify_checksums=True)
        except plyvel.CorruptionError as error:
            raise DatabaseDamaged(f"database {self.directory} is damaged: {error}; rebuild it") from error
        except (plyvel.Error, OSError) as error:
            raise StorageFailed(f"reading the database failed: {error}") from error
        return value

    def batch(self) -> LevelDbBatch:
        """Begin a batch."""
        return LevelDbBatch(self._database)

    def snapshot(self) -> LevelDbSnapshot:
        """Freeze what is there."""
        with self._lock:
            if self._closed:
                raise StorageFailed("the database was closed")
            snapshot = LevelDbSnapshot(self._database.snapshot())
            self._snapshots.add(snapshot)
        return snapshot

    def statistics(self) -> str:
        """Describe levels, compactions and stalls."""
        raw = self._database.get_property(b"leveldb.stats")
        return raw.decode() if raw else ""

    def close(self) -> None:
        """Close the snapshots, then the database; twice is harmless."""
        with self._lock:
            self._closed = True
            for snapshot in list(self._snapshots):
                snapshot.close()
            self._database.close()
