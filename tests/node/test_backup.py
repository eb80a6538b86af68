"""Is a backup whole, is only a whole one taken for one, and does a peer made of it never contradict itself?"""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.core.checkpoint import Statement
from ledger.core.checkpoint_tally import Computed
from ledger.core.errors import (
    Busy,
    Conflict,
    InvalidBlock,
    LedgerError,
    NotFound,
    PeerUnreachable,
    Refused,
    StorageDamaged,
)
from ledger.core.names import BlockNumber, ChannelId, Digest
from ledger.interfaces.rest.ports import BackupState
from ledger.node.backup import Backups, back_up, restore
from ledger.node.verify import verify
from ledger.services.checkpointing import CheckpointingSettings
from ledger.services.checkpointing.signing import OwnWord
from ledger.storage.backup import MANIFEST, Manifest, read_manifest, write_backup
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.ledger_store import LedgerStore
from ledger.wire.block import encode_block
from tests.kit.channel import CHANNEL, Channel
from tests.kit.checkpointing import message
from tests.kit.peer_folder import CHK, HEIGHT, PRUNE_POINT, PeerFolder, life
from tests.kit.stores import Crash, SteppingFiles, Steps, answers

CHANNEL_ID = ChannelId(CHANNEL)


def quiet(what: str, done: int, total: int) -> None:
    """Hear of progress and say nothing."""


def contents(data: Path) -> dict[str, object]:
    """All that a ledger answers, but the words of why transactions are invalid: these are in no backup."""
    store = LedgerStore.open(data, CHANNEL_ID, chk=CHK)
    assert store.pending_count == 0
    found = answers(store)
    store.close()
    del found["faults"]
    return found


def plain(directory: Path) -> PeerFolder:
    return PeerFolder(directory)


def agreed(directory: Path) -> PeerFolder:
    return PeerFolder(directory).agree()


def pruned(directory: Path) -> PeerFolder:
    return PeerFolder(directory).agree().prune()


@contextmanager
def in_use(folder: PeerFolder) -> Iterator[LedgerStore]:
    store = folder.open()
    try:
        yield store
    finally:
        store.close()


def copy_of(store: LedgerStore, target: Path, **more: object) -> Manifest:
    return write_backup(store, target, life().genesis, version="1", now_ms=7, **more)  # type: ignore[arg-type]


# -- what is in it


@pytest.mark.parametrize("make", [plain, agreed, pruned])
def test_what_is_restored_answers_as_what_was_backed_up(make: Callable[[Path], PeerFolder], tmp_path: Path) -> None:
    folder = make(tmp_path / "peer")
    told: list[tuple[str, int, int]] = []
    made = back_up(folder.data, folder.genesis, tmp_path / "backup", lambda *step: told.append(step))
    assert (made.height, made.vblock_hash, made.state_hash) == (
        HEIGHT,
        folder.vblock_hash.hex(),
        folder.state_hash.hex(),
    )
    assert made.prune_point == (PRUNE_POINT if make is pruned else None)
    assert told[-1][1] == told[-1][2] > 0
    assert not (tmp_path / "backup" / "db").exists()
    elsewhere = tmp_path / "elsewhere"
    assert restore(tmp_path / "backup", elsewhere, quiet, genesis=folder.genesis) == made
    assert contents(elsewhere) == contents(folder.data)
    assert verify(elsewhere, folder.genesis, lambda *_: None).ok
    assert sorted(path.name for path in elsewhere.iterdir()) == ["channels"]


def test_a_backup_of_a_ledger_in_use_is_as_of_one_block(tmp_path: Path) -> None:
    """Goal: commits go on, and the copy is whole.  Method: commit at every piece that is copied; restore; compare."""
    outcomes = life().outcomes
    folder = PeerFolder(tmp_path / "peer", outcomes[:6])
    expected = contents(folder.data)
    with in_use(folder) as store:
        waiting = list(outcomes[6:])

        def commit_one(done: int, total: int) -> None:
            if waiting:
                store.commit(waiting.pop(0))
            if store.height == 10:
                store.compute_checkpoint(BlockNumber(8))

        made = copy_of(store, tmp_path / "backup", progress=commit_one)
        assert store.height > made.height == 6
        assert not store.pins()
    restore(tmp_path / "backup", tmp_path / "elsewhere", quiet)
    assert contents(tmp_path / "elsewhere") == expected


