"""The peer daemon: channels, services and doors, built leaves first and run together."""

import logging
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from ledger.client.orderer import OrdererClient
from ledger.client.tls import ClientTls
from ledger.core.errors import LedgerError
from ledger.interfaces.rest.app import create_app
from ledger.interfaces.rest.server import RestServer
from ledger.node.agreement import Agreement, make_agreement
from ledger.node.channel import Channel
from ledger.node.clock import now_ms
from ledger.node.config import PeerChannel, PeerSettings
from ledger.node.doors import make_checkpoint_door, make_door
from ledger.node.files import read
from ledger.node.rules import genesis_bundle
from ledger.node.run import Task, run_node, run_tasks, serve_grpc
from ledger.node.space import DiskSpace
from ledger.node.views import RestNode
from ledger.storage.msp_folder import SigningIdentity, load_signing_identity
from ledger.telemetry.logging import set_up_logging
from ledger.telemetry.metrics import Metrics

log = logging.getLogger("peerledger.peer")

SWITCH_INTERVAL_S = 0.001
"""How long one thread may hold the interpreter: gRPC and the commit thread share it."""


def run_peer(settings: PeerSettings) -> None:
    """Run a peer until it is told to stop."""
    set_up_logging(settings.log_level, settings.name)
    run_node(partial(peer_main, settings))


def open_channels(
    settings: PeerSettings, signer: SigningIdentity, space: DiskSpace, metrics: Metrics, stack: ExitStack
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
                chk=settings.checkpoint.interval_blocks, space=space, metrics=metrics,
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


def make_agreements(
    settings: PeerSettings, signer: SigningIdentity, channels: Mapping[str, Channel], metrics: Metrics, stack: ExitStack
) -> dict[str, Agreement]:
    """Build checkpointing and pruning of every open channel, each with a thread of its own."""
    agreements = {}
    for name, channel in channels.items():
        executor = ThreadPoolExecutor(1, "checkpoint")
        agreement = make_agreement(channel, settings, signer, executor, metrics)
        stack.callback(agreement.close)
        stack.callback(executor.shutdown, cancel_futures=True)
        agreements[name] = agreement
    return agreements


async def peer_main(settings: PeerSettings) -> None:
    """Build the peer and run it."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with ExitStack() as stack:
        signer = load_signing_identity(settings.msp_dir, settings.msp_id)
        metrics = Metrics()
        space = DiskSpace(settings.data_dir, settings.disk_reserve_bytes, metrics)
        channels, failed = open_channels(settings, signer, space, metrics, stack)
        agreements = make_agreements(settings, signer, channels, metrics, stack)
        clients, grpc_port = make_door(settings, signer, channels, stack)
        peers, checkpoint_port = make_checkpoint_door(settings, channels, agreements)
        view = RestNode(settings.name, settings.msp_id, channels, failed, agreements, space, now_ms=now_ms)
        host, _, rest_port = settings.rest_listen.rpartition(":")
        rest = RestServer(create_app(view, metrics=metrics), host=host, port=int(rest_port))
        tasks: list[Task] = [partial(follow, channel) for channel in channels.values()]
        tasks += [agreement.run for agreement in agreements.values()]
        tasks += [space.watch, rest.run, partial(serve_grpc, clients), partial(serve_grpc, peers)]
        ports = {"rest": rest.url, "grpc_port": grpc_port, "checkpoint_port": checkpoint_port}
        heights = {name: channel.height for name, channel in channels.items()}
        log.info("ready", extra=ports | {"heights": heights, "failed": failed})
        await run_tasks(tasks)


async def follow(channel: Channel) -> None:
    """Run a channel; one that stopped stays open for reading and does not end the node."""
    await channel.run()
