"""How does one reach an orderer?  `orderer.AtomicBroadcast`: Broadcast and Deliver."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any

import grpc
from fabric_protos.orderer import ab_pb2, ab_pb2_grpc

from ledger.core.broadcast_rules import BAD_REQUEST, SUCCESS, BroadcastRefused
from ledger.core.channel_config import Bundle
from ledger.core.names import BlockNumber
from ledger.interfaces.grpc.deliver import BlockSource, DeliverEngine, Seek, block_message
from ledger.services.ordering.embedded import Answer, EmbeddedOrderer
from ledger.wire.ordering import read_offered

IN_FLIGHT_MAX = 2_000
"""Envelopes of one stream that wait for their answer at most; further ones are read later."""


class OrdererSource:
    """An orderer's channel as Deliver sees it."""

    def __init__(self, orderer: EmbeddedOrderer) -> None:
        """Take the orderer of the channel."""
        self._orderer = orderer

    @property
    def bundle(self) -> Bundle:
        """The configuration in force."""
        return self._orderer.bundle

    @property
    def height(self) -> int:
        """Number of durable blocks."""
        return self._orderer.height

    @property
    def first_block(self) -> BlockNumber:
        """First block that is held."""
        return self._orderer.first_block

    def block_bytes(self, number: BlockNumber) -> bytes:
        """Read a serialized block."""
        return self._orderer.block_bytes(number)

    async def wait_above(self, height: int) -> int:
        """Wait for blocks."""
        return await self._orderer.feed.wait_above(height)


def readers(bundle: Bundle) -> str:
    """Give the policy that readers of an orderer must satisfy."""
    return "/Channel/Orderer/Readers" if bundle.orderer.consensus_state else "/Channel/Readers"


def render(_: BlockSource, data: bytes, seek: Seek) -> Any:
    """Make a response of a block."""
    return ab_pb2.DeliverResponse(block=block_message(data, seek))


class AtomicBroadcast(ab_pb2_grpc.AtomicBroadcastServicer):  # type: ignore[misc]  # Generated, untyped.
    """The service of an orderer.

    Args:
        orderers: Its channels by name.
        now: The clock.
    """

    def __init__(self, orderers: Mapping[str, EmbeddedOrderer], now: Callable[[], datetime]) -> None:
        """Take the channels."""
        self._orderers = orderers
        sources = {name: OrdererSource(orderer) for name, orderer in orderers.items()}
        self._deliver = DeliverEngine(
            sources.get, readers, now, render, lambda status: ab_pb2.DeliverResponse(status=status)
        )

    async def Broadcast(
        self, request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """Order envelopes; one answer each, in order, and the first refusal closes the stream."""
        answers: asyncio.Queue[asyncio.Task[Answer] | None] = asyncio.Queue(IN_FLIGHT_MAX)

        async def read() -> None:
            try:
                async for envelope in request_iterator:
                    await answers.put(asyncio.create_task(self._order(envelope.SerializeToString(), envelope)))
            finally:
                await answers.put(None)

        reading = asyncio.create_task(read())
        try:
            while (task := await answers.get()) is not None:
                answer = await task
                yield ab_pb2.BroadcastResponse(status=answer.status, info=answer.info)
                if answer.status != SUCCESS:
                    return
        finally:
            reading.cancel()
            while not answers.empty():
                left = answers.get_nowait()
                if left is not None:
                    left.cancel()

    async def _order(self, envelope: bytes, _: Any) -> Answer:
        """Give an envelope to its channel."""
        try:
            offered = read_offered(envelope)
        except BroadcastRefused as error:
            return Answer(error.status, error.info)
        orderer = self._orderers.get(offered.channel_id)
        if orderer is None:
            return Answer(BAD_REQUEST, "channel does not exist")
        return await orderer.broadcast(envelope)

    async def Deliver(
        self, request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """Deliver blocks."""
        async for response in self._deliver.serve(request_iterator, context):
            yield response
