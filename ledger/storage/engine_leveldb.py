"""How is LevelDB used?  The only module that names plyvel.

A 32 MiB write buffer keeps compactions few, bloom filters make a look-up of an absent key cheap, and nothing is
compressed: most of what is here are hashes and ids. plyvel lets other threads run inside its calls, so an object that
one thread closes while another reads from it would pull the floor away: every snapshot has a lock, and the database is
closed only behind its snapshots.

Rot must show, not change an answer. What that takes, each found by flipping bits:

- `paranoid_checks`: without it a flipped bit in a bloom filter makes a key absent, one in the log drops batches out of
  the middle, and a compaction copies a damaged block under a new checksum.
- An iterator that comes to the last block and can't read it just ends. So there is one key behind all others (`_LAST`):
  where that one can be read, an iterator that met damage stood on a valid key afterwards, and plyvel raised.
- LevelDB opens folders that lack files and takes in logs that are not its own: `leveldb_files` looks before it does.
  It also cuts what a power cut left at the end of the last log, which is no rot.
- Once damage was met the folder is marked, so that the next opening does not begin with it again.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakSet

import plyvel

from ledger.core.errors import DatabaseDamaged, StorageFailed, WorldFailed
from ledger.storage.leveldb_files import DAMAGED_NAME, check_files, cut_torn_log

WRITE_BUFFER_BYTES = 32 << 20
BLOCK_CACHE_BYTES = 64 << 20
BLOOM_FILTER_BITS = 10
OPEN_FILES_MAX = 256

_CHUNK = 256
"""Pairs that a range takes from the database at a time."""

_LAST = b"\xff"
"""A key behind all others."""


class LevelDbBatch:
    """A write batch of one database, always synced."""

    __slots__ = ("_batch", "_directory", "delete", "put")

    def __init__(self, database: Any, directory: Path) -> None:
        """Begin with no changes."""
        self._directory = directory
        self._batch = database.write_batch(sync=True)
        self.put = self._batch.put
        self.delete = self._batch.delete

    def write(self) -> None:
        """Write the batch and sync; see `engine.Batch`."""
        try:
            self._batch.write()
        except (plyvel.Error, OSError) as error:
            raise _failure("writing", self._directory, error) from error


class LevelDbSnapshot:
    """A LevelDB snapshot."""

    __slots__ = ("__weakref__", "_directory", "_get", "_lock", "_snapshot")

    def __init__(self, snapshot: Any, directory: Path) -> None:
        """Hold a snapshot until `close`."""
        self._snapshot = snapshot
        self._directory = directory
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
                raise _failure("reading", self._directory, error) from error
        return value

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs, some hundred taken at a time."""
        with self._lock:
            if self._snapshot is None:
                raise StorageFailed("the database was closed")
            try:  # It goes to its first pair, and may have to open a table for that.
                pairs = self._snapshot.iterator(
                    start=start, stop=_LAST if stop is None else stop, verify_checksums=True, fill_cache=False
                )
            except (plyvel.Error, OSError) as error:
                raise _failure("reading", self._directory, error) from error
        try:
            while True:
                with self._lock:
                    if self._snapshot is None:
                        raise StorageFailed("the database was closed")
                    try:
                        chunk = list(islice(pairs, _CHUNK))
                        is_end = len(chunk) < _CHUNK
                        if is_end and self._get(_LAST, verify_checksums=True) is None:
                            raise plyvel.CorruptionError("its last key is gone")
                    except (plyvel.Error, OSError) as error:
                        raise _failure("reading", self._directory, error) from error
                yield from chunk
                if is_end:
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
            self._database = _open(directory)
        except DatabaseDamaged:
            if not cut_torn_log(directory):
                raise
            self._database = _open(directory)
        self._snapshots: WeakSet[LevelDbSnapshot] = WeakSet()
        self._lock = Lock()
        self._closed = False
        try:
            if self.get(_LAST) is None:
                self._database.put(_LAST, b"", sync=True)
        except (plyvel.Error, OSError) as error:
            self._database.close()
            raise _failure("writing", directory, error) from error
        except WorldFailed:
            self._database.close()
            raise

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key now, or None."""
        try:
            value: bytes | None = self._database.get(key, verify_checksums=True)
        except (plyvel.Error, OSError) as error:
            raise _failure("reading", self.directory, error) from error
        return value

    def batch(self) -> LevelDbBatch:
        """Begin a batch."""
        return LevelDbBatch(self._database, self.directory)

    def snapshot(self) -> LevelDbSnapshot:
        """Freeze what is there."""
        with self._lock:
            if self._closed:
                raise StorageFailed("the database was closed")
            snapshot = LevelDbSnapshot(self._database.snapshot(), self.directory)
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


def _open(directory: Path) -> Any:
    check_files(directory)
    try:
        return plyvel.DB(
            str(directory),
            create_if_missing=True,
            write_buffer_size=WRITE_BUFFER_BYTES,
            lru_cache_size=BLOCK_CACHE_BYTES,
            bloom_filter_bits=BLOOM_FILTER_BITS,
            max_open_files=OPEN_FILES_MAX,
            compression=None,
            paranoid_checks=True,
        )
    except (plyvel.Error, OSError) as error:
        if isinstance(error, plyvel.CorruptionError):  # An error of the disk, whatever file it names, is no damage.
            raise _damaged(directory, error) from error
        raise _failure("opening", directory, error) from error


def _failure(doing: str, directory: Path, error: Exception) -> WorldFailed:
    """Say what failed; damage is marked in the folder, for the next opening."""
    if not isinstance(error, plyvel.CorruptionError):
        return StorageFailed(f"{doing} database {directory} failed: {error}")
    damaged = _damaged(directory, error)
    with suppress(OSError):  # Without the mark the next opening meets the damage itself.
        (directory / DAMAGED_NAME).write_text(str(damaged))
    return damaged


def _damaged(directory: Path, error: Exception) -> DatabaseDamaged:
    return DatabaseDamaged(f"database {directory} is damaged: {error}; a start makes it anew from the segments")
