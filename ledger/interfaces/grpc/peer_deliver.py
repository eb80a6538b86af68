"""How do clients follow a channel's blocks?  `protos.Deliver`: whole blocks, or ids, verdicts and events alone."""

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any

import grpc
from fabric_protos.peer import events_pb2, events_pb2_grpc

from ledger.core.access import BLOCK_EVENTS, FILTERED_BLOCK_EVENTS, channel_policy
from ledger.core.channel_config import Bundle
from ledger.interfaces.grpc.deliver import BlockSource, DeliverEngine, Seek, block_message
from ledger.wire.block import decode_block
from ledger.wire.filtered import filtered_block

STREAMS_MAX = 2_500
"""Streams at once at most, as on Fabric's peers."""


def blocks_policy(bundle: Bundle) -> str:
    """Give the policy that readers of whole blocks must satisfy."""
    return channel_policy(bundle, BLOCK_EVENTS)


def filtered_blocks_policy(bundle: Bundle) -> str:
    """Give the policy that readers of ids, verdicts and events must satisfy."""
    return channel_policy(bundle, FILTERED_BLOCK_EVENTS)


def whole(_: BlockSource, data: bytes, seek: Seek) -> Any:
    """Make a response of a whole block."""
    return events_pb2.DeliverResponse(block=block_message(data, seek))


def with_private_data(_: BlockSource, data: bytes, seek: Seek) -> Any:
    """Make a response of a whole block and the private data that this peer holds of it: none, only hashes are kept."""
    return events_pb2.DeliverResponse(
        block_and_private_data=events_pb2.BlockAndPrivateData(block=block_message(data, seek))
    )


def filtered(source: BlockSource, data: bytes, _: Seek) -> Any:
    """Make a response of a block's ids, verdicts and events."""
    return events_pb2.DeliverResponse(filtered_block=filtered_block(decode_block(data), source.bundle.channel_id))


def status(code: int) -> Any:
    """Make a response of a status."""
    return events_pb2.DeliverResponse(status=code)


class PeerDeliver(events_pb2_grpc.DeliverServicer):  # type: ignore[misc]  # Generated, untyped.
    """The service.

    Args:
        channels: The peer's channels by name.
        now: The clock.
    """

    def __init__(self, channels: Mapping[str, BlockSource], now: Callable[[], datetime]) -> None:
        """Take the channels."""
        self._whole = DeliverEngine(
            channels.get, lambda bundle: channel_policy(bundle, BLOCK_EVENTS), now, whole, status
        )
        self._filtered = DeliverEngine(
            channels.get, lambda bundle: channel_policy(bundle, FILTERED_BLOCK_EVENTS), now, filtered, status
        )
        self._private = DeliverEngine(channels.get, blocks_policy, now, with_private_data, status)
        self._streams = 0

    async def Deliver(
        self, request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """Deliver whole blocks."""
        async for response in self._serve(self._whole, request_iterator, context):
            yield response

    async def DeliverFiltered(
        self, request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """Deliver ids, verdicts and events."""
        async for response in self._serve(self._filtered, request_iterator, context):
            yield response

    async def DeliverWithPrivateData(
        self, request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """Deliver whole blocks with the private data that this peer holds."""
        async for response in self._serve(self._private, request_iterator, context):
            yield response

    async def _serve(
        self,
        engine: DeliverEngine,
        requests: AsyncIterator[Any],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[Any]:
        """Serve one stream, within the bound."""
        if self._streams >= STREAMS_MAX:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"too many requests for /protos.Deliver, exceeding concurrency limit ({STREAMS_MAX})",
            )
        self._streams += 1
        try:
            async for response in engine.serve(requests, context):
                yield response
        finally:
            self._streams -= 1
