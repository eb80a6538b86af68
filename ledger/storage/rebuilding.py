"""How is a channel's database made again from its segments?  What is there is looked at first, then all is done anew.

1. *Survey*: all records are read. How many blocks are there whole, and what still says how many there once were: the
   old database, as far as it can be read, the statements and proofs in the records, the prune point, records behind a
   damaged one. Where less is there than once was, nothing is changed unless cutting was asked for.
2. *Remake*: the blocks are committed again, in a database beside the old one. Signatures and verdicts are taken as they
   stand, or judged again, by what the caller brings; the commit hash of every block is compared with the stored one.
3. *Compare*: the vBlocks with all proofs of checkpoints, and the state with the newest of them, which other peers
   signed.
4. *Put in place*: see `new_database`. A crash before that leaves the old database, after that the new one.

At which heights is the state captured on the way?  At the newest proved checkpoint, for the comparison and for pruning
to rest on, and at those above it that a peer retains; there is nothing to be had from the others.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ledger.core.checkpoint import CheckpointProof
from ledger.core.encoding import u64
from ledger.core.errors import Fault, NotFound, StorageDamaged, StorageFailed
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId, Digest, TxIndex
from ledger.storage.block_files import BlockFiles, Positions
from ledger.storage.checkpoint_state import is_retained
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.engine import Engine, OpenEngine
from ledger.storage.engine_leveldb import LevelDbEngine
from ledger.storage.files import DirectoryLock, Files
from ledger.storage.keys import FAULTS, FORMAT, SAVEPOINT_KEY, faults_of, savepoint_format, savepoint_of
from ledger.storage.ledger_store import LedgerStore, Rejudge
from ledger.storage.new_database import DATABASE, begin_new, finish, put_in_place
from ledger.storage.record_log import RecordLog
from ledger.storage.segments import Place

GROUP_BLOCKS = 16
"""Blocks that one batch takes in."""

CHK_DEFAULT = 100
"""Blocks between checkpoints where nothing on the disk says it."""

Progress = Callable[[int, int], None]
"""Hears how many blocks are done, of how many."""

Reasons = Callable[[BlockNumber], Mapping[TxIndex, Fault]]
"""Gives what is still known of why transactions of a block are invalid; only words, but not to be had anywhere else."""

MakeRejudge = Callable[[Reasons], Rejudge]
"""Makes what judges the blocks, from block 0 on."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What is there of a channel."""

    height: int
    """Blocks that are there whole, from block 0 on."""

    once: int
    """Blocks that were there once, as far as anything still says it."""

    cut_bytes: int
    """Bytes behind the last whole block."""

    prune_point: int
    """Highest block whose bodies may be gone; -1 for none."""

    anchor: CheckpointProof | None
    """The newest proved checkpoint among the whole blocks."""

    proofs: Mapping[BlockNumber, Digest]
    """The vBlock hashes that proofs of checkpoints speak of."""

    latest: int
    """The latest valid checkpoint, whether its block is there or not; -1 for none."""

    chk: int
    """Blocks between checkpoints, as far as the disk tells."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was made."""

    height: int
    vblock_hash: Digest
    state_hash: Digest
    """Of the state after the last block."""

    anchor: BlockNumber | None
    """The proved checkpoint that the state was compared with."""

    cut_blocks: int
    """Blocks that were there once and are not any more."""

    cut_bytes: int
    prune_point: int


