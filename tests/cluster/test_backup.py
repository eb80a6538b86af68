"""Does a backup of a running peer, made under load, become a peer again that agrees with all the others?"""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import peerledger, peerledger_json, running, wait_until

pytestmark = pytest.mark.cluster

INTERVAL_BLOCKS = 4
FIRST, SECOND = "peer0.org1.example.com", "peer0.org2.example.com"


def test_a_backup_under_load_becomes_a_peer_again(tmp_path: Path) -> None:
    """Goal: backup, restore, start, agree.

    Method: back the first peer up while transactions come in and checkpoints become valid; more come; stop; put what
    was restored in the place of its data; start. It catches up, is silent at first, and signs again; all verifies.
    """
    directory = tmp_path / "net"
    with running(directory, "--checkpoint-interval-blocks", str(INTERVAL_BLOCKS), "--pruning", "auto") as network:
        here = ("--network", str(directory))
        wait_until(lambda: all(network.ask(peer, "/readyz").get("ready") for peer in network.peers), what="readiness")
        peerledger("chaincode", "commit", "assets", *here)
        load = Load(here)
        load.start()
        try:
            wait_until(lambda: latest_valid(network, FIRST) >= 2 * INTERVAL_BLOCKS, what="a valid checkpoint")
            made = peerledger_json("backup", "--to", "monday", "--channel", "demo", *here)
            wait_until(lambda: latest_valid(network, FIRST) > made["height"], what="a checkpoint after the backup")
        finally:
            load.stop()
        assert load.submitted > 0
        backup = directory / "nodes" / FIRST / "backups" / "monday"
        assert made["path"] == str(backup)
        elsewhere = peerledger("backup", "--to", "../elsewhere", *here, check=False)
        assert (elsewhere.returncode, "backup directory" in elsewhere.stderr) == (2, True)
        network.stop()

        data = directory / "nodes" / FIRST / "data"
        data.rename(directory / "nodes" / FIRST / "data.lost")
        restored = peerledger_json("restore", str(backup), "--data", str(data))
        assert (restored["height"], restored["state_hash"]) == (made["height"], made["state_hash"])

        network.start()
        wait_until(lambda: all(network.ask(peer, "/readyz").get("ready") for peer in network.peers), what="readiness")
        wait_until(lambda: not silent(network, FIRST), what="the orderers to be asked", timeout_s=30)
        height = network.channel_info(SECOND)["height"]
        for number in range(3 * INTERVAL_BLOCKS):
            peerledger("tx", "submit", "assets", "create", f"after-{number}", "Anna", "5", *here)
        wait_until(lambda: latest_valid(network, SECOND) >= height + INTERVAL_BLOCKS, what="a checkpoint by both")
        wait_until(lambda: same(network), what="the same height and hashes")
        network.stop()
        assert network.verify(FIRST)["levels"] == network.verify(SECOND)["levels"]
        first, second = network.verify(FIRST), network.verify(SECOND)
        assert (first["vblock_hash"], first["state_hash"]) == (second["vblock_hash"], second["state_hash"])
        assert all(level["ok"] for level in first["levels"].values())


class Load(threading.Thread):
    """Submits transactions, one after the other, until it is stopped."""

    def __init__(self, here: tuple[str, str]) -> None:
        super().__init__(daemon=True)
        self.submitted = 0
        self._here = here
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.is_set():
            command = ["tx", "submit", "assets", "create", f"asset-{self.submitted}", "Anna", "5", *self._here]
            done = subprocess.run([sys.executable, "-m", "ledger.cli.main", *command], capture_output=True, timeout=60)
            self.submitted += done.returncode == 0

    def stop(self) -> None:
        self._ending.set()
        self.join()


def latest_valid(network: Any, peer: str) -> int:
    return (network.channel_info(peer).get("checkpoints") or {}).get("latest_valid") or 0


def silent(network: Any, peer: str) -> bool:
    """Whether a peer says that it waits for the orderers."""
    components = network.ask(peer, "/readyz").get("components", [])
    return any("backup" in component["reason"] for component in components)


def same(network: Any) -> bool:
    first, second = (network.channel_info(peer) for peer in (FIRST, SECOND))
    return bool(first) and all(first.get(name) == second.get(name) for name in ("height", "vblock_hash", "block_hash"))
