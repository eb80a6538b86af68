"""What would the state be?  A ledger that holds nothing but what later verdicts depend on, made to be thrown away.

`peerledger verify` judges all blocks again beside the ledger on disk. For that it needs state, expiries, used ids and
the state root at any height, and neither segments nor history: a database in a folder of its own that takes outcomes
in, block by block. Blocks are read through an overlay until `flush` writes them, so memory holds one group at most.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ledger.core.names import NEVER, BlockNumber, Digest, TxId
from ledger.core.outcome import Outcome
from ledger.core.paged_tree import EMPTY, Node, PagedTree
from ledger.core.state import Entry, StateKey, TxPlace
from ledger.core.state_tree import path_of, value_hash
from ledger.core.vblock import Leaf
from ledger.storage.engine import Batch, Engine, after_prefix
from ledger.storage.keys import (
    HEX_ID,
    OTHER_ID,
    PAGE,
    STATE,
    entry_of,
    entry_value,
    expiry_key,
    id_key,
    id_of,
    place_value,
    places_of,
    state_key,
    state_key_of,
)
from ledger.storage.views import Overlay, StoreView

_CHUNK = 4096
"""Entries that one step takes into a tree."""


class ScratchLedger:
    """A ledger for judging blocks again.  Not thread-safe.

    Args:
        engine: An empty database; closed with the ledger.
    """

    def __init__(self, engine: Engine) -> None:
        """Stand before block 0."""
        self._engine = engine
        self._base = engine.snapshot()
        self._overlay = Overlay(0, b"")
        self._root = EMPTY

    @property
    def height(self) -> int:
        """Number of blocks taken in."""
        return self._overlay.height

    def view(self) -> StoreView:
        """The state after the last block taken in; good until the next `flush`."""
        return StoreView(self._base, 0, b"", self._overlay, borrowed=True)

    def take(self, outcome: Outcome) -> None:
        """Take a judged block in."""
        overlay, number = self._overlay, outcome.block.number
        assert number == overlay.height, "blocks are taken in order"
        for key in outcome.expired:
            overlay.put(state_key(key), None)
        for key, entry in outcome.updates.items():
            raw = state_key(key)
            overlay.put(raw, None if entry is None else entry_value(entry))
            if entry is not None and entry.expiry != NEVER:
                overlay.expiring.setdefault(entry.expiry, []).append(raw)
        for index, (tx_id, verdict) in enumerate(zip(outcome.tx_ids, outcome.verdicts, strict=True)):
            if tx_id:
                name = id_key(tx_id)
                earlier = overlay.ids.get(name) or self._base.get(name) or b""
                overlay.ids[name] = earlier + place_value(number, index, verdict)
        overlay.height, overlay.commit_hash = number + 1, outcome.commit_hash

    def take_ids(self, leaves: Sequence[Leaf], number: BlockNumber, commit_hash: bytes) -> None:
        """Take of a block nothing but who used which id: what it did to the state comes with `take_state`."""
        overlay = self._overlay
        assert number == overlay.height, "blocks are taken in order"
        for leaf in leaves:
            if leaf.tx_id:
                name = id_key(leaf.tx_id)
                earlier = overlay.ids.get(name) or self._base.get(name) or b""
                overlay.ids[name] = earlier + place_value(number, leaf.index, leaf.verdict)
        overlay.height, overlay.commit_hash = number + 1, commit_hash

    def take_state(self, entries: Iterable[tuple[StateKey, Entry]]) -> None:
        """Take the whole state after the last block in, where there was none before; `flush` follows."""
        waiting = iter(entries)
        while chunk := list(islice(waiting, _CHUNK)):
            batch = self._engine.batch()
            for key, entry in chunk:
                raw = state_key(key)
                batch.put(raw, entry_value(entry))
                if entry.expiry != NEVER:
                    batch.put(expiry_key(entry.expiry, raw), b"")
            changes = [(path_of(key), value_hash(entry)) for key, entry in chunk]
            self._root = _move_on(self._engine, self._root, changes, batch)
            batch.write()

    def flush(self) -> Digest:
        """Write what was taken in; return the state root.

        Durability: none is asked for.
        """
        overlay, batch = self._overlay, self._engine.batch()
        changes: list[tuple[bytes, bytes | None]] = []
        for raw, value in overlay.entries.items():
            path = path_of(state_key_of(raw))
            if value is None:
                batch.delete(raw)
                changes.append((path, None))
            else:
                batch.put(raw, value)
                changes.append((path, value_hash(entry_of(value))))
        for expiry, keys in overlay.expiring.items():
            for raw in keys:
                batch.put(expiry_key(expiry, raw), b"")  # A stale one is told by the entry's own expiry.
        for name, places in overlay.ids.items():
            batch.put(name, places)
        self._root = _move_on(self._engine, self._root, changes, batch)
        batch.write()
        base, self._base = self._base, self._engine.snapshot()
        base.close()
        self._overlay = Overlay(overlay.height, overlay.commit_hash)
        return Digest(self._root.hash)

    def iter_state(self) -> Iterator[tuple[StateKey, Entry]]:
        """Yield all live entries as of the last `flush`, in the database's order."""
        for raw, value in self._base.range(STATE, after_prefix(STATE)):
            yield state_key_of(raw), entry_of(value)

    def iter_ids(self) -> Iterator[tuple[TxId, tuple[TxPlace, ...]]]:
        """Yield each claimed id with its places as of the last `flush`, in the database's order."""
        for table in (HEX_ID, OTHER_ID):
            for raw, value in self._base.range(table, after_prefix(table)):
                yield id_of(raw), places_of(value)

    def close(self) -> None:
        """Close the database; its folder is for the owner to remove."""
        self._base.close()
        self._engine.close()


def root_of(entries: Iterable[tuple[StateKey, Entry]], engine: Engine) -> Digest:
    """Compute the root of any state in bounded memory.

    Args:
        entries: All its entries, in any order.
        engine: An empty database to work in; the caller closes it.
    """
    waiting = iter(entries)
    root = EMPTY
    while chunk := list(islice(waiting, _CHUNK)):
        batch = engine.batch()
        root = _move_on(engine, root, [(path_of(key), value_hash(entry)) for key, entry in chunk], batch)
        batch.write()
    return Digest(root.hash)


def _move_on(engine: Engine, root: Node, changes: Sequence[tuple[bytes, bytes | None]], batch: Batch) -> Node:
    """Take changes into the tree below a root; its pages go to the batch."""
    pages = _Pages(engine)
    tree = PagedTree(pages, root)
    tree.update(sorted(changes))
    pages.flush(batch)
    return tree.root


class _Pages:
    """The pages of a tree, changed in memory until they are flushed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes:
        content = self._changed.get(key)
        return (self._engine.get(PAGE + key) or b"") if content is None else content

    def put(self, key: bytes, content: bytes) -> None:
        self._changed[key] = content

    def flush(self, batch: Batch) -> None:
        for key, content in self._changed.items():
            if content:
                batch.put(PAGE + key, content)
            else:
                batch.delete(PAGE + key)


__all__ = ["ScratchLedger", "root_of"]
