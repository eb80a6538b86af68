"""How does a ledger begin at a checkpoint?  What was checked is put together beside, then renamed into place.

The new ledger has, of the blocks below the checkpoint, heads and leaves (who used which id, and what became of it) and
the config blocks whole; the block at the checkpoint whole; and the state. From there it is a ledger like any other, and
can serve joiners itself. What is put together lies in `channels/.installing-NAME` and is thrown away if a crash leaves
it there; the rename is the one step that makes it the channel's ledger.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from ledger.core.block import Block, Header
from ledger.core.checkpoint import Statement
from ledger.core.encoding import u64
from ledger.core.errors import Conflict, InvalidCheckpoint, StorageFailed
from ledger.core.joining import BlockHead
from ledger.core.names import NEVER, ZERO_DIGEST, BlockNumber
from ledger.core.outcome import Outcome
from ledger.core.state import Entry, StateKey
from ledger.core.vblock import Leaf, VBlockHeader, tx_root, vblock_hash
from ledger.storage.block_files import BlockFiles, Places
from ledger.storage.checkpoint_state import PENDING, CheckpointState
from ledger.storage.engine import Batch, Engine
from ledger.storage.engine_leveldb import LevelDbEngine
from ledger.storage.files import Files
from ledger.storage.keys import (
    BLOCK_HASH,
    CAPTURED,
    CONFIG,
    INTERVAL,
    JOINED_KEY,
    PRE_IMAGE,
    SAVEPOINT_KEY,
    BlockRow,
    Savepoint,
    block_key,
    entry_value,
    expiry_key,
    id_key,
    place_value,
    row_value,
    savepoint_value,
    state_key,
)

BATCH_ROWS = 5_000


def installing_folder(target: Path) -> Path:
    """Give the folder beside a channel's in which its ledger is put together."""
    return target.with_name(f".installing-{target.name}")


