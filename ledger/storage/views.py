"""Through what is the state read?  A snapshot of the database, with staged blocks laid over it where there are any.

While a group of blocks is under way its changes are in no database yet. The committer judges block n+1 in the state
after n, so it reads through an `Overlay` that holds the changes in memory; everybody else reads the snapshot alone.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Self

from ledger.core.names import BlockNumber, TxId
from ledger.core.state import PUBLIC, Entry, StateKey
from ledger.storage.engine import Snapshot, after_prefix
from ledger.storage.keys import entry_of, expiry_key, id_key, state_key, state_key_of


class Overlay:
    """Changes of staged blocks, as the database will hold them."""

    def __init__(self, height: int, commit_hash: bytes) -> None:
        """Begin with no changes."""
        self.height = height
        """Number of blocks, staged ones included."""
        self.commit_hash = commit_hash
        self.entries: dict[bytes, bytes | None] = {}
        """Raw entries by raw key; None where a key was deleted."""
        self.ids: dict[bytes, bytes] = {}
        """All places of each claimed id that a staged block holds."""
        self.expiring: dict[int, list[bytes]] = {}
        """Raw keys by the block in which they may expire."""
        self._sorted: list[bytes] | None = None

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set or delete an entry."""
        if self._sorted is not None and key not in self.entries:
            self._sorted = None
        self.entries[key] = value

    def keys(self, start: bytes, stop: bytes | None) -> list[bytes]:
        """List the changed keys of a range, ascending."""
        if self._sorted is None:
            self._sorted = sorted(self.entries)
        high = len(self._sorted) if stop is None else bisect_left(self._sorted, stop)
        return self._sorted[bisect_left(self._sorted, start) : high]


class StoreView:
    """A `LedgerView` of the store.

    Args:
        snapshot: The database; closed with the view unless the view borrows it.
        height: Number of blocks it shows.
        commit_hash: Commit hash of the last of them.
        overlay: Staged changes over it.
        borrowed: Whether somebody else closes the snapshot.
    """

    __slots__ = ("_borrowed", "_commit_hash", "_get", "_height", "_overlay", "_snapshot")

    def __init__(
        self,
        snapshot: Snapshot,
        height: int,
        commit_hash: bytes,
        overlay: Overlay | None = None,
        *,
        borrowed: bool = False,
    ) -> None:
        """Look at the snapshot."""
        self._snapshot = snapshot
        self._get = snapshot.get
        self._height = height
        self._commit_hash = commit_hash
        self._overlay = overlay
        self._borrowed = borrowed

    @property
    def height(self) -> int:
        """Number of blocks whose state this is."""
        return self._overlay.height if self._overlay else self._height

    @property
    def commit_hash(self) -> bytes:
        """Commit hash of the last block; empty before block 1."""
        return self._overlay.commit_hash if self._overlay else self._commit_hash

    def get(self, key: StateKey) -> Entry | None:
        """Return the live entry, or None."""
        raw = self._raw(state_key(key))
        return None if raw is None else entry_of(raw)

    def range(self, namespace: str, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, Entry]]:
        """Yield the public entries of a namespace with `start <= key < end`, ascending; `end` None is unbounded."""
        prefix = state_key(StateKey(PUBLIC, namespace, "", b""))
        stop = after_prefix(prefix) if end is None else prefix + end
        if end is not None and end <= start:
            return
        for key, raw in self._pairs(prefix + start, stop):
            yield key[len(prefix) :], entry_of(raw)

    def has_transaction(self, tx_id: TxId) -> bool:
        """Tell whether a block holds this claimed id, valid or not."""
        if not tx_id:
            return False
        key = id_key(tx_id)
        return (self._overlay is not None and key in self._overlay.ids) or self._get(key) is not None

    def expiring(self, number: BlockNumber) -> Iterator[StateKey]:
        """Yield the keys whose entries expire in the batch of block `number`, in the database's order."""
        prefix = expiry_key(number, b"")
        keys = {key[len(prefix) :] for key, _ in self._snapshot.range(prefix, after_prefix(prefix))}
        if self._overlay is not None:
            keys.update(self._overlay.expiring.get(number, ()))
        for key in sorted(keys):
            raw = self._raw(key)
            if raw is not None and entry_of(raw).expiry == number:  # A later write may have set another.
                yield state_key_of(key)

    def close(self) -> None:
        """Give the snapshot back; twice is harmless."""
        if not self._borrowed:
            self._snapshot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _raw(self, key: bytes) -> bytes | None:
        if self._overlay is not None and key in self._overlay.entries:
            return self._overlay.entries[key]
        return self._get(key)

    def _pairs(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield raw entries of a range, staged changes laid over those of the snapshot."""
        below = self._snapshot.range(start, stop)
        if self._overlay is None or not self._overlay.entries:
            yield from below
            return
        entries = self._overlay.entries
        changed = self._overlay.keys(start, stop)
        at = 0
        for key, raw in below:
            while at < len(changed) and changed[at] < key:
                staged = entries[changed[at]]
                if staged is not None:
                    yield changed[at], staged
                at += 1
            if at < len(changed) and changed[at] == key:
                continue  # The staged one comes in the next step.
            yield key, raw
        for key in changed[at:]:
            staged = entries[key]
            if staged is not None:
                yield key, staged
