"""How is an older state read while the newest goes on?  Pre-images, one set for each interval between checkpoints.

An interval begins with the block behind a captured one (interval 0 with block 0) and ends with the next captured block.
The first time an entry changes in an interval, what it was before is kept: that list costs what changed, not what there
is. The state at a captured block *n* is the live state seen through all intervals that begin above *n*, the earliest
first:

    live:          a=5  b=2            interval 201 (blocks 201..300):  a was 4
    at block 200:  a=4  b=1            interval 301 (blocks 301..  ):  a was 7, b was 1
    at block 300:  a=7  b=1

The pages of the state tree are kept by the same rule. Every reading takes one snapshot of the database, and the list of
intervals from that snapshot, so that merging two intervals meanwhile disturbs nobody: a pre-image moves to the earlier
interval in the same batch that takes it from the later one.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from ledger.core.encoding import u64
from ledger.storage.engine import Engine, Snapshot, after_prefix
from ledger.storage.keys import INTERVAL, PAGE, PAGE_PRE_IMAGE, PRE_IMAGE, STATE

MERGE_CHUNK = 1000
"""Pre-images that one batch moves."""


class Past:
    """The database as of a captured block, inside one snapshot.

    Args:
        snapshot: The database.
        number: The captured block; the intervals behind it are there.
    """

    def __init__(self, snapshot: Snapshot, number: int) -> None:
        """Look up which intervals lie behind the block."""
        self._snapshot = snapshot
        self._intervals = [u64(first) for first in intervals(snapshot) if first > number]

    def entry(self, raw_key: bytes) -> bytes | None:
        """Return a raw entry by its raw key, None if it was absent."""
        return self._seen(PRE_IMAGE, b"", raw_key)

    def page(self, key: bytes) -> bytes | None:
        """Return a page of the state tree, None if it was absent."""
        return self._seen(PAGE_PRE_IMAGE, PAGE, key)

    def entries(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the raw entries from a raw key on, ascending."""
        sources = [self._tagged(self._snapshot.range(max(start, STATE), after_prefix(STATE)), len(self._intervals), 0)]
        for rank, interval in enumerate(self._intervals):
            prefix = PRE_IMAGE + interval
            sources.append(self._tagged(self._snapshot.range(prefix + start, after_prefix(prefix)), rank, len(prefix)))
        last = None
        for key, _, raw in merge(*sources):
            if key != last:  # Of one key the earliest interval comes first.
                last = key
                if raw:
                    yield key, raw

    def _seen(self, table: bytes, live: bytes, key: bytes) -> bytes | None:
        for interval in self._intervals:
            raw = self._snapshot.get(table + interval + key)
            if raw is not None:
                return raw or None
        return self._snapshot.get(live + key)

    @staticmethod
    def _tagged(pairs: Iterator[tuple[bytes, bytes]], rank: int, cut: int) -> Iterator[tuple[bytes, int, bytes]]:
        for key, raw in pairs:
            yield key[cut:], rank, raw


def intervals(snapshot: Snapshot) -> list[int]:
    """List the first blocks of all intervals, ascending."""
    return [int.from_bytes(key[1:], "big") for key, _ in snapshot.range(INTERVAL, after_prefix(INTERVAL))]


def changed_keys(snapshot: Snapshot, interval: int, start: bytes = b"") -> Iterator[bytes]:
    """Yield the raw keys of the entries that changed in an interval, from a raw key on, ascending."""
    prefix = PRE_IMAGE + u64(interval)
    for key, _ in snapshot.range(prefix + start, after_prefix(prefix)):
        yield key[len(prefix) :]


def merge_interval(engine: Engine, earlier: int, later: int) -> None:
    """Make the earlier interval cover the later one too.

    Durability: chunk by chunk; every step leaves all states readable, and a repetition goes on where it stopped.
    """
    for table in (PRE_IMAGE, PAGE_PRE_IMAGE):
        source, target = table + u64(later), table + u64(earlier)
        while pairs := _first(engine, source, MERGE_CHUNK):
            batch = engine.batch()
            for key, raw in pairs:
                moved = target + key[len(source) :]
                if engine.get(moved) is None:
                    batch.put(moved, raw)
                batch.delete(key)
            batch.write()
    _forget(engine, later)


def delete_interval(engine: Engine, first: int) -> None:
    """Remove an interval that nobody looks through any more; chunk by chunk, repeatable."""
    for table in (PRE_IMAGE, PAGE_PRE_IMAGE):
        while pairs := _first(engine, table + u64(first), MERGE_CHUNK):
            batch = engine.batch()
            for key, _ in pairs:
                batch.delete(key)
            batch.write()
    _forget(engine, first)


def _forget(engine: Engine, first: int) -> None:
    batch = engine.batch()
    batch.delete(INTERVAL + u64(first))
    batch.write()


def _first(engine: Engine, prefix: bytes, count: int) -> list[tuple[bytes, bytes]]:
    snapshot = engine.snapshot()
    try:
        return list(islice(snapshot.range(prefix, after_prefix(prefix)), count))
    finally:
        snapshot.close()