class Installation:
    """A ledger that is put together.  One thread; `finish` or `abandon` ends it.

    Args:
        data: The peer's data directory.
        statement: The checkpoint's statement.
        config_numbers: Numbers of the config blocks up to it.
        chk: Blocks between checkpoints.

    Raises:
        Conflict: The channel has a ledger already.
        StorageFailed: The disk failed.
    """

    def __init__(self, data: Path, statement: Statement, config_numbers: Iterable[BlockNumber], *, chk: int) -> None:
        """Begin anew: what an earlier try left is removed."""
        self._statement = statement
        self._config_numbers = frozenset(config_numbers)
        self._target = data / "channels" / statement.channel
        if self._target.exists():
            raise Conflict(f"{self._target} is there already: the channel {statement.channel} has a ledger")
        self._folder = installing_folder(self._target)
        try:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise StorageFailed(f"emptying {self._folder} failed: {error}") from error
        self._closed = False
        files = Files()
        self._engine: Engine = LevelDbEngine(self._folder / "db")
        self._files = BlockFiles(files, self._folder, chk=chk)
        self._chk = chk
        self._batch: Batch = self._engine.batch()
        self._rows = 0
        self._ids: dict[bytes, bytes] = {}
        self._previous = ZERO_DIGEST
        self._last_config = BlockNumber(0)
        self._next = BlockNumber(0)
        self._row: BlockRow
        self._put(INTERVAL + u64(0), b"")

    def _put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)
        self._rows += 1
        if self._rows >= BATCH_ROWS:
            self._write()

    def _write(self) -> None:
        for key, places in self._ids.items():
            self._batch.put(key, places)
        self._ids.clear()
        self._batch.write()
        self._batch = self._engine.batch()
        self._rows = 0

    @property
    def records_directory(self) -> Path:
        """Folder for the records of checkpoints; what is put there is installed with the rest."""
        return self._folder / "records"

    def add_entries(self, entries: Iterable[tuple[StateKey, Entry]]) -> None:
        """Take entries of the state in."""
        interval = PRE_IMAGE + u64(0)
        for key, entry in entries:
            raw = state_key(key)
            self._put(raw, entry_value(entry))
            self._put(interval + raw, b"")  # It changed since the beginning: so the tree takes it in.
            if entry.expiry != NEVER:
                self._put(expiry_key(entry.expiry, raw), b"")

    def add_block(self, head: BlockHead, leaves: Sequence[Leaf], whole: Block | None = None) -> None:
        """Take the next block in: its leaves, or, of a config block and of the one at the checkpoint, all of it."""
        number = head.number
        assert number == self._next, "blocks come in order"
        verdicts = bytes(leaf.verdict for leaf in leaves)
        is_config = number in self._config_numbers
        assert whole is not None or not is_config, "config blocks come whole"
        if is_config:
            self._last_config = number
            self._put(CONFIG + u64(number), leaves[0].envelope_digest)
        places = self._append(head, leaves, verdicts, whole, is_config=is_config)
        header = VBlockHeader(
            number, self._previous, head.block_hash, len(leaves), verdicts.count(0), tx_root(leaves), head.commit_hash
        )
        row = BlockRow(
            head.block_hash, vblock_hash(self._statement.channel, header), header.tx_root, is_config,
            self._last_config, places.kept, places.bodies, head.commit_hash, verdicts,
        )  # fmt: skip
        self._put(block_key(number), row_value(row))
        self._put(BLOCK_HASH + row.block_hash, u64(number))
        for leaf in leaves:
            if leaf.tx_id:
                key = id_key(leaf.tx_id)
                earlier = self._ids.get(key) or self._engine.get(key) or b""
                self._ids[key] = earlier + place_value(number, leaf.index, leaf.verdict)
                self._rows += 1
        self._row = row
        self._previous = row.vblock_hash
        self._next = BlockNumber(number + 1)

    def _append(
        self, head: BlockHead, leaves: Sequence[Leaf], verdicts: bytes, whole: Block | None, *, is_config: bool
    ) -> Places:
        """Append the block's records."""
        if whole is None:
            header = Header(head.number, head.previous_hash, head.data_hash)
            return self._files.append_leaves(header, verdicts, head.commit_hash, leaves)
        outcome = Outcome(
            block=whole, block_hash=head.block_hash, verdicts=verdicts, faults=(),
            tx_ids=tuple(leaf.tx_id for leaf in leaves), updates={}, expired=(), history=(),
            commit_hash=head.commit_hash, is_config=is_config,
        )  # fmt: skip
        return self._files.append(outcome, leaves)

    def finish(self) -> None:
        """Compute the roots of what was taken in, compare them with what was signed, and make it the channel's ledger.

        Raises:
            InvalidCheckpoint: They differ: nothing is installed.
            StorageFailed: The disk failed: nothing is installed.

        Durability: on return the ledger is there, and survives a power cut.
        """
        statement, row = self._statement, self._row
        number = statement.number
        assert self._next == number + 1, "the block at the checkpoint comes last"
        self._files.sync()
        positions = self._files.positions
        self._put(CAPTURED + u64(number), PENDING)
        self._put(INTERVAL + u64(number + 1), b"")
        self._put(JOINED_KEY, u64(number))
        savepoint = Savepoint(
            number + 1, positions.kept, positions.bodies, row.block_hash, row.vblock_hash, row.commit_hash,
            self._last_config, BlockNumber(number + 1),
        )  # fmt: skip
        self._put(SAVEPOINT_KEY, savepoint_value(savepoint))
        self._write()
        checkpoints = CheckpointState(self._engine, self._chk)
        found = checkpoints.compute(number).statement(statement.channel)
        if found != statement:
            checkpoints.close()
            self.abandon()
            raise InvalidCheckpoint(
                f"joining at checkpoint {number}", rule="statement", expected=statement.encoded, found=found.encoded
            )
        checkpoints.keep(number)
        checkpoints.close()
        self._close()
        try:
            sync_tree(self._folder)
            self._folder.rename(self._target)
            sync_folder(self._target.parent)
        except OSError as error:
            if self._target.exists():
                raise Conflict(f"{self._target} has appeared meanwhile: nothing was installed") from error
            raise StorageFailed(f"installing {self._target} failed: {error}") from error

    def abandon(self) -> None:
        """Throw away what was put together, if it was not installed."""
        self._close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._files.close()
            self._engine.close()


def sync_tree(folder: Path) -> None:
    """Make every file and name below a folder durable."""
    for path, _, names in os.walk(folder):
        for name in names:
            with (Path(path) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(path))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
