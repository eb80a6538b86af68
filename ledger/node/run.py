"""How does a node live?  All its tasks under one parent, until a signal or the first failure ends them together."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence

import grpc
import uvloop

from ledger.core.errors import LedgerError

log = logging.getLogger("peerledger.run")

GRACE_S = 2.0
"""How long calls under way may take at the end."""

Task = Callable[[], Awaitable[None]]


class Stopping(Exception):  # A normal end, raised to end the group.
    """A signal asked the node to stop."""


async def serve_grpc(server: grpc.aio.Server) -> None:
    """Serve until cancelled, then let calls under way end."""
    await server.start()
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop(GRACE_S)


async def run_tasks(tasks: Sequence[Task]) -> None:
    """Run tasks together until SIGINT, SIGTERM or the first failure.

    Raises:
        ExceptionGroup: A task failed.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)

    async def wait_for_signal() -> None:
        await asked.wait()
        raise Stopping

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_signal())
            for task in tasks:
                group.create_task(_as_coroutine(task))
    except* Stopping:
        log.info("stopping")


async def _as_coroutine(task: Task) -> None:
    await task()


def run_node(main: Callable[[], Awaitable[None]]) -> None:
    """Run a node's main coroutine on uvloop; a failure is logged and gives status 3."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_main(main))
    except* LedgerError as errors:
        log.error("failed", extra={"reason": reasons(errors)})
        sys.exit(3)
    except* Exception as errors:  # A defect: with all that is known of it.
        log.exception("failed", exc_info=errors)
        sys.exit(3)


def reasons(group: BaseExceptionGroup[BaseException]) -> str:
    """Give the reasons of a group of errors in one line."""
    found: list[str] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
        else:
            found.append(f"{type(error).__name__}: {error}")
    return "; ".join(dict.fromkeys(found))


async def _main(main: Callable[[], Awaitable[None]]) -> None:
    await main()
