"""How are nodes started?  One daemon from its file, or a whole local network under a supervisor."""

import asyncio
import json as jsonlib
import signal
import sys
from pathlib import Path

from ledger.cli.output import STATUS_WORLD, err, out
from ledger.core.errors import NotFound
from ledger.node.supervise import ChildEvent, Supervisor, node_folders


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
    given_up = asyncio.run(supervise(supervisor))
    if given_up:
        err.print(f"given up: {', '.join(given_up)}; see {directory}/logs", markup=False)
        sys.exit(STATUS_WORLD)


async def supervise(supervisor: Supervisor) -> tuple[str, ...]:
    """Run a supervisor until SIGINT or SIGTERM."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.stop)
    return await supervisor.run()
