"""Does a backup of a running peer, made under load, become a peer again that agrees with all the others?"""

import asyncio
import threading
from collections import Counter
from pathlib import Path

import pytest

from ledger.client.gateway import Contract, connect
from tests.cluster.harness import LocalNetwork, peerledger, peerledger_json, running, wait_until

pytestmark = pytest.mark.cluster

INTERVAL_BLOCKS = 5
CLIENTS = 4
FIRST, SECOND = "peer0.org1.example.com", "peer0.org2.example.com"


def test_a_backup_under_load_becomes_a_peer_again(tmp_path: Path) -> None:
    """Goal: backup, restore, start, agree.

    Method: back the first peer up while transactions come in and checkpoints become valid; more come; stop; put what
    was restored in the place of its data; start. It catches up, is silent at first, and signs again; all verifies.
    """
    directory = tmp_path / "net"
    options = ("--checkpoint-interval-blocks", str(INTERVAL_BLOCKS), "--pruning", "auto")
    with running(directory, *options) as network:
        here = ("--network", str(directory))
        ready = lambda: all(network.ask(peer, "/readyz").get("ready") for peer in network.peers)  # noqa: E731
        wait_until(ready, what="peers to be ready")
        peerledger("chaincode", "commit", "assets", *here)
        peerledger("tx", "submit", "assets", "create", "shared", "Anna", "5", *here)
        load = Load(network)
        load.start()
        wait_until(lambda: latest_valid(network, FIRST) >= 2 * INTERVAL_BLOCKS, what="a valid checkpoint")
        made = peerledger_json("backup", "--to", "monday", "--channel", "demo", *here)
        wait_until(lambda: latest_valid(network, FIRST) > made["height"], what="a checkpoint after the backup")
        load.stop()
        assert {0, 11} <= set(load.verdicts), load.verdicts
        backup = directory / "nodes" / FIRST / "backups" / "monday"
        assert made["path"] == str(backup)
        assert made["prune_point"] is not None
        elsewhere = peerledger("backup", "--to", "../elsewhere", *here, check=False)
        assert (elsewhere.returncode, "backup directory" in elsewhere.stderr) == (2, True)
        network.stop()

        data = directory / "nodes" / FIRST / "data"
        data.rename(directory / "nodes" / FIRST / "data.lost")
        restored = peerledger_json("restore", str(backup), "--data", str(data))
        assert (restored["height"], restored["state_hash"]) == (made["height"], made["state_hash"])

        network.start()
        wait_until(ready, what="peers to be ready again")
        wait_until(lambda: not silent(network, FIRST), what="the orderers to be asked", timeout_s=30)
        height = network.channel_info(SECOND)["height"]
        load = Load(network)
        load.start()
        wait_until(lambda: latest_valid(network, SECOND) >= height + INTERVAL_BLOCKS, what="a checkpoint by both")
        load.stop()
        wait_until(lambda: same(network), what="the same height and hashes")
        network.stop()
        first, second = network.verify(FIRST), network.verify(SECOND)
        assert all(level["ok"] for one in (first, second) for level in one["levels"].values())
        for name in ("height", "vblock_hash", "state_hash", "checkpoint"):
            assert first[name] == second[name], name


class Load(threading.Thread):
    """Makes assets and changes a shared one through the first peer, so that many transactions conflict."""

    def __init__(self, network: LocalNetwork) -> None:
        super().__init__(daemon=True)
        self.verdicts: Counter[int] = Counter()
        self._network = network
        self._ending = threading.Event()

    def run(self) -> None:
        asyncio.run(self._submit_all())

    async def _submit_all(self) -> None:
        network = self._network
        address = network.settings(FIRST)["grpc_listen"]
        async with connect(address, network.signer(1), network.peer_tls(1)) as gateway:
            contract = gateway.network("demo").contract("assets")
            async with asyncio.TaskGroup() as group:
                for client in range(CLIENTS):
                    group.create_task(self._submit(contract, client))

    async def _submit(self, contract: Contract, client: int) -> None:
        number = 0
        while not self._ending.is_set():
            if number % 2 or client == 0:
                submitted = await contract.submit_async("create", f"{self.name}-{client}-{number}", "Anna", "5")
            else:
                submitted = await contract.submit_async("update", "shared", str(number))
            self.verdicts[(await submitted.status()).code] += 1
            number += 1

    def stop(self) -> None:
        self._ending.set()
        self.join()


def latest_valid(network: LocalNetwork, peer: str) -> int:
    return (network.channel_info(peer).get("checkpoints") or {}).get("latest_valid") or 0


def silent(network: LocalNetwork, peer: str) -> bool:
    """Whether a peer says that it waits for the orderers."""
    components = network.ask(peer, "/readyz").get("components", [])
    return any("backup" in component["reason"] for component in components)


def same(network: LocalNetwork) -> bool:
    first, second = (network.channel_info(peer) for peer in (FIRST, SECOND))
    return bool(first) and all(first.get(name) == second.get(name) for name in ("height", "vblock_hash", "block_hash"))
