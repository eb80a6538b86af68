"""Do three ways lead to the same ledger: there from the start, all blocks replayed, joined from a checkpoint?"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ledger.client.gateway import commit_definition, connect
from ledger.client.orderer import OrdererClient
from ledger.client.tls import ClientTls
from ledger.node.files import read
from tests.cluster.harness import LocalNetwork, peerledger, peerledger_json, wait_until

pytestmark = pytest.mark.cluster

INTERVAL_BLOCKS = 4
FIRST, SECOND = "peer0.org1.example.com", "peer0.org2.example.com"
JOINED, NEXT, REPLAYED = "peer1.org1.example.com", "peer1.org2.example.com", "peer2.org2.example.com"
LATE = (JOINED, NEXT, REPLAYED)
NEVER = "peer2.org1.example.com"


def config_of(network: LocalNetwork, peer: str) -> str:
    return str(network.directory / "nodes" / peer / "peer.yaml")


@contextlib.contextmanager
def started(network: LocalNetwork, peer: str) -> Iterator[None]:
    """Run one more peer beside the network."""
    with (network.directory / f"{peer}.log").open("wb") as log:
        command = [sys.executable, "-m", "ledger.cli.main", "peer", "start", "--config", config_of(network, peer)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


def latest_valid(network: LocalNetwork, peer: str) -> int:
    info = network.channel_info(peer)
    return -1 if not info or info["checkpoints"]["latest_valid"] is None else int(info["checkpoints"]["latest_valid"])


def url(network: LocalNetwork, peer: str, path: str) -> str:
    return f"http://{network.settings(peer)['rest_listen']}/v1/channels/demo{path}"


def tips(network: LocalNetwork, *peers: str) -> set[tuple[object, ...]]:
    infos = [network.channel_info(peer) for peer in peers]
    return {tuple(info.get(name) for name in ("height", "block_hash", "vblock_hash", "commit_hash")) for info in infos}


async def order_again(network: LocalNetwork, envelope: bytes) -> int:
    """Broadcast an envelope as a client would that does not know that it was ordered; give the orderer's status."""
    (orderer,) = network.settings(FIRST)["channels"][0]["orderers"]
    roots = read((network.directory / "nodes" / FIRST / orderer["tls_roots"]).resolve())
    client = OrdererClient(orderer["address"], ClientTls(roots))
    try:
        return (await client.broadcast(envelope))[0]
    finally:
        await client.close()


async def define(network: LocalNetwork) -> None:
    """Commit the definition of the contract."""
    async with connect(network.settings(FIRST)["grpc_listen"], network.signer(1), network.peer_tls(1)) as gateway:
        await commit_definition(gateway.network("demo"), "assets")


async def submit(network: LocalNetwork, *assets: str, organisations: Sequence[str] = ()) -> list[str]:
    """Create assets, one block each; give the ids of the transactions, whatever becomes of them."""
    found: list[str] = []
    async with connect(network.settings(FIRST)["grpc_listen"], network.signer(1), network.peer_tls(1)) as gateway:
        contract = gateway.network("demo").contract("assets")
        for asset in assets:
            submitted = await contract.submit_async("create", asset, "Anna", "5", organisations=organisations)
            await submitted.status()
            found.append(submitted.transaction_id)
    return found