def test_backups_beside_a_committing_thread_are_whole_each_time(tmp_path: Path) -> None:
    """Goal: no moment is special (C4, C5).  Method: back up again and again while another thread commits."""
    outcomes = life().outcomes
    folder = PeerFolder(tmp_path / "peer", outcomes[:1])
    heights: list[int] = []
    with in_use(folder) as store:

        def commit_all() -> None:
            for start in range(1, HEIGHT, 2):
                store.commit_group(outcomes[start : start + 2])
                time.sleep(0.01)

        committing = threading.Thread(target=commit_all)
        committing.start()
        while committing.is_alive() or not heights:
            heights.append(copy_of(store, tmp_path / f"{len(heights)}").height)
        committing.join()
    assert heights == sorted(heights)
    for number, height in list(enumerate(heights))[:: max(1, len(heights) // 3)]:
        made = restore(tmp_path / str(number), tmp_path / f"restored{number}", quiet)
        assert made.height == height
        assert made.vblock_hash == _vblock_hash(tmp_path / "peer" / "data", height - 1)


def _vblock_hash(data: Path, number: int) -> str:
    store = LedgerStore.open(data, CHANNEL_ID, chk=CHK)
    found = store.summary(BlockNumber(number)).vblock_hash.hex()
    store.close()
    return found


def test_pruning_waits_for_a_backup_and_one_that_was_decided_before_does_no_harm(tmp_path: Path) -> None:
    """Goal: a prune beside a backup tears nothing out of it (P12).  Method: prune between two of its pieces."""
    folder = agreed(tmp_path / "peer")
    before = contents(folder.data)
    seen: list[tuple[str, int]] = []
    with in_use(folder) as store:

        def prune(done: int, total: int) -> None:
            if not seen:
                seen.extend((pin.owner, pin.number) for pin in store.pins())
                store.prune(PRUNE_POINT, b"receipt")

        made = copy_of(store, tmp_path / "backup", progress=prune)
    assert seen == [("backup", 0)]
    assert made.prune_point == PRUNE_POINT
    restore(tmp_path / "backup", tmp_path / "elsewhere", quiet)
    after = contents(tmp_path / "elsewhere")
    assert after == before
    store = LedgerStore.open(tmp_path / "elsewhere", CHANNEL_ID, chk=CHK)
    assert store.first_block == PRUNE_POINT + 1
    store.close()


def test_a_pruning_that_is_half_recorded_is_not_in_the_backup(tmp_path: Path) -> None:
    """Method: half a record at the end, as it stands there while one is being written."""
    folder = agreed(tmp_path / "peer")
    with in_use(folder) as store:
        with (store.directory / "records" / "prunes.log").open("ab") as file:
            file.write(b"\0\0\0\x10")
        assert copy_of(store, tmp_path / "backup").prune_point is None
    assert sorted(path.name for path in (tmp_path / "backup" / "records").iterdir()) == [
        "evidence.log",
        "proofs.log",
        "prunes.log",
        "signed.log",
    ]
    assert restore(tmp_path / "backup", tmp_path / "elsewhere", quiet).height == HEIGHT


def test_a_block_that_is_not_whole_is_not_backed_up_unnoticed(tmp_path: Path) -> None:
    """Goal: no backup of rot (V11).  Method: flip a bit in an old block while the ledger is in use."""
    folder = agreed(tmp_path / "peer")
    with in_use(folder) as store:
        (path,) = (folder.channel / "kept").iterdir()
        place = store._row(BlockNumber(5)).kept
        data = bytearray(path.read_bytes())
        data[place.offset + place.length // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(StorageDamaged, match=r"block 5 of .* is not whole"):
            copy_of(store, tmp_path / "backup")
    assert list(tmp_path.iterdir()) == [tmp_path / "peer"]


# -- when it is one


def test_a_backup_that_was_interrupted_is_none_and_the_next_one_is(tmp_path: Path) -> None:
    """Goal: only a whole backup is taken for one.  Method: end before each step that changes the disk."""
    folder = pruned(tmp_path / "peer")
    target = tmp_path / "backups" / "monday"
    with in_use(folder) as store:
        steps = Steps()
        copy_of(store, target, files=SteppingFiles(steps))
        assert len(steps.taken) > 20
        last = max(index for index, (verb, _) in enumerate(steps.taken, 1) if verb == "rename")
        for crash_at in range(1, last + 1):
            shutil.rmtree(target.parent, ignore_errors=True)
            with pytest.raises(Crash):
                copy_of(store, target, files=SteppingFiles(Steps(crash_at)))
            with pytest.raises(NotFound, match="no backup"):
                read_manifest(target)
            assert not store.pins()
        copy_of(store, target)
    assert [path.name for path in target.parent.iterdir()] == ["monday"]


def test_what_a_killed_backup_left_is_no_backup_and_in_nobodys_way(tmp_path: Path) -> None:
    folder = plain(tmp_path / "peer")
    back_up(folder.data, folder.genesis, tmp_path / "monday", quiet)
    (tmp_path / "monday" / MANIFEST).unlink()
    (tmp_path / "monday").rename(tmp_path / ".monday.partial")
    with pytest.raises(NotFound, match="no backup"):
        restore(tmp_path / ".monday.partial", tmp_path / "elsewhere", quiet)
    made = back_up(folder.data, folder.genesis, tmp_path / "monday", quiet)
    assert restore(tmp_path / "monday", tmp_path / "elsewhere", quiet) == made
    assert not (tmp_path / ".monday.partial").exists()


def test_a_folder_that_is_there_is_not_written_to(tmp_path: Path) -> None:
    folder = plain(tmp_path / "peer")
    (tmp_path / "backup").mkdir()
    with pytest.raises(Conflict, match="is there already"):
        back_up(folder.data, folder.genesis, tmp_path / "backup", quiet)
    with pytest.raises(Conflict, match="holds no channel"):
        back_up(tmp_path / "elsewhere", folder.genesis, tmp_path / "other", quiet)
    with in_use(folder), pytest.raises(Conflict, match="in use"):
        back_up(folder.data, folder.genesis, tmp_path / "other", quiet)
    assert not list((tmp_path / "backup").iterdir())


@pytest.mark.parametrize("kind", ["kept/", "prunable/", "records/signed", "records/prunes", "genesis.block"])
@pytest.mark.parametrize("fault", ["flipped", "cut", "missing"])
def test_a_damaged_backup_is_refused_and_the_file_named(kind: str, fault: str, tmp_path: Path) -> None:
    folder = pruned(tmp_path / "peer")
    back_up(folder.data, folder.genesis, tmp_path / "backup", quiet)
    path = next(
        path for path in sorted((tmp_path / "backup").rglob("*")) if f"backup/{kind}" in str(path) and path.is_file()
    )
    content = path.read_bytes()
    if fault == "missing":
        path.unlink()
    elif fault == "cut":
        path.write_bytes(content[:-1])
    else:
        path.write_bytes(content[:20] + bytes([content[20] ^ 4]) + content[21:])
    with pytest.raises(StorageDamaged) as refused:
        restore(tmp_path / "backup", tmp_path / "elsewhere", quiet)
    assert str(path) in str(refused.value)
    assert not list((tmp_path / "elsewhere").rglob("*.kept"))


@pytest.mark.parametrize(
    ("member", "value", "error", "words"),
    [
        ("format", "peerledger/backup/v9", StorageDamaged, "no manifest"),
        ("files", [{"name": "../../etc/passwd", "size_bytes": 1, "sha256": ""}], StorageDamaged, "no manifest"),
        ("channel", "../other", StorageDamaged, "no manifest"),
        ("channel", "otherchannel", InvalidBlock, "channel"),
        ("height", HEIGHT - 1, StorageDamaged, "height"),
        ("vblock_hash", "ab" * 32, StorageDamaged, "vBlock hash"),
        ("state_hash", "ab" * 32, StorageDamaged, "state hash"),
        ("prune_point", 3, StorageDamaged, "prune point"),
    ],
)
def test_a_manifest_that_is_not_true_is_found(
    member: str, value: object, error: type[LedgerError], words: str, tmp_path: Path
) -> None:
    folder = agreed(tmp_path / "peer")
    back_up(folder.data, folder.genesis, tmp_path / "backup", quiet)
    path = tmp_path / "backup" / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {member: value}))
    with pytest.raises(error, match=words):
        restore(tmp_path / "backup", tmp_path / "elsewhere", quiet)
    assert not list((tmp_path / "elsewhere").rglob("*.kept"))


def test_a_channel_that_is_there_is_not_restored_over(tmp_path: Path) -> None:
    folder = agreed(tmp_path / "peer")
    back_up(folder.data, folder.genesis, tmp_path / "backup", quiet)
    expected = contents(folder.data)
    with pytest.raises(Conflict, match="not empty"):
        restore(tmp_path / "backup", folder.data, quiet)
    assert contents(folder.data) == expected
    other = tmp_path / "other.block"
    other.write_bytes(encode_block(Channel(application="V2_5").genesis))
    with pytest.raises(InvalidBlock) as refused:
        restore(tmp_path / "backup", tmp_path / "elsewhere", quiet, genesis=other)
    assert refused.value.rule == "genesis block"
    with pytest.raises(NotFound, match="no backup"):
        restore(tmp_path / "peer", tmp_path / "elsewhere", quiet)


def test_a_restore_that_was_interrupted_leaves_no_channel_and_can_be_repeated(tmp_path: Path) -> None:
    """Goal: a peer never starts on half a restore (C7).  Method: end at each piece of work that is told."""
    folder = agreed(tmp_path / "peer")
    back_up(folder.data, folder.genesis, tmp_path / "backup", quiet)
    steps: list[tuple[str, int, int]] = []
    restore(tmp_path / "backup", tmp_path / "first", lambda *step: steps.append(step))
    assert {what for what, _, _ in steps} == {"checking the backup", "copying", "checking the copy", "blocks"}
    for end in range(0, len(steps), 5):
        left = end

        def count(what: str, done: int, total: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash(what)

        with pytest.raises(Crash):
            restore(tmp_path / "backup", tmp_path / "elsewhere", count)
        assert not (tmp_path / "elsewhere" / "channels").exists()
    restore(tmp_path / "backup", tmp_path / "elsewhere", quiet)
    assert contents(tmp_path / "elsewhere") == contents(folder.data)


# -- what a restored peer says


class Word:
    """A peer's own word about checkpoints, over its real records."""

    def __init__(self, data: Path) -> None:
        self.records = CheckpointStore(data / "channels" / CHANNEL / "records", CHANNEL_ID)
        self.newest: int | None = None
        self.own = OwnWord(life().channel.peers[0], self.records, CheckpointingSettings("peer0", CHK), self._ask)

    async def _ask(self) -> int:
        if self.newest is None:
            raise PeerUnreachable("no orderer answers")
        return self.newest

    async def repeat(self) -> None:
        """Do what the service does from time to time."""
        if (newest := await self.own.newest_seen()) is not None:
            self.own.speak_above(newest)

    def sign(self, statement: Statement) -> bool:
        """Compute a checkpoint, and record it before it would be sent; tell whether it was signed."""
        signed = self.own.signed(Computed(statement, life().channel.bundle, None)).own
        if signed is not None:
            self.records.record_signed(signed)
        return signed is not None


def statement(number: int, flavour: int = 0) -> Statement:
    digest = Digest(bytes([flavour]) * 32)
    return Statement(CHANNEL_ID, BlockNumber(number), digest, digest, digest)


async def test_a_restored_peer_never_signs_a_second_statement_for_a_height(tmp_path: Path) -> None:
    """Goal: what was signed after the backup is never contradicted, whatever is computed and however often it starts.

    Method: the peer signs 12 before the backup, 16 and 20 after it; the restored one would say something else of these.
    """
    folder = agreed(tmp_path / "peer")
    before = Word(folder.data)
    assert before.sign(statement(12))
    before.records.close()
    back_up(folder.data, folder.genesis, tmp_path / "backup", quiet)
    lost = Word(folder.data)
    assert lost.sign(statement(16))
    assert lost.sign(statement(20))
    lost.records.close()

    restore(tmp_path / "backup", tmp_path / "elsewhere", quiet)
    restored = Word(tmp_path / "elsewhere")
    assert "backup" in restored.own.silent()
    for number in (13, 16, 20, 24):
        assert not restored.sign(statement(number, flavour=1)), number
    with pytest.raises(Conflict, match="backup"):
        restored.records.record_signed(message(life().channel.peers[0], statement(16, flavour=1)))
    await restored.repeat()
    assert "backup" in restored.own.silent(), "the orderers did not answer"
    restored.records.close()

    restarted = Word(tmp_path / "elsewhere")
    assert not restarted.sign(statement(16, flavour=1))
    assert restarted.sign(statement(12)), "what is recorded is said again as it was"
    assert not restarted.sign(statement(12, flavour=1))
    restarted.newest = 21
    await restarted.repeat()
    assert restarted.own.silent() == ""
    assert [number for number in (16, 20, 21) if restarted.sign(statement(number, flavour=1))] == []
    assert restarted.sign(statement(24, flavour=1))
    restarted.records.close()

    again = Word(tmp_path / "elsewhere")
    assert again.own.silent() == ""
    assert again.records.floor == 21
    assert not again.sign(statement(20, flavour=1))
    assert again.sign(statement(28))
    again.records.close()


async def test_a_ledger_restored_twice_is_silent_twice(tmp_path: Path) -> None:
    folder = agreed(tmp_path / "peer")
    back_up(folder.data, folder.genesis, tmp_path / "one", quiet)
    restore(tmp_path / "one", tmp_path / "first", quiet)
    first = Word(tmp_path / "first")
    first.newest = 30
    await first.repeat()
    assert first.own.silent() == ""
    first.records.close()
    back_up(tmp_path / "first", folder.genesis, tmp_path / "two", quiet)
    restore(tmp_path / "two", tmp_path / "second", quiet)
    second = Word(tmp_path / "second")
    assert (second.records.floor, second.records.restored) == (30, True)
    second.records.close()


# -- a running peer's


@pytest.fixture
def backups(tmp_path: Path) -> Iterator[Backups]:
    folder = agreed(tmp_path / "peer")
    with in_use(folder) as store:
        made = Backups(store, tmp_path / "backups")
        yield made
        made.close()


def finished(backups: Backups) -> BackupState:
    end = time.monotonic() + 30
    while backups.status is None or backups.status.state is BackupState.RUNNING:
        assert time.monotonic() < end
        time.sleep(0.01)
    return backups.status.state


def test_a_running_peer_makes_a_backup_below_its_folder(backups: Backups, tmp_path: Path) -> None:
    begun = backups.start("weekly/monday")
    assert (begun.state, begun.path) == (BackupState.RUNNING, str(tmp_path / "backups/weekly/monday"))
    assert finished(backups) is BackupState.DONE
    assert backups.status is not None
    assert backups.status.manifest == read_manifest(tmp_path / "backups" / "weekly" / "monday")
    with pytest.raises(Conflict):
        backups.start(str(tmp_path / "backups" / "weekly" / "monday"))
    assert restore(Path(begun.path), tmp_path / "elsewhere", quiet).height == HEIGHT


@pytest.mark.parametrize("to", ["", ".", "..", "../elsewhere", "/etc/elsewhere", "a/../../b", "nul\0l"])
def test_a_running_peer_writes_nowhere_else(backups: Backups, to: str) -> None:
    with pytest.raises(Refused) as refused:
        backups.start(to)
    assert refused.value.rule == "backup directory"
    assert backups.status is None


def test_a_link_out_of_the_folder_is_no_way_out(backups: Backups, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "out").symlink_to(tmp_path / "peer")
    with pytest.raises(Refused):
        backups.start("out/monday")


def test_a_peer_without_such_a_folder_makes_none(tmp_path: Path) -> None:
    with in_use(plain(tmp_path / "peer")) as store, pytest.raises(Refused) as refused:
        Backups(store, None).start("monday")
    assert refused.value.expected == "the peer's setting backup_dir"


def test_a_failure_is_told_and_the_next_backup_is_made(backups: Backups, tmp_path: Path) -> None:
    (tmp_path / "backups").write_text("in the way")
    backups.start("monday")
    assert finished(backups) is BackupState.FAILED
    assert backups.status is not None
    assert backups.status.reason
    (tmp_path / "backups").unlink()
    backups.start("monday")
    assert finished(backups) is BackupState.DONE


def test_a_second_backup_at_once_is_refused(backups: Backups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: hold the first one where it reads the genesis block."""
    may_go_on = threading.Event()
    read = LedgerStore.config_block_bytes

    def waiting(store: LedgerStore, number: BlockNumber) -> bytes:
        assert may_go_on.wait(30)
        return read(store, number)

    monkeypatch.setattr(LedgerStore, "config_block_bytes", waiting)
    backups.start("monday")
    with pytest.raises(Busy):
        backups.start("tuesday")
    may_go_on.set()
    assert finished(backups) is BackupState.DONE


def test_a_peer_that_is_stopped_leaves_no_half_backup(backups: Backups, tmp_path: Path) -> None:
    backups.start("monday")
    backups.close()
    assert finished(backups) in (BackupState.FAILED, BackupState.DONE)
    found = {path.name for path in (tmp_path / "backups").iterdir()}
    assert found == ({"monday"} if finished(backups) is BackupState.DONE else set())
    with pytest.raises(Busy):
        backups.start("tuesday")
