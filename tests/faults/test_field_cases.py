"""What went wrong with the disks of other ledgers, each as a test under its name in the collection of field cases.

Most use the lone peer (`lone_peer`): its whole life is known, so that whatever is done to its folder, the end is to be
that of a life without faults (`oracle`).
"""

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.core.errors import Pruned, StorageDamaged, StorageFailed
from ledger.core.names import BlockNumber, ChannelId
from ledger.core.outcome import Outcome
from ledger.node.rebuild import rebuild
from ledger.node.verify import verify
from ledger.storage.engine import Engine, Snapshot
from ledger.storage.engine_leveldb import LevelDbEngine
from ledger.storage.files import Files
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.order_log import OrderLog
from tests.faults.lone_peer import LonePeer, blocks, opened
from tests.faults.oracle import End, Event, check_told, differences, finish
from tests.kit.channel import CHANNEL, Channel
from tests.kit.memory_view import MemoryLedger
from tests.kit.outcomes import judged
from tests.kit.peer_folder import CHK, HEIGHT
from tests.kit.stores import Crash, Databases, SteppingFiles, Steps
from tests.kit.transactions import writes

MINI = judged("mini")
WORDS = "faults"
"""Why transactions of pruned blocks are invalid, in words beside the verdict: what is made again has none for them."""

HOME = Path("data") / "channels" / CHANNEL