def test_three_ways_lead_to_the_same_ledger(tmp_path: Path) -> None:
    """Goal: joined peers judge as the others do, and can be joined from.

    Method: valid and invalid transactions, a valid checkpoint, pruned. One peer joins from the others, the next one
    from that one alone, a third follows all blocks from the first on. More transactions, one of them a duplicate of an
    invalid one whose body is gone. All five peers agree, and sign the next checkpoint; all directories verify.
    """
    directory = tmp_path / "net"
    peerledger("network", "create", str(directory), "--orgs", "2", "--peers", "3",
               "--checkpoint-interval-blocks", str(INTERVAL_BLOCKS))  # fmt: skip
    aside = tmp_path / "aside"
    aside.mkdir()
    for peer in (*LATE, NEVER):
        (directory / "nodes" / peer).rename(aside / peer)
    network = LocalNetwork(directory)
    network.start()
    try:
        wait_until(lambda: all(network.ask(peer, "/readyz").get("ready") for peer in network.peers), what="readiness")
        asyncio.run(define(network))
        (invalid,) = asyncio.run(submit(network, "alone", organisations=["Org1MSP"]))
        valid = asyncio.run(submit(network, *[f"asset-{number}" for number in range(2 * INTERVAL_BLOCKS)]))[0]
        wait_until(lambda: min(latest_valid(network, peer) for peer in (FIRST, SECOND)) >= INTERVAL_BLOCKS,
                   what="a valid checkpoint", timeout_s=30)  # fmt: skip
        where = url(network, FIRST, f"/transactions/{invalid}/envelope?format=protobuf")
        with urllib.request.urlopen(where, timeout=10) as response:
            envelope = response.read()
        peerledger("prune", "--network", str(directory))
        assert (
            network.ask_any(FIRST, f"/v1/channels/demo/transactions/{invalid}/envelope")["type"] == "/problems/pruned"
        )

        for peer in LATE:
            (aside / peer).rename(directory / "nodes" / peer)
        report = peerledger_json("peer", "join", "--config", config_of(network, JOINED))
        assert report["checkpoint"] >= INTERVAL_BLOCKS
        assert report["warnings"] == []
        again = peerledger("peer", "join", "--config", config_of(network, JOINED), check=False)
        assert again.returncode != 0
        assert "move the folder away" in again.stderr
        with contextlib.ExitStack() as late:
            late.enter_context(started(network, JOINED))
            late.enter_context(started(network, REPLAYED))
            wait_until(lambda: network.ask(JOINED, "/readyz").get("ready"), what="the joined peer")
            address = network.settings(JOINED)["checkpoint_listen"]
            second = peerledger_json("peer", "join", "--config", config_of(network, NEXT), "--from", address)
            assert list(second["sources"]) == [address]
            late.enter_context(started(network, NEXT))

            assert asyncio.run(order_again(network, envelope)) == 200
            asyncio.run(submit(network, *[f"later-{number}" for number in range(INTERVAL_BLOCKS)]))
            everybody = (FIRST, SECOND, JOINED, NEXT, REPLAYED)
            wait_until(lambda: len(tips(network, *everybody)) == 1 and network.channel_info(NEXT), what="equal ledgers",
                       timeout_s=40)  # fmt: skip
            check_answers(network, valid, invalid)
            wanted = latest_valid(network, FIRST)
            wait_until(lambda: min(latest_valid(network, peer) for peer in everybody) >= wanted, what="one checkpoint")
            path = f"/v1/channels/demo/checkpoints/{wanted}"
            hashes = {network.ask(peer, path)["statement"]["state_hash"] for peer in everybody}
            assert len(hashes) == 1
        network.stop()
        verified = {peer: network.verify(peer) for peer in (FIRST, JOINED, REPLAYED)}
        for peer, found in verified.items():
            assert all(level["ok"] for level in found["levels"].values()), (peer, found)
        assert len({found["state_hash"] for found in verified.values()}) == 1
    except BaseException:
        print(network.logs())
        for peer in LATE:
            with contextlib.suppress(OSError):
                print(f"--- {peer}\n{(directory / f'{peer}.log').read_text()[-3000:]}")
        raise
    finally:
        network.stop()


def check_answers(network: LocalNetwork, valid: str, invalid: str) -> None:
    """What was before its checkpoint a joined peer answers by id and verdict, and says what it never had."""
    for peer in (FIRST, JOINED, REPLAYED):
        found = network.ask(peer, f"/v1/channels/demo/transactions/{invalid}")
        assert [place["verdict"] for place in found["places"]] == ["ENDORSEMENT_POLICY_FAILURE", "DUPLICATE_TXID"]
    info = network.channel_info(JOINED)
    assert info["joined_at"] == info["first_block"] > 0
    block = network.ask(JOINED, f"/v1/channels/demo/transactions/{invalid}")["places"][0]["block"]
    gone = "/problems/before-joining"
    assert network.ask_any(JOINED, f"/v1/channels/demo/blocks/{block}")["type"] == gone
    assert network.ask_any(JOINED, "/v1/channels/demo/history/assets/asset-0")["type"] == gone
    assert network.ask(REPLAYED, "/v1/channels/demo/history/assets/asset-0")["changes"]
    first, joined = (network.ask(peer, f"/v1/channels/demo/transactions/{valid}") for peer in (FIRST, JOINED))
    assert (first["block"], first["envelope"]) == (joined["block"], "whole")
    assert joined["envelope"] == "pruned"
    path = f"/v1/channels/demo/vblocks/{first['block']}"
    vblock = network.ask(JOINED, path)
    assert (vblock["envelopes"], vblock["transactions"]) == ("pruned", [])
    assert vblock["vblock_hash"] == network.ask(FIRST, path)["vblock_hash"]
