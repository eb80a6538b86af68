"""Which channels of this peer are open?  Each is opened by itself; one that can't be does not stop the others.

The mappings here are what doors and services read at each call, so a channel appears in them once it is open. A disk
that fails while a channel is opened, or has no room, is asked again; whatever else keeps a channel from opening is for
an operator.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from ledger.client.orderer import OrdererClient
from ledger.core.errors import Conflict, LedgerError, StorageFailed
from ledger.node.agreement import Agreement, make_agreement
from ledger.node.channel import Channel
from ledger.node.config import PeerSettings
from ledger.node.space import DiskSpace
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.msp_folder import SigningIdentity
from ledger.telemetry.metrics import Metrics

log = logging.getLogger("peerledger.channels")

RETRY_PAUSE_S_MAX = 30.0
"""Longest pause before a channel whose disk failed is opened again."""

OPENING = "it is being opened"


class Channels:
    """The channels of one peer.

    Args:
        settings: The peer's settings.
        signer: Its identity.
        space: The space on the disk.
        metrics: Where figures go.
        stack: Closes what was opened, after everybody who reads it has ended.

    Attributes:
        opened: The open channels by name.
        agreements: Checkpointing and pruning of each of them.
        ledgers: The ledger of each of them.
        failed: Why the others are not open.
    """

    def __init__(
        self, settings: PeerSettings, signer: SigningIdentity, space: DiskSpace, metrics: Metrics, stack: ExitStack
    ) -> None:
        """Nothing is open yet."""
        self._settings = settings
        self._signer = signer
        self._space = space
        self._metrics = metrics
        self._stack = stack
        self.opened: dict[str, Channel] = {}
        self.agreements: dict[str, Agreement] = {}
        self.ledgers: dict[str, LedgerStore] = {}
        self.failed: dict[str, str] = {}

    async def run(self, name: str, genesis: bytes, orderers: Sequence[OrdererClient]) -> None:
        """Open a channel and run it until cancelled; one that can't be opened or has stopped ends quietly.

        Raises:
            Conflict: Another process has the directory.
            ExceptionGroup: Of `StorageFailed`: the node should be started again.
        """
        self.failed[name] = OPENING
        agreement = await self._open(name, genesis, orderers)
        if agreement is None:
            return
        channel = agreement.channel
        self.agreements[name] = agreement
        self.ledgers[name] = channel.store
        self.opened[name] = channel
        del self.failed[name]
        async with asyncio.TaskGroup() as group:
            group.create_task(channel.run())
            group.create_task(agreement.run())

    async def _open(self, name: str, genesis: bytes, orderers: Sequence[OrdererClient]) -> Agreement | None:
        """Open a channel's ledger and its services; None if that can't be done."""
        pause_s = 1.0
        while True:
            await self._space.wait_for_room()
            try:
                return await asyncio.to_thread(self._open_now, genesis, orderers)
            except Conflict:
                raise
            except StorageFailed as error:
                self._failed(name, error)
            except LedgerError as error:
                self._failed(name, error)
                return None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_PAUSE_S_MAX)

    def _open_now(self, genesis: bytes, orderers: Sequence[OrdererClient]) -> Agreement:
        settings, stack = self._settings, ExitStack()
        with stack:
            channel = Channel(
                settings.data_dir, genesis, self._signer, orderers, chk=settings.checkpoint.interval_blocks,
                space=self._space, metrics=self._metrics,
            )  # fmt: skip
            stack.callback(channel.close)
            executor = ThreadPoolExecutor(1, "checkpoint")
            stack.callback(executor.shutdown)
            agreement = make_agreement(channel, settings, self._signer, executor, self._metrics)
            stack.callback(agreement.close)
            self._stack.push(stack.pop_all())
        return agreement

    def _failed(self, name: str, error: LedgerError) -> None:
        self.failed[name] = str(error)
        log.error("channel_failed", extra={"channel": name, "reason": str(error)})
