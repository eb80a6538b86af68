"""Does `peerledger verify` tell a ledger in order from one that is not, by status, JSON and words?"""

import subprocess
import sys
from pathlib import Path

import pytest

from ledger.storage.ledger_store import LedgerStore
from tests.cli.running import Runner
from tests.kit.channel import CHANNEL
from tests.kit.outcomes import channel_id, judged
from tests.kit.paths import ROOT, VECTORS
from tests.kit.peer_folder import CHECKPOINTS, HEIGHT, PRUNE_POINT, PeerFolder

MINI = VECTORS / "mini"
LEVELS = ["structure", "chain", "signatures", "state", "checkpoint"]


@pytest.fixture
def replayed(peerledger: Runner, tmp_path: Path) -> Path:
    """The data directory of a replay."""
    data = tmp_path / "data"
    done = peerledger("replay", "--genesis", MINI / "genesis.block", "--blocks", MINI / "blocks", "--data", data)
    assert done.status == 0
    return data


def test_directory_of_a_replay_is_in_order(peerledger: Runner, replayed: Path) -> None:
    known = judged("mini")
    replay = peerledger(
        "replay", "--genesis", MINI / "genesis.block", "--blocks", MINI / "blocks", "--data", replayed, "--json"
    ).json
    done = peerledger("verify", replayed, "--genesis", MINI / "genesis.block", "--json")
    assert (done.status, done.stderr) == (0, "")
    blocks, transactions = len(known.outcomes), sum(len(each.verdicts) for each in known.outcomes)
    counted = dict(zip(LEVELS, (blocks, blocks, transactions, blocks, 0), strict=True))
    assert done.json == {
        "channel": channel_id("mini"),
        "height": blocks,
        "prune_point": None,
        "checkpoint": None,
        "vblock_hash": replay["vblock_hash"],
        "state_hash": replay["state_hash"],
        "levels": {
            name: {"ok": True, "checked": counted[name], "not_checked": 0, "first_failure": None} for name in LEVELS
        },
    }
    assert list(done.json) == ["channel", "height", "prune_point", "checkpoint", "vblock_hash", "state_hash", "levels"]


def test_words_say_what_was_covered_and_how_long_it_took(peerledger: Runner, tmp_path: Path) -> None:
    folder = PeerFolder(tmp_path).agree().prune()
    done = peerledger("verify", folder.data, "--genesis", folder.genesis)
    assert (done.status, done.stderr) == (0, "")
    assert f"blocks       {HEIGHT}\n" in done.stdout
    assert f"pruned       up to block {PRUNE_POINT}\n" in done.stdout
    assert f"checkpoint   block {CHECKPOINTS[-1]}, signed by Org1MSP peer0, Org2MSP peer0\n" in done.stdout
    assert "invalid ones whose bodies were pruned" in done.stdout
    assert "All in order, as far as it can be checked (" in done.stdout
    assert " blocks a second).\n" in done.stdout


def test_flipped_byte_in_a_segment_fails_with_level_and_block(peerledger: Runner, replayed: Path) -> None:
    (path,) = replayed.glob("channels/*/kept/*")
    content = bytearray(path.read_bytes())
    content[-20] ^= 1  # In the record of the last block.
    path.write_bytes(content)
    done = peerledger("verify", replayed, "--genesis", MINI / "genesis.block", "--json")
    assert done.status == 1
    assert [name for name, level in done.json["levels"].items() if not level["ok"]] == ["structure"]
    found = done.json["levels"]["structure"]["first_failure"]
    assert found.startswith(f"{path} is damaged: record at ") and "record of block 105" in found
    words = peerledger("verify", replayed, "--genesis", MINI / "genesis.block")
    assert words.status == 1
    assert "Not in order: structure (" in words.stdout
    assert f"{path} is damaged" in words.stdout


def test_ledger_that_can_not_be_opened_fails_by_its_structure(peerledger: Runner, replayed: Path) -> None:
    (path,) = replayed.glob("channels/*/kept/*")
    path.unlink()
    done = peerledger("verify", replayed, "--genesis", MINI / "genesis.block", "--json")
    assert (done.status, done.json["height"], done.json["state_hash"]) == (1, 0, None)
    assert done.json["levels"]["structure"]["first_failure"].startswith(f"{path} has -1 bytes")
    words = peerledger("verify", replayed, "--genesis", MINI / "genesis.block")
    assert (words.status, "Not in order: structure (" in words.stdout) == (1, True)


def test_directory_that_a_process_has_open_is_refused_at_once(replayed: Path) -> None:
    """Two real processes: one holds the ledger, the other is told so and leaves it alone."""
    command: list[str | Path] = [
        Path(sys.executable).parent / "peerledger",
        "verify",
        replayed,
        "--genesis",
        MINI / "genesis.block",
    ]
    store = LedgerStore.open(replayed, channel_id("mini"))
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    finally:
        store.close()
    assert done.returncode != 0
    assert done.stdout == ""
    assert "Conflict" in done.stderr and "is in use by another process" in done.stderr
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60).returncode == 0


def test_another_genesis_block_is_refused_with_both_hashes(peerledger: Runner, tmp_path: Path) -> None:
    folder = PeerFolder(tmp_path / "one")
    store = LedgerStore.open(tmp_path / "other", CHANNEL)  # type: ignore[arg-type]
    first = judged("mini").outcomes[0]
    store.commit(first)
    store.close()
    done = peerledger("verify", tmp_path / "other", "--genesis", folder.genesis)
    assert done.status == 2
    assert f"genesis block; expected {first.block_hash.hex()}; found " in done.stderr


def test_directory_without_the_channel_is_said_to_be_one(peerledger: Runner, tmp_path: Path) -> None:
    done = peerledger("verify", tmp_path, "--genesis", MINI / "genesis.block", "--json")
    assert (done.status, done.stdout) == (1, "")
    assert f"{tmp_path} holds no channel mini" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_missing_genesis_file_is_named(peerledger: Runner, tmp_path: Path) -> None:
    done = peerledger("verify", tmp_path, "--genesis", tmp_path / "nothing.block")
    assert (done.status, f"{tmp_path / 'nothing.block'} does not exist" in done.stderr) == (1, True)
