"""The peer daemon: channels, services and doors, built leaves first and run together."""

import logging
import sys
from contextlib import ExitStack
from functools import partial

from ledger.client.orderer import OrdererClient
from ledger.client.tls import ClientTls
from ledger.interfaces.rest.app import create_app
from ledger.interfaces.rest.server import RestServer
from ledger.node.channels import Channels
from ledger.node.clock import now_ms
from ledger.node.config import PeerChannel, PeerSettings
from ledger.node.doors import make_checkpoint_door, make_door
from ledger.node.files import read
from ledger.node.rules import genesis_bundle
from ledger.node.run import Task, run_node, run_tasks, serve_grpc
from ledger.node.space import DiskSpace
from ledger.node.views import RestNode
from ledger.storage.msp_folder import load_signing_identity
from ledger.telemetry.logging import set_up_logging
from ledger.telemetry.metrics import Metrics

log = logging.getLogger("peerledger.peer")

SWITCH_INTERVAL_S = 0.001
"""How long one thread may hold the interpreter: gRPC and the commit thread share it."""


def run_peer(settings: PeerSettings) -> None:
    """Run a peer until it is told to stop."""
    set_up_logging(settings.log_level, settings.name)
    run_node(partial(peer_main, settings))


def connect_orderers(settings: PeerSettings, channel: PeerChannel) -> list[OrdererClient]:
    """Make connections to the orderers of a channel; they open when used."""
    own, key = read(settings.tls.certificate), read(settings.tls.key)
    return [OrdererClient(one.address, ClientTls(read(one.tls_roots), own, key)) for one in channel.orderers]


async def peer_main(settings: PeerSettings) -> None:
    """Build the peer and run it."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with ExitStack() as ledgers, ExitStack() as stack:
        signer = load_signing_identity(settings.msp_dir, settings.msp_id)
        metrics = Metrics()
        space = DiskSpace(settings.data_dir, settings.disk_reserve_bytes, metrics)
        channels = Channels(settings, signer, space, metrics, ledgers)
        clients, grpc_port = make_door(settings, signer, channels, stack)
        peers, checkpoint_port = make_checkpoint_door(settings, channels, stack)
        view = RestNode(settings.name, settings.msp_id, channels, space, now_ms=now_ms)
        host, _, rest_port = settings.rest_listen.rpartition(":")
        rest = RestServer(create_app(view, metrics=metrics), host=host, port=int(rest_port))
        tasks: list[Task] = []
        for setting in settings.channels:
            genesis = read(setting.genesis)
            name = genesis_bundle(genesis).channel_id
            tasks.append(partial(channels.run, name, genesis, connect_orderers(settings, setting)))
        tasks += [space.watch, rest.run, partial(serve_grpc, clients), partial(serve_grpc, peers)]
        log.info("ready", extra={"rest": rest.url, "grpc_port": grpc_port, "checkpoint_port": checkpoint_port})
        await run_tasks(tasks)
