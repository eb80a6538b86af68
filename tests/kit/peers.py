"""Peers as clients meet them: ledger on disk, contracts in processes, endorser, gateway and events behind real TLS.

What `node.doors` and `node.peer` put together from files is put together here from the kit's organisations.
"""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Event

import grpc
from cryptography.hazmat.primitives import serialization
from fabric_protos.gateway import gateway_pb2_grpc
from fabric_protos.peer import events_pb2_grpc

from ledger.chaincode.pool import ContractPool
from ledger.chaincode.runtime import Runtime
from ledger.client.endorser import RemoteEndorser
from ledger.client.identity import KeySigner, load_signer
from ledger.client.orderer import OrdererClient
from ledger.client.tls import ClientTls
from ledger.core.identity import Msp, MspManager
from ledger.interfaces.grpc.endorser import EndorserDoor
from ledger.interfaces.grpc.gateway import GatewayDoor
from ledger.interfaces.grpc.peer_deliver import PeerDeliver
from ledger.interfaces.grpc.server import ServerTls, make_server
from ledger.node.authorities import make_authority
from ledger.node.channel import Channel as PeerChannel
from ledger.node.clock import now as wall_clock
from ledger.node.doors import LOCAL_MSP_VERSION
from ledger.node.space import DiskSpace
from ledger.services.access import Access
from ledger.services.endorser import Endorser
from ledger.services.gateway import AsksEndorser, Gateway, OwnEndorser
from ledger.storage.ledger_store import LedgerStore
from ledger.telemetry.metrics import Metrics
from ledger.wire.codec import CODEC
from tests.kit.channel import CHANNEL, Channel
from tests.kit.orderer_node import OrdererNode, batching, running_orderer
from tests.kit.organisations import Key, Organisation, Signer, shared_organisation
from tests.kit.paths import ROOT

TRIAL = "tests.kit.trial_contract:TrialContract"
ASSETS = "ledger.chaincode.contracts.assets:AssetContract"

CONTRACTS = {"trial": TRIAL, "either": TRIAL, "second": TRIAL, "two": TRIAL, "nobody": TRIAL, "assets": ASSETS}
"""What the peers of these tests can run."""

ORGANISATIONS = (shared_organisation("Org1MSP"), shared_organisation("Org2MSP"))
Now = Callable[[], datetime.datetime]


@contextlib.contextmanager
def running_pool(workers: int = 2) -> Iterator[ContractPool]:
    """Run the contracts; peers may share them."""
    pool = ContractPool(CONTRACTS, workers=workers, memory_bytes_max=512 << 20, search_path=(str(ROOT),))
    pool.start()
    try:
        yield pool
    finally:
        pool.close()


def local_msps(organisation: Organisation) -> MspManager:
    return MspManager([Msp(organisation.msp_config(), LOCAL_MSP_VERSION)], CODEC.serialized_identity)


@cache
def server_tls() -> ServerTls:
    """A certificate for all servers of these tests."""
    authority = make_authority("tlsca", "test", datetime.datetime.now(datetime.UTC))
    made = authority.issue("peer", None, ("localhost", "127.0.0.1"))
    return ServerTls(made.certificate, made.key, authority.credential.certificate)


def client_tls() -> ClientTls:
    return ClientTls(server_tls().client_roots)


def key_pem(key: Key, password: bytes | None = None) -> bytes:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def wallet(signer: Signer) -> KeySigner:
    """An identity as an application loads it."""
    return load_signer(signer.msp_id, signer.certificate, key_pem(signer.private_key))


@dataclass
class Peer:
    """A peer's ledger and endorser, without doors."""

    organisation: Organisation
    channel: PeerChannel
    endorser: Endorser
    simulations: ThreadPoolExecutor

    @property
    def name(self) -> str:
        return f"peer0.{self.organisation.msp_id}"

    @property
    def signer(self) -> Signer:
        return self.organisation.peer

    @property
    def store(self) -> LedgerStore:
        return self.channel.store

    @property
    def channels(self) -> Mapping[str, PeerChannel]:
        return {CHANNEL: self.channel}


@contextlib.contextmanager
def open_peer(
    directory: Path,
    organisation: Organisation,
    genesis: bytes,
    pool: ContractPool,
    *,
    orderers: Sequence[OrdererClient] = (),
    now: Now = wall_clock,
    chk: int = 100,
) -> Iterator[Peer]:
    """Open a peer of the kit's channel; it follows nobody before `channel.run`."""
    with ExitStack() as stack:
        space = DiskSpace(directory, reserve_bytes=0)
        channel = PeerChannel(directory, genesis, organisation.peer, orderers, chk=chk, space=space, metrics=Metrics())
        stack.callback(channel.close)
        channels, msps = {CHANNEL: channel}, local_msps(organisation)
        access = Access(channels, msps, organisation.msp_id)
        runtime = Runtime(pool, organisation.msp_id, {CHANNEL: channel.store}, access)
        simulations = stack.enter_context(ThreadPoolExecutor(4, "simulate"))
        yield Peer(organisation, channel, Endorser(organisation.peer, channels, runtime, now, msps), simulations)


