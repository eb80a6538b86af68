"""Who orders, when one machine is enough?  One orderer with its log on its own disk.

An envelope is acknowledged when the block that holds it is synced: an acknowledged one is in the total order, whatever
happens then. Blocks are cut by count, size and time (`core.blockcutter`). A configuration update is applied here, under
the configuration in force, and travels in a block of its own; envelopes that were checked under an older configuration
are checked again before they are ordered.

A crash anywhere loses only envelopes that nobody was told about. If the disk fails the block does not count, its
senders are told "unavailable", and the next attempt opens the log again.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from ledger.core.blockcutter import Waiting, add
from ledger.core.broadcast_rules import (
    BAD_REQUEST,
    SERVICE_UNAVAILABLE,
    SUCCESS,
    BroadcastRefused,
    Offered,
    check_config_update,
    check_normal,
    check_size,
)
from ledger.core.channel_config import Bundle
from ledger.core.errors import InvalidBlock, InvalidConfig, StorageFailed
from ledger.core.hashing import header_hash
from ledger.core.names import BlockNumber
from ledger.core.ports import Codec, Signer
from ledger.services.events import BlockFeed
from ledger.storage.order_log import OrderLog
from ledger.wire.block import decode_block, encode_block, is_config_block
from ledger.wire.config import bundle_from_block, config_from_update, config_payload, next_bundle
from ledger.wire.ordering import (
    CONFIG,
    CONFIG_UPDATE,
    ORDERER_TRANSACTION,
    config_envelope,
    make_block,
    read_offered,
)

QUEUE_MAX = 10_000
"""Envelopes that wait at most; further ones are told "unavailable"."""

DRAIN_MAX = 1_000
"""Envelopes that are taken off the queue before the loop breathes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the sender of an envelope is told."""

    status: int
    info: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """An envelope on its way into a block."""

    offered: Offered
    sequence: int
    """Sequence of the configuration it was checked under."""

    answer: "asyncio.Future[Answer]"


class EmbeddedOrderer:
    """Orders one channel.

    Args:
        log: The channel's log; an empty one begins with `genesis`.
        genesis: The channel's genesis block.
        signer: This orderer's identity.
        codec: Decodes what stands in configurations.
        now: The clock.
        shortage: Why no envelope is taken; empty while they are.

    Raises:
        InvalidBlock: The log begins with another genesis block.
    """

    def __init__(
        self,
        log: OrderLog,
        genesis: bytes,
        signer: Signer,
        codec: Codec,
        now: Callable[[], datetime],
        shortage: Callable[[], str] = str,
    ) -> None:
        """Find the end of the log and the configuration in force there."""
        self._log = log
        self._signer = signer
        self._codec = codec
        self._now = now
        self._shortage = shortage
        if log.height == 0:
            log.append(BlockNumber(0), genesis)
        check_genesis(log, genesis)
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(QUEUE_MAX)
        self._waiting: Waiting[_Item] = Waiting()
        self._deadline: float | None = None
        self._last_config = BlockNumber(0)
        self._bundle = bundle_from_block(decode_block(log.block_bytes(BlockNumber(0))), codec)
        self._recover()
        self.feed = BlockFeed(log.height)

    def _recover(self) -> None:
        """Follow the log to its end."""
        header = decode_block(self._log.block_bytes(BlockNumber(0))).header
        for number in range(1, self._log.height):
            block = decode_block(self._log.block_bytes(BlockNumber(number)))
            header = block.header
            if is_config_block(block):
                self._bundle = next_bundle(self._bundle, config_payload(block.envelopes[0])[1], self._codec)
                self._last_config = block.number
        self._previous = header_hash(header.number, header.previous_hash, header.data_hash)

    @property
    def channel_id(self) -> str:
        """Name of the channel."""
        return self._bundle.channel_id

    @property
    def bundle(self) -> Bundle:
        """The configuration in force."""
        return self._bundle

    @property
    def height(self) -> int:
        """Number of blocks that are durable."""
        return self.feed.height

    @property
    def first_block(self) -> BlockNumber:
        """First block that can be delivered."""
        return self._log.first_block

    def block_bytes(self, number: BlockNumber) -> bytes:
        """Read a serialized block."""
        return self._log.block_bytes(number)

    async def broadcast(self, envelope: bytes) -> Answer:
        """Take an envelope, and answer when it is durably ordered or refused.

        Durability: an envelope that was answered with 200 is in a synced block.

        Cancellation: the envelope may be ordered all the same.
        """
        try:
            offered = read_offered(envelope)
            self._check(offered)
        except BroadcastRefused as error:
            return Answer(error.status, error.info)
        item = _Item(offered, self._bundle.sequence, asyncio.get_running_loop().create_future())
        try:
            self._queue.put_nowait(item)
        except asyncio.QueueFull:
            return Answer(SERVICE_UNAVAILABLE, f"{QUEUE_MAX} envelopes are waiting; send it again later")
        return await item.answer

    def _check(self, offered: Offered) -> None:
        """Check an envelope under the configuration in force."""
        if shortage := self._shortage():
            raise BroadcastRefused(SERVICE_UNAVAILABLE, shortage)
        if offered.channel_id != self.channel_id:
            raise BroadcastRefused(BAD_REQUEST, "channel does not exist")
        if offered.header_type == CONFIG:
            raise BroadcastRefused(BAD_REQUEST, "message is of type that cannot be processed directly")
        if offered.header_type == ORDERER_TRANSACTION:
            raise BroadcastRefused(BAD_REQUEST, "message is of type that is no longer supported")
        check = check_config_update if offered.header_type == CONFIG_UPDATE else check_normal
        check(offered, self._bundle, self._now())

    async def run(self) -> None:
        """Cut blocks until cancelled; what waits then is not acknowledged."""
        loop = asyncio.get_running_loop()
        while True:
            timeout = None if self._deadline is None else max(self._deadline - loop.time(), 0)
            try:
                async with asyncio.timeout(timeout):
                    item = await self._queue.get()
            except TimeoutError:
                await self._cut(self._take_waiting())
                continue
            for _ in range(DRAIN_MAX):
                await self._order(item)
                if self._queue.empty():
                    break
                item = self._queue.get_nowait()
            if self._deadline is not None and loop.time() >= self._deadline:
                await self._cut(self._take_waiting())

    async def _order(self, item: _Item) -> None:
        """Put one envelope into the order."""
        try:
            if item.sequence != self._bundle.sequence:
                self._check(item.offered)
        except BroadcastRefused as error:
            _tell(item, Answer(error.status, error.info))
            return
        if item.offered.header_type == CONFIG_UPDATE:
            await self._order_config(item)
            return
        batches, self._waiting = add(self._waiting, item, item.offered.size_bytes, self._bundle.orderer.batch_size)
        for batch in batches:
            await self._cut(batch)
        if not self._waiting.messages:
            self._deadline = None
        elif self._deadline is None or batches:
            self._deadline = asyncio.get_running_loop().time() + self._bundle.orderer.batch_timeout_ms / 1000

    async def _order_config(self, item: _Item) -> None:
        """Apply a configuration update and order the result in a block of its own."""
        await self._cut(self._take_waiting())
        try:
            config = config_from_update(self._bundle, item.offered.envelope, self._codec)
            following = next_bundle(self._bundle, config, self._codec)
            seconds = int(self._now().timestamp())
            envelope = config_envelope(self.channel_id, config, seconds, self._signer, os.urandom(24))
            check_size(read_offered(envelope).size_bytes, self._bundle)
        except InvalidConfig as error:
            info = f"error applying config update to existing channel '{self.channel_id}': {error}"
            _tell(item, Answer(BAD_REQUEST, info))
            return
        except BroadcastRefused as error:
            info = f"config update for existing channel did not pass final checks: {error.info}"
            _tell(item, Answer(error.status, info))
            return
        if await self._write((envelope,), is_config=True):
            self._bundle = following
            _tell(item, Answer(SUCCESS))
        else:
            _tell(item, Answer(SERVICE_UNAVAILABLE, "the orderer's disk failed"))

    def _take_waiting(self) -> tuple[_Item, ...]:
        messages, self._waiting, self._deadline = self._waiting.messages, Waiting(), None
        return messages

    async def _cut(self, batch: tuple[_Item, ...]) -> None:
        """Make a block of a batch and tell its senders."""
        if not batch:
            return
        written = await self._write(tuple(item.offered.envelope for item in batch), is_config=False)
        answer = Answer(SUCCESS) if written else Answer(SERVICE_UNAVAILABLE, "the orderer's disk failed")
        for item in batch:
            _tell(item, answer)

    async def _write(self, envelopes: tuple[bytes, ...], *, is_config: bool) -> bool:
        """Make, sign and sync the next block; False if the disk failed."""
        number = BlockNumber(self._log.height)
        last_config = number if is_config else self._last_config
        block = make_block(number, self._previous, envelopes, last_config, self._signer, os.urandom(24))
        writing = asyncio.get_running_loop().run_in_executor(None, self._log.append, number, encode_block(block))
        try:
            await asyncio.shield(writing)
        except StorageFailed:
            return False
        except asyncio.CancelledError:
            await asyncio.wait({writing})  # The log is closed next: not under a write.
            raise
        self._last_config = last_config
        self._previous = header_hash(number, block.header.previous_hash, block.header.data_hash)
        self.feed.publish(number + 1)
        return True


def check_genesis(log: OrderLog, genesis: bytes) -> None:
    """Check that a log begins with this genesis block; raises `InvalidBlock`."""
    ours, given = decode_block(log.block_bytes(BlockNumber(0))).header, decode_block(genesis).header
    expected, found = (header_hash(one.number, one.previous_hash, one.data_hash) for one in (ours, given))
    if found != expected:
        raise InvalidBlock("genesis block of the order log", rule="genesis block", expected=expected, found=found)


def _tell(item: _Item, answer: Answer) -> None:
    if not item.answer.done():
        item.answer.set_result(answer)
