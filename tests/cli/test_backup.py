"""Do `backup`, `restore` and `rebuild` do for a stopped peer what they say, by status, JSON and words?"""

from pathlib import Path

import pytest

from tests.cli.running import Runner
from tests.kit.channel import CHANNEL
from tests.kit.peer_folder import CHECKPOINTS, HEIGHT, PRUNE_POINT, PeerFolder


@pytest.fixture
def folder(tmp_path: Path) -> PeerFolder:
    return PeerFolder(tmp_path / "peer").agree().prune()


def test_a_stopped_peer_s_ledger_goes_to_a_backup_and_elsewhere(
    peerledger: Runner, folder: PeerFolder, tmp_path: Path
) -> None:
    backup, elsewhere = tmp_path / "backup", tmp_path / "elsewhere"
    made = peerledger("backup", "--to", backup, "--data", folder.data, "--genesis", folder.genesis, "--json")
    assert (made.status, made.stderr) == (0, "")
    assert made.json | {"state": "done", "path": str(backup), "height": HEIGHT, "prune_point": PRUNE_POINT} == made.json
    restored = peerledger("restore", backup, "--data", elsewhere, "--genesis", folder.genesis, "--json")
    assert (restored.status, restored.stderr) == (0, "")
    assert restored.json == {
        "channel": CHANNEL,
        "path": str(elsewhere / "channels" / CHANNEL),
        "height": HEIGHT,
        "prune_point": PRUNE_POINT,
        "vblock_hash": folder.vblock_hash.hex(),
        "state_hash": folder.state_hash.hex(),
    }
    assert peerledger("verify", elsewhere, "--genesis", folder.genesis).status == 0


def test_words_say_what_was_done(peerledger: Runner, folder: PeerFolder, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    made = peerledger("backup", "--to", backup, "--data", folder.data, "--genesis", folder.genesis)
    assert "Backed up." in made.stdout
    assert f"up to block {PRUNE_POINT}" in made.stdout
    restored = peerledger("restore", backup, "--data", tmp_path / "elsewhere")
    assert "hashes are those of the backup" in restored.stdout
    rebuilt = peerledger("rebuild", folder.data, "--genesis", folder.genesis)
    assert f"commit hashes, checkpoint {CHECKPOINTS[-1]}" in rebuilt.stdout
    assert "applied as they were judged" in rebuilt.stdout
    assert "judged again" in peerledger("rebuild", folder.data, "--genesis", folder.genesis, "--check").stdout


def test_what_can_t_be_done_is_said_by_status(peerledger: Runner, folder: PeerFolder, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    without_genesis = peerledger("backup", "--to", backup, "--data", folder.data)
    assert (without_genesis.status, "--genesis FILE" in without_genesis.stderr) == (2, True)
    assert peerledger("restore", backup, "--data", tmp_path / "elsewhere").status == 1
    peerledger("backup", "--to", backup, "--data", folder.data, "--genesis", folder.genesis)
    over = peerledger("restore", backup, "--data", folder.data)
    assert (over.status, "not empty" in over.stderr) == (3, True)
    kept = next((backup / "kept").iterdir())
    kept.write_bytes(kept.read_bytes()[:-1])
    damaged = peerledger("restore", backup, "--data", tmp_path / "elsewhere")
    assert (damaged.status, str(kept) in damaged.stderr) == (3, True)
    assert peerledger("rebuild", tmp_path / "elsewhere", "--genesis", folder.genesis).status == 1


def test_a_rebuild_says_what_was_made(peerledger: Runner, folder: PeerFolder) -> None:
    done = peerledger("rebuild", folder.data, "--genesis", folder.genesis, "--json")
    assert (done.status, done.stderr) == (0, "")
    assert done.json == {
        "channel": CHANNEL,
        "height": HEIGHT,
        "prune_point": PRUNE_POINT,
        "vblock_hash": folder.vblock_hash.hex(),
        "state_hash": folder.state_hash.hex(),
        "judged_again": False,
        "compared_with_checkpoint": CHECKPOINTS[-1],
        "blocks_cut": 0,
        "bytes_cut": 0,
    }


def test_a_rebuild_cuts_only_when_told_to(peerledger: Runner, folder: PeerFolder) -> None:
    (path,) = (folder.channel / "kept").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    refused = peerledger("rebuild", folder.data, "--genesis", folder.genesis)
    assert (refused.status, "--cut" in refused.stderr) == (3, True)
    cut = peerledger("rebuild", folder.data, "--genesis", folder.genesis, "--cut")
    assert (cut.status, "1 blocks were cut" in cut.stdout) == (0, True)
