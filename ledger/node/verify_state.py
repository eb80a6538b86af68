"""Is the state on disk what the blocks make of it?  Compared entry by entry, so that the first difference is named.

The two sides come in the same order, that of the database, so one walk over both serves any size. Used transaction ids
are part of it: a later duplicate is judged by them.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from ledger.core.checkpoint import CheckpointRoots
from ledger.core.errors import shown
from ledger.core.names import Digest, TxId
from ledger.core.state import PUBLIC, Entry, StateKey, TxPlace
from ledger.node.verify_report import Level
from ledger.storage.engine_leveldb import LevelDbEngine
from ledger.storage.keys import id_key, state_key
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.scratch import ScratchLedger, root_of

Thing = TypeVar("Thing")

TOLD_EVERY = 4096
"""Entries between two words of progress."""


def first_difference(expected: Iterable[tuple[StateKey, Entry]], found: Iterable[tuple[StateKey, Entry]]) -> str | None:
    """Find the first entry that differs between two states, both in the database's order; None if all are equal."""
    ours, theirs = iter(expected), iter(found)
    while True:
        mine, other = next(ours, None), next(theirs, None)
        if mine == other:
            if mine is None:
                return None
            continue
        if other is None or (mine is not None and state_key(mine[0]) < state_key(other[0])):
            assert mine is not None
            return f"{named(mine[0])}: expected {in_words(mine[1])}, found nothing"
        if mine is None or mine[0] != other[0]:
            return f"{named(other[0])}: expected nothing, found {in_words(other[1])}"
        return f"{named(mine[0])}: expected {in_words(mine[1])}, found {in_words(other[1])}"


def named(key: StateKey) -> str:
    """Name an entry for people."""
    name = key.key.decode(errors="backslashreplace") if key.kind == PUBLIC else key.key.hex()
    where = f"{key.namespace}/{key.collection}" if key.collection else key.namespace
    return f"key {shown(ascii(name)[1:-1])} of {shown(where) or 'the channel'}"


def in_words(entry: Entry) -> str:
    """Describe an entry for people."""
    parts = [f"version {entry.version.block}:{entry.version.index}, value {shown(entry.value, 40)}"]
    if entry.metadata:
        parts.append(f"metadata {shown(entry.metadata, 40)}")
    return ", ".join(parts)


def check_state(
    store: LedgerStore, scratch: ScratchLedger, derived: CheckpointRoots, level: Level, told: Callable[[int], None]
) -> bool:
    """Compare entries and used ids on disk with those that were derived.

    Args:
        store: The ledger on disk.
        scratch: The derived one, at the same height, flushed.
        derived: What the scratch ledger comes to.
        level: Where to say what was found.
        told: Called now and then with the number of things compared.

    Returns:
        Whether the entries are equal.
    """
    counted = Counting(told)
    difference = first_difference(scratch.iter_state(), counted.each(store.iter_state()))
    ids = first_id_difference(scratch.iter_ids(), counted.each(store.iter_tx_ids()), store)
    for found in (difference, ids):
        if found is not None:
            level.fail(f"state after block {derived.number}: {found}")
    return difference is None


def first_id_difference(
    expected: Iterator[tuple[TxId, tuple[TxPlace, ...]]], found: Iterator[TxId], store: LedgerStore
) -> str | None:
    """Find the first used transaction id that differs; None if all are equal."""
    while True:
        mine, other = next(expected, None), next(found, None)
        if mine is None and other is None:
            return None
        if mine is None or (other is not None and id_key(other) < id_key(mine[0])):
            return f"transaction id {shown(other)}: in no block, but in the database"
        if other != mine[0]:
            return f"transaction id {shown(mine[0])}: not in the database"
        if store.places(other) != mine[1]:
            return f"transaction id {shown(other)}: expected {places(mine[1])}, found {places(store.places(other))}"


def places(found: tuple[TxPlace, ...]) -> str:
    """Write the places of an id."""
    return ", ".join(f"transaction {each.index} of block {each.block} (verdict {each.verdict})" for each in found)


def state_root_on_disk(store: LedgerStore, folder: Path) -> Digest:
    """Compute the root of the state on disk, in bounded memory, working in a folder that is not there yet."""
    engine = LevelDbEngine(folder)
    try:
        return root_of(store.iter_state(), engine)
    finally:
        engine.close()


class Counting:
    """Counts what passes, and tells now and then."""

    def __init__(self, told: Callable[[int], None]) -> None:
        """Begin at nothing."""
        self._told = told
        self._count = 0

    def each(self, things: Iterable[Thing]) -> Iterator[Thing]:
        """Pass things through."""
        for thing in things:
            self._count += 1
            if self._count % TOLD_EVERY == 0:
                self._told(self._count)
            yield thing


__all__ = ["check_state", "first_difference", "state_root_on_disk"]