class Grown:
    """Folders of peers that lived up to a height, made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: dict[int, list[Event]] = {}

    def copy(self, height: int, target: Path) -> list[Event]:
        """Copy the folder of a peer of a height; gives what it told."""
        source = self._folder / str(height)
        if height not in self._told:
            told = self._told[height] = []
            LonePeer(source, lambda event, **data: told.append({"event": event, **data})).live(until=height)
        shutil.copytree(source, target)
        return self._told[height]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    return Grown(tmp_path_factory.mktemp("grown"))


@pytest.fixture(scope="module")
def undisturbed(grown: Grown, tmp_path_factory: pytest.TempPathFactory) -> End:
    """How it ends without faults."""
    folder = tmp_path_factory.mktemp("undisturbed") / "peer"
    return finish(folder, grown.copy(HEIGHT, folder))


class SmallDisk(Files):
    """Files on a disk with little room."""

    def __init__(self, folder: Path, room_bytes: int) -> None:
        self._folder, self._room_bytes = folder, room_bytes

    def before(self, verb: str, path: Path) -> None:
        if verb in ("append", "create", "make directory"):
            self.check()

    def check(self) -> None:
        used = sum(each.stat().st_size for each in self._folder.rglob("*") if each.is_file() and each.suffix != ".bin")
        if used >= self._room_bytes:
            raise StorageFailed("[Errno 28] No space left on device")


def test_C2_disk_that_is_full_again_and_again_costs_nothing(tmp_path: Path, undisturbed: End) -> None:
    """hyperledger/fabric 4162, leveldb 1180: after some rounds of a full disk an index stood behind the files, and no
    start succeeded. Here: 20 rounds with a little more room each; a real small disk is in `test_disk_full`.
    """
    peer, told, failures = tmp_path / "peer", list[Event](), 0
    for round_number in range(20):
        disk = SmallDisk(peer / HOME / "kept", 400 + 700 * round_number)
        try:
            LonePeer(peer, lambda event, **data: told.append({"event": event, **data}), files=disk).live()
        except StorageFailed as error:
            assert "No space left" in str(error)
            failures += 1
    assert failures > 10
    assert any(event["event"] == "committed" for event in told)
    assert differences(undisturbed, finish(peer, told)) == []


def deleted(path: Path) -> None:
    path.unlink()


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flipped(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [("CURRENT", deleted), ("CURRENT", zeroed), ("MANIFEST-*", deleted), ("MANIFEST-*", flipped),
     ("*.ldb", deleted), ("*.ldb", zeroed), ("*.ldb", flipped), ("*.log", deleted), ("*.log", flipped)],
)  # fmt: skip
def test_C3_damaged_database_is_made_anew_from_the_segments_by_the_start_itself(
    pattern: str, damage: Callable[[Path], None], grown: Grown, tmp_path: Path, undisturbed: End
) -> None:
    """FAB-18304 (a damaged manifest), immudb 1997, kubo 4981: a damaged index refused to load a whole database."""
    peer = tmp_path / "peer"
    told = grown.copy(HEIGHT, peer)
    found = [path for path in (peer / HOME / "db").glob(pattern) if path.stat().st_size]
    for path in found:
        damage(path)
    assert found
    assert differences(undisturbed, finish(peer, told), but=WORDS) == []


@pytest.mark.parametrize("height", [1, 6, 11, 14])
def test_C4_state_behind_the_blocks_is_replayed(height: int, grown: Grown, tmp_path: Path, undisturbed: End) -> None:
    """monax 545, IBM-Blockchain-Archive 129: mains failed, the state stood some blocks behind, no start went on."""
    told = grown.copy(HEIGHT, tmp_path / "peer")
    grown.copy(height, tmp_path / "earlier")
    shutil.rmtree(tmp_path / "peer" / HOME / "db")
    shutil.copytree(tmp_path / "earlier" / HOME / "db", tmp_path / "peer" / HOME / "db")
    assert differences(undisturbed, finish(tmp_path / "peer", told), but=WORDS) == []


@pytest.mark.parametrize("height", [1, 6, 14])
def test_C4_state_ahead_of_the_blocks_is_named_and_never_served(height: int, grown: Grown, tmp_path: Path) -> None:
    """iroha 1467: after an OOM kill the state had one block more than the store, and the node would not start.

    No batch reaches the database before its blocks are synced, so this is damage: the file is named, nothing is
    changed, and once the file is back all goes on.
    """
    peer = tmp_path / "peer"
    told = grown.copy(HEIGHT, peer)
    grown.copy(height, tmp_path / "earlier")
    kept = peer / HOME / "kept" / "000000000000.kept"
    whole = kept.read_bytes()
    shutil.copyfile(tmp_path / "earlier" / HOME / "kept" / kept.name, kept)
    short = kept.read_bytes()
    with pytest.raises(StorageDamaged, match=kept.name):
        LonePeer(peer, lambda event, **data: None).live()
    assert kept.read_bytes() == short
    kept.write_bytes(whole)
    with opened(peer) as (store, records):
        check_told(store, records, told)


def crashing_lives(grown: Grown, folder: Path, height: int, step: str) -> Iterator[tuple[Path, list[Event], str]]:
    """Let a peer of a height crash before each thing that it does to the disk at a step."""
    for crash_in in range(1, 200):
        peer, steps = folder / f"crash{crash_in}", Steps()
        told = list(grown.copy(height, peer)) if height else []
        heard: list[str] = []

        def tell(event: str, **data: object) -> None:
            told.append({"event": event, **data})  # noqa: B023  # Called within this round only.
            if event == "step":
                heard.append(str(data["name"]))  # noqa: B023
                if heard.count(step) == 1 and data["name"] == step:  # noqa: B023
                    steps.crash_at = len(steps.taken) + crash_in  # noqa: B023

        databases = Databases("leveldb")
        try:
            LonePeer(peer, tell, files=SteppingFiles(steps), open_engine=databases.stepping(steps)).live(
                until=height + 1
            )
        except Crash as crash:
            at = str(crash)
        else:
            return
        yield peer, told, at  # Outside of the handler: what crashed is gone, and holds no lock.
        if heard[-1] != step:
            return
    pytest.fail("no end of it")


def test_C5_no_two_halves_of_one_commit_come_apart(grown: Grown, tmp_path: Path, undisturbed: End) -> None:
    """besu 6569: undo log and state were written one after the other, and a kill between them cost a resync.

    Blocks, bodies, state, indexes, history, the vBlock chain and the books of checkpoints: all that is not a segment is
    in one batch. A peer crashes between each pair of steps of one commit.
    """
    count = 0
    for peer, told, crash in crashing_lives(grown, tmp_path, 13, "commit"):
        with opened(peer) as (store, _):
            assert store.height + store.pending_count in (13, 14), crash
            assert [store.summary(BlockNumber(number)).number for number in range(store.height)] == [
                *range(store.height)
            ]
        assert differences(undisturbed, finish(peer, told)) == [], crash
        count += 1
    assert count >= 6


def test_C6_torn_end_of_the_orderers_log_costs_what_nobody_was_told_and_no_number_twice(tmp_path: Path) -> None:
    """FAB-14454 (a torn tail stopped the start), fabric 4343 (an entry above 10 MB was unreadable at the restart)."""
    big = random.Random(7).randbytes(12 << 20)
    log = OrderLog(tmp_path)
    for number, block in enumerate([b"first", big, b"third"]):
        log.append(BlockNumber(number), block)
    acknowledged = (tmp_path / "blocks.log").stat().st_size
    log.append(BlockNumber(3), big)
    log.close()
    data = (tmp_path / "blocks.log").read_bytes()
    for end in (acknowledged + 5, acknowledged + (6 << 20)):
        for rest in (b"", bytes(8192), random.Random(end).randbytes(8192)):
            (tmp_path / "blocks.log").write_bytes(data[:end] + rest)
            log = OrderLog(tmp_path)
            assert log.height == 3
            assert [log.block_bytes(BlockNumber(number)) for number in range(3)] == [b"first", big, b"third"]
            log.append(BlockNumber(3), b"another fourth")
            log.close()
            log = OrderLog(tmp_path)
            assert log.block_bytes(BlockNumber(3)) == b"another fourth"
            log.close()


def test_C7_crash_while_a_channel_is_made_leaves_it_to_the_next_start(grown: Grown, tmp_path: Path) -> None:
    """v2.2.5 notes, FAB-18082: a channel was half there, and neither could be opened nor made again."""
    count = 0
    for peer, told, crash in crashing_lives(grown, tmp_path, 0, "open"):
        LonePeer(peer, lambda event, **data: None).live(until=1)
        with opened(peer) as (store, records):
            assert store.height == 1, crash
            check_told(store, records, told)
        count += 1
    assert count >= 15


def test_C9_channel_that_can_not_be_opened_says_why_and_stops_no_other(grown: Grown, tmp_path: Path) -> None:
    """hyperledger/fabric 3633: the start went on with a dead channel, and nothing said so."""
    peer = tmp_path / "peer"
    grown.copy(6, peer)
    prunes = peer / HOME / "records" / "prunes.log"
    whole = prunes.read_bytes()
    prunes.write_bytes(whole[:60] + b"?" + whole[61:])
    with pytest.raises(StorageDamaged, match=r"prunes\.log: record 0 is damaged"), opened(peer):
        pass
    other = LedgerStore.open(peer / "data", ChannelId("another"), chk=CHK)
    other.close()
    prunes.write_bytes(whole)  # What was wrong is made good; the same process opens it.
    with opened(peer) as (store, _):
        assert store.height == 6


def test_C10_database_made_again_is_the_one_that_commits_made(grown: Grown, tmp_path: Path, undisturbed: End) -> None:
    """fabric 4248, 4246: rebuilding took other ways than committing, and panicked on some kinds of transactions.

    The channel has definitions, collections, deletes, private data that expires, and every kind of invalid transaction.
    """
    peer = tmp_path / "peer"
    told = grown.copy(HEIGHT, peer)
    shutil.rmtree(peer / HOME / "db")
    assert differences(undisturbed, finish(peer, told), but=WORDS) == []


def test_C13_ledger_closed_under_its_readers_ends_their_reading_and_nothing_else(tmp_path: Path) -> None:
    """v2.5.16 notes, fabric 5473: a call that timed out closed what another thread read from, and the peer died."""
    store = LedgerStore.open(tmp_path, MINI.channel_id, chk=10)
    store.commit_group(MINI.outcomes[:40])
    store.compute_checkpoint(BlockNumber(20))
    ends: list[str] = []
    reading = threading.Barrier(9, timeout=20)

    def read(make: Callable[[], Iterator[object]]) -> None:
        for _ in range(3):
            next(make())
        reading.wait()
        try:
            while True:
                for _ in make():
                    pass
        except StorageFailed as error:
            ends.append(str(error))

    view = store.checkpoint_view(BlockNumber(20))
    readers: list[Callable[[], Iterator[object]]] = [
        store.iter_state,
        view.entries,
        store.iter_tx_ids,
    ]
    threads = [
        threading.Thread(target=read, args=(readers[number % len(readers)],), daemon=True) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    reading.wait()
    store.close()
    for thread in threads:
        thread.join(20)
    assert ends == ["the database was closed"] * 8


@pytest.mark.parametrize("seed", range(3))
def test_P5_pruning_is_crash_safe_goes_one_way_and_moves_no_height(seed: int, tmp_path: Path) -> None:
    """fabric-x-orderer 1114, 1117: after a crash the marker admitted a block whose file was gone.

    Goal: whatever is appended, pruned and reopened, and wherever it crashes: whole blocks are whole, others are typed
    as pruned, the first whole block never goes down, the height stays, and no files are left over.
    """
    chance, first_whole, height = random.Random(seed), 0, 0
    folder = tmp_path / "peer"
    for _ in range(10):
        steps = Steps()
        store = None
        try:
            steps.crash_at = chance.choice([0, chance.randrange(1, 40)])
            store = LedgerStore.open(
                folder, MINI.channel_id, chk=10, files=SteppingFiles(steps),
                open_engine=Databases("leveldb").stepping(steps),
            )  # fmt: skip
            store.recommit(MINI.rejudge)
            height = max(height, store.height)
            for _ in range(chance.randrange(1, 4)):
                if chance.random() < 0.6:
                    store.commit_group(MINI.outcomes[store.height : store.height + chance.randrange(1, 8)])
                    height = store.height
                else:
                    to = BlockNumber(chance.randrange(-1, max(store.height, 1)) // 10 * 10 - 1)
                    if to >= first_whole:
                        store.prune(to, b"receipt")
                        first_whole = to + 1
        except Crash:
            pass
        finally:
            if store is not None:
                store.close()
        again = LedgerStore.open(folder, MINI.channel_id, chk=10)
        again.recommit(MINI.rejudge)
        assert again.height >= height
        assert again.first_block >= first_whole
        height, first_whole = again.height, again.first_block
        for number in map(BlockNumber, range(height)):
            if number >= first_whole:
                assert again.stored_block(number).block() == MINI.outcomes[number].block
            else:
                with pytest.raises(Pruned) as caught:
                    again.block_bytes(number)
                assert caught.value.first_block == first_whole
        left = [int(path.stem) for path in folder.rglob("*.bodies")]
        assert all(number >= first_whole // 10 * 10 for number in left)
        again.close()


def test_P7_pruning_frees_the_disk_also_when_it_was_turned_on_late(tmp_path: Path) -> None:
    """immudb 1723, cometbft 1972, oasis-core 6286: logs said truncated, `du` said otherwise; or it worked only if it
    was on from the first block.
    """
    channel, ledger = Channel(), MemoryLedger()
    rules = channel.transition
    outcomes = [rules.judge(rules.prepare(channel.genesis, channel.bundle), ledger, channel.bundle)]
    for number in range(1, 13):
        junk = [channel.draft(writes("asset", f"junk{each}")).but(signature=b"forged") for each in range(20)]
        outcomes.append(channel.commit(channel.draft(writes("asset", f"key{number}", value=b"tiny")), *junk))
    early, late = (LedgerStore.open(tmp_path / name, ChannelId(CHANNEL), chk=4) for name in ("early", "late"))
    for outcome in outcomes:
        early.commit(outcome)
        late.commit(outcome)
        if outcome.block.number % 4 == 0 and outcome.block.number:
            early.prune(BlockNumber(outcome.block.number - 1), b"receipt")
    before = late.disk_use()
    plan = late.prune_plan(BlockNumber(11))
    late.prune(BlockNumber(11), b"receipt")
    after = late.disk_use()
    assert before.prunable - after.prunable == plan.bytes_freed > 0.8 * before.prunable
    assert (after.kept, after.prunable) == (early.disk_use().kept, early.disk_use().prunable)
    early.close()
    late.close()


def test_P10_state_is_replayed_from_the_kept_part_of_pruned_blocks(
    grown: Grown, tmp_path: Path, undisturbed: End
) -> None:
    """cosmos-sdk 7265: the state was durable up to one height, and the blocks behind it had been pruned.

    Here what a replay needs is never pruned, whatever height the database is at: one from before the first pruning
    under blocks that were pruned to 11.
    """
    told = grown.copy(HEIGHT, tmp_path / "peer")
    grown.copy(2, tmp_path / "earlier")
    with opened(tmp_path / "earlier") as (store, _):
        assert store.prune_point == -1 and store.height < 11
    shutil.rmtree(tmp_path / "peer" / HOME / "db")
    shutil.copytree(tmp_path / "earlier" / HOME / "db", tmp_path / "peer" / HOME / "db")
    assert differences(undisturbed, finish(tmp_path / "peer", told), but=WORDS) == []


def test_P12_state_that_somebody_reads_stays_while_it_is_read_and_no_longer(tmp_path: Path) -> None:
    """cosmos-sdk 23638, osmosis 932: the state under a snapshot writer was deleted, since what to keep was computed
    from settings; after a change of the interval it was computed wrong.
    """
    folder = tmp_path / "peer"
    store = LedgerStore.open(folder, MINI.channel_id, chk=10)
    store.commit_group(MINI.outcomes[:21])
    roots = store.compute_checkpoint(BlockNumber(20))
    with store.checkpoint_view(BlockNumber(20)) as view:
        reader = view.entries()
        first = next(reader)
        store.release(BlockNumber(10))
        store.release(BlockNumber(20))
        store.commit_group(MINI.outcomes[21:50])
        store.compute_checkpoint(BlockNumber(40))
        assert dict([first, *reader]) == MINI.states[21], "the reader was not disturbed"
        pin = store.pin(BlockNumber(20), "a joiner", 60)
        assert [each.number for each in store.pins()] == [20]
        shutil.copytree(folder, tmp_path / "killed")
    assert 20 not in store.captured()
    store.unpin(pin)
    assert store.pins() == ()
    store.close()
    killed = LedgerStore.open(tmp_path / "killed", MINI.channel_id, chk=20)  # Half way, and with another interval.
    assert 20 not in killed.captured() and killed.pins() == ()
    assert 40 in killed.captured()
    killed.commit_group(MINI.outcomes[50:])
    assert killed.compute_checkpoint(BlockNumber(60)).state_root != roots.state_root
    with killed.checkpoint_view(BlockNumber(40)) as view:
        assert dict(view.entries()) == MINI.states[41]
    killed.close()


def test_P15_junk_costs_its_stubs_after_pruning_and_nothing_else(tmp_path: Path) -> None:
    """fabric archive 1687, pocket-core 1505: one client's invalid transactions filled everybody's disk for ever."""

    def grown_with(junk_count: int, name: str) -> tuple[int, int]:
        channel = Channel()
        rules = channel.transition
        outcomes: list[Outcome] = [
            rules.judge(rules.prepare(channel.genesis, channel.bundle), MemoryLedger(), channel.bundle)
        ]
        for number in range(1, 9):
            junk = [
                channel.draft(writes("asset", f"junk{each}")).but(signature=b"forged") for each in range(junk_count)
            ]
            outcomes.append(
                channel.commit(*(channel.draft(writes("asset", f"key{number}{each}")) for each in "abc"), *junk)
            )
        store = LedgerStore.open(tmp_path / name, ChannelId(CHANNEL), chk=4)
        store.commit_group(outcomes)
        store.prune(BlockNumber(7), b"receipt")
        use = store.disk_use()
        store.close()
        return use.kept, use.prunable

    clean, own = grown_with(0, "clean")
    kept, prunable = grown_with(57, "junk")  # 95 percent.
    assert kept - clean <= 80 * 57 * 8, "a stub takes 80 bytes at most"
    assert prunable <= own + 57 * 4000, "only block 8's bodies are there"


class CountingFiles(Files):
    """Files that count what is read from them."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def read(self, path: Path, offset: int, length: int) -> bytes:
        data = super().read(path, offset, length)
        self.read_bytes += len(data)
        return data


