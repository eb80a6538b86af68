"""What does the ledger say of itself at a checkpoint, and how is the state at that height read?

The commit only marks a boundary (`capture`): from the next block on, pre-images go to a new interval. Everything else
happens here, off the commit path, in one thread at a time:

1. The changed entries are the keys of the intervals up to the boundary; each is looked up as of the boundary.
2. The state tree moves on from the height it stands at: only pages of changed entries are touched, and of each page
   what it was before is kept in the interval, so that older checkpoints can still prove from it.
3. The log of the VLedger takes in the vBlock hashes since.
4. The last batch moves the tree's height and keeps the roots. A crash before that only repeats the work: setting a leaf
   twice sets it once.

Captured checkpoints that wait for validity are thinned by `is_retained`, a rule of their number and age alone. Dropping
one merges its interval into the one before.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import islice, pairwise
from threading import RLock
from typing import NamedTuple

from ledger.core.checkpoint import CheckpointRoots
from ledger.core.encoding import u8, u64
from ledger.core.errors import NotFound, StorageFailed
from ledger.core.merkle import completed_by, leaf_hash, root_at
from ledger.core.names import BlockNumber, Digest
from ledger.core.paged_tree import EMPTY, Node, PagedTree
from ledger.core.state import Entry, StateKey
from ledger.core.state_tree import StateProof, path_of, value_hash
from ledger.core.tree_descent import Place, Subtree
from ledger.storage.engine import Batch, Engine, Snapshot, after_prefix
from ledger.storage.intervals import Past, changed_keys, delete_interval, intervals, merge_interval
from ledger.storage.keys import (
    CAPTURED,
    CONFIG,
    LOG_NODE,
    PAGE,
    PAGE_PRE_IMAGE,
    ROOTS,
    SAVEPOINT_KEY,
    TREE_KEY,
    Savepoint,
    block_key,
    entry_of,
    row_of,
    savepoint_of,
    state_key,
    state_key_of,
)
from ledger.storage.ledger_values import CheckpointWork

PENDING = b"\0"
KEPT = b"\1"
TEMPORARY = b"\2"

RETAINED_ALL = 8
"""So many of the newest captured checkpoints are all retained; of older ones, four per doubling of their age."""

_CHUNK = 4096
"""Changed entries that one batch takes into the tree; entries that a view reads from one snapshot."""

_CACHED_DEPTH = 12
"""Groups of inner nodes down to this depth, at most 4,161, stay in memory."""


def is_retained(number: int, newest: int, chk: int) -> bool:
    """Tell whether a captured checkpoint that nobody has asked to keep is retained beside a newest one.

    The rule depends on nothing but the numbers, so all peers retain the same: of ages (in checkpoints) below 8 all, of
    ages 8 to 15 each second, of 16 to 31 each fourth, and so on.
    """
    position = number // chk
    age = newest // chk - position
    if age < RETAINED_ALL:
        return True
    return number % chk == 0 and position % (1 << age.bit_length() - 3) == 0


class TreeState(NamedTuple):
    """Where the tree on disk stands."""

    height: int
    """Number of blocks whose changes are in it."""

    root: Node


class Tip(NamedTuple):
    """The ledger as of one committed block, read at once."""

    savepoint: Savepoint
    roots: CheckpointRoots


class CheckpointState:
    """The captured checkpoints of one channel.

    Args:
        engine: The database.
        chk: Blocks between two checkpoints.
    """

    def __init__(self, engine: Engine, chk: int) -> None:
        """Read what was captured; drop what a crash left half way."""
        self._engine = engine
        self._chk = chk
        self._lock = RLock()
        self._holds: dict[int, int] = {}
        self._groups: dict[bytes, bytes] = {}
        self._closed = False
        self.last_work = CheckpointWork(0, 0, 0)
        for number, flag in self._captured().items():
            if flag == TEMPORARY:
                self._drop(number)

    # What is captured.

    def captured(self) -> tuple[BlockNumber, ...]:
        """List the captured checkpoints, ascending."""
        return tuple(BlockNumber(number) for number in self._captured())

    def keep(self, number: int) -> None:
        """Keep a captured checkpoint until it is released, whatever its age.

        Raises:
            NotFound: It is not captured (any more).
        """
        with self._lock:
            self._check_captured(number)
            self._mark(number, KEPT)

    def release(self, number: int) -> None:
        """Let a checkpoint go, as soon as no view holds it; one that is not captured is fine."""
        with self._lock:
            if number in self._captured():
                self._mark(number, TEMPORARY)
                if not self._holds.get(number):
                    self._drop(number)
                    self._collect()

    def release_before(self, number: int) -> None:
        """Let all checkpoints below a number go that nobody keeps."""
        with self._lock:
            for other, flag in self._captured().items():
                if other < number and flag != KEPT:
                    self.release(other)

    # What it says.

    def compute(self, number: BlockNumber) -> CheckpointRoots:
        """Compute the roots at a captured checkpoint, and of those captured before it that are not computed.

        Raises:
            NotFound: It is not captured, or the tree is past it.
            StorageFailed: The disk failed, or the store was closed; a repetition goes on.
        """
        with self._lock:
            known = self.roots(number)
            if known is not None:
                return known
            self._check_captured(number)
            try:
                for other in self.captured():
                    if self._tree().height <= other <= number:
                        self._advance(other)
            except BaseException:
                self._groups.clear()  # What was not written must not be remembered.
                raise
            roots = self.roots(number)
            if roots is None:
                raise NotFound(f"the state tree is past block {number}; its roots were not computed in time")
            self._thin(number)
            return roots

    def tip(self) -> "Tip":
        """Compute the roots as of the last committed block; what changed since the last checkpoint costs, not what is.

        Nothing is written, and nobody is held up: all is read from one snapshot.
        """
        with _Reading(self._engine) as snapshot:
            raw = snapshot.get(SAVEPOINT_KEY)
            assert raw is not None, "a ledger with blocks has a savepoint"
            savepoint = savepoint_of(raw)
            number = savepoint.height - 1
            tree = _tree_of(snapshot.get(TREE_KEY))
            paged = PagedTree(_TipPages(snapshot), tree.root)
            firsts = intervals(snapshot)
            begun = [first for first in firsts if first <= tree.height]
            for first in [*begun[-1:], *[first for first in firsts if first > tree.height]]:
                keys = changed_keys(snapshot, first)
                while chunk := list(islice(keys, _CHUNK)):
                    paged.update(sorted(_change(key, snapshot.get(key)) for key in chunk))
        vledger_root = self._extend_log(tree.height, number, self._engine.batch())
        value = self._roots_value(number, paged.root, vledger_root)
        return Tip(savepoint, _roots_of(BlockNumber(number), value)[0])

    def roots(self, number: int) -> CheckpointRoots | None:
        """Return the roots at a checkpoint if they were computed."""
        raw = self._engine.get(ROOTS + u64(number))
        return None if raw is None else _roots_of(BlockNumber(number), raw)[0]

    def tree_height(self) -> int:
        """Number of blocks whose changes are in the tree, and whose vBlocks are in the log."""
        return self._tree().height

    def log_node(self, level: int, index: int) -> Digest:
        """Look up a complete subtree of the log of vBlock hashes."""
        if level == 0:
            raw = self._engine.get(block_key(index))
            assert raw is not None, f"block {index} has no row"
            return leaf_hash(row_of(raw).vblock_hash)
        raw = self._engine.get(LOG_NODE + u8(level) + u64(index))
        assert raw is not None, f"node {index} of level {level} is not in the log"
        return Digest(raw)

    def view(self, number: BlockNumber) -> "CheckpointStateView":
        """Look at the state at a checkpoint whose roots are computed; close the view.

        Raises:
            NotFound: It is not captured, or not computed.
        """
        with self._lock:
            self._check_captured(number)
            raw = self._engine.get(ROOTS + u64(number))
            if raw is None:
                raise NotFound(f"checkpoint {number} is captured, but not computed")
            self._holds[number] = self._holds.get(number, 0) + 1
            roots, root = _roots_of(number, raw)
            return CheckpointStateView(self._engine, roots, root, lambda: self._let_go(number))

    def close(self) -> None:
        """Stop the work under way at its next step, and wait for it."""
        self._closed = True
        with self._lock:
            pass

    # The work.

    def _advance(self, number: BlockNumber) -> None:
        """Move the tree and the log to a captured block."""
        tree = self._tree()
        with _Reading(self._engine) as snapshot:
            firsts = intervals(snapshot)
        begun = [first for first in firsts if first <= tree.height]
        own = begun[-1] if begun else 0
        needed = any(other < own for other in self._captured())
        pages = _LivePages(self._engine, self._groups, u64(own) if needed else None)
        paged = PagedTree(pages, tree.root)
        entries = 0
        for first in [own, *[first for first in firsts if tree.height < first <= number]]:
            for changes in self._changes(first, number):
                paged.update(changes)
                entries += len(changes)
                batch = self._engine.batch()
                pages.flush(batch)
                batch.put(TREE_KEY, _tree_value(TreeState(tree.height, paged.root)))
                batch.write()
        batch = self._engine.batch()
        vledger_root = self._extend_log(tree.height, number, batch)
        batch.put(TREE_KEY, _tree_value(TreeState(number + 1, paged.root)))
        batch.put(ROOTS + u64(number), self._roots_value(number, paged.root, vledger_root))
        batch.write()
        self.last_work = CheckpointWork(entries, pages.read_count, pages.written_count)

    def _changes(self, interval: int, number: int) -> Iterator[list[tuple[bytes, bytes | None]]]:
        """Yield what changed in an interval, some thousand at a time, as changes of the tree at a block."""
        start = b""
        while True:
            if self._closed:
                raise StorageFailed("the ledger is being closed")
            changes: list[tuple[bytes, bytes | None]] = []
            with _Reading(self._engine) as snapshot:
                past = Past(snapshot, number)
                keys = list(islice(changed_keys(snapshot, interval, start), _CHUNK))
                for key in keys:
                    raw = past.entry(key)
                    changes.append(_change(key, raw))
            if changes:
                yield sorted(changes)
            if len(keys) < _CHUNK:
                return
            start = keys[-1] + b"\0"

    def _extend_log(self, size: int, number: int, batch: Batch) -> Digest:
        """Take the vBlock hashes `[size, number]` into the log; return its root."""
        new: dict[tuple[int, int], Digest] = {}

        def node_at(level: int, index: int) -> Digest:
            return new.get((level, index)) or self.log_node(level, index)

        for index in range(size, number + 1):
            for level, at, value in completed_by(index, self.log_node(0, index), node_at):
                new[(level, at)] = value
                if level:
                    batch.put(LOG_NODE + u8(level) + u64(at), value)
        return root_at(number + 1, node_at)

    def _roots_value(self, number: int, root: Node, vledger_root: Digest) -> bytes:
        raw = self._engine.get(block_key(number))
        assert raw is not None, f"block {number} has no row"
        row = row_of(raw)
        digest = self._engine.get(CONFIG + u64(row.last_config)) or bytes(32)
        return u8(root.leaf_count) + root.hash + row.vblock_hash + vledger_root + u64(row.last_config) + digest

    def _tree(self) -> TreeState:
        return _tree_of(self._engine.get(TREE_KEY))

    # Letting go.

    def _thin(self, newest: int) -> None:
        """Drop the pending checkpoints that the rule does not retain beside the newest computed one."""
        for number, flag in self._captured().items():
            if flag == PENDING and number < newest and not is_retained(number, newest, self._chk):
                self.release(number)
        self._collect()

    def _collect(self) -> None:
        """Merge or remove the intervals whose captured block is gone; the newest is still written to."""
        captured = self._captured()
        height = self._tree().height
        with _Reading(self._engine) as snapshot:
            firsts = intervals(snapshot)
        earlier: int | None = None
        for first, following in pairwise(firsts):
            needed = any(number < first for number in captured)
            if first - 1 in captured:
                earlier = first
            elif not needed and following <= height:
                delete_interval(self._engine, first)
            elif earlier is not None:
                merge_interval(self._engine, earlier, first)
            else:
                earlier = first

    def _let_go(self, number: int) -> None:
        with self._lock:
            self._holds[number] -= 1
            if not self._holds[number]:
                del self._holds[number]
                if self._captured().get(number) == TEMPORARY:
                    self._drop(number)
                    self._collect()

    def _captured(self) -> dict[int, bytes]:
        with _Reading(self._engine) as snapshot:
            pairs = snapshot.range(CAPTURED, after_prefix(CAPTURED))
            return {int.from_bytes(key[1:], "big"): flag for key, flag in pairs}

    def _check_captured(self, number: int) -> None:
        if number not in self._captured():
            raise NotFound(f"no checkpoint is captured at block {number}")

    def _mark(self, number: int, flag: bytes) -> None:
        batch = self._engine.batch()
        batch.put(CAPTURED + u64(number), flag)
        batch.write()

    def _drop(self, number: int) -> None:
        batch = self._engine.batch()
        batch.delete(CAPTURED + u64(number))
        batch.write()


class CheckpointStateView:
    """The state at a captured checkpoint, while commits go on. Each call reads one short snapshot."""

    def __init__(self, engine: Engine, roots: CheckpointRoots, root: Node, let_go: Callable[[], None]) -> None:
        """Hold the checkpoint until `close`."""
        self.roots = roots
        self._engine = engine
        self._root = root
        self._let_go: Callable[[], None] | None = let_go

    def get(self, key: StateKey) -> Entry | None:
        """Return the entry as of the checkpoint."""
        with _Reading(self._engine) as snapshot:
            raw = Past(snapshot, self.roots.number).entry(state_key(key))
        return None if raw is None else entry_of(raw)

    def entries(self) -> Iterator[tuple[StateKey, Entry]]:
        """Yield every entry live at the checkpoint, in the database's order, each chunk from one snapshot."""
        start = b""
        while True:
            with _Reading(self._engine) as snapshot:
                chunk = list(islice(Past(snapshot, self.roots.number).entries(start), _CHUNK))
            for key, raw in chunk:
                yield state_key_of(key), entry_of(raw)
            if len(chunk) < _CHUNK:
                return
            start = chunk[-1][0] + b"\0"

    def prove(self, key: StateKey) -> StateProof:
        """Prove presence or absence of a key against the state root."""
        return self.prove_path(path_of(key))

    def prove_path(self, path: bytes) -> StateProof:
        """Make the proof for a path, whatever key may stand there."""
        with _Reading(self._engine) as snapshot:
            pages = _PastPages(Past(snapshot, self.roots.number))
            return PagedTree(pages, self._root).prove(path)

    def shown(self, place: Place) -> Subtree:
        """Show some levels of the tree below a place."""
        with _Reading(self._engine) as snapshot:
            pages = _PastPages(Past(snapshot, self.roots.number))
            return PagedTree(pages, self._root).shown(place)

    def at_paths(self, paths: Collection[bytes]) -> dict[bytes, tuple[StateKey, Entry]]:
        """Find the entries at paths of the tree: a walk over all entries until each is found."""
        wanted, found = set(paths), {}
        entries = self.entries() if wanted else iter(())
        for key, entry in entries:
            if (path := path_of(key)) in wanted:
                found[path] = key, entry
                if len(found) == len(wanted):
                    break
        return found

    def close(self) -> None:
        """Let go of the checkpoint; twice is harmless."""
        let_go, self._let_go = self._let_go, None
        if let_go is not None:
            let_go()

    def __enter__(self) -> "CheckpointStateView":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _LivePages:
    """The pages of the newest tree, changed in memory until they are flushed."""

    def __init__(self, engine: Engine, groups: dict[bytes, bytes], interval: bytes | None) -> None:
        self._engine = engine
        self._groups = groups
        self._interval = interval
        self._changed: dict[bytes, bytes] = {}
        self._before: dict[bytes, bytes] = {}
        self.read_count = 0
        self.written_count = 0

    def get(self, key: bytes) -> bytes:
        content = self._changed.get(key)
        if content is None:
            content = self._groups.get(key)
        if content is None:
            self.read_count += 1
            content = self._engine.get(PAGE + key) or b""
            if _is_cached(key):
                self._groups[key] = content
        self._before.setdefault(key, content)
        return content

    def put(self, key: bytes, content: bytes) -> None:
        if self._interval is not None and key not in self._before:
            self.get(key)
        self._changed[key] = content

    def flush(self, batch: Batch) -> None:
        for key, content in self._changed.items():
            if self._interval is not None:
                kept = PAGE_PRE_IMAGE + self._interval + key
                if self._engine.get(kept) is None:
                    batch.put(kept, self._before[key])
            if content:
                batch.put(PAGE + key, content)
            else:
                batch.delete(PAGE + key)
            if _is_cached(key):
                self._groups[key] = content
        self.written_count += len(self._changed)
        self._changed.clear()
        self._before.clear()


