"""How does one channel of a peer live?  It follows the orderers, commits in a thread of its own, and tells who waits.

1. The follower reads blocks from an orderer into a bounded queue; where the stream breaks it asks the next orderer,
   with growing pauses, for what comes after the last committed block.
2. Whatever waits in the queue is committed as one group in the channel's commit thread.
3. A refused block ends the stream: the blocks behind it are dropped, and another orderer is asked.
4. A channel that can't go on (a configuration that does not apply, damaged files) stops and says why; it can still be
   read, and the other channels go on.
5. A disk that fails ends the node: it is started again and recovers, as after any crash. Where it fails again before
   anything was committed, the channel stops instead, for the sake of the others.
6. While the disk is short of space nothing is committed; it goes on by itself.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ledger.chaincode.views import opened
from ledger.client.orderer import OrdererClient
from ledger.core.block import block_hash
from ledger.core.channel_config import Bundle
from ledger.core.errors import (
    ChannelStopped,
    InvalidBlock,
    PeerUnreachable,
    Pruned,
    StorageDamaged,
    StorageFailed,
)
from ledger.core.names import BlockNumber, ChannelId, Digest, TxId, verdict_name
from ledger.core.outcome import Outcome
from ledger.core.policy.ast import ApplicationPolicy
from ledger.core.ports import Signer
from ledger.core.transaction import Event
from ledger.node.ledgers import open_ledger
from ledger.node.rules import endorsement_policy, make_rules
from ledger.node.space import DiskSpace
from ledger.services.committer import Committer
from ledger.services.events import BlockFeed, Committed, TransactionFeed
from ledger.storage.ledger_store import LedgerStore
from ledger.telemetry.metrics import Metrics
from ledger.wire.block import decode_block
from ledger.wire.chaincode_events import event_in

log = logging.getLogger("peerledger.channel")

GROUP_BLOCKS_MAX = 16
"""Most blocks that are committed with one sync."""

QUEUE_BLOCKS_MAX = 64
"""Blocks that are read ahead of the commit."""

UNAVAILABLE = 500
"""An orderer's status from here on says that another one may take the envelope."""

PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 5.0
"""Pauses before another orderer is asked."""


