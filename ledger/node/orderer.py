"""The orderer daemon: logs, embedded orderers and one gRPC server, built leaves first and run together."""

import logging
from contextlib import ExitStack
from functools import partial

from fabric_protos.orderer import ab_pb2_grpc

from ledger.interfaces.grpc.orderer import AtomicBroadcast
from ledger.interfaces.grpc.server import make_server, read_tls
from ledger.node.clock import now
from ledger.node.config import OrdererSettings
from ledger.node.files import read
from ledger.node.rules import genesis_bundle
from ledger.node.run import Task, run_node, run_tasks, serve_grpc
from ledger.node.space import DiskSpace
from ledger.services.ordering.embedded import EmbeddedOrderer
from ledger.storage.msp_folder import load_signing_identity
from ledger.storage.order_log import OrderLog
from ledger.telemetry.logging import set_up_logging
from ledger.wire.codec import CODEC

log = logging.getLogger("peerledger.orderer")


def run_orderer(settings: OrdererSettings) -> None:
    """Run an orderer until it is told to stop."""
    set_up_logging(settings.log_level, settings.name)
    run_node(partial(orderer_main, settings))


async def orderer_main(settings: OrdererSettings) -> None:
    """Build the orderer and run it."""
    with ExitStack() as stack:
        signer = load_signing_identity(settings.msp_dir, settings.msp_id)
        space = DiskSpace(settings.data_dir, settings.disk_reserve_bytes)
        orderers: dict[str, EmbeddedOrderer] = {}
        for channel in settings.channels:
            genesis = read(channel.genesis)
            name = genesis_bundle(genesis).channel_id
            order_log = OrderLog(settings.data_dir / "channels" / name)
            stack.callback(order_log.close)
            orderers[name] = EmbeddedOrderer(order_log, genesis, signer, CODEC, now, lambda: space.shortage)
        tls = read_tls(settings.tls.certificate, settings.tls.key, settings.tls.roots)
        server, port = make_server(settings.grpc_listen, tls)
        ab_pb2_grpc.add_AtomicBroadcastServicer_to_server(AtomicBroadcast(orderers, now), server)
        tasks: list[Task] = [orderer.run for orderer in orderers.values()]
        tasks += [space.watch, partial(serve_grpc, server)]
        heights = {name: orderer.height for name, orderer in orderers.items()}
        log.info("ready", extra={"grpc_port": port, "heights": heights})
        await run_tasks(tasks)