class _TipPages:
    """The pages of the newest tree, changed in memory only."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._changed: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes:
        content = self._changed.get(key)
        return (self._snapshot.get(PAGE + key) or b"") if content is None else content

    def put(self, key: bytes, content: bytes) -> None:
        self._changed[key] = content


class _PastPages:
    """The pages of the tree as it was at a checkpoint."""

    def __init__(self, past: Past) -> None:
        self._past = past

    def get(self, key: bytes) -> bytes:
        return self._past.page(key) or b""

    def put(self, key: bytes, content: bytes) -> None:
        raise AssertionError("the past does not change")


class _Reading:
    """A snapshot for a few lines."""

    def __init__(self, engine: Engine) -> None:
        self._snapshot: Snapshot = engine.snapshot()

    def __enter__(self) -> Snapshot:
        return self._snapshot

    def __exit__(self, *_: object) -> None:
        self._snapshot.close()


def _is_cached(key: bytes) -> bool:
    return key[:1] == b"g" and key[-1] <= _CACHED_DEPTH


def _tree_value(tree: TreeState) -> bytes:
    return u64(tree.height) + u8(tree.root.leaf_count) + tree.root.hash


def _change(key: bytes, raw: bytes | None) -> tuple[bytes, bytes | None]:
    """Give what a raw entry is in the tree."""
    return path_of(state_key_of(key)), None if raw is None else value_hash(entry_of(raw))


def _tree_of(raw: bytes | None) -> TreeState:
    return TreeState(0, EMPTY) if raw is None else TreeState(int.from_bytes(raw[:8], "big"), Node(raw[8], raw[9:]))


def _roots_of(number: BlockNumber, raw: bytes) -> tuple[CheckpointRoots, Node]:
    roots = CheckpointRoots(
        number=number,
        state_root=Digest(raw[1:33]),
        vblock_hash=Digest(raw[33:65]),
        vledger_root=Digest(raw[65:97]),
        config_block=BlockNumber(int.from_bytes(raw[97:105], "big")),
        config_digest=Digest(raw[105:137]),
    )
    return roots, Node(raw[0], raw[1:33])