class Channel:
    """One channel of a peer, open.

    Args:
        data: The peer's data directory.
        genesis: The channel's genesis block.
        signer: The peer's identity.
        orderers: Connections to the channel's orderers.
        chk: Blocks between checkpoints.
        space: The space on the disk.
        metrics: Where figures go.

    Raises:
        InvalidBlock, Conflict, StorageDamaged, StorageFailed: The ledger can't be opened.
    """

    def __init__(
        self,
        data: Path,
        genesis: bytes,
        signer: Signer,
        orderers: Sequence[OrdererClient],
        *,
        chk: int,
        space: DiskSpace,
        metrics: Metrics,
    ) -> None:
        """Open the ledger; nothing is followed before `run`."""
        self._signer = signer
        self._orderers = tuple(orderers)
        self._verifiers = ThreadPoolExecutor(2, "verify")
        self._preparers = ThreadPoolExecutor(2, "prepare")
        self._commits = ThreadPoolExecutor(1, "commit")
        rules = make_rules(self._verifiers)
        ledger = open_ledger(data, genesis, rules, chk=chk)
        self.store: LedgerStore = ledger.store
        self.chk = chk
        self.committer = Committer(
            self.store, ledger.bundle, rules, workers=self._preparers, on_committed=self._committed
        )
        self._reads = ThreadPoolExecutor(2, "read")
        self.feed = BlockFeed(self.store.height)
        self._transactions = TransactionFeed()
        self._space = space
        self._metrics = metrics
        metrics.height.labels(self.channel_id).set(self.store.height)
        metrics.stopped.labels(self.channel_id).set(0)
        if self.store.height == 0:
            self.committer.commit([genesis])
        self.halted_because = ""
        self._opened_at = self.store.height
        self._running: asyncio.Task[None] | None = None
        self.following_from = ""
        log.info(
            "channel_open",
            extra={"channel": self.channel_id, "height": self.store.height, "recommitted": ledger.recommitted},
        )

    @property
    def channel_id(self) -> ChannelId:
        """Name of the channel."""
        return self.store.channel_id

    # -- what doors and services read

    @property
    def ledger(self) -> LedgerStore:
        """The ledger, for reading."""
        return self.store

    @property
    def bundle(self) -> Bundle:
        """The configuration in force."""
        return self.committer.bundle

    @property
    def stopped_because(self) -> str:
        """Why nothing is committed or endorsed, for good or for now; empty while it is."""
        return self.halted_because or self._space.shortage

    @property
    def height(self) -> int:
        """Number of durable blocks."""
        return self.feed.height

    @property
    def first_block(self) -> BlockNumber:
        """First block that is held whole."""
        return self.store.first_block

    def block_bytes(self, number: BlockNumber) -> bytes:
        """Read a serialized block."""
        return self.store.block_bytes(number)

    async def wait_above(self, height: int) -> int:
        """Wait for more blocks."""
        return await self.feed.wait_above(height)

    async def committed(self, tx_id: TxId) -> Committed:
        """Wait until a transaction is in the ledger; raises `ChannelStopped`."""
        return await self._transactions.wait(tx_id, lambda: self._first_place(tx_id), self._reads)

    def _first_place(self, tx_id: TxId) -> Committed | None:
        places = self.store.places(tx_id)
        return Committed(places[0].verdict, places[0].block) if places else None

    def block_of(self, tx_id: TxId) -> BlockNumber | None:
        """Find the block of a transaction's first place."""
        found = self._first_place(tx_id)
        return None if found is None else found.block

    def events(self, number: BlockNumber) -> tuple[tuple[str, Event | None], ...]:
        """Give each transaction of a block with its event, also of a pruned block: valid transactions stay."""
        stored = self.store.stored_block(number)
        if stored.lacks_valid:
            raise Pruned(block=number, first_block=self.first_block)
        return tuple(
            (leaf.tx_id, event_in(envelope) if leaf.verdict == 0 and envelope is not None else None)
            for leaf, envelope in zip(stored.leaves, stored.envelopes, strict=True)
        )

    def endorsement_policy(self, chaincode: str) -> ApplicationPolicy | None:
        """Give the policy of a committed definition; None if there is none to use."""
        with opened(self.store) as view:
            return endorsement_policy(view, self.bundle, chaincode)

    async def broadcast(self, envelope: bytes) -> tuple[int, str]:
        """Send an envelope to the orderers in turn until one takes or refuses it; give its status and text.

        Raises:
            PeerUnreachable: None answered; whether the envelope is ordered is unknown.
        """
        answer: tuple[int, str] | None = None
        failure: PeerUnreachable | None = None
        for orderer in self._orderers:
            try:
                answer = await orderer.broadcast(envelope)
            except PeerUnreachable as error:
                failure = error
                continue
            if answer[0] < UNAVAILABLE:
                return answer
        if answer is not None:
            return answer
        raise failure or PeerUnreachable(f"channel {self.channel_id} has no orderer")

    # -- the life of the channel

    async def run(self) -> None:
        """Follow the orderers until cancelled, or until the channel stops.

        Raises:
            StorageFailed: The disk failed, and the node should be started again.
        """
        if self.halted_because:
            return
        self._running = asyncio.create_task(self._follow_all())
        try:
            await self._running
        except asyncio.CancelledError:
            self._running.cancel()
            if not self.halted_because:
                raise

    async def _follow_all(self) -> None:
        """Follow one orderer after the other."""
        pause, turn = PAUSE_S_MIN, 0
        while True:
            await self._space.wait_for_room()
            orderer = self._orderers[turn % len(self._orderers)]
            before = self.height
            try:
                await self._follow(orderer)
            except ChannelStopped as error:
                return self._stop(str(error))
            except StorageDamaged as error:
                return self._stop(f"storage: {error}")
            except StorageFailed as error:
                return self.fault(error)
            except InvalidBlock as error:
                self._metrics.blocks_refused.labels(self.channel_id, error.rule).inc()
                log.warning("block_refused", extra={"channel": self.channel_id, "source": orderer.address,
                                                    "reason": str(error)})  # fmt: skip
            except PeerUnreachable as error:
                log.info("orderer_lost", extra={"channel": self.channel_id, "reason": str(error)})
            self.following_from = ""
            pause = PAUSE_S_MIN if self.height > before else min(pause * 2, PAUSE_S_MAX)
            await asyncio.sleep(pause)
            turn += 1

    def halt(self, reason: str) -> None:
        """Stop committing for good, on the event loop: what this peer computed differs from what others agreed on."""
        if not self.halted_because:
            self._stop(reason)
        if self._running is not None:
            self._running.cancel()

    def fault(self, error: StorageFailed) -> None:
        """Hear that the disk failed: end the node, which recovers when it is started again, or stop the channel.

        Raises:
            StorageFailed: The error; something was committed since the start, so a start may well help.
        """
        if self.height > self._opened_at:
            raise error
        self.halt(f"storage failed again after a start: {error}")

    async def newest_ordered(self) -> int:
        """Ask all orderers for the number of their newest block; give the highest: one of them may lag.

        Raises:
            PeerUnreachable: None answered.
        """
        asked = [orderer.newest(self.channel_id, self._signer) for orderer in self._orderers]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        numbers = [one for one in answers if isinstance(one, int)]
        if numbers:
            return max(numbers)
        failures = "; ".join(str(one) for one in answers) or "it has none"
        raise PeerUnreachable(f"no orderer of channel {self.channel_id} answered: {failures}")

    def _stop(self, reason: str) -> None:
        self.halted_because = reason
        self._metrics.stopped.labels(self.channel_id).set(1)
        self._transactions.end(f"channel {self.channel_id} has stopped: {reason}")
        log.error("channel_stopped", extra={"channel": self.channel_id, "reason": reason})

    async def _follow(self, orderer: OrdererClient) -> None:
        """Commit what one orderer delivers until its stream ends."""
        self.following_from = ""
        queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_BLOCKS_MAX)

        async def read() -> None:
            known = self.height - 1
            async for block in orderer.follow(self.channel_id, self._signer, known):
                if not self.following_from:  # The block that we have already shows that we follow the same chain.
                    check_same(block, BlockNumber(known), self.store.block_hash)
                    self.following_from = orderer.address
                    continue
                await queue.put(block)

        reading = asyncio.create_task(read())
        try:
            while True:
                first = asyncio.create_task(queue.get())
                await asyncio.wait({first, reading}, return_when=asyncio.FIRST_COMPLETED)
                if not first.done():
                    first.cancel()
                    return await reading
                group = [first.result()]
                if self._space.look():
                    return None
                while len(group) < GROUP_BLOCKS_MAX and not queue.empty():
                    group.append(queue.get_nowait())
                loop = asyncio.get_running_loop()
                await asyncio.shield(loop.run_in_executor(self._commits, self.committer.commit, group))
        finally:
            reading.cancel()

    def _committed(self, outcomes: tuple[Outcome, ...]) -> None:
        """Hear of a durable group, in the commit thread."""
        last = outcomes[-1]
        transactions = sum(len(outcome.verdicts) for outcome in outcomes)
        valid = sum(outcome.verdicts.count(0) for outcome in outcomes)
        self.feed.publish(last.block.number + 1)
        for outcome in outcomes:
            self._transactions.publish(outcome.block.number, outcome.tx_ids, outcome.verdicts)
            for verdict, count in Counter(outcome.verdicts).items():
                self._metrics.transactions.labels(self.channel_id, verdict_name(verdict)).inc(count)
        self._metrics.height.labels(self.channel_id).set(last.block.number + 1)
        self._metrics.first_block.labels(self.channel_id).set(self.first_block)
        log.info(
            "blocks_committed",
            extra={"channel": self.channel_id, "height": last.block.number + 1, "blocks": len(outcomes),
                   "transactions": transactions, "valid": valid},
        )  # fmt: skip

    def close(self) -> None:
        """Let the commit under way end, then close the ledger."""
        self._commits.shutdown()
        self._preparers.shutdown()
        self._verifiers.shutdown()
        self._reads.shutdown()
        self.store.close()


def check_same(block: bytes, number: BlockNumber, expected: Digest) -> None:
    """Check that an orderer's block is the one that was committed.

    Raises:
        InvalidBlock: It is another: the orderer is of another channel, or two blocks of one number were cut.
    """
    found = decode_block(block)
    if found.number != number or block_hash(found) != expected:
        raise InvalidBlock(f"block {number}", rule="same chain", expected=expected, found=block_hash(found))
