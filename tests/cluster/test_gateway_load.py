"""Is what a client was told still true after kill -9?  Load through both gateways, kills at random, checkpoints on."""

import asyncio
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from ledger.client.errors import CallRefused
from ledger.client.gateway import Contract, commit_definition, connect
from ledger.core.names import ChannelId, TxId
from ledger.storage.ledger_store import LedgerStore
from tests.cluster.harness import LocalNetwork, running, wait_until

KILLS = 20
CLIENTS_PER_ORGANISATION = 6
ASSETS = 8
INTERVAL_BLOCKS = 10


class Told(NamedTuple):
    """What a client was told of a transaction."""

    code: int
    block: int


async def submit_until(stop: asyncio.Event, contract: Contract, chance: random.Random, told: dict[str, Told]) -> None:
    """Change a few assets, one transaction after the other; remember every verdict that was told."""
    while not stop.is_set():
        asset = f"asset-{chance.randrange(ASSETS)}"
        try:
            async with asyncio.timeout(20):
                submitted = await contract.submit_async("update", asset, str(chance.randrange(1000)))
                status = await submitted.status()
        except (CallRefused, TimeoutError):
            await asyncio.sleep(0.2)  # Nobody told us anything.
            continue
        told[status.transaction_id] = Told(status.code, status.block_number)


async def load_and_kill(network: LocalNetwork, seed: int) -> dict[str, Told]:
    """Kill random nodes while clients of both organisations submit; give what they were told."""
    chance = random.Random(seed)
    told: dict[str, Told] = {}
    stop = asyncio.Event()
    async with (
        connect(network.settings(network.peers[0])["grpc_listen"], network.signer(1), network.peer_tls(1)) as first,
        connect(network.settings(network.peers[1])["grpc_listen"], network.signer(2), network.peer_tls(2)) as second,
    ):
        contracts = [gateway.network("demo").contract("assets") for gateway in (first, second)]
        await commit_definition(first.network("demo"), "assets")
        for number in range(ASSETS):
            await contracts[0].submit("create", f"asset-{number}", "Anna", "1")
        async with asyncio.TaskGroup() as group:
            for contract in contracts:
                for _ in range(CLIENTS_PER_ORGANISATION):
                    group.create_task(submit_until(stop, contract, random.Random(chance.random()), told))
            for _ in range(KILLS):
                await asyncio.sleep(chance.uniform(0.5, 2.0))
                network.kill(chance.choice(network.nodes))
            await asyncio.sleep(6)
            stop.set()
    return told


@pytest.mark.cluster
@pytest.mark.timeout(280)
def test_kill_nine_at_random_leaves_true_what_clients_were_told(tmp_path: Path) -> None:
    """Goal: whatever a gateway said of a transaction is so on every peer, and all hashes are equal.

    Method: 20 kills of random nodes under load through both peers' gateways; then every transaction is looked up in
    both ledgers, both are verified from the genesis block on, and the peers agree on checkpoints again.
    """
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    options = ("--checkpoint-interval-blocks", str(INTERVAL_BLOCKS), "--batch-messages-max", "10")
    with running(tmp_path / "net", *options) as network:
        wait_until(
            lambda: all(network.ask(peer, "/readyz").get("ready") for peer in network.peers), what="peers to be ready"
        )
        told = asyncio.run(load_and_kill(network, seed))
        assert len(told) > 50, f"the load went through: {len(told)}"
        assert {one.code for one in told.values()} > {0}, "some were valid, some not"

        def agreed() -> bool:
            found = [network.channel_info(peer) for peer in network.peers]
            if not all(found) or len({(one["height"], one["vblock_hash"]) for one in found}) != 1:
                return False
            newest = (found[0]["height"] - 1) // INTERVAL_BLOCKS * INTERVAL_BLOCKS
            return all(one["checkpoints"]["latest_valid"] == newest for one in found)

        wait_until(agreed, what="both peers to have the same blocks and the newest checkpoint valid")
    reports = [network.verify(peer) for peer in network.peers]
    assert all(level["ok"] for report in reports for level in report["levels"].values()), reports
    assert len({(one["height"], one["vblock_hash"], one["state_hash"], one["checkpoint"]) for one in reports}) == 1
    assert reports[0]["checkpoint"] >= INTERVAL_BLOCKS
    for peer in network.peers:
        assert differing(tmp_path / "net" / "nodes" / peer / "data", told) == []


def differing(data: Path, told: dict[str, Told]) -> list[str]:
    """List what is not in a stopped peer's ledger as a client was told."""
    store = LedgerStore.open(data, ChannelId("demo"))
    try:
        found = {tx_id: store.places(TxId(tx_id)) for tx_id in told}
    finally:
        store.close()
    return [
        f"{tx_id}: told {one}, found {found[tx_id]}"
        for tx_id, one in told.items()
        if not found[tx_id] or (found[tx_id][0].verdict, found[tx_id][0].block) != one
    ]
