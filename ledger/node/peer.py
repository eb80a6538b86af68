"""The peer daemon: channels, services and doors, built leaves first and run together."""

import logging
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import grpc
from fabric_protos.gateway import gateway_pb2_grpc
from fabric_protos.peer import events_pb2_grpc

from ledger.chaincode.pool import ContractPool
from ledger.chaincode.runtime import Runtime
from ledger.client.endorser import RemoteEndorser
from ledger.client.orderer import OrdererClient
from ledger.client.tls import ClientTls
from ledger.core.errors import LedgerError
from ledger.core.identity import Msp, MspManager
from ledger.interfaces.grpc.endorser import EndorserDoor
from ledger.interfaces.grpc.gateway import GatewayDoor
from ledger.interfaces.grpc.peer_deliver import PeerDeliver
from ledger.interfaces.grpc.server import make_server, read_tls
from ledger.interfaces.rest.app import create_app
from ledger.interfaces.rest.server import RestServer
from ledger.node.channel import Channel
from ledger.node.clock import now, now_ms
from ledger.node.config import PeerChannel, PeerSettings
from ledger.node.files import read
from ledger.node.rules import genesis_bundle
from ledger.node.run import Task, run_node, run_tasks, serve_grpc
from ledger.node.views import RestNode
from ledger.services.access import Access
from ledger.services.endorser import Endorser
from ledger.services.gateway import Gateway, OwnEndorser
from ledger.storage.msp_folder import SigningIdentity, load_signing_identity, msp_config_from_folder
from ledger.telemetry.logging import set_up_logging
from ledger.telemetry.metrics import Metrics
from ledger.wire.codec import CODEC

log = logging.getLogger("peerledger.peer")

LOCAL_MSP_VERSION = (3, 0, 0)
"""Version of the membership rules for calls without channel, as on Fabric's 3.x peers."""

BUILT_IN_CALLS = 4
"""Proposals to built-in chaincodes that are answered beside those that the contract workers run."""

SWITCH_INTERVAL_S = 0.001
"""How long one thread may hold the interpreter: gRPC and the commit thread share it."""


def run_peer(settings: PeerSettings) -> None:
    """Run a peer until it is told to stop."""
    set_up_logging(settings.log_level, settings.name)
    run_node(partial(peer_main, settings))


def open_channels(
    settings: PeerSettings, signer: SigningIdentity, metrics: Metrics, stack: ExitStack
) -> tuple[dict[str, Channel], dict[str, str]]:
    """Open every channel; one that can't be opened does not stop the others.

    Returns:
        The open channels, and for each of the others why it did not open.
    """
    channels: dict[str, Channel] = {}
    failed: dict[str, str] = {}
    for setting in settings.channels:
        genesis = read(setting.genesis)
        name = genesis_bundle(genesis).channel_id
        try:
            channel = Channel(
                settings.data_dir, genesis, signer, connect_orderers(settings, setting),
                chk=settings.checkpoint.interval_blocks, metrics=metrics,
            )  # fmt: skip
        except LedgerError as error:
            failed[name] = str(error)
            log.error("channel_failed", extra={"channel": name, "reason": str(error)})
            continue
        stack.callback(channel.close)
        channels[name] = channel
    return channels, failed


def connect_orderers(settings: PeerSettings, channel: PeerChannel) -> list[OrdererClient]:
    """Make connections to the orderers of a channel; they open when used."""
    own, key = read(settings.tls.certificate), read(settings.tls.key)
    return [OrdererClient(one.address, ClientTls(read(one.tls_roots), own, key)) for one in channel.orderers]


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
    settings: PeerSettings, signer: SigningIdentity, channels: Mapping[str, Channel], stack: ExitStack
) -> tuple[grpc.aio.Server, int]:
    """Build endorser, gateway and event delivery behind one gRPC server; give it and its port."""
    pool = start_pool(settings, stack)
    msps = local_msps(settings)
    runtime = Runtime(
        pool,
        settings.msp_id,
        {name: channel.store for name, channel in channels.items()},
        Access(channels, msps, settings.msp_id),
    )
    simulations = ThreadPoolExecutor(pool.worker_count + BUILT_IN_CALLS, "simulate")
    stack.callback(simulations.shutdown, cancel_futures=True)
    endorser = Endorser(signer, channels, runtime, now, msps)
    own = OwnEndorser(settings.name, settings.msp_id, settings.grpc_listen, endorser, simulations)
    gateway = Gateway(own, connect_endorsers(settings), channels, simulations)

    tls = read_tls(settings.tls.certificate, settings.tls.key, settings.tls.roots)
    server, port = make_server(settings.grpc_listen, tls)
    server.add_generic_rpc_handlers((EndorserDoor(endorser, simulations).handler(),))
    gateway_pb2_grpc.add_GatewayServicer_to_server(GatewayDoor(gateway), server)
    events_pb2_grpc.add_DeliverServicer_to_server(PeerDeliver(channels, now), server)
    return server, port


async def peer_main(settings: PeerSettings) -> None:
    """Build the peer and run it."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with ExitStack() as stack:
        signer = load_signing_identity(settings.msp_dir, settings.msp_id)
        metrics = Metrics()
        channels, failed = open_channels(settings, signer, metrics, stack)
        server, port = make_door(settings, signer, channels, stack)
        view = RestNode(
            settings.name, settings.msp_id, channels, failed,
            pruning_mode=settings.pruning.mode, keep_blocks=settings.pruning.keep_blocks_min, now_ms=now_ms,
        )  # fmt: skip
        host, _, rest_port = settings.rest_listen.rpartition(":")
        rest = RestServer(create_app(view, metrics=metrics), host=host, port=int(rest_port))
        tasks: list[Task] = [partial(follow, channel) for channel in channels.values()]
        tasks += [rest.run, partial(serve_grpc, server)]
        heights = {name: channel.height for name, channel in channels.items()}
        log.info("ready", extra={"rest": rest.url, "grpc_port": port, "heights": heights, "failed": failed})
        await run_tasks(tasks)


async def follow(channel: Channel) -> None:
    """Run a channel; one that stopped stays open for reading and does not end the node."""
    await channel.run()
