"""How does one block become durable, all of it or nothing?  The one commit point of a channel (design, section 8).

A commit: 1. the block is appended to the segments; 2. the segments are synced; 3. one synced batch holds every change
of state and indexes and how far each file counts. Several blocks form a group: all are appended, synced once, and their
changes go into one batch; until then they are read through an overlay, and nothing is told to anyone.

At the start: whole records beyond the savepoint are judged and committed again (`recommit`), a torn tail is cut, a
file that is shorter than the savepoint says is damage. The database is derived: where it is gone, `recommit` makes it
again from the segments. Pruning is one synced record; what it did not get to unlink goes at the next start.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

from ledger.core.checkpoint import CheckpointRoots
from ledger.core.encoding import u64
from ledger.core.errors import StorageDamaged, StorageFailed
from ledger.core.hashing import digest
from ledger.core.merkle import leaf_hash as log_leaf
from ledger.core.merkle import tree_hash
from ledger.core.names import NEVER, BlockNumber, ChannelId, Digest
from ledger.core.outcome import Outcome
from ledger.core.state import LedgerView
from ledger.core.state_tree import slow_root
from ledger.core.vblock import Leaf, header_of, leaves_of, vblock_hash
from ledger.storage import new_database
from ledger.storage.block_files import BlockFiles, Places, Positions
from ledger.storage.checkpoint_state import PENDING, CheckpointState, CheckpointStateView, Tip
from ledger.storage.engine import Batch, OpenEngine
from ledger.storage.engine_leveldb import LevelDbEngine
from ledger.storage.files import DirectoryLock, Files
from ledger.storage.keys import (
    BLOCK_HASH,
    CAPTURED,
    CONFIG,
    FAULTS,
    INTERVAL,
    PRE_IMAGE,
    SAVEPOINT_KEY,
    BlockRow,
    Savepoint,
    block_key,
    collections_key,
    entry_value,
    expiry_key,
    faults_value,
    history_prefix,
    history_suffix,
    id_key,
    place_value,
    row_value,
    savepoint_value,
    state_key,
)
from ledger.storage.ledger_reading import LedgerReading
from ledger.storage.ledger_values import (
    ArchivedFile,
    CheckpointWork,
    DiskUse,
    Pin,
    PrunePlan,
    PruneRecord,
    StoredBlock,
)
from ledger.storage.opening_checks import check_database, check_segments
from ledger.storage.record_log import RecordLog
from ledger.storage.segment_records import stored_block
from ledger.storage.segments import Place, Position, damaged
from ledger.storage.views import Overlay, StoreView

Rejudge = Callable[[StoredBlock, LedgerView], Outcome]
"""Makes the outcome of a stored block again, in the state before it."""

PINS_MAX = 64
"""Pins at once."""


class LedgerStore(LedgerReading):
    """One channel's ledger on disk.  One thread commits; reading is safe from any; implements `LedgerReader`."""

    def __init__(
        self, directory: Path, channel_id: ChannelId, *, chk: int, open_engine: OpenEngine, files: Files
    ) -> None:
        """Open a channel's folder; see `open`."""
        self.directory = directory / "channels" / channel_id
        files.make_directory(self.directory)
        self._lock_file = DirectoryLock(self.directory / "LOCK")
        engine = None
        try:
            new_database.finish(self.directory, files)
            engine = open_engine(self.directory / new_database.DATABASE)
            super().__init__(channel_id, engine, BlockFiles(files, self.directory, chk=chk))
            check_database(engine, channel_id, self._savepoint)
            check_segments(self._files, engine, channel_id, self._savepoint)
            self._prunes = RecordLog(self.directory / "records" / "prunes.log", files)
            self._files_verbs = files
            self._checkpoints = CheckpointState(engine, chk)
            self._chk = chk
            self._captures: Callable[[int], bool] = self._files.is_boundary
            self._pins: dict[int, tuple[int, str, float]] = {}
            self._pin_ids = count(1)
            if len(self._prunes):
                last = int.from_bytes(self._prunes.read(len(self._prunes) - 1)[:8], "big")
                self._prune_point = max(self._prune_point, last)
            self._pending = self._find_pending()
            self._check_prune_point()
            self._unlink_pruned()
        except BaseException:
            if engine is not None:
                engine.close()  # Whoever opens it again in this process must not find it locked by itself.
            self._lock_file.close()
            raise
        self._group: _Group | None = None
        self._failed = False
        self._base = engine.snapshot()

    @classmethod
    def open(
        cls,
        directory: Path,
        channel_id: ChannelId,
        *,
        chk: int = 100,
        open_engine: OpenEngine = LevelDbEngine,
        files: Files | None = None,
    ) -> "LedgerStore":
        """Open or create `<directory>/channels/<channel_id>`.

        Raises:
            Conflict: Another process has it open.
            StorageDamaged: A file is shorter than what was committed, or not what was written.
            StorageFailed: The disk failed.
        """
        return cls(directory, channel_id, chk=chk, open_engine=open_engine, files=files or Files())

    @property
    def chk(self) -> int:
        """Blocks between two checkpoints."""
        return self._chk

    @property
    def records_directory(self) -> Path:
        """Folder for small append-only files of others: checkpoints, proofs."""
        return self.directory / "records"

    # -- recovery

    def _find_pending(self) -> list[tuple[BlockNumber, Places]]:
        """Find the whole records beyond the savepoint; cut what is behind them."""
        saved = Positions(self._savepoint.kept, self._savepoint.bodies)
        for folder, position in ((self._files.kept, saved.kept), (self._files.bodies, saved.bodies)):
            if position is None or (folder is self._files.bodies and self._is_pruned(position.file)):
                continue
            size = folder.size(position.file)
            if size < position.size:
                raise StorageDamaged(
                    f"{folder.path(position.file)} has {size} bytes, {position.size} were committed; "
                    "restore the file from a copy, or make the ledger anew from the orderer"
                )
        pending = list(self._files.whole_blocks(saved, self._savepoint.height, self._prune_point))
        kept, bodies = saved
        for _, places in pending:
            kept = _end(places.kept)
            bodies = _end(places.bodies) if places.bodies else bodies
        if bodies is not None and self._files.bodies.size(bodies.file) < 0:
            bodies = None  # Its file was pruned; the next bodies begin a new one.
        self._files.go_back(Positions(kept, bodies))
        return pending

    def _check_prune_point(self) -> None:
        blocks = self.height + len(self._pending)
        if self.height and self._prune_point >= blocks:
            raise StorageDamaged(
                f"{self._prunes.path} says that blocks up to {self._prune_point} are pruned, but {self.channel_id} has "
                f"{blocks} blocks: it is another channel's, or a newer one; restore the file from a copy"
            )

    def _is_pruned(self, file: int) -> bool:
        return self._files.bodies.size(file) < 0 and file <= self._prune_point

    @property
    def pending_count(self) -> int:
        """Whole blocks beyond the savepoint: call `recommit` before anything else is committed."""
        return len(self._pending)

    def recommit(
        self,
        rejudge: Rejudge,
        *,
        group_blocks: int = 1,
        with_bodies: bool = True,
        captures: Callable[[int], bool] | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> int:
        """Judge and commit the pending blocks again.

        Args:
            rejudge: Makes a block's outcome again.
            group_blocks: Blocks that one batch takes in.
            with_bodies: Whether `rejudge` looks at the bodies of invalid transactions.
            captures: Tells at which blocks the state is captured for a checkpoint; where it always is, if not given.
            progress: Hears how many blocks are done.

        Returns:
            How many there were.

        Raises:
            StorageDamaged: A block's outcome is not what was stored of it; or the database of a ledger that was joined
                from a checkpoint is gone, and can't be made again.
            StorageFailed: The disk failed.

        Durability: they are committed on return.
        """
        done = 0
        self._captures = captures or self._captures
        if self._pending:  # Each batch counts the files as far as its own last block, for the next crash.
            saved = self._savepoint
            gone = saved.bodies is not None and self._files.bodies.size(saved.bodies.file) < 0
            self._files.stand_at(Positions(saved.kept, None if gone else saved.bodies))
        for number, places in self._pending:
            stored = self._files.read(number, places, with_bodies=with_bodies)
            if stored.lacks_valid:
                raise StorageDamaged(
                    f"{self.directory} was joined from a checkpoint above block {number} and its database is gone: it "
                    "can't be made again from the segments. Move the folder away and join again"
                )
            if number and stored.header.previous_hash != self._begin_group().savepoint.block_hash:
                path = self._files.kept.path(places.kept.file)
                raise damaged(path, places.kept.offset, f"block {number} does not follow block {number - 1}")
            outcome = rejudge(stored, self.staged_view())
            if outcome.verdicts != stored.verdicts or outcome.commit_hash != stored.commit_hash:
                raise StorageDamaged(
                    f"block {number} of {self.channel_id} was committed with other verdicts than it is judged to have "
                    "now; this version judges differently, or the files were changed"
                )
            self._files.append_again(places)
            self._stage(outcome, stored.leaves, places)  # Of a pruned block its bodies are gone, its leaves are not.
            done += 1
            if done % group_blocks == 0:
                self.finish_group()
                progress(done)
        self.finish_group()
        progress(done)
        self._captures = self._files.is_boundary
        self._pending = []
        return done

    # -- committing (one thread)

    def staged_view(self) -> StoreView:
        """The state after the last staged block."""
        group = self._group
        if group is None:
            return StoreView(self._base, self.height, self.commit_hash, borrowed=True)
        return StoreView(self._base, self.height, self.commit_hash, group.overlay, borrowed=True)

    def stage(self, outcome: Outcome) -> None:
        """Append a judged block to the segments, not synced, and to the overlay that `staged_view` reads."""
        assert not self._pending, "recommit comes first"
        leaves = leaves_of(outcome)
        self._begin_group()
        self._stage(outcome, leaves, self._files.append(outcome, leaves))

    def _begin_group(self) -> "_Group":
        """Give the group under way, or a new one."""
        if self._failed:
            raise StorageFailed(f"the ledger of {self.channel_id} must be opened again after a failure")
        if self._group is None:
            self._group = _Group(self._engine.batch(), Overlay(self.height, self.commit_hash), self._files.positions,
                                 self._savepoint)  # fmt: skip
        return self._group

    def _stage(self, outcome: Outcome, leaves: tuple[Leaf, ...], places: Places) -> None:
        group = self._begin_group()
        number = outcome.block.number
        assert number == group.savepoint.height, "blocks are committed in order"
        header = header_of(outcome, leaves, group.savepoint.vblock_hash)
        is_config = outcome.is_config and outcome.verdicts == b"\0"
        last_config = number if is_config else group.savepoint.last_config
        row = BlockRow(
            outcome.block_hash, vblock_hash(self.channel_id, header), header.tx_root, is_config, last_config,
            places.kept, places.bodies, outcome.commit_hash, outcome.verdicts,
        )  # fmt: skip
        self._stage_state(outcome, group)
        self._stage_indexes(outcome, row, leaves, group)
        interval = group.savepoint.interval
        if number == 0:
            group.batch.put(INTERVAL + u64(0), b"")
        if self._captures(number):
            group.batch.put(CAPTURED + u64(number), PENDING)
            interval = BlockNumber(number + 1)
            group.batch.put(INTERVAL + u64(interval), b"")
        group.savepoint = Savepoint(
            number + 1, None, None, row.block_hash, row.vblock_hash, outcome.commit_hash, last_config, interval
        )
        group.overlay.height = number + 1
        group.overlay.commit_hash = outcome.commit_hash

    def _stage_state(self, outcome: Outcome, group: "_Group") -> None:
        """Put the changed entries, and of each what it was before, where the interval does not have that yet."""
        interval = PRE_IMAGE + u64(group.savepoint.interval)
        overlay, batch, get = group.overlay, group.batch, self._base.get
        changes = [(state_key(key), entry) for key, entry in outcome.updates.items()]
        changes += [(state_key(key), None) for key in outcome.expired]
        for raw, entry in changes:
            before = overlay.entries[raw] if raw in overlay.entries else get(raw)
            kept = interval + raw
            if kept not in group.pre_images:
                group.pre_images.add(kept)
                if get(kept) is None:
                    batch.put(kept, before or b"")
            if entry is None:
                if before is not None:
                    batch.delete(raw)
                overlay.put(raw, None)
                continue
            value = entry_value(entry)
            batch.put(raw, value)
            overlay.put(raw, value)
            if entry.expiry != NEVER:
                batch.put(expiry_key(entry.expiry, raw), b"")
                overlay.expiring.setdefault(entry.expiry, []).append(raw)
        for key in outcome.expired:
            batch.delete(expiry_key(outcome.block.number, state_key(key)))

    def _stage_indexes(self, outcome: Outcome, row: BlockRow, leaves: tuple[Leaf, ...], group: "_Group") -> None:
        """Put the rows that find blocks, transactions, history, configurations and collections."""
        number, batch, ids = outcome.block.number, group.batch, group.overlay.ids
        for leaf in leaves:
            if leaf.tx_id:
                key = id_key(leaf.tx_id)
                earlier = ids.get(key) or self._base.get(key) or b""
                ids[key] = earlier + place_value(number, leaf.index, leaf.verdict)
                batch.put(key, ids[key])
        for index, namespace, name in outcome.history:
            batch.put(history_prefix(namespace, name) + history_suffix(number, index), b"")
        batch.put(block_key(number), row_value(row))
        batch.put(BLOCK_HASH + row.block_hash, u64(number))
        if outcome.faults:
            batch.put(FAULTS + u64(number), faults_value(outcome.faults))
        if row.is_config:
            batch.put(CONFIG + u64(number), leaves[0].envelope_digest)
        for namespace, package in outcome.config_history:
            batch.put(collections_key(namespace, number), package)

    def finish_group(self) -> None:
        """Sync the files once, then write the one batch of the group.

        Raises:
            StorageFailed: The disk failed: close the store and open it again.

        Durability: every staged block is committed on return.
        """
        group = self._group
        if group is None:
            return
        self._files.sync()
        positions = self._files.positions
        savepoint = group.savepoint._replace(kept=positions.kept, bodies=positions.bodies)
        group.batch.put(SAVEPOINT_KEY, savepoint_value(savepoint))
        self._group, self._failed = None, True  # If this fails it may be there all the same: nothing is cut any more.
        group.batch.write()
        self._failed = False
        base, self._base = self._base, self._engine.snapshot()
        base.close()
        self._savepoint = savepoint

    def abandon_group(self) -> None:
        """Forget staged blocks and cut them off the segments."""
        group, self._group = self._group, None
        if group is not None:
            self._files.go_back(group.positions)

    def commit(self, outcome: Outcome) -> None:
        """Stage one block and finish."""
        self.stage(outcome)
        self.finish_group()

    def commit_group(self, outcomes: Iterable[Outcome]) -> None:
        """Stage several blocks and finish."""
        for outcome in outcomes:
            self.stage(outcome)
        self.finish_group()

    # -- checkpoints

    def announce_checkpoint(self, number: BlockNumber) -> None:
        """Let a checkpoint be captured at a future height besides the multiples of CHK."""
        self._files.announce(number)

    def captured(self) -> tuple[BlockNumber, ...]:
        """List the captured checkpoints, ascending."""
        return self._checkpoints.captured()

    def compute_checkpoint(self, number: BlockNumber) -> CheckpointRoots:
        """Compute the roots at a captured checkpoint; off the commit thread."""
        return self._checkpoints.compute(number)

    def roots(self, number: BlockNumber) -> CheckpointRoots | None:
        """Return the roots at a checkpoint if they were computed."""
        return self._checkpoints.roots(number)

    def log_node(self, level: int, index: int) -> Digest:
        """Look up a complete subtree of the log of vBlock hashes, at or below the newest computed checkpoint."""
        return self._checkpoints.log_node(level, index)

    def checkpoint_view(self, number: BlockNumber) -> CheckpointStateView:
        """Look at the state at a computed checkpoint while commits go on; close the view."""
        return self._checkpoints.view(number)

    def keep_checkpoint(self, number: BlockNumber) -> None:
        """Keep a captured checkpoint until it is released."""
        self._checkpoints.keep(number)

    def release(self, number: BlockNumber) -> None:
        """Let a checkpoint go."""
        self._checkpoints.release(number)

    def release_before(self, number: BlockNumber) -> None:
        """Let all checkpoints below a number go that nobody keeps."""
        self._checkpoints.release_before(number)

    @property
    def last_work(self) -> CheckpointWork:
        """What the last computed checkpoint took."""
        return self._checkpoints.last_work

    def tip(self) -> Tip:
        """Read the savepoint and compute the roots there, from the last checkpoint on: cheap, and any thread may."""
        return self._checkpoints.tip()

    def roots_now(self) -> CheckpointRoots:
        """Compute the roots at the last block, whatever its height: from all entries, so for checks and replays."""
        number = BlockNumber(self.height - 1)
        known = self.roots(number)
        if known is not None:
            return known
        hashes = [log_leaf(self._row(BlockNumber(each)).vblock_hash) for each in range(self.height)]
        config = self.last_config(number)
        return CheckpointRoots(
            number, self.vblock_hash, tree_hash(hashes), slow_root(dict(self.iter_state())), config.number,
            config.envelope_digest,
        )  # fmt: skip

    # -- pruning

    def prune_plan(self, to: BlockNumber) -> PrunePlan:
        """Say what pruning to a new prune point would do."""
        low, high = self.first_block, BlockNumber(to + 1)
        counts: Counter[int] = Counter()
        for number in range(low, high):
            counts.update(self._row(BlockNumber(number)).verdicts)
        files = [first for first in self._files.bodies.segments() if self._files.bodies.bounds(first)[1] <= high]
        return PrunePlan(
            low, high, dict(sorted(counts.items())), sum(self._files.bodies.size(first) for first in files),
            tuple(self._files.bodies.path(first).name for first in files), self.pins(),
        )  # fmt: skip

    def archive(self, to: BlockNumber, directory: Path) -> tuple[ArchivedFile, ...]:
        """Copy the files that pruning would remove, sync the copies, read them back and compare.

        Raises:
            StorageFailed: The copy can't be made or differs.
        """
        archived = []
        self._files_verbs.make_directory(directory)
        for name in self.prune_plan(to).files:
            source = self._files.bodies.directory / name
            content = self._files_verbs.read(source, 0, self._files_verbs.size(source))
            target = directory / f"{self.channel_id}-{name}"
            if self._files_verbs.size(target) >= 0:
                self._files_verbs.unlink(target)
            copy = self._files_verbs.create(target, content)
            copy.sync()
            copy.close()
            again = self._files_verbs.read(target, 0, len(content) + 1)
            if again != content:
                raise StorageDamaged(f"{target} differs from {source} after copying; nothing was pruned")
            archived.append(ArchivedFile(name, len(content), digest(content)))
        self._files_verbs.sync_directory(directory)
        return tuple(archived)

    def prune(self, to: BlockNumber, receipt: bytes) -> None:
        """Move the prune point and unlink what lies at or below it.

        Args:
            to: The new prune point; a boundary between prunable files.
            receipt: Kept for ever with it.

        Durability: prune point and receipt are one synced record; unlinking is finished at the next start.
        """
        assert self._prune_point <= to < self.height, "the prune point never goes back, nor beyond the ledger"
        self._prunes.append(u64(to) + receipt)
        self._prune_point = to
        self._unlink_pruned()

    def _unlink_pruned(self) -> None:
        folder = self._files.bodies
        gone = [
            first
            for first in folder.segments()
            if first <= self._prune_point and folder.has_whole_header(first)
            and folder.bounds(first)[1] <= self._prune_point + 1
        ]  # fmt: skip
        for first in gone:
            if folder.position is not None and folder.position.file == first:
                folder.resume(None)
            self._files_verbs.unlink(folder.path(first))
        if gone:
            self._files_verbs.sync_directory(folder.directory)

    def prune_records(self) -> tuple[PruneRecord, ...]:
        """List every step of the prune point with its receipt, oldest first."""
        return tuple(
            PruneRecord(BlockNumber(int.from_bytes(raw[:8], "big")), raw[8:]) for raw in self._prunes.records()
        )

    def pin(self, number: BlockNumber, owner: str, timeout_s: float) -> int:
        """Hold back pruning from a block on, for a while; give an id to end it with."""
        assert len(self._pins) < PINS_MAX, "pins are bounded by their owner"
        pin_id = next(self._pin_ids)
        self._pins[pin_id] = (number, owner, time.monotonic() + timeout_s)
        return pin_id

    def unpin(self, pin_id: int) -> None:
        """End a pin; one that has ended is fine."""
        self._pins.pop(pin_id, None)

    def pins(self) -> tuple[Pin, ...]:
        """List the pins in force."""
        now = time.monotonic()
        self._pins = {key: pin for key, pin in self._pins.items() if pin[2] > now}
        return tuple(Pin(BlockNumber(number), owner, end - now) for number, owner, end in self._pins.values())

    # -- the rest

    def disk_use(self) -> DiskUse:
        """Count bytes on disk by what they are."""
        sizes = {
            name: sum(path.stat().st_size for path in (self.directory / name).glob("*") if path.is_file())
            for name in ("kept", "prunable", "records", "db")
        }
        return DiskUse(sizes["kept"], sizes["prunable"], sizes["records"], sizes["db"])

    def close(self) -> None:
        """Close files and database; open views fail from then on."""
        self._checkpoints.close()
        self._files.close()
        self._prunes.close()
        self._base.close()
        self._engine.close()
        self._lock_file.close()


class _Group:
    """Blocks on their way to the disk."""

    __slots__ = ("batch", "overlay", "positions", "pre_images", "savepoint")

    def __init__(self, batch: Batch, overlay: Overlay, positions: Positions, savepoint: Savepoint) -> None:
        self.batch = batch
        self.overlay = overlay
        self.positions = positions
        self.savepoint = savepoint
        self.pre_images: set[bytes] = set()


def _end(place: Place) -> Position:
    """Give the position behind a record."""
    return Position(place.file, place.offset + place.length)


__all__ = ["LedgerStore", "Rejudge", "stored_block"]