def test_S17_start_after_a_kill_does_what_was_not_durable_and_not_all_again(tmp_path: Path) -> None:
    """iroha 3651: a restart replayed the whole chain, for three hours."""
    read_bytes = []
    for height in (15, 60):
        folder = tmp_path / str(height)
        store = LedgerStore.open(folder, MINI.channel_id, chk=10)
        store.commit_group(MINI.outcomes[:height])
        for outcome in MINI.outcomes[height : height + 3]:
            store.stage(outcome)
        shutil.copytree(folder, tmp_path / f"killed{height}")  # With blocks under way.
        store.abandon_group()
        store.close()
        files = CountingFiles()
        killed = LedgerStore.open(tmp_path / f"killed{height}", MINI.channel_id, chk=10, files=files)
        assert killed.pending_count == 3
        read_bytes.append(files.read_bytes)
        assert killed.recommit(MINI.rejudge) == 3
        killed.close()
    assert read_bytes[1] < read_bytes[0] + 1000, "a start reads no more of a longer chain"


def test_S18_pruned_peer_whose_state_is_damaged_is_rebuilt_from_what_is_kept(
    grown: Grown, tmp_path: Path, undisturbed: End
) -> None:
    """FAB-17800: reset, rollback and rebuild were refused where there was no block 0."""
    peer = tmp_path / "peer"
    told = grown.copy(HEIGHT, peer)
    for table in (peer / HOME / "db").glob("*.ldb"):
        zeroed(table)
    made = rebuild(peer / "data", blocks()[0], progress=lambda done, total: None).rebuilt
    assert (made.height, made.prune_point, made.anchor, made.cut_blocks) == (HEIGHT, 11, 12, 0)
    assert made.state_hash.hex() == undisturbed.state_hash
    assert differences(undisturbed, finish(peer, told), but=WORDS) == []


