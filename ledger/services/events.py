"""Who hears of new blocks and transactions?  Feeds: the commit thread publishes, tasks on the loop wait."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

from ledger.core.errors import ChannelStopped
from ledger.core.names import BlockNumber, TxId


class BlockFeed:
    """The height of a channel, for everybody who waits for it to grow.

    Args:
        height: Height at the start.
    """

    def __init__(self, height: int = 0) -> None:
        """Stand at a height; nobody waits yet."""
        self._lock = threading.Lock()
        self._height = height
        self._waiting: dict[asyncio.Future[None], tuple[asyncio.AbstractEventLoop, int]] = {}

    @property
    def height(self) -> int:
        """Number of blocks that are durable."""
        return self._height

    def publish(self, height: int) -> None:
        """Tell everybody of a new height; from any thread."""
        with self._lock:
            self._height = max(self._height, height)
            due = [(future, loop) for future, (loop, least) in self._waiting.items() if least < self._height]
            for future, _ in due:
                del self._waiting[future]
        for future, loop in due:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, future)

    async def wait_above(self, height: int) -> int:
        """Wait until the height is above `height`; give it.  Set a time-out around it.

        Cancellation: nothing is left behind.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._height > height:
                return self._height
            future: asyncio.Future[None] = loop.create_future()
            self._waiting[future] = (loop, height)
        try:
            await future
        finally:
            with self._lock:
                self._waiting.pop(future, None)
        return self._height


class Committed(NamedTuple):
    """What became of a transaction."""

    verdict: int
    """Its validation code."""

    block: BlockNumber


class TransactionFeed:
    """The verdicts of a channel, for everybody who waits for a transaction.  The first of an id counts."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[asyncio.Future[Committed], asyncio.AbstractEventLoop]]] = {}
        self._ended = ""

    def publish(self, number: BlockNumber, tx_ids: Sequence[TxId], verdicts: bytes) -> None:
        """Tell who waits for transactions of a durable block; from any thread."""
        if not self._waiting:
            return
        with self._lock:
            due = [
                (waiter, Committed(verdict, number))
                for tx_id, verdict in zip(tx_ids, verdicts, strict=True)
                for waiter in self._waiting.pop(tx_id, ())
            ]
        for (future, loop), committed in due:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_answer, future, committed)

    def end(self, reason: str) -> None:
        """Tell everybody, now and later, that no further transaction will be committed; on the event loop."""
        with self._lock:
            self._ended = reason
            waiters = [waiter for found in self._waiting.values() for waiter in found]
            self._waiting.clear()
        for future, loop in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_fail, future, reason)

    async def wait(self, tx_id: TxId, look: Callable[[], Committed | None], executor: Executor) -> Committed:
        """Wait until a transaction is committed, valid or not.

        Args:
            tx_id: Its id.
            look: Looks it up in the ledger, in the executor, after we have begun to listen: so none is missed.
            executor: Where the disk is waited for.

        Raises:
            ChannelStopped: It is not in the ledger, and nothing more will be.

        Cancellation: nothing is left behind.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Committed] = loop.create_future()
        waiter = (future, loop)
        with self._lock:
            self._waiting.setdefault(tx_id, []).append(waiter)
        try:
            found = await loop.run_in_executor(executor, look)
            if found is not None:
                return found
            if self._ended and not future.done():
                raise ChannelStopped(self._ended)
            return await future
        finally:
            if not future.cancel() and not future.cancelled():
                future.exception()  # It may have come while the ledger answered; then nobody else asks for it.
            with self._lock:
                waiters = self._waiting.get(tx_id)
                if waiters is not None and waiter in waiters:
                    waiters.remove(waiter)
                    if not waiters:
                        del self._waiting[tx_id]


def _answer(future: "asyncio.Future[Committed]", committed: Committed) -> None:
    if not future.done():
        future.set_result(committed)


def _fail(future: "asyncio.Future[Committed]", reason: str) -> None:
    if not future.done():
        future.set_exception(ChannelStopped(reason))


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
