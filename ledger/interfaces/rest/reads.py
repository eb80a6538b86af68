"""How is the ledger read without stopping the event loop, and without waiting for ever?

Reads block on the disk, so they run on threads of this door's own: a few, with a bound on how many may wait. A read
that takes longer than its time is answered with `Busy`; its thread goes on until the disk answers, and counts as taken
until then, so that a disk that hangs fills the bound and then every request is refused at once.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import TypeVar

from ledger.core.errors import Busy

Answer = TypeVar("Answer")


class Reads:
    """The threads of the REST door.

    Args:
        timeout_ms: Time for one read, waiting for a thread included.
        thread_count: Threads that read.
        pending_max: Reads that may run or wait.
    """

    def __init__(self, *, timeout_ms: int, thread_count: int = 4, pending_max: int = 64) -> None:
        """Make the threads' pool; threads start with the first reads."""
        self.timeout_ms = timeout_ms
        self._places = BoundedSemaphore(pending_max)
        self._executor = ThreadPoolExecutor(thread_count, thread_name_prefix="rest-reads")

    async def run(self, read: Callable[[], Answer], *, timeout_ms: int | None = None) -> Answer:
        """Run a read on a thread and return its answer.

        Args:
            read: What to do there.
            timeout_ms: Time for it where the usual time is too short.

        Raises:
            Busy: Too many reads are pending, or this one took too long.

        Cancellation: A read that has begun goes on to its end; its answer is dropped.
        """
        if not self._places.acquire(blocking=False):
            raise Busy("too many requests are reading the ledger")
        try:
            future = self._executor.submit(read)
        except RuntimeError as error:
            self._places.release()
            raise Busy("the node is stopping") from error
        future.add_done_callback(self._leave)
        time_ms = timeout_ms if timeout_ms is not None else self.timeout_ms
        try:
            async with asyncio.timeout(time_ms / 1000) as limit:
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Busy(f"the ledger did not answer within {time_ms} ms") from error

    def _leave(self, _: "Future[Answer]") -> None:
        self._places.release()

    def close(self) -> None:
        """Take no more reads, drop those that wait; those that run end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)