class FailingReads:
    """A LevelDB database that fails to be read for the k-th time."""

    def __init__(self, directory: Path) -> None:
        self._engine = LevelDbEngine(directory)
        self.fails_in = 0
        self.batch, self.statistics, self.close = self._engine.batch, self._engine.statistics, self._engine.close

    def count(self) -> None:
        self.fails_in -= 1
        if self.fails_in == 0:
            raise StorageFailed("[Errno 5] Input/output error")

    def get(self, key: bytes) -> bytes | None:
        self.count()
        return self._engine.get(key)

    def snapshot(self) -> Snapshot:
        return FailingSnapshot(self, self._engine.snapshot())


class FailingSnapshot:
    """A snapshot of it."""

    def __init__(self, engine: FailingReads, snapshot: Snapshot) -> None:
        self._engine, self._snapshot = engine, snapshot
        self.close = snapshot.close

    def get(self, key: bytes) -> bytes | None:
        self._engine.count()
        return self._snapshot.get(key)

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        self._engine.count()
        return self._snapshot.range(start, stop)


def test_V2_disk_that_fails_under_any_look_up_makes_no_verdict(grown: Grown, tmp_path: Path, undisturbed: End) -> None:
    """FAB-10201: an I/O error in the look-up of duplicates was read as "not a duplicate"; FAB-5353.

    Goal: no verdict from a fault, whether state, ids, definitions or policies are looked up.  Method: each fifth
    look-up of the last group of blocks fails in turn, until none is left to fail.
    """
    fails_in, failures = 1, 0
    while True:
        peer = tmp_path / str(fails_in)
        told = list(grown.copy(14, peer))
        engines: list[FailingReads] = []

        def open_engine(directory: Path) -> Engine:
            engines.append(FailingReads(directory))  # noqa: B023  # Called within this round only.
            return engines[-1]  # noqa: B023

        def tell(event: str, **data: object) -> None:
            told.append({"event": event, **data})  # noqa: B023
            if data.get("name") == "commit":
                engines[-1].fails_in = fails_in  # noqa: B023

        before = len(told)
        try:
            LonePeer(peer, tell, open_engine=open_engine).live()
        except StorageFailed as error:
            assert "Input/output error" in str(error)
            failures += 1
            assert told[-1] == {"event": "step", "name": "commit"}, "nothing is told of the blocks"
            with opened(peer) as (store, _):
                assert (store.height, store.pending_count) == (14, 0)
            if fails_in % 3 == 0:
                assert differences(undisturbed, finish(peer, told)) == []
        else:
            assert len(told) > before
            break
        fails_in += 5
        shutil.rmtree(peer)
    assert failures > 5


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def flip_a_state_value(home: Path) -> None:
    """Change a value as somebody with an editor for databases would: all checksums fit."""
    store = LedgerStore.open(home.parents[1], ChannelId(CHANNEL), chk=CHK)
    store.close()
    engine = LevelDbEngine(home / "db")
    snapshot = engine.snapshot()
    key, value = next(pair for pair in snapshot.range(b"", None) if pair[1].endswith(b"14") or b"\x0214" in pair[1])
    batch = engine.batch()
    batch.put(key, value.replace(b"14", b"41"))
    batch.write()
    snapshot.close()
    engine.close()


