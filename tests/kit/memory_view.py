"""A ledger in memory: what judging asks of a store, kept in plain dictionaries."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from ledger.core.names import NEVER, BlockNumber, TxId, TxIndex
from ledger.core.outcome import Outcome
from ledger.core.state import PUBLIC, Entry, HistoryEntry, StateKey, TxPlace
from ledger.storage.ledger_values import CollectionCommit


class MemoryLedger:
    """Applies outcomes; is a `LedgerView` of the last of them, and a source of snapshots."""

    def __init__(self) -> None:
        self.state: dict[StateKey, Entry] = {}
        self.places: dict[TxId, list[TxPlace]] = {}
        self.commit_hash = b""
        self.block_hash = b""
        self.height = 0
        self.changes: dict[tuple[str, str], list[HistoryEntry]] = {}
        self.commits: list[CollectionCommit] = []
        self._keys: dict[str, list[bytes]] = {}
        self._expiring: dict[int, set[StateKey]] = {}

    def get(self, key: StateKey) -> Entry | None:
        return self.state.get(key)

    def range(self, namespace: str, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, Entry]]:
        keys = self._keys.get(namespace, [])
        stop = len(keys) if end is None else bisect_left(keys, end)
        for key in keys[bisect_left(keys, start) : stop]:
            yield key, self.state[StateKey(PUBLIC, namespace, "", key)]

    def has_transaction(self, tx_id: TxId) -> bool:
        return tx_id in self.places

    def expiring(self, number: BlockNumber) -> Iterator[StateKey]:
        return iter(sorted(self._expiring.get(number, ())))

    def apply(self, outcome: Outcome) -> None:
        """Commit an outcome."""
        number = outcome.block.number
        assert number == self.height
        for key in outcome.expired:
            self._set(key, None)
        for key, entry in outcome.updates.items():
            self._set(key, entry)
        for index, (tx_id, verdict) in enumerate(zip(outcome.tx_ids, outcome.verdicts, strict=True)):
            if tx_id:
                self.places.setdefault(tx_id, []).append(TxPlace(number, TxIndex(index), verdict))
        for index, namespace, name in outcome.history:
            self.changes.setdefault((namespace, name), []).append(HistoryEntry(number, TxIndex(index)))
        self.commits += [CollectionCommit(name, number, package) for name, package in outcome.config_history]
        self.commit_hash = outcome.commit_hash
        self.block_hash = outcome.block_hash
        self.height += 1

    def _set(self, key: StateKey, entry: Entry | None) -> None:
        old = self.state.pop(key, None)
        if old is not None and old.expiry != NEVER:
            self._expiring[old.expiry].discard(key)
        if entry is not None:
            self.state[key] = entry
            if entry.expiry != NEVER:
                self._expiring.setdefault(entry.expiry, set()).add(key)
        if key.kind != PUBLIC:
            return
        keys = self._keys.setdefault(key.namespace, [])
        if entry is None and old is not None:
            del keys[bisect_left(keys, key.key)]
        elif entry is not None and old is None:
            insort(keys, key.key)

    def iter_state(self) -> Iterator[tuple[StateKey, Entry]]:
        return iter(sorted(self.state.items()))

    def iter_tx_ids(self) -> Iterator[TxId]:
        return iter(sorted(self.places, key=lambda each: (len(each.encode()), each.encode())))

    def collection_commits(self) -> Iterator[CollectionCommit]:
        return iter(self.commits)