@dataclass
class ServingPeer(Peer):
    """A peer behind its door."""

    server: grpc.aio.Server
    address: str

    def own(self) -> OwnEndorser:
        """This peer, for its gateway."""
        return OwnEndorser(self.name, self.organisation.msp_id, self.address, self.endorser, self.simulations)

    def remote(self) -> RemoteEndorser:
        """This peer, for the others' gateways."""
        return RemoteEndorser(self.name, self.organisation.msp_id, self.address, client_tls())

    def gateway(self, *others: AsksEndorser) -> Gateway:
        """A gateway of this peer that asks others."""
        return Gateway(self.own(), others, self.channels, self.simulations)

    async def serve(self, gateway: Gateway, now: Now = wall_clock) -> None:
        """Open the door."""
        self.server.add_generic_rpc_handlers((EndorserDoor(self.endorser, self.simulations).handler(),))
        gateway_pb2_grpc.add_GatewayServicer_to_server(GatewayDoor(gateway), self.server)
        events_pb2_grpc.add_DeliverServicer_to_server(PeerDeliver(self.channels, now), self.server)
        await self.server.start()


def with_door(peer: Peer) -> ServingPeer:
    """Bind a port for a peer."""
    server, port = make_server("127.0.0.1:0", server_tls())
    return ServingPeer(peer.organisation, peer.channel, peer.endorser, peer.simulations, server, f"localhost:{port}")


@contextlib.asynccontextmanager
async def served(peer: Peer, now: Now = wall_clock) -> AsyncIterator[ServingPeer]:
    """Serve one peer that knows no other."""
    serving = with_door(peer)
    await serving.serve(serving.gateway(), now)
    try:
        yield serving
    finally:
        await serving.server.stop(0)


@dataclass
class PeerNetwork:
    """An orderer and a peer of each of two organisations."""

    orderer: OrdererNode
    first: ServingPeer
    second: ServingPeer
    to_first: RemoteEndorser
    to_second: RemoteEndorser
    gateway: Gateway
    """Of the first peer; it knows the second."""

    async def level(self) -> int:
        """Wait until both peers have every ordered block; give the height."""
        height = self.orderer.orderer.height
        for peer in (self.first, self.second):
            await peer.channel.wait_above(height - 1)
        return height

    def ordered(self) -> int:
        """Count the envelopes that the orderer has put into blocks."""
        return sum(len(self.orderer.block(number).envelopes) for number in range(self.orderer.orderer.height))


@contextlib.contextmanager
def commits_held(*peers: Peer) -> Iterator[Event]:
    """Keep peers from committing until the event is set or the block ends; they go on endorsing."""
    release = Event()
    for peer in peers:
        peer.channel._commits.submit(release.wait)
    try:
        yield release
    finally:
        release.set()


@contextlib.asynccontextmanager
async def running_network(directory: Path, pool: ContractPool) -> AsyncIterator[PeerNetwork]:
    """Run an orderer and two peers that follow it, in this process."""
    async with contextlib.AsyncExitStack() as stack:
        tree = batching(Channel(ORGANISATIONS).tree, timeout="50ms")
        orderer = await stack.enter_async_context(running_orderer(directory / "orderer", tree))
        orderer.clock.time = wall_clock()
        peers = []
        for organisation in ORGANISATIONS:
            client = OrdererClient(orderer.address, ClientTls(orderer.tls_roots))
            stack.push_async_callback(client.close)
            genesis = orderer.orderer.block_bytes(orderer.orderer.first_block)
            peer = stack.enter_context(
                open_peer(directory / organisation.msp_id, organisation, genesis, pool, orderers=[client])
            )
            peers.append(with_door(peer))
        first, second = peers
        links = [peer.remote() for peer in peers]
        for link in links:
            stack.push_async_callback(link.close)
        gateway = first.gateway(links[1])
        await first.serve(gateway)
        await second.serve(second.gateway(links[0]))
        for peer in peers:
            stack.push_async_callback(peer.server.stop, 0)
            stack.push_async_callback(ended, asyncio.create_task(peer.channel.run()))
        yield PeerNetwork(orderer, first, second, links[0], links[1], gateway)


async def ended(task: "asyncio.Task[None]") -> None:
    """End a task."""
    task.cancel()
    await asyncio.wait({task})


__all__ = [
    "ORGANISATIONS",
    "Peer",
    "PeerNetwork",
    "ServingPeer",
    "client_tls",
    "commits_held",
    "key_pem",
    "open_peer",
    "running_network",
    "running_pool",
    "served",
    "wallet",
]
