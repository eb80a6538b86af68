"""How does one command run a whole local network?  As child processes, each with a parent that watches it.

A node's folder `nodes/NAME/` holds `orderer.yaml` or `peer.yaml`; each becomes one child that writes its log lines to
`logs/NAME.log` and its process id to `run/NAME.pid`. A child that dies is started again with growing pauses; one that
fails soon after each start is given up after a few tries, one that refuses (status 2: a misspelt setting) at once, with
the last lines of its log; one that a signal ended is always started again. When the supervisor ends, for whatever
reason, its children end: each is told with SIGTERM, and SIGKILL follows if it does not listen.
"""

import asyncio
import contextlib
import ctypes
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

STOP_TIMEOUT_S = 15.0
"""Seconds that a child has between SIGTERM and SIGKILL."""

RESTART_PAUSE_S_MAX = 5.0
"""Longest pause before a child is started again."""

QUICK_FAILURES_MAX = 5
"""So many ends in a row, each within `QUICK_S` of the start, and the child is given up."""

QUICK_S = 10.0
"""A child that ends sooner than this did not start; a busy machine takes some seconds to load it."""

STATUS_REFUSED = 2
"""A child that ends so would do it again, however long its start took."""

PR_SET_PDEATHSIG = 1
"""Linux prctl: the signal that a process gets when its parent dies."""


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """One node of a local network."""

    name: str
    kind: str
    """`orderer` or `peer`."""

    config: Path
    """Its configuration file."""


@dataclass(frozen=True, slots=True)
class ChildEvent:
    """Something that happened to a child, for the supervisor's own output."""

    name: str
    what: str
    """`started`, `ready`, `ended`, `gave up` or `stopped`."""

    detail: str = ""


def node_folders(network: Path) -> tuple[NodeFolder, ...]:
    """List the nodes of a network directory, orderers first.

    Args:
        network: A directory made by `peerledger network create`.

    Returns:
        The nodes; empty if the directory holds none.
    """
    found = [
        NodeFolder(path.parent.name, kind, path)
        for kind in ("orderer", "peer")
        for path in sorted((network / "nodes").glob(f"*/{kind}.yaml"))
    ]
    return tuple(found)


def end_with_parent() -> None:
    """Ask the kernel, in the child, for SIGTERM when the supervisor dies, even by SIGKILL (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Supervisor:
    """Runs the nodes of a local network until told to stop.

    Args:
        network: The network's directory.
        nodes: The nodes to run.
        tell: Called with every event, on the loop.
    """

    def __init__(self, network: Path, nodes: Sequence[NodeFolder], tell: Callable[[ChildEvent], None]) -> None:
        """Prepare; nothing runs yet."""
        self.network = network
        self.nodes = tuple(nodes)
        self.tell = tell
        self.stopping = asyncio.Event()

    def stop(self) -> None:
        """End all children; `run` returns when they have ended."""
        self.stopping.set()

    async def run(self) -> tuple[str, ...]:
        """Run all nodes until `stop` is called or every one has been given up.

        Returns:
            Names of the nodes that were given up.

        Cancellation: the children are ended before the cancellation goes on.
        """
        for folder in ("logs", "run"):
            (self.network / folder).mkdir(exist_ok=True)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._keep_running(node), name=node.name) for node in self.nodes]
        return tuple(task.get_name() for task in tasks if task.result())

    async def _keep_running(self, node: NodeFolder) -> bool:
        """Run one node again and again; return True if it was given up."""
        quick_failures = 0
        while not self.stopping.is_set():
            started = asyncio.get_running_loop().time()
            status = await self._run_once(node)
            if self.stopping.is_set():
                self.tell(ChildEvent(node.name, "stopped"))
                return False
            quick = asyncio.get_running_loop().time() - started < QUICK_S
            quick_failures = quick_failures + 1 if quick and status > 0 else 0
            self.tell(ChildEvent(node.name, "ended", f"status {status}"))
            if quick_failures >= QUICK_FAILURES_MAX or status == STATUS_REFUSED:
                self.tell(ChildEvent(node.name, "gave up", self._last_lines(node)))
                return True
            pause = min(RESTART_PAUSE_S_MAX, 0.2 * 2**quick_failures)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.stopping.wait()
        return False

    async def _run_once(self, node: NodeFolder) -> int:
        """Run one child to its end, or end it when the supervisor stops."""
        command = [sys.executable, "-m", "ledger.cli.main", node.kind, "start", "--config", str(node.config)]
        with self._log(node).open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent
            )
        pid_file = self.network / "run" / f"{node.name}.pid"
        try:
            pid_file.write_text(f"{child.pid}\n")
            self.tell(ChildEvent(node.name, "started", f"pid {child.pid}"))
            return await self._wait(child)
        finally:
            await self._end(child)
            pid_file.unlink(missing_ok=True)

    async def _wait(self, child: asyncio.subprocess.Process) -> int:
        """Wait until the child ends or the supervisor stops; give its status, 0 if it is still running."""
        ended = asyncio.create_task(child.wait())
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            stopping.cancel()
        return child.returncode if child.returncode is not None else 0

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        """Make sure that the child has ended."""
        if child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await child.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    def _log(self, node: NodeFolder) -> Path:
        return self.network / "logs" / f"{node.name}.log"

    def _last_lines(self, node: NodeFolder, count: int = 5) -> str:
        lines = self._log(node).read_text(errors="replace").splitlines()
        return "\n".join(lines[-count:])
