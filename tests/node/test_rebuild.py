"""Is a database that was made anew the one that was there?  Pruned or not, re-applied or judged, and interrupted."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.core.errors import Conflict, InvalidBlock, NotFound, StorageDamaged
from ledger.core.names import BlockNumber, ChannelId
from ledger.node.rebuild import Reapply, RebuildReport, rebuild
from ledger.node.verify import verify
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.files import Files
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.new_database import MADE, NEW
from ledger.storage.rebuilding import rebuild as rebuild_database
from ledger.wire.block import encode_block
from tests.kit.channel import CHANNEL, Channel
from tests.kit.outcomes import genesis_block, judged
from tests.kit.peer_folder import CHECKPOINTS, CHK, HEIGHT, PRUNE_POINT, PeerFolder, honest_proof, life
from tests.kit.stores import Crash, SteppingFiles, Steps, answers

Make = Callable[[Path], PeerFolder]


def plain(directory: Path) -> PeerFolder:
    return PeerFolder(directory)


def agreed(directory: Path) -> PeerFolder:
    return PeerFolder(directory).agree()


def pruned(directory: Path) -> PeerFolder:
    return PeerFolder(directory).agree().prune()


def contents(folder: PeerFolder) -> dict[str, object]:
    store = folder.open()
    assert store.pending_count == 0
    found = answers(store)
    store.close()
    return found


def run(folder: PeerFolder, *, check: bool = False, may_cut: bool = False) -> RebuildReport:
    seen: list[tuple[int, int]] = []
    report = rebuild(
        folder.data, life().genesis, check=check, may_cut=may_cut, progress=lambda done, of: seen.append((done, of))
    )
    assert seen == sorted(seen)
    return report


@pytest.mark.parametrize("check", [False, True], ids=["re-applied", "judged"])
@pytest.mark.parametrize("make", [plain, agreed, pruned])
def test_what_is_made_anew_answers_as_before(make: Make, check: bool, tmp_path: Path) -> None:
    """Goal: rebuilding ends where committing did (C10).  Method: all that a store answers, before and after."""
    folder = make(tmp_path)
    expected = contents(folder)
    report = run(folder, check=check)
    assert contents(folder) == expected
    members = report.members()
    assert members["height"] == HEIGHT
    assert members["vblock_hash"] == folder.vblock_hash.hex()
    assert members["state_hash"] == folder.state_hash.hex()
    assert members["compared_with_checkpoint"] == (None if make is plain else CHECKPOINTS[-1])
    assert members["prune_point"] == (PRUNE_POINT if make is pruned else None)
    assert members["judged_again"] is check
    assert (members["blocks_cut"], members["bytes_cut"]) == (0, 0)
    assert verify(folder.data, folder.genesis, lambda *_: None).ok


@pytest.mark.parametrize("name", ["mini", "rich"])
def test_recorded_channels_are_re_applied_as_they_were_judged(name: str, tmp_path: Path) -> None:
    """Goal: every kind of transaction, as Fabric recorded them.  Method: commit, rebuild, compare all answers."""
    recorded = judged(name)
    store = LedgerStore.open(tmp_path, recorded.channel_id, chk=25)
    store.commit_group(recorded.outcomes)
    expected = answers(store)
    store.close()
    report = rebuild(tmp_path, genesis_block(name), chk=25, progress=lambda *_: None)
    assert report.rebuilt.height == len(recorded.outcomes)
    store = LedgerStore.open(tmp_path, recorded.channel_id, chk=25)
    assert answers(store) == expected
    store.close()


def test_roots_at_the_tip_are_those_of_the_whole_state_at_every_height(tmp_path: Path) -> None:
    """Goal: the state hash of backups and rebuilds costs what changed, and is right.  Method: the slow twin."""
    store = LedgerStore.open(tmp_path, ChannelId(CHANNEL), chk=CHK)
    for outcome in life().outcomes:
        store.commit(outcome)
        assert store.tip().roots == store.roots_now()
        if outcome.block.number == 2 * CHK + 1:
            store.compute_checkpoint(BlockNumber(2 * CHK))
            store.release(BlockNumber(CHK))
            assert store.tip().roots == store.roots_now()
        assert store.tip().savepoint.height == store.height
    store.close()


def test_a_database_that_is_gone_costs_only_the_words_of_why(tmp_path: Path) -> None:
    folder = pruned(tmp_path)
    expected = contents(folder)
    shutil.rmtree(folder.channel / "db")
    run(folder)
    found = contents(folder)
    assert found.pop("faults") == [{}] * HEIGHT
    expected.pop("faults")
    assert found == expected


def test_judging_finds_the_words_again_where_bodies_are_left(tmp_path: Path) -> None:
    folder = pruned(tmp_path)
    expected = contents(folder)["faults"]
    shutil.rmtree(folder.channel / "db")
    run(folder, check=True)
    found = contents(folder)["faults"]
    assert isinstance(found, list)
    assert isinstance(expected, list)
    assert found[PRUNE_POINT + 1 :] == expected[PRUNE_POINT + 1 :]
    assert {fault.rule for faults in found[: PRUNE_POINT + 1] for fault in faults.values()} == {"pruned"}


def test_the_peer_can_prove_and_prune_afterwards_what_it_could_before(tmp_path: Path) -> None:
    """Goal: the latest checkpointed state is there (S18), and the later ones a peer waits for."""
    folder = agreed(tmp_path)
    run(folder)
    folder.prune()
    store = folder.open()
    assert store.captured() == (8, 12)
    with store.checkpoint_view(BlockNumber(8)) as view:
        proved = [view.prove(key) for key, _ in view.entries()]
    assert len(proved) > 3
    store.compute_checkpoint(BlockNumber(12))
    store.close()


def test_a_crash_at_any_step_leaves_the_old_database_or_the_new_one(tmp_path: Path) -> None:
    """Goal: nothing to repair by hand.  Method: end before each step that changes the disk; open; run again."""
    folder = pruned(tmp_path / "first")
    expected = contents(folder)
    steps = Steps()
    remake(folder, SteppingFiles(steps))
    assert len(steps.taken) > 10
    seen = set()
    for crash_at in range(1, len(steps.taken) + 1, 1):
        verb, name = steps.taken[crash_at - 1]
        if verb == "sync" and name.endswith((".kept", ".bodies")) and ("sync", name) in seen:
            continue
        seen.add((verb, name))
        with pytest.raises(Crash):
            remake(folder, SteppingFiles(Steps(crash_at)))
        assert contents(folder) == expected, steps.taken[crash_at - 1]
        assert not (folder.channel / MADE).exists()
    remake(folder, Files())
    assert contents(folder) == expected
    assert not (folder.channel / NEW).exists()


def remake(folder: PeerFolder, files: Files) -> None:
    rebuild_database(folder.data, ChannelId(CHANNEL), Reapply, with_bodies=False, files=files)


def test_a_divergence_is_compared_afresh_and_its_evidence_stays(tmp_path: Path) -> None:
    folder = agreed(tmp_path)
    with CheckpointStore(folder.channel / "records", ChannelId(CHANNEL)) as records:
        proof = records.latest_valid
        assert proof is not None
        records.record_divergence(proof.statement, proof)
    run(folder)
    with CheckpointStore(folder.channel / "records", ChannelId(CHANNEL)) as records:
        assert records.divergence is None
        assert len(list(records.evidence())) == 1


def test_whole_blocks_behind_a_damaged_one_are_not_given_up_unasked(tmp_path: Path) -> None:
    """Goal: one flipped bit does not cost the rest of the chain without anybody's word (C3, V11)."""
    folder = agreed(tmp_path)
    before = contents(folder)
    (path,) = (folder.channel / "kept").iterdir()
    store = folder.open()
    place = store._row(BlockNumber(10)).kept
    store.close()
    data = bytearray(path.read_bytes())
    data[place.offset + place.length // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageDamaged, match=r"held 15 blocks or more, and 10 are whole.*--cut"):
        run(folder)
    assert path.read_bytes() == bytes(data)
    shutil.rmtree(folder.channel / "db")
    with pytest.raises(StorageDamaged, match="--cut"):
        run(folder)
    report = run(folder, may_cut=True).members()
    assert (report["height"], report["blocks_cut"]) == (10, 5)
    assert report["compared_with_checkpoint"] == 8
    after = contents(folder)
    assert after["summaries"] == before["summaries"][:10]  # type: ignore[index]


def test_blocks_below_the_prune_point_are_not_cut_even_if_asked(tmp_path: Path) -> None:
    """Goal: no ledger is left that begins behind its own end (P5): its pruned blocks are nowhere else."""
    folder = pruned(tmp_path)
    (path,) = (folder.channel / "kept").iterdir()
    store = folder.open()
    place = store._row(BlockNumber(PRUNE_POINT)).kept
    store.close()
    data = bytearray(path.read_bytes())
    data[place.offset + place.length // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageDamaged, match="Restore a backup, or join again"):
        run(folder, may_cut=True)
    assert path.read_bytes() == bytes(data)


def test_a_torn_tail_that_was_never_committed_is_cut_without_a_question(tmp_path: Path) -> None:
    folder = agreed(tmp_path)
    expected = contents(folder)
    (path,) = (folder.channel / "kept").iterdir()
    with path.open("ab") as file:
        file.write(b"\1" * 40)
    assert run(folder).members()["bytes_cut"] == 40
    assert contents(folder) == expected


def test_verdicts_that_were_changed_in_the_segments_are_found(tmp_path: Path) -> None:
    """Goal: re-applying believes no verdict that the commit hash does not vouch for."""
    outcomes = list(life().outcomes)
    verdicts = outcomes[5].verdicts
    outcomes[5] = replace(outcomes[5], verdicts=bytes([4, *verdicts[1:]]))
    folder = PeerFolder(tmp_path, outcomes)
    with pytest.raises(StorageDamaged, match=r"block 5 of .* was committed with other verdicts"):
        run(folder)


def test_segments_that_contradict_a_checkpoint_are_not_believed(tmp_path: Path) -> None:
    """Goal: what others signed has the last word.  Method: a proof of another state at a height."""
    folder = PeerFolder(tmp_path).agree(
        lambda statement, signers: honest_proof(replace(statement, state_hash=bytes(32)), signers)  # type: ignore[arg-type]
    )
    before = contents(folder)
    with pytest.raises(StorageDamaged, match="another state at block 8"):
        run(folder)
    assert contents(folder) == before


def test_judging_refuses_what_no_orderer_signed(tmp_path: Path) -> None:
    outcomes = list(life().outcomes)
    block = outcomes[6].block
    forged = replace(block, metadata=(b"", *block.metadata[1:]))
    outcomes[6] = replace(outcomes[6], block=forged)
    folder = PeerFolder(tmp_path, outcomes)
    run(folder)
    with pytest.raises(StorageDamaged, match="stored block is none of the channel"):
        run(folder, check=True)


def test_another_genesis_block_is_refused_and_nothing_changed(tmp_path: Path) -> None:
    folder = plain(tmp_path)
    expected = contents(folder)
    other = encode_block(Channel(application="V2_5").genesis)
    with pytest.raises(InvalidBlock) as refused:
        rebuild(folder.data, other, progress=lambda *_: None)
    assert refused.value.rule == "genesis block"
    assert contents(folder) == expected


def test_a_running_peer_s_channel_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    folder = plain(tmp_path)
    store = folder.open()
    with pytest.raises(Conflict, match="in use"):
        run(folder)
    store.close()
    with pytest.raises(NotFound, match="no channel"):
        rebuild(tmp_path / "elsewhere", life().genesis, progress=lambda *_: None)
