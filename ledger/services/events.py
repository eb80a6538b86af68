"""Who hears of new blocks?  A feed that the commit thread publishes to and that tasks on the loop wait for."""

import asyncio
import threading


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


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