def rebuild(
    data: Path,
    channel: ChannelId,
    make_rejudge: MakeRejudge,
    *,
    with_bodies: bool,
    may_cut: bool = False,
    chk: int | None = None,
    files: Files | None = None,
    progress: Progress = lambda done, total: None,
) -> Rebuilt:
    """Make the database of a channel again from its segments.

    Args:
        data: The data directory; nobody has the channel open.
        channel: The channel.
        make_rejudge: Makes what judges the blocks.
        with_bodies: Whether that looks at the bodies of invalid transactions, where they are there.
        may_cut: Whether the ledger may become shorter than it was.
        chk: Blocks between checkpoints, where the caller knows it; else it is found on the disk.
        files: The durable verbs.
        progress: Hears how many blocks are done.

    Raises:
        NotFound: There is no such channel.
        Conflict: Another process has the channel open.
        StorageDamaged: Blocks that were there are not whole any more, and nothing may be cut; or what was made is not
            what a proof of a checkpoint says.
        StorageFailed: The disk failed.

    Durability: on return the new database counts; after a crash it does or the old one does.
    """
    files = files or Files()
    directory = data / "channels" / channel
    if not (directory / "kept").is_dir():
        raise NotFound(f"{data} holds no channel {channel}")
    lock = DirectoryLock(directory / "LOCK")
    with ExitStack() as stack:
        with ExitStack() as locked:
            locked.callback(lock.close)
            finish(directory, files)
            old = _OldDatabase(directory / DATABASE)  # Its own lock holds while it is open.
            stack.callback(old.close)
            survey = look(directory, channel, files, old.height)
            if survey.height < survey.once and (not may_cut or survey.height <= survey.prune_point):
                raise StorageDamaged(_what_is_missing(directory, survey))
            new = begin_new(directory)
        open_engine: OpenEngine = lambda _: LevelDbEngine(new)  # noqa: E731
        store = LedgerStore.open(data, channel, chk=chk or survey.chk, open_engine=open_engine, files=files)
        stack.callback(store.close)
        store.recommit(
            make_rejudge(old.faults),
            group_blocks=GROUP_BLOCKS,
            with_bodies=with_bodies,
            captures=captures_of(survey, chk or survey.chk),
            progress=lambda done: progress(done, survey.height),
        )
        compare(store, survey)
        rebuilt = Rebuilt(
            height=store.height,
            vblock_hash=store.vblock_hash,
            state_hash=store.tip().roots.state_hash if store.height else ZERO_DIGEST,
            anchor=None if survey.anchor is None else survey.anchor.statement.number,
            cut_blocks=max(0, survey.once - store.height),
            cut_bytes=survey.cut_bytes,
            prune_point=store.prune_point,
        )
    lock = DirectoryLock(directory / "LOCK")
    try:
        put_in_place(directory, files)
    finally:
        lock.close()
    return rebuilt


def look(directory: Path, channel: ChannelId, files: Files, once: int) -> Survey:
    """Survey a channel's folder; changes nothing but torn ends of the records.

    Args:
        directory: The channel's folder, locked.
        channel: The channel.
        files: The durable verbs.
        once: Height that the old database speaks of; 0 if it says nothing.

    Raises:
        StorageDamaged: The records are damaged: they can't be made again.
    """
    prunes = RecordLog(directory / "records" / "prunes.log", files)
    prune_point = int.from_bytes(prunes.read(len(prunes) - 1)[:8], "big") if len(prunes) else -1
    prunes.close()
    segments = BlockFiles(files, directory, chk=1)
    height = 0
    last: Place | None = None
    for number, places in segments.whole_blocks(Positions(None, None), 0, prune_point):
        height, last = number + 1, places.kept
    with CheckpointStore(directory / "records", channel, files) as records:
        numbers = records.numbers()
        proofs = {number: proof for number in numbers if (proof := records.proof(number)) is not None}
        signed = [message for number in numbers if (message := records.signed(number)) is not None]
        latest = records.latest_valid
    behind = [first for first in segments.kept.segments() if last is None or first > last.file]
    cut = sum(segments.kept.size(first) for first in behind)
    seen = [number + 1 for number in numbers] + [first + 1 for first in behind]
    if last is not None:
        end = last.offset + last.length
        cut += segments.kept.size(last.file) - end
        if not once:  # Where the database says how much counts, whole records behind that say nothing.
            seen += [number + 1 for number in segments.kept.numbers_behind(last.file, end)]
    below = [number for number in proofs if number < height]
    return Survey(
        height=height,
        once=max(once, height, prune_point + 1, *seen),
        cut_bytes=cut,
        prune_point=prune_point,
        anchor=proofs[max(below)] if below else None,
        proofs={number: proofs[number].statement.vblock_hash for number in below},
        latest=latest.statement.number if latest is not None else -1,
        chk=signed[-1].interval_blocks if signed else _interval_of(segments),
    )


