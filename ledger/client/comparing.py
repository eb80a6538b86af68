"""How does a peer that diverged ask another where they differ?  `ledger.v1.Comparing` over mutual TLS, in values."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ledger.client.joining import JoinClient
from ledger.client.tls import ClientTls
from ledger.core.divergence import LogAnswer, StateOffer
from ledger.core.errors import Busy
from ledger.core.names import BlockNumber, ChannelId
from ledger.core.state import Entry, StateKey
from ledger.core.tree_descent import Place, Subtree
from ledger.core.vblock import Leaf
from ledger.wire import comparing as wire
from ledger.wire.joining import BlockQuestion, decode_leaves, encode_block_question

SERVICE = "ledger.v1.Comparing"

BUSY_ATTEMPTS_MAX, BUSY_PAUSE_S = 8, 0.1
"""Times that a busy peer is asked again, and the first pause before that; each is twice as long."""


class Asking:
    """Questions to one peer about one channel.

    Args:
        name: Its name, for people.
        client: The open connection.
        channel: Name of the channel.

    Attributes:
        name: As given.
        questions: Number of questions asked.
    """

    def __init__(self, name: str, client: JoinClient, channel: ChannelId) -> None:
        """Take the connection."""
        self.name = name
        self.questions = 0
        self._client = client
        self._channel = channel

    async def log_entry(self, checkpoint: BlockNumber, number: BlockNumber) -> LogAnswer:
        """Ask for a vBlock under the log of a checkpoint."""
        question = wire.encode_log_question(wire.LogQuestion(self._channel, checkpoint, number))
        return wire.decode_log_answer(await self._ask("GetLogEntry", question))

    async def leaves(self, number: BlockNumber) -> tuple[Leaf, ...]:
        """Ask for the leaves of a block."""
        question = encode_block_question(BlockQuestion(self._channel, number, number))
        blocks = decode_leaves(await self._ask("GetLeaves", question, "ledger.v1.Joining"))
        return next((leaves for each, leaves in blocks if each == number), ())

    async def state(self, checkpoint: BlockNumber) -> StateOffer:
        """Ask for the state at a checkpoint."""
        question = wire.encode_state_question(wire.StateQuestion(self._channel, checkpoint))
        return wire.decode_state_offer(await self._ask("GetStateOffer", question))

    async def subtrees(self, checkpoint: BlockNumber, places: tuple[Place, ...]) -> tuple[Subtree, ...]:
        """Ask what is below places of the state tree."""
        question = wire.encode_subtrees_question(wire.SubtreesQuestion(self._channel, checkpoint, places))
        return wire.decode_subtrees(await self._ask("GetSubtrees", question))

    async def entries(
        self, checkpoint: BlockNumber, keys: tuple[StateKey, ...], paths: tuple[bytes, ...]
    ) -> tuple[tuple[StateKey, Entry], ...]:
        """Ask for entries."""
        question = wire.encode_entries_question(wire.EntriesQuestion(self._channel, checkpoint, keys, paths))
        return wire.decode_entries(await self._ask("GetEntries", question))

    async def _ask(self, method: str, question: bytes, service: str = SERVICE) -> bytes:
        pause_s = BUSY_PAUSE_S
        for _ in range(BUSY_ATTEMPTS_MAX):
            self.questions += 1
            try:
                return await self._client.ask(method, question, service)
            except Busy:
                await asyncio.sleep(pause_s)
                pause_s *= 2
        return await self._client.ask(method, question, service)


class CompareLink:
    """A way to one other peer, to compare ledgers.

    Args:
        name: Its name, for people.
        address: host:port of its checkpointing service.
        tls: Whom to trust, and what to show.
    """

    def __init__(self, name: str, address: str, tls: ClientTls) -> None:
        """Take the address; nothing is opened yet."""
        self.name = name
        self._address = address
        self._tls = tls

    @asynccontextmanager
    async def open(self, channel: ChannelId) -> AsyncIterator[Asking]:
        """Open a connection, and close it behind the questions; a failure to connect shows at the first of them."""
        client = JoinClient(self._address, self._tls)
        try:
            yield Asking(self.name, client, channel)
        finally:
            await client.close()


__all__ = ["Asking", "CompareLink"]