@pytest.mark.parametrize(
    ("what", "tamper", "level", "names"),
    [
        ("block", lambda home: flip(home / "kept" / "000000000000.kept", 9000), "structure", "000000000000.kept"),
        ("body", lambda home: flip(home / "prunable" / "000000000012.bodies", 900), "structure", "000000000012.bodies"),
        ("proof", lambda home: flip(home / "records" / "proofs.log", 900), "checkpoint", "proofs.log"),
        ("receipt", lambda home: flip(home / "records" / "prunes.log", 900), "structure", "prunes.log"),
        ("state", flip_a_state_value, "state", ""),
    ],
)
def test_V11_tampering_is_found_and_named_by_verify(
    what: str, tamper: Callable[[Path], None], level: str, names: str, grown: Grown, tmp_path: Path
) -> None:
    """fabric-samples 1271, fabric 4018: a block file was edited under a running peer, and nobody noticed for years."""
    grown.copy(HEIGHT, tmp_path / "peer")
    genesis = tmp_path / "genesis.block"
    genesis.write_bytes(blocks()[0])
    tamper(tmp_path / "peer" / HOME)
    report = verify(tmp_path / "peer" / "data", genesis, lambda what, done, of: None)
    failure = report.levels[level].first_failure
    assert not report.ok
    assert failure is not None and names in failure, f"{what}: {report.levels}"
