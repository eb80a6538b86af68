"""One channel's ledger on disk, on both engines: nothing is lost, nothing is half there, nothing changes by pruning."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ledger.core.errors import Conflict, NotFound, Pruned, StorageDamaged, StorageFailed
from ledger.core.names import BlockNumber, TxIndex
from ledger.core.outcome import Outcome
from ledger.core.state import LedgerView, TxPlace
from ledger.core.vblock import build_vblock
from ledger.node.ledgers import open_ledger
from ledger.node.rules import make_rules
from ledger.storage.engine import Batch, Engine
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.ledger_values import StoredBlock
from ledger.storage.rebuilding import rebuild
from ledger.wire.block import decode_block
from tests.kit.outcomes import genesis_block, judged, recorded_blocks
from tests.kit.paths import CHANNELS
from tests.kit.stores import Crash, Databases, SteppingEngine, SteppingFiles, Steps, answers

MINI = judged("mini")
CHK = 10
KINDS = ["leveldb", "memory"]


@pytest.fixture(params=KINDS)
def databases(request: pytest.FixtureRequest) -> Databases:
    return Databases(request.param)


@pytest.fixture
def make_store(databases: Databases, tmp_path: Path) -> Iterator[Callable[..., LedgerStore]]:
    """Open stores of the small recorded channel, and close them at the end."""
    opened: list[LedgerStore] = []

    def make(outcomes: Iterable[Outcome] = (), *, folder: str = "data", chk: int = CHK) -> LedgerStore:
        store = LedgerStore.open(tmp_path / folder, MINI.channel_id, chk=chk, open_engine=databases.open)
        opened.append(store)
        if store.pending_count:
            store.recommit(MINI.rejudge)
        for outcome in outcomes:
            store.commit(outcome)
        return store

    yield make
    for store in opened:
        store.close()


# What is written is given back.


@pytest.mark.parametrize(("channel", "kind"), [*((channel, "leveldb") for channel in CHANNELS), ("mini", "memory")])
def test_every_recorded_block_is_given_back_byte_for_byte(channel: str, kind: str, tmp_path: Path) -> None:
    known, databases = judged(channel), Databases(kind)
    store = LedgerStore.open(tmp_path, known.channel_id, chk=CHK, open_engine=databases.open)
    store.commit_group(known.outcomes[:50])
    store.commit_group(known.outcomes[50:])
    for number, recorded in enumerate(recorded_blocks(channel)):
        assert store.block_bytes(BlockNumber(number)) == recorded, f"block {number}"
        assert store.stored_block(BlockNumber(number)).block() == decode_block(recorded)
    assert dict(store.iter_state()) == known.states[-1]
    assert set(store.iter_tx_ids()) == set(known.ledger.places)
    for tx_id, places in known.ledger.places.items():
        assert store.places(tx_id) == tuple(places)
    for (namespace, key), changes in known.ledger.changes.items():
        assert list(store.history(namespace, key)) == changes[::-1]
    store.close()


def test_vblocks_and_envelopes_are_those_of_the_blocks(make_store: Callable[..., LedgerStore]) -> None:
    store = make_store(MINI.outcomes)
    previous = bytes(32)
    for outcome in MINI.outcomes:
        number = outcome.block.number
        expected = build_vblock(MINI.channel_id, outcome, previous)  # type: ignore[arg-type]
        assert store.vblock(number) == expected
        assert store.faults(number) == dict(outcome.faults)
        assert store.number_of(outcome.block_hash) == number
        for index, envelope in enumerate(outcome.block.envelopes):
            assert store.envelope(TxPlace(number, TxIndex(index), outcome.verdicts[index])) == envelope
        previous = expected.vblock_hash
    assert store.vblock_hash == previous


def test_what_was_never_there_is_not_found(make_store: Callable[..., LedgerStore]) -> None:
    store = make_store(MINI.outcomes[:5])
    for number in (5, -1, 10**9):
        with pytest.raises(NotFound, match=f"block {number} is not there; the ledger has 5 blocks"):
            store.block_bytes(BlockNumber(number))
    with pytest.raises(NotFound, match="no block has the hash"):
        store.number_of(bytes(32))
    with pytest.raises(NotFound, match="block 1 is no config block"):
        store.config_block_bytes(BlockNumber(1))
    assert store.places("unknown") == ()  # type: ignore[arg-type]
    assert list(store.history("cc1", "unknown")) == []


def test_a_view_shows_the_state_of_its_moment_while_commits_go_on(make_store: Callable[..., LedgerStore]) -> None:
    store = make_store(MINI.outcomes[:30])
    with store.view() as view:
        for outcome in MINI.outcomes[30:60]:
            store.commit(outcome)
        assert (view.height, view.commit_hash) == (30, MINI.outcomes[29].commit_hash)
        for key, entry in (MINI.states[60] | MINI.states[30]).items():
            assert view.get(key) == MINI.states[30].get(key), entry
    assert dict(store.iter_state()) == MINI.states[60]


def test_blocks_in_one_group_are_as_blocks_one_by_one(make_store: Callable[..., LedgerStore]) -> None:
    one_by_one = make_store(MINI.outcomes, folder="one")
    grouped = make_store(folder="group")
    grouped.commit_group(MINI.outcomes[:7])
    grouped.commit_group(MINI.outcomes[7:])
    assert answers(grouped) == answers(one_by_one)
    for number in one_by_one.captured():
        assert grouped.compute_checkpoint(number) == one_by_one.compute_checkpoint(number)


def test_staged_blocks_are_seen_by_the_committer_alone(make_store: Callable[..., LedgerStore]) -> None:
    store = make_store(MINI.outcomes[:20])
    for outcome in MINI.outcomes[20:40]:
        store.stage(outcome)
    assert (store.height, store.commit_hash) == (20, MINI.outcomes[19].commit_hash)
    assert dict(store.iter_state()) == MINI.states[20]
    staged = store.staged_view()
    assert (staged.height, staged.commit_hash) == (40, MINI.outcomes[39].commit_hash)
    for key in MINI.states[20] | MINI.states[40]:
        assert staged.get(key) == MINI.states[40].get(key)
    public = sorted(key for key in MINI.states[40] if key.kind == 0 and key.namespace == "cc1")
    assert [key for key, _ in staged.range("cc1", b"", None)] == [key.key for key in public]
    ids = {tx_id for outcome in MINI.outcomes[:40] for tx_id in outcome.tx_ids if tx_id}
    later = {tx_id for outcome in MINI.outcomes[40:] for tx_id in outcome.tx_ids if tx_id} - ids
    assert all(staged.has_transaction(tx_id) for tx_id in ids)
    assert later and not any(staged.has_transaction(tx_id) for tx_id in later)


def test_an_abandoned_group_leaves_nothing(make_store: Callable[..., LedgerStore], tmp_path: Path) -> None:
    store = make_store(MINI.outcomes[:15])
    before, files = answers(store), file_sizes(tmp_path)
    for outcome in MINI.outcomes[15:35]:  # Across two borders of prunable files.
        store.stage(outcome)
    assert file_sizes(tmp_path) != files
    store.abandon_group()
    assert (answers(store), file_sizes(tmp_path)) == (before, files)
    for outcome in MINI.outcomes[15:]:
        store.commit(outcome)
    assert answers(store) == answers(make_store(MINI.outcomes, folder="reference"))


def file_sizes(directory: Path) -> dict[str, int]:
    """Sizes of all segments."""
    return {
        path.name: path.stat().st_size
        for pattern in ("*.kept", "*.bodies")
        for path in directory.glob(f"data/**/{pattern}")
    }


# One process at a time.


def test_a_second_opening_is_a_conflict_and_the_first_goes_on(
    make_store: Callable[..., LedgerStore], databases: Databases, tmp_path: Path
) -> None:
    store = make_store(MINI.outcomes[:3])
    with pytest.raises(Conflict, match=r"is in use by another process: it holds .*LOCK"):
        LedgerStore.open(tmp_path / "data", MINI.channel_id, open_engine=databases.open)
    store.commit(MINI.outcomes[3])
    store.close()
    assert make_store().height == 4


# What a crash leaves.


@pytest.mark.parametrize("suffix", [".kept", ".bodies"])
def test_torn_tail_costs_whole_blocks_only_wherever_it_is_torn(suffix: str, tmp_path: Path) -> None:
    """Goal: of blocks beyond the savepoint the whole ones count, the torn one goes.  Method: a database that knows 8
    blocks beside segments of 12, the last file with something in it cut at every byte of its last record.
    """
    databases = Databases("memory")
    channel = Path("channels") / MINI.channel_id
    store = LedgerStore.open(tmp_path / "full", MINI.channel_id, chk=CHK, open_engine=databases.open)
    for outcome in MINI.outcomes[:8]:
        store.commit(outcome)
    databases.copied(tmp_path / "full" / channel / "db", tmp_path / "earlier")
    for outcome in MINI.outcomes[8:9]:
        store.commit(outcome)
    sizes = {path: path.stat().st_size for path in (tmp_path / "full").rglob(f"*{suffix}")}
    store.commit(MINI.outcomes[9])
    tips = (store.vblock_hash, store.commit_hash)
    store.close()
    assert all(any(outcome.verdicts) for outcome in MINI.outcomes[8:10]), "both have bodies"
    (torn_path,) = sizes
    whole = torn_path.read_bytes()
    assert len(whole) > sizes[torn_path] + 30
    for size in range(sizes[torn_path], len(whole) + 1):
        folder = tmp_path / "torn"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "full", folder)
        os.truncate(folder / torn_path.relative_to(tmp_path / "full"), size)
        databases.copied(tmp_path / "earlier", folder / channel / "db")
        again = LedgerStore.open(folder, MINI.channel_id, chk=CHK, open_engine=databases.open)
        assert again.height == 8
        assert again.recommit(MINI.rejudge) == (2 if size == len(whole) else 1), f"cut at {size}"
        if again.height == 9:
            again.commit(MINI.outcomes[9])
        assert (again.vblock_hash, again.commit_hash) == tips
        assert [again.block_bytes(BlockNumber(number)) for number in (8, 9)] == list(recorded_blocks("mini")[8:10])
        if size % 50 == 0:
            assert answers(again) == answers_after(10)
        again.close()


@cache
def answers_after(height: int) -> dict[str, object]:
    """What a store answers that nothing disturbed."""
    with tempfile.TemporaryDirectory() as folder:
        store = LedgerStore.open(Path(folder), MINI.channel_id, chk=CHK, open_engine=Databases("memory").open)
        store.commit_group(MINI.outcomes[:height])
        found = answers(store)
        store.close()
    return found


COMMITTED = 13
"""Blocks that the disturbed runs commit; with 4 blocks between checkpoints they touch four prunable files."""


def run_with(steps: Steps, files: SteppingFiles, databases: Databases, folder: Path) -> int:
    """Open a store, finish what is pending, commit on; return how many blocks were acknowledged before a crash."""
    told = 0
    store = None
    try:
        store = LedgerStore.open(folder, MINI.channel_id, chk=4, open_engine=databases.stepping(steps), files=files)
        told = store.height
        store.recommit(MINI.rejudge)
        while store.height < COMMITTED:
            height = told = store.height
            store.stage(MINI.outcomes[height])
            if height % 3 == 1:  # Now and then a group of two.
                store.stage(MINI.outcomes[height + 1])
            store.finish_group()
        told = store.height
    except Crash:
        pass
    finally:
        if store is not None:
            store.close()
    return told


def recovered(databases: Databases, folder: Path, *, least: int) -> dict[str, object]:
    """Open a store after crashes, which holds so many blocks at least; finish, commit the rest; give its answers."""
    store = LedgerStore.open(folder, MINI.channel_id, chk=4, open_engine=databases.open)
    try:
        store.recommit(MINI.rejudge)
        assert store.height >= least
        assert dict(store.iter_state()) == MINI.states[store.height]
        for outcome in MINI.outcomes[store.height : COMMITTED]:
            store.commit(outcome)
        for number in range(COMMITTED):
            assert store.block_bytes(BlockNumber(number)) == recorded_blocks("mini")[number]
        return answers(store)
    finally:
        store.close()


def undisturbed_steps(tmp_path: Path, databases: Databases) -> int:
    steps = Steps()
    assert run_with(steps, SteppingFiles(steps), databases, tmp_path / "undisturbed") == COMMITTED
    return len(steps.taken)


@pytest.mark.parametrize("power", ["process ends", "power is cut"])
def test_crash_between_any_two_steps_loses_nothing_that_was_told(
    power: str, databases: Databases, tmp_path: Path
) -> None:
    """Goal: one commit point.  Method: the same run ends before each of its steps in turn, batches included; where the
    power is cut, what was not synced is gone too. Then the store is opened, completed and compared with an undisturbed
    one; and once more with the database made again from what the segments hold.
    """
    for crash_at in range(1, undisturbed_steps(tmp_path, databases) + 1, 1 if databases.kind == "memory" else 5):
        folder = tmp_path / f"run{crash_at}"
        steps = Steps(crash_at)
        files = SteppingFiles(steps)
        told = run_with(steps, files, databases, folder)
        if power == "power is cut":
            files.cut_power()
        assert recovered(databases, folder, least=told) == answers_after(COMMITTED), (
            f"after a crash before {steps.taken[-1]}"
        )
        databases.lost(folder / "channels" / MINI.channel_id / "db")
        assert recovered(databases, folder, least=COMMITTED) == answers_after(COMMITTED), "with the database made again"


def test_crash_while_recovering_from_a_crash_loses_nothing(tmp_path: Path) -> None:
    """Goal: recovery may be interrupted anywhere, as often as it likes.  Method: a group of five blocks ends before its
    batch; each step of finishing it crashes in turn, and then the database is lost.
    """
    databases = Databases("memory")
    channel = Path("channels") / MINI.channel_id
    template = tmp_path / "template"
    store = LedgerStore.open(template, MINI.channel_id, chk=4, open_engine=databases.open)
    for outcome in MINI.outcomes[:5]:
        store.commit(outcome)
    databases.copied(template / channel / "db", tmp_path / "earlier")
    store.commit_group(MINI.outcomes[5:10])
    store.close()
    crash_at, crashes = 0, 0
    while crashes == crash_at:
        crash_at += 1
        folder = tmp_path / f"run{crash_at}"
        shutil.copytree(template, folder)
        databases.copied(tmp_path / "earlier", folder / channel / "db")
        steps = Steps(crash_at)
        run_with(steps, SteppingFiles(steps), databases, folder)
        crashes += len(steps.taken) == crash_at
        assert recovered(databases, folder, least=5) == answers_after(COMMITTED), (
            f"after a crash before {steps.taken[-1]}"
        )
        databases.lost(folder / channel / "db")
        assert recovered(databases, folder, least=COMMITTED) == answers_after(COMMITTED), "with the database made again"
    assert crashes > 10


def test_batch_that_failed_though_it_is_there_costs_nothing(tmp_path: Path) -> None:
    """A synced write that reports a failure may have reached the disk: what it counts must stay until the reopening."""
    databases = Databases("memory")

    def failing(directory: Path) -> Engine:
        return FailingEngine(databases.open(directory), fail_at=4)

    store = LedgerStore.open(tmp_path, MINI.channel_id, chk=CHK, open_engine=failing)
    for outcome in MINI.outcomes[:3]:
        store.commit(outcome)
    with pytest.raises(StorageFailed, match="the disk is on fire"):
        store.commit(MINI.outcomes[3])
    store.abandon_group()  # As the committer does.
    with pytest.raises(StorageFailed, match="opened again"):
        store.commit(MINI.outcomes[3])
    store.close()
    again = LedgerStore.open(tmp_path, MINI.channel_id, chk=CHK, open_engine=databases.open)
    assert (again.height, again.pending_count) == (4, 0)
    assert again.block_bytes(BlockNumber(3)) == recorded_blocks("mini")[3]
    again.close()


class FailingEngine(SteppingEngine):
    """An engine whose batch is written, but reports a failure."""

    def __init__(self, engine: Engine, fail_at: int) -> None:
        super().__init__(engine, Steps(), Path())
        self._fail_at = fail_at

    def batch(self) -> Any:
        batch, self._fail_at = self._engine.batch(), self._fail_at - 1
        return batch if self._fail_at else _FailingBatch(batch)


class _FailingBatch:
    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.put, self.delete = batch.put, batch.delete

    def write(self) -> None:
        self._batch.write()
        raise StorageFailed("the disk is on fire")


@pytest.mark.parametrize("suffix", [".kept", ".bodies"])
def test_segment_shorter_than_the_savepoint_is_damage_that_names_it(
    suffix: str, make_store: Callable[..., LedgerStore], tmp_path: Path
) -> None:
    make_store(MINI.outcomes[:9]).close()
    (path,) = tmp_path.rglob(f"*{suffix}")
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(StorageDamaged, match=rf"{path} has \d+ bytes, \d+ were committed"):
        make_store()
    path.unlink()
    with pytest.raises(StorageDamaged, match=rf"{path} has -1 bytes, \d+ were committed"):
        make_store()


def test_flipped_byte_in_a_record_is_damage_that_names_file_and_record(
    make_store: Callable[..., LedgerStore], tmp_path: Path
) -> None:
    store = make_store(MINI.outcomes[:9])
    (path,) = tmp_path.rglob("*.kept")
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(StorageDamaged, match=rf"{path} is damaged: record at \d+: no whole record of block 8"):
        store.block_bytes(BlockNumber(8))
    assert store.block_bytes(BlockNumber(7)) == recorded_blocks("mini")[7]


def test_blocks_are_judged_again_by_the_real_rules_when_the_database_is_gone(tmp_path: Path) -> None:
    rules = make_rules(None)
    opened = open_ledger(tmp_path, genesis_block("mini"), rules, chk=CHK)
    opened.store.commit_group(MINI.outcomes)
    expected = answers(opened.store)
    opened.store.close()
    shutil.rmtree(tmp_path / "channels" / MINI.channel_id / "db")
    again = open_ledger(tmp_path, genesis_block("mini"), rules, chk=CHK)
    assert again.recommitted == len(MINI.outcomes)
    assert answers(again.store) == expected
    again.store.close()


def test_rebuild_makes_the_database_again_from_the_segments(tmp_path: Path) -> None:
    store = LedgerStore.open(tmp_path, MINI.channel_id, chk=CHK)
    store.commit_group(MINI.outcomes[:40])
    expected = answers(store)
    store.close()
    (tmp_path / "channels" / MINI.channel_id / "db" / "CURRENT").write_bytes(b"garbage")
    rebuild(tmp_path, MINI.channel_id, lambda reasons: MINI.rejudge, with_bodies=True, chk=CHK)
    again = LedgerStore.open(tmp_path, MINI.channel_id, chk=CHK)
    assert answers(again) == expected
    again.close()


def test_stored_verdicts_that_are_not_what_is_judged_now_are_damage(tmp_path: Path) -> None:
    store = LedgerStore.open(tmp_path, MINI.channel_id, chk=CHK)
    store.commit_group(MINI.outcomes[:12])
    store.close()

    def otherwise(stored: StoredBlock, view: LedgerView) -> Outcome:
        outcome = MINI.rejudge(stored, view)
        return replace(outcome, verdicts=bytes(len(outcome.verdicts))) if stored.number == 9 else outcome

    with pytest.raises(StorageDamaged, match=r"block 9 of .* was committed with other verdicts"):
        rebuild(tmp_path, MINI.channel_id, lambda reasons: otherwise, with_bodies=True, chk=CHK)


def test_kept_segments_that_grow_big_are_followed_by_new_ones(
    make_store: Callable[..., LedgerStore], databases: Databases, tmp_path: Path
) -> None:
    store = make_store()
    store._files._kept_bytes_min = 2000
    store.commit_group(MINI.outcomes[:45])
    store.close()
    assert len(list(tmp_path.rglob("*.kept"))) > 2
    databases.lost(tmp_path / "data" / "channels" / MINI.channel_id / "db")
    again = make_store()
    assert again.height == 45
    for number in range(45):
        assert again.block_bytes(BlockNumber(number)) == recorded_blocks("mini")[number]


def test_checkpoint_that_was_announced_and_forgotten_by_a_restart_stops_nothing(
    make_store: Callable[..., LedgerStore],
) -> None:
    """An announcement is not kept over a restart, but the file it shortened is."""
    store = make_store()
    store.announce_checkpoint(BlockNumber(7))
    for outcome in MINI.outcomes[:7]:
        store.commit(outcome)
    store.close()
    again = make_store(MINI.outcomes[7:25])
    assert answers(again) == answers_after(25)


# Pruning.


PRUNED_TO = BlockNumber(39)


def test_pruning_changes_no_answer_but_those_that_say_pruned(
    make_store: Callable[..., LedgerStore], tmp_path: Path
) -> None:
    store = make_store(MINI.outcomes[:80])
    before = answers(store)
    plan = store.prune_plan(PRUNED_TO)
    assert (plan.low, plan.high, plan.files) == (0, 40, tuple(f"{first:012d}.bodies" for first in (0, 10, 20, 30)))
    assert sum(plan.transactions_by_verdict.values()) == sum(len(each.verdicts) for each in MINI.outcomes[:40])
    assert plan.bytes_freed == sum(
        path.stat().st_size for path in tmp_path.rglob("*.bodies") if path.name in plan.files
    )
    store.prune(PRUNED_TO, b"receipt")
    assert not [path.name for path in tmp_path.rglob("*.bodies") if path.name in plan.files]
    assert answers(store) == before
    assert (store.prune_point, store.first_block) == (39, 40)
    check_pruned(store)
    for outcome in MINI.outcomes[80:]:
        store.commit(outcome)
    complete = answers(store)
    store.close()
    again = make_store()
    assert (answers(again), again.pending_count) == (complete, 0)
    assert complete == answers_after(len(MINI.outcomes))
    check_pruned(again)


def check_pruned(store: LedgerStore) -> None:
    """Blocks 0 to 39 are gone whole; of their transactions only the invalid ones are."""
    for number, outcome in enumerate(MINI.outcomes[: store.height]):
        if number > PRUNED_TO:
            assert store.block_bytes(BlockNumber(number)) == recorded_blocks("mini")[number]
            continue
        with pytest.raises(Pruned, match=f"block {number} was pruned; the first whole block is 40") as whole:
            store.block_bytes(BlockNumber(number))
        assert (whole.value.block, whole.value.first_block, whole.value.index) == (number, 40, None)
        for index, (verdict, envelope) in enumerate(zip(outcome.verdicts, outcome.block.envelopes, strict=True)):
            place = TxPlace(BlockNumber(number), TxIndex(index), verdict)
            if verdict == 0:
                assert store.envelope(place) == envelope
                continue
            with pytest.raises(Pruned) as gone:
                store.envelope(place)
            assert (gone.value.block, gone.value.index, gone.value.verdict) == (number, index, verdict)
            assert gone.value.first_block == 40
    assert store.config_block_bytes(BlockNumber(0)) == recorded_blocks("mini")[0]


def test_crash_at_any_step_of_pruning_is_finished_at_the_next_start(tmp_path: Path) -> None:
    """Goal: pruning is one record.  Method: crash before each of its steps; before the record counts nothing is gone,
    and from then on everything goes at the next start.
    """
    databases = Databases("memory")
    channel = Path("channels") / MINI.channel_id
    template = tmp_path / "template"
    store = LedgerStore.open(template, MINI.channel_id, chk=CHK, open_engine=databases.open)
    store.commit_group(MINI.outcomes[:40])
    reference = answers(store)
    store.close()
    seen = set()
    for crash_at in range(1, 20):
        folder = tmp_path / f"run{crash_at}"
        shutil.copytree(template, folder)
        databases.copied(template / channel / "db", folder / channel / "db")
        steps = Steps()
        store = LedgerStore.open(
            folder, MINI.channel_id, chk=CHK, open_engine=databases.open, files=SteppingFiles(steps)
        )
        steps.crash_at = len(steps.taken) + crash_at
        crashed = False
        try:
            store.prune(PRUNED_TO, b"receipt %d" % crash_at)
        except Crash:
            crashed = True
        store.close()
        again = LedgerStore.open(folder, MINI.channel_id, chk=CHK, open_engine=databases.open)
        seen.add(again.prune_point)
        left = [path.name for path in folder.rglob("*.bodies")]
        if again.prune_point == PRUNED_TO:
            assert left == [], "the last file ends at block 39 too"
            assert [(each.prune_point, each.receipt) for each in again.prune_records()] == [
                (39, b"receipt %d" % crash_at)
            ]
            check_pruned(again)
        else:
            assert (len(left), again.prune_records()) == (4, ())
        assert answers(again) == reference
        for outcome in MINI.outcomes[40:60]:
            again.commit(outcome)
        assert answers(again) == answers_after(60)
        again.close()
        if not crashed:
            break
    assert not crashed and seen == {-1, PRUNED_TO}


def test_every_receipt_is_kept_and_the_last_prune_point_counts(make_store: Callable[..., LedgerStore]) -> None:
    store = make_store(MINI.outcomes[:50])
    for to in (9, 29, 39):
        store.prune(BlockNumber(to), b"receipt to %d" % to)
    store.close()
    again = make_store()
    assert again.prune_point == 39
    assert [(each.prune_point, each.receipt) for each in again.prune_records()] == [
        (to, b"receipt to %d" % to) for to in (9, 29, 39)
    ]


def test_archive_holds_the_files_that_go(make_store: Callable[..., LedgerStore], tmp_path: Path) -> None:
    store = make_store(MINI.outcomes[:50])
    contents = {path.name: path.read_bytes() for path in tmp_path.rglob("*.bodies")}
    for _ in range(2):  # A repetition replaces what an interrupted one left.
        archived = store.archive(PRUNED_TO, tmp_path / "archive")
    assert [each.name for each in archived] == list(store.prune_plan(PRUNED_TO).files)
    for each in archived:
        copied = (tmp_path / "archive" / f"{MINI.channel_id}-{each.name}").read_bytes()
        assert copied == contents[each.name]
        assert (each.size, each.sha256) == (len(copied), sha256(copied).digest())


def test_pins_end_by_themselves_or_by_their_owner(make_store: Callable[..., LedgerStore]) -> None:
    store = make_store(MINI.outcomes[:5])
    first = store.pin(BlockNumber(2), "a joiner", 60)
    store.pin(BlockNumber(1), "a slow reader", 0)
    assert [(pin.number, pin.owner) for pin in store.pins()] == [(2, "a joiner")]
    store.unpin(first)
    store.unpin(first)
    assert store.pins() == ()