def captures_of(survey: Survey, chk: int) -> Callable[[int], bool]:
    """Tell at which blocks the state is captured (see above)."""
    anchor = -1 if survey.anchor is None else survey.anchor.statement.number
    newest = (survey.height - 1) // chk * chk

    def captures(number: int) -> bool:
        if number == anchor:
            return number > 0
        return number > survey.latest and number % chk == 0 and is_retained(number, newest, chk)

    return captures


def compare(store: LedgerStore, survey: Survey) -> None:
    """Compare what was made with what proofs of checkpoints say.

    Raises:
        StorageDamaged: It is something else.
    """
    for number, expected in survey.proofs.items():
        found = store.summary(number).vblock_hash
        if found != expected:
            raise StorageDamaged(
                f"the segments of {store.channel_id} hold another vBlock {number} ({found.hex()}) than its checkpoint"
                f" ({expected.hex()}); nothing was changed: restore a backup, or make the ledger anew from the orderer"
            )
    if survey.anchor is None:
        return
    expected_statement = survey.anchor.statement
    statement = store.compute_checkpoint(expected_statement.number).statement(store.channel_id)
    if statement != expected_statement:
        raise StorageDamaged(
            f"the segments of {store.channel_id} give another state at block {statement.number}"
            f" ({statement.state_hash.hex()}) than its checkpoint ({expected_statement.state_hash.hex()}); nothing was"
            " changed: restore a backup, or make the ledger anew from the orderer"
        )
    if statement.number == survey.latest:
        store.keep_checkpoint(statement.number)


def _interval_of(segments: BlockFiles) -> int:
    """Tell from the prunable files how many blocks lie between checkpoints."""
    for first in reversed(segments.bodies.segments()):
        if segments.bodies.has_whole_header(first):
            start, end = segments.bodies.bounds(first)
            if start % (end - start) == 0:
                return end - start
    return CHK_DEFAULT


def _what_is_missing(directory: Path, survey: Survey) -> str:
    way_out = (
        "Restore a backup, or join again"
        if survey.height <= survey.prune_point
        else "Restore a backup; or run `peerledger rebuild` with `--cut`, which keeps the whole blocks, and the next"
        " start fetches the others from the orderers"
    )
    return (
        f"{directory} held {survey.once} blocks or more, and {survey.height} are whole: behind these something is"
        f" damaged or missing ({survey.cut_bytes} bytes of kept segments follow). Nothing was changed. {way_out}"
    )


class _OldDatabase:
    """What the old database still says, as far as it can be read; nothing of it is needed."""

    def __init__(self, directory: Path) -> None:
        self.height = 0
        self._engine: Engine | None = None
        if not directory.is_dir():
            return
        try:
            self._engine = LevelDbEngine(directory)
            raw = self._engine.get(SAVEPOINT_KEY)
            if raw is not None and savepoint_format(raw) == FORMAT:
                self.height = savepoint_of(raw).height
        except (StorageDamaged, StorageFailed):
            self.close()

    def faults(self, number: BlockNumber) -> Mapping[TxIndex, Fault]:
        """Give why transactions of a block are invalid."""
        if self._engine is None:
            return {}
        try:
            raw = self._engine.get(FAULTS + u64(number))
        except (StorageDamaged, StorageFailed):
            self.close()
            return {}
        return {} if raw is None else dict(faults_of(raw))

    def close(self) -> None:
        """Let go of it."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


__all__ = ["MakeRejudge", "Progress", "Reasons", "Rebuilt", "Survey", "rebuild"]
