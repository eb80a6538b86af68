"""How does a peer answer plain questions of other peers?  Bytes in, bytes out, behind the mutual TLS of checkpointing.

1. What is being answered at once is bounded; whoever is above it asks again ("Busy").
2. The question decodes, and names a channel of this peer's.
3. Who asks has shown a TLS certificate of an organisation of the channel, by its present configuration.
4. An organisation asks so many questions a second, on average, and no more.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Generic, Protocol, TypeVar

import grpc

from ledger.core.channel_config import Bundle
from ledger.core.errors import Busy, LedgerError, NotFound, Pruned
from ledger.interfaces.grpc.checkpointing import organisation_of, peer_certificate, status_of

IN_FLIGHT_MAX = 16
"""Questions that are answered at once; who asks more asks again."""

SourceT = TypeVar("SourceT")

Read = Callable[[bytes], tuple[str, Callable[[SourceT], bytes]]]
"""Reads a question: gives its channel, and how it is answered."""


class Configured(Protocol):
    """A channel, for its configuration."""

    @property
    def bundle(self) -> Bundle:
        """The configuration in force."""
        ...


class Allowance:
    """How many questions an organisation may ask: so many a second on average, and a burst of them.

    Args:
        per_second: On average.
        burst: At once, after a while of silence.
    """

    def __init__(self, per_second: float, burst: int) -> None:
        """Begin with everything allowed."""
        self._per_second = per_second
        self._burst = burst
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, source: str) -> None:
        """Count one question; raises `Busy`."""
        now = time.monotonic()
        left, seen = self._left.get(source, (float(self._burst), now))
        left = min(self._burst, left + (now - seen) * self._per_second)
        if left < 1:
            raise Busy(f"{source} asks more than {self._per_second:g} questions a second")
        self._left[source] = left - 1, now


class AnswerDoor(Generic[SourceT]):
    """A service of plain questions.

    Args:
        service: Its name.
        reads: How the questions of each method are read.
        channels: The peer's channels by name, for their configurations.
        sources: Who answers for each of them.
        executor: Where they do.
        allowance: What each organisation may ask; None for as much as is answered.
    """

    def __init__(
        self,
        service: str,
        reads: Mapping[str, Read[SourceT]],
        channels: Mapping[str, Configured],
        sources: Mapping[str, SourceT],
        executor: Executor,
        allowance: Allowance | None = None,
    ) -> None:
        """Take the parts."""
        self._service = service
        self._reads = reads
        self._channels = channels
        self._sources = sources
        self._executor = executor
        self._allowance = allowance
        self._in_flight = 0

    def handler(self) -> grpc.GenericRpcHandler:
        """Give what a mutual server is to be told of."""
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_unary_rpc_method_handler(self._method(read)) for name, read in self._reads.items()
        }
        return grpc.method_handlers_generic_handler(self._service, methods)

    def _method(self, read: Read[SourceT]) -> Any:
        async def method(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            if self._in_flight >= IN_FLIGHT_MAX:
                await context.abort(*answer_status(Busy(f"{IN_FLIGHT_MAX} questions are being answered")))
            self._in_flight += 1
            try:
                channel_id, answer = read(request)
                source, channel = self._sources.get(channel_id), self._channels.get(channel_id)
                if source is None or channel is None:
                    raise NotFound(f"this peer is not in a channel {channel_id}")
                organisation = organisation_of(peer_certificate(context), channel.bundle)
                if self._allowance is not None:
                    self._allowance.take(organisation)
                return await asyncio.get_running_loop().run_in_executor(self._executor, answer, source)
            except LedgerError as error:
                await context.abort(*answer_status(error))
                raise
            finally:
                self._in_flight -= 1

        return method


def answer_status(error: LedgerError) -> tuple[grpc.StatusCode, str]:
    """Give the status of an error, with its text."""
    if isinstance(error, NotFound | Pruned):
        return grpc.StatusCode.NOT_FOUND, str(error)
    return status_of(error)


__all__ = ["Allowance", "AnswerDoor", "Configured", "Read", "answer_status"]
