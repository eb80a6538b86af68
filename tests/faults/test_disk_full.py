"""What happens when the disk is full?  A real network on a small real filesystem, filled and freed in turn.

The peers and the orderer stop taking work before there is no room, say so, lose nothing that was told to anybody, and
go on by themselves, or by a plain start, when there is room again.
"""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ledger.client.errors import CallRefused
from ledger.client.gateway import Contract, commit_definition, connect
from ledger.core.names import ChannelId, TxId
from ledger.storage.ledger_store import LedgerStore
from tests.cluster.harness import LocalNetwork, peerledger, wait_until

pytestmark = pytest.mark.faults

DISK_BYTES = 320 << 20
RESERVE_BYTES = 96 << 20
CLIENTS = 4


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small filesystem of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"no filesystem can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, leave_bytes: int) -> None:
    """Leave so much free on the disk."""
    found = os.statvfs(disk)
    size = found.f_bavail * found.f_frsize - leave_bytes
    with (disk / "ballast").open("wb") as file, contextlib.suppress(OSError):
        os.posix_fallocate(file.fileno(), 0, max(size, 1))


def free(disk: Path) -> None:
    (disk / "ballast").unlink(missing_ok=True)


async def submit_until(stop: asyncio.Event, contract: Contract, told: dict[str, int], number: int) -> None:
    """Submit one transaction after the other; remember what was told to be committed."""
    for turn in range(1_000_000):
        if stop.is_set():
            return
        try:
            async with asyncio.timeout(15):
                submitted = await contract.submit_async("create", f"{number}-{turn}-{len(told)}", "Anna", "1")
                status = await submitted.status()
        except (CallRefused, TimeoutError):
            await asyncio.sleep(0.3)
            continue
        told[status.transaction_id] = status.code


def says_why(network: LocalNetwork, peer: str) -> bool:
    """Whether a peer's health or channel list names the disk."""
    components = network.ask_any(peer, "/readyz").get("components", [])
    return any(not one["ready"] and "reserve" in one["reason"] for one in components if one["name"] == "storage")


async def load(network: LocalNetwork, disk: Path, rounds: int, told: dict[str, int]) -> None:
    """Fill and free the disk under load; every other round to the last byte, and with a kill."""
    address = network.settings(network.peers[0])["grpc_listen"]
    async with connect(address, network.signer(1), network.peer_tls(1)) as gateway:
        contract = gateway.network("demo").contract("assets")
        await commit_definition(gateway.network("demo"), "assets")
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(submit_until(stop, contract, told, number))
            for turn in range(rounds):
                await asyncio.sleep(1.0)
                fill(disk, leave_bytes=0 if turn % 2 else RESERVE_BYTES // 2)
                if turn % 2 == 0:
                    why = lambda: all(says_why(network, peer) for peer in network.peers)  # noqa: E731
                    await asyncio.to_thread(wait_until, why, what="both peers to say that the disk is short")
                else:
                    await asyncio.sleep(1.0)
                    network.kill(network.peers[turn // 2 % 2])
                    await asyncio.sleep(1.0)
                free(disk)
                before = len(told)
                more = lambda before=before: len(told) > before  # noqa: E731
                await asyncio.to_thread(wait_until, more, what="work to go on with room on the disk")
            stop.set()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [pytest.param(4, id="short"), pytest.param(20, id="long", marks=pytest.mark.slow)])
def test_a_full_disk_loses_nothing_and_needs_no_repair(disk: Path, rounds: int) -> None:
    """Goal: L8, a full disk is noticed before it is full.  Method: fill, look at health, free, go on; then verify."""
    directory = disk / "net"
    peerledger("network", "create", str(directory), "--checkpoint-interval-blocks", "10")
    for path in (directory / "nodes").glob("*/*.yaml"):
        settings = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump(settings | {"disk_reserve_bytes": RESERVE_BYTES}))
    network = LocalNetwork(directory)
    network.start()
    told: dict[str, int] = {}
    try:
        ready = lambda: all(network.ask(peer, "/readyz").get("ready") for peer in network.peers)  # noqa: E731
        wait_until(ready, what="peers to be ready")
        asyncio.run(load(network, disk, rounds, told))
        equal = lambda: len({network.channel_info(peer).get("vblock_hash") for peer in network.peers}) == 1  # noqa: E731
        wait_until(equal, what="both peers to have the same blocks")
    except BaseException:
        print(network.logs())
        raise
    finally:
        network.stop()
    reports = [network.verify(peer) for peer in network.peers]
    assert all(level["ok"] for report in reports for level in report["levels"].values()), reports
    assert len({(one["height"], one["vblock_hash"], one["state_hash"]) for one in reports}) == 1
    assert len(told) > rounds
    for peer in network.peers:
        store = LedgerStore.open(directory / "nodes" / peer / "data", ChannelId("demo"))
        try:
            assert [tx_id for tx_id in told if not store.places(TxId(tx_id))] == []
        finally:
            store.close()
