"""How do joiners reach this peer?  `ledger.v1.Joining`, bytes in and bytes out, behind the mutual TLS of checkpointing.

Who asks must show a TLS certificate of an organisation of the channel, by its present configuration. What is answered
is true or not whoever asks: the joiner checks it.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Protocol

import grpc

from ledger.core.channel_config import Bundle
from ledger.core.errors import Busy, LedgerError, NotFound, Pruned
from ledger.core.joining import BlockHead, JoinOffer, StateChunk
from ledger.core.names import BlockNumber
from ledger.core.vblock import Leaf
from ledger.interfaces.grpc.checkpointing import organisation_of, peer_certificate, status_of
from ledger.wire import joining as wire

SERVICE = "ledger.v1.Joining"

IN_FLIGHT_MAX = 16
"""Questions that are answered at once; joiners ask again."""


class Source(Protocol):
    """Who answers for a channel; `services.joining.JoinSource`."""

    def offer(self) -> JoinOffer:
        """Offer a checkpoint."""
        ...

    def config_block(self, number: BlockNumber) -> bytes:
        """Give a config block."""
        ...

    def checkpoint_block(self, number: BlockNumber) -> bytes:
        """Give the block at a checkpoint."""
        ...

    def heads(self, number: BlockNumber, last: BlockNumber) -> tuple[BlockHead, ...]:
        """Give heads of blocks."""
        ...

    def leaves(self, number: BlockNumber, last: BlockNumber) -> tuple[tuple[BlockNumber, tuple[Leaf, ...]], ...]:
        """Give leaves of blocks."""
        ...

    def chunk(self, checkpoint: BlockNumber, index: int) -> StateChunk:
        """Give a chunk."""
        ...


class Configured(Protocol):
    """A channel, for its configuration."""

    @property
    def bundle(self) -> Bundle:
        """The configuration in force."""
        ...


class JoiningDoor:
    """The service.

    Args:
        channels: The peer's channels by name, for their configurations.
        sources: Who answers for each of them.
        executor: Where they do.
    """

    def __init__(self, channels: Mapping[str, Configured], sources: Mapping[str, Source], executor: Executor) -> None:
        """Take the parts."""
        self._channels = channels
        self._sources = sources
        self._executor = executor
        self._in_flight = 0

    def handler(self) -> grpc.GenericRpcHandler:
        """Give what a mutual server is to be told of."""
        answers: dict[str, Callable[[bytes], tuple[str, Callable[[Source], bytes]]]] = {
            "GetOffer": read_offer_question,
            "GetConfigBlock": read_config_question,
            "GetCheckpointBlock": read_checkpoint_question,
            "GetHeads": read_heads_question,
            "GetLeaves": read_leaves_question,
            "GetChunk": read_chunk_question,
        }
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_unary_rpc_method_handler(self._method(read)) for name, read in answers.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _method(self, read: Callable[[bytes], tuple[str, Callable[[Source], bytes]]]) -> Any:
        async def method(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            if self._in_flight >= IN_FLIGHT_MAX:
                await context.abort(*join_status(Busy(f"{IN_FLIGHT_MAX} questions are being answered")))
            self._in_flight += 1
            try:
                channel_id, answer = read(request)
                source, channel = self._sources.get(channel_id), self._channels.get(channel_id)
                if source is None or channel is None:
                    raise NotFound(f"this peer is not in a channel {channel_id}")
                organisation_of(peer_certificate(context), channel.bundle)
                return await asyncio.get_running_loop().run_in_executor(self._executor, answer, source)
            except LedgerError as error:
                await context.abort(*join_status(error))
                raise
            finally:
                self._in_flight -= 1

        return method


def read_offer_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for an offer; give its channel, and how it is answered."""
    return wire.decode_offer_question(request), lambda source: wire.encode_offer(source.offer())


def read_config_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for a config block."""
    asked = wire.decode_block_question(request)
    return asked.channel, lambda source: wire.encode_block_answer(source.config_block(asked.number))


def read_checkpoint_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for the block at a checkpoint."""
    asked = wire.decode_block_question(request)
    return asked.channel, lambda source: wire.encode_block_answer(source.checkpoint_block(asked.number))


def read_heads_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for heads."""
    asked = wire.decode_block_question(request)
    return asked.channel, lambda source: wire.encode_heads(source.heads(asked.number, asked.last))


def read_leaves_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for leaves."""
    asked = wire.decode_block_question(request)
    return asked.channel, lambda source: wire.encode_leaves(source.leaves(asked.number, asked.last))


def read_chunk_question(request: bytes) -> tuple[str, Callable[[Source], bytes]]:
    """Read a question for a chunk."""
    asked = wire.decode_chunk_question(request)
    return asked.channel, lambda source: wire.encode_chunk(source.chunk(asked.checkpoint, asked.chunk))


def join_status(error: LedgerError) -> tuple[grpc.StatusCode, str]:
    """Give the status of an error, with its text."""
    if isinstance(error, NotFound | Pruned):
        return grpc.StatusCode.NOT_FOUND, str(error)
    return status_of(error)
