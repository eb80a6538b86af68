"""How does a peer's gRPC door come to be?  Contracts, endorser, gateway and events, put together behind one server."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

import grpc
from fabric_protos.gateway import gateway_pb2_grpc
from fabric_protos.peer import events_pb2_grpc

from ledger.chaincode.pool import ContractPool
from ledger.chaincode.runtime import Runtime
from ledger.client.endorser import RemoteEndorser
from ledger.client.tls import ClientTls
from ledger.core.identity import Msp, MspManager
from ledger.interfaces.grpc.checkpointing import CheckpointingDoor
from ledger.interfaces.grpc.comparing import ComparingDoor
from ledger.interfaces.grpc.endorser import EndorserDoor
from ledger.interfaces.grpc.gateway import GatewayDoor
from ledger.interfaces.grpc.joining import JoiningDoor
from ledger.interfaces.grpc.peer_deliver import PeerDeliver
from ledger.interfaces.grpc.server import make_mutual_server, make_server, read_tls
from ledger.node.agreement import Agreement
from ledger.node.channels import Channels
from ledger.node.clock import now
from ledger.node.config import PeerSettings
from ledger.node.files import read
from ledger.services.access import Access
from ledger.services.endorser import Endorser
from ledger.services.gateway import Gateway, OwnEndorser
from ledger.storage.msp_folder import SigningIdentity, msp_config_from_folder
from ledger.wire.codec import CODEC

LOCAL_MSP_VERSION = (3, 0, 0)
"""Version of the membership rules for calls without channel, as on Fabric's 3.x peers."""

Service = TypeVar("Service")

JOIN_ANSWERS = 2
"""Answers to joiners that are prepared at once."""

BUILT_IN_CALLS = 4
"""Proposals to built-in chaincodes that are answered beside those that the contract workers run."""


def connect_endorsers(settings: PeerSettings) -> list[RemoteEndorser]:
    """Make connections to the other peers; they open when used."""
    return [RemoteEndorser(one.name, one.msp_id, one.address, ClientTls(read(one.tls_roots))) for one in settings.peers]


def local_msps(settings: PeerSettings) -> MspManager:
    """Give the membership rules of the peer's own organisation, from its MSP folder."""
    own = Msp(msp_config_from_folder(settings.msp_dir, settings.msp_id), LOCAL_MSP_VERSION)
    return MspManager([own], CODEC.serialized_identity)


def start_pool(settings: PeerSettings, stack: ExitStack) -> ContractPool:
    """Start the processes that run contracts; raises `InvalidSetting`."""
    pool = ContractPool(
        settings.contracts,
        workers=settings.contract_pool.workers,
        execute_timeout_ms=settings.contract_pool.execute_timeout_ms,
        memory_bytes_max=settings.contract_pool.memory_bytes_max,
        search_path=tuple(str(folder) for folder in settings.contract_pool.search_path),
    )
    pool.start()
    stack.callback(pool.close)
    return pool


def make_door(
    settings: PeerSettings, signer: SigningIdentity, channels: Channels, stack: ExitStack
) -> tuple[grpc.aio.Server, int]:
    """Build endorser, gateway and event delivery behind one gRPC server; give it and its port."""
    pool = start_pool(settings, stack)
    msps = local_msps(settings)
    opened = channels.opened
    runtime = Runtime(pool, settings.msp_id, channels.ledgers, Access(opened, msps, settings.msp_id))
    simulations = ThreadPoolExecutor(pool.worker_count + BUILT_IN_CALLS, "simulate")
    stack.callback(simulations.shutdown, cancel_futures=True)
    endorser = Endorser(signer, opened, runtime, now, msps)
    own = OwnEndorser(settings.name, settings.msp_id, settings.grpc_listen, endorser, simulations)
    gateway = Gateway(own, connect_endorsers(settings), opened, simulations)

    tls = read_tls(settings.tls.certificate, settings.tls.key, settings.tls.roots)
    server, port = make_server(settings.grpc_listen, tls)
    server.add_generic_rpc_handlers((EndorserDoor(endorser, simulations).handler(),))
    gateway_pb2_grpc.add_GatewayServicer_to_server(GatewayDoor(gateway), server)
    events_pb2_grpc.add_DeliverServicer_to_server(PeerDeliver(opened, now), server)
    return server, port


def make_checkpoint_door(settings: PeerSettings, channels: Channels, stack: ExitStack) -> tuple[grpc.aio.Server, int]:
    """Build the door for other peers, behind mutual TLS: checkpoints, joining, comparing; give it and its port."""
    tls = read_tls(settings.tls.certificate, settings.tls.key, settings.tls.roots)
    server, port = make_mutual_server(settings.checkpoint_listen, tls)
    answering = ThreadPoolExecutor(JOIN_ANSWERS, "join")
    stack.callback(answering.shutdown, cancel_futures=True)
    talkers = Each(channels.agreements, lambda agreement: agreement.checkpointing)
    sources = Each(channels.agreements, lambda agreement: agreement.joining)
    comparers = Each(channels.agreements, lambda agreement: agreement.comparing)
    server.add_generic_rpc_handlers(
        (
            CheckpointingDoor(channels.opened, talkers).handler(),
            JoiningDoor(channels.opened, sources, answering).handler(),
            ComparingDoor(channels.opened, comparers, answering).handler(),
        )
    )
    return server, port


class Each(Mapping[str, Service]):
    """One service of each open channel, as it is at each call.

    Args:
        agreements: The services of the open channels.
        pick: Picks the one.
    """

    def __init__(self, agreements: Mapping[str, Agreement], pick: Callable[[Agreement], Service]) -> None:
        """Take the services."""
        self._agreements = agreements
        self._pick = pick

    def __getitem__(self, channel_id: str) -> Service:
        return self._pick(self._agreements[channel_id])

    def __iter__(self) -> Iterator[str]:
        return iter(self._agreements)

    def __len__(self) -> int:
        return len(self._agreements)
