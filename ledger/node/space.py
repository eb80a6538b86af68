"""Is there room on the disk?  Noticed while the node can still stop well, and told to whoever would take on work.

A node keeps a reserve free. Below it, it takes on nothing: a peer commits and endorses nothing, an orderer answers
SERVICE_UNAVAILABLE. What was taken on before still fits into the reserve. With room again the node goes on by itself.
"""

import asyncio
import logging
import os
from pathlib import Path

from ledger.telemetry.metrics import Metrics

log = logging.getLogger("peerledger.space")

LOOK_EVERY_S = 1.0


class DiskSpace:
    """The space where a node's data lies.

    Args:
        directory: The data directory; made if it is not there.
        reserve_bytes: What stays free.
        metrics: Where the figure goes.

    Attributes:
        shortage: Why no work is taken on; empty while there is room.
    """

    def __init__(self, directory: Path, reserve_bytes: int, metrics: Metrics | None = None) -> None:
        """Look for the first time."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._reserve_bytes = reserve_bytes
        self._metrics = metrics
        self.shortage = ""
        self.look()

    def look(self) -> str:
        """See how much is free; give the shortage."""
        found = os.statvfs(self._directory)
        free_bytes = found.f_bavail * found.f_frsize
        if self._metrics is not None:
            self._metrics.free_disk_bytes.set(free_bytes)
        short = free_bytes < self._reserve_bytes
        if short and not self.shortage:
            log.warning("disk_space_short", extra={"free_bytes": free_bytes, "reserve_bytes": self._reserve_bytes})
        if self.shortage and not short:
            log.info("disk_space_again", extra={"free_bytes": free_bytes})
        free, reserve = f"{free_bytes >> 20} MiB", f"{self._reserve_bytes >> 20} MiB"
        self.shortage = f"only {free} are free in {self._directory}, the reserve is {reserve}" if short else ""
        return self.shortage

    async def watch(self) -> None:
        """Look from time to time until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    async def wait_for_room(self) -> None:
        """Return once there is room."""
        while self.look():  # noqa: ASYNC110  # No event tells that somebody removed a file.
            await asyncio.sleep(LOOK_EVERY_S)
