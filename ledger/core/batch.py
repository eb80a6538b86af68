"""What has a block changed so far?  The net updates of its valid transactions over the state before it.

Reads go through `committed` and `latest`, which ask the view once per key and block. A failing view raises through all
of this: it is never a verdict.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from ledger.core.definitions import Definitions
from ledger.core.merge import Unchanged, merge, operations
from ledger.core.names import NEVER, BlockNumber, TxIndex
from ledger.core.rwset import ReadWriteSet
from ledger.core.state import HASHED, PUBLIC, Entry, LedgerView, StateKey, Version


class Batch:
    """The updates of one block, growing transaction by transaction.

    Args:
        view: The ledger as of the block before.
        number: Number of the block.
    """

    def __init__(self, view: LedgerView, number: BlockNumber) -> None:
        """Hold no update yet."""
        self.number = number
        self.updates: dict[StateKey, Entry | None] = {}
        self.deleted_by: dict[StateKey, Version] = {}
        self._view = view
        self._committed: dict[StateKey, Entry | None] = {}
        self._keys: dict[str, list[bytes]] = {}

    def committed(self, key: StateKey) -> Entry | None:
        """Give the entry of a key in the state before the block."""
        try:
            return self._committed[key]
        except KeyError:
            entry = self._committed[key] = self._view.get(key)
            return entry

    def latest(self, key: StateKey) -> Entry | None:
        """Give the entry of a key after the block's transactions so far."""
        if key in self.updates:
            return self.updates[key]
        return self.committed(key)

    def apply(self, rwset: ReadWriteSet, index: TxIndex, definitions: Definitions) -> None:
        """Add the writes of a valid transaction.

        Args:
            rwset: Its reads and writes.
            index: Its index in the block.
            definitions: Definitions in the state before the block: they say how long private entries live.
        """
        version = Version(self.number, index)
        merged: list[tuple[StateKey, Entry | None]] = []
        for key, operation in operations(rwset).items():
            old = self.latest(key) if operation.needs_old else None
            expiry = NEVER
            if key.kind == HASHED:
                expiry = definitions.expiry(key.namespace, key.collection, self.number)
            entry = merge(operation, old, version, expiry)
            if not isinstance(entry, Unchanged):
                merged.append((key, entry))
        for key, entry in merged:
            self.put(key, entry, version)

    def put(self, key: StateKey, entry: Entry | None, version: Version) -> None:
        """Set the entry of a key, or delete it with None, as the transaction of this version does."""
        if entry is None:
            self.deleted_by[key] = version
        if key.kind == PUBLIC and key not in self.updates:
            insort(self._keys.setdefault(key.namespace, []), key.key)
        self.updates[key] = entry

    def range(self, namespace: str, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, Entry]]:
        """Yield the public entries with `start <= key < end` after the block's transactions so far, ascending."""
        changed = iter(self._changed(namespace, start, end))
        pending = next(changed, None)
        for key, entry in self._view.range(namespace, start, end):
            while pending is not None and pending < key:
                yield from self._live(namespace, pending)
                pending = next(changed, None)
            if pending == key:
                yield from self._live(namespace, key)
                pending = next(changed, None)
            else:
                yield key, entry
        while pending is not None:
            yield from self._live(namespace, pending)
            pending = next(changed, None)

    def _changed(self, namespace: str, start: bytes, end: bytes | None) -> list[bytes]:
        """List the keys of a range that the block has changed."""
        keys = self._keys.get(namespace, [])
        return keys[bisect_left(keys, start) : len(keys) if end is None else bisect_left(keys, end)]

    def _live(self, namespace: str, key: bytes) -> Iterator[tuple[bytes, Entry]]:
        """Yield a changed key unless it was deleted."""
        entry = self.updates[StateKey(PUBLIC, namespace, "", key)]
        if entry is not None:
            yield key, entry


__all__ = ["Batch"]
