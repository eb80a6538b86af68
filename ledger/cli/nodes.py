"""How are nodes started?  One daemon from its file, or a whole local network under a supervisor."""

import asyncio
import json as jsonlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ledger.cli.connection import Target, request
from ledger.cli.output import STATUS_WORLD, err, out
from ledger.core.errors import LedgerError, NotFound
from ledger.node.supervise import ChildEvent, Supervisor, node_folders

READY_PAUSE_S = 0.2
"""Pause before a peer is asked again whether it is ready."""


def orderer_start(*, config: Path) -> None:
    """Run an orderer until it is told to stop.

    Args:
        config: Its configuration file, orderer.yaml.
    """
    from ledger.node.config import load_orderer_settings
    from ledger.node.orderer import run_orderer

    run_orderer(load_orderer_settings(config))


def peer_start(*, config: Path) -> None:
    """Run a peer until it is told to stop.

    Args:
        config: Its configuration file, peer.yaml.
    """
    from ledger.node.config import load_peer_settings
    from ledger.node.peer import run_peer

    run_peer(load_peer_settings(config))


def up(directory: Path, /, *, json: bool = False) -> None:
    """Run all nodes of a network directory until interrupted.

    Logs go to DIR/logs/NODE.log, process ids to DIR/run/NODE.pid. A node that dies is started again.

    Args:
        directory: A directory made by `peerledger network create`.
        json: Print events as JSON lines.
    """
    nodes = node_folders(directory)
    if not nodes:
        raise NotFound(f"{directory} holds no nodes; make a network with: peerledger network create {directory}")

    def tell(event: ChildEvent) -> None:
        if json:
            line = {"node": event.name, "event": event.what, "detail": event.detail}
            sys.stdout.write(jsonlib.dumps(line) + "\n")
            sys.stdout.flush()
        else:
            out.print(f"{event.name}: {event.what} {event.detail}".rstrip(), markup=False)

    supervisor = Supervisor(directory, nodes, tell)
    if not json:
        err.print(f"running {len(nodes)} nodes of {directory}; Ctrl-C stops them", markup=False)
    peers = [Target(directory, node.name) for node in nodes if node.kind == "peer"]
    given_up = asyncio.run(supervise(supervisor, peers))
    if given_up:
        err.print(f"given up: {', '.join(given_up)}; see {directory}/logs", markup=False)
        sys.exit(STATUS_WORLD)


async def supervise(supervisor: Supervisor, peers: Sequence[Target]) -> tuple[str, ...]:
    """Run a supervisor until SIGINT or SIGTERM, and tell when each peer is ready for the first time."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.stop)
    waiting = [asyncio.create_task(tell_when_ready(supervisor, peer)) for peer in peers]
    try:
        return await supervisor.run()
    finally:
        for task in waiting:
            task.cancel()


async def tell_when_ready(supervisor: Supervisor, peer: Target) -> None:
    """Ask a peer again and again whether it is useful; tell once it is."""
    while not await asyncio.to_thread(is_ready, peer):  # noqa: ASYNC110  # It is another process: no event tells.
        await asyncio.sleep(READY_PAUSE_S)
    supervisor.tell(ChildEvent(str(peer.peer), "ready", peer.rest_url()))


def is_ready(peer: Target) -> bool:
    """Tell whether a peer answers and is useful."""
    try:
        return bool(request(f"{peer.rest_url()}/readyz")["ready"])
    except LedgerError:
        return False
