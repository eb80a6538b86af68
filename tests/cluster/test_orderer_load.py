"""Does a local network lose anything when its processes are killed?  Load on the orderer, kills at random."""

import asyncio
import os
import random
from pathlib import Path

import pytest
from fabric_protos.common import common_pb2

from ledger.client.orderer import OrdererClient
from ledger.client.tls import ClientTls
from ledger.core.errors import PeerUnreachable
from ledger.storage.msp_folder import SigningIdentity
from tests.cluster.harness import LocalNetwork, running, wait_until

KILLS = 8
SUBMITTERS = 8


def envelope(signer: SigningIdentity, tx_id: str) -> bytes:
    """An envelope that the orderer takes and that every peer judges invalid: its content is no transaction."""
    channel = common_pb2.ChannelHeader(type=common_pb2.ENDORSER_TRANSACTION, channel_id="demo", tx_id=tx_id)
    header = common_pb2.Header(
        channel_header=channel.SerializeToString(),
        signature_header=common_pb2.SignatureHeader(
            creator=signer.serialized, nonce=os.urandom(24)
        ).SerializeToString(),
    )
    payload = common_pb2.Payload(header=header, data=b"no transaction").SerializeToString()
    return bytes(common_pb2.Envelope(payload=payload, signature=signer.sign(payload)).SerializeToString())


async def submit_until(
    stop: asyncio.Event, client: OrdererClient, signer: SigningIdentity, acknowledged: list[str]
) -> None:
    """Send envelopes one after the other; remember those that the orderer acknowledged."""
    while not stop.is_set():
        tx_id = os.urandom(32).hex()
        try:
            async with asyncio.timeout(10):
                status, _ = await client.broadcast(envelope(signer, tx_id))
        except (PeerUnreachable, TimeoutError):
            await asyncio.sleep(0.2)  # Nobody knows; it may be ordered or not.
            continue
        if status == 200:
            acknowledged.append(tx_id)


async def load_and_kill(network: LocalNetwork, seed: int) -> tuple[list[str], int]:
    """Kill random nodes under load; give the ids that were acknowledged, and the orderer's height at the end."""
    chance = random.Random(seed)
    signer = network.signer(1)
    orderers = network.directory / "organizations/ordererOrganizations/example.com"
    tls = ClientTls((orderers / "msp/tlscacerts/tlsca.pem").read_bytes())
    address = network.settings("orderer.example.com")["grpc_listen"]
    clients = [OrdererClient(address, tls) for _ in range(SUBMITTERS)]
    acknowledged: list[str] = []
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(submit_until(stop, client, signer, acknowledged))
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.3, 1.5))
            network.kill(chance.choice(network.nodes))
        await asyncio.sleep(3)
        stop.set()
    newest = await clients[0].newest("demo", signer)
    for client in clients:
        await client.close()
    return acknowledged, newest + 1


@pytest.mark.cluster
@pytest.mark.timeout(280)
def test_kill_nine_at_random_loses_nothing_that_the_orderer_acknowledged(tmp_path: Path) -> None:
    """Goal: no start needs a repair, nothing acknowledged is lost, all peers agree.  Method: kills under load."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    directory = tmp_path / "net"
    with running(directory) as network:
        wait_until(lambda: all(network.channel_info(peer) for peer in network.peers), what="peers to answer")
        acknowledged, height = asyncio.run(load_and_kill(network, seed))
        assert len(acknowledged) > 100, "the load went through"

        def settled() -> bool:
            return all(network.channel_info(peer).get("height") == height for peer in network.peers)

        wait_until(settled, what=f"all peers to have the orderer's {height} blocks")
    reports = [network.verify(peer) for peer in network.peers]
    assert all(level["ok"] for report in reports for level in report["levels"].values()), reports
    assert len({(report["height"], report["vblock_hash"], report["state_hash"]) for report in reports}) == 1
    assert_all_there(directory, network.peers[0], acknowledged)


def assert_all_there(directory: Path, peer: str, acknowledged: list[str]) -> None:
    """Look every acknowledged id up in a stopped peer's ledger."""
    from ledger.core.names import ChannelId, TxId
    from ledger.storage.ledger_store import LedgerStore

    store = LedgerStore.open(directory / "nodes" / peer / "data", ChannelId("demo"))
    try:
        lost = [tx_id for tx_id in acknowledged if not store.places(TxId(tx_id))]
    finally:
        store.close()
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged envelopes are in no block"
