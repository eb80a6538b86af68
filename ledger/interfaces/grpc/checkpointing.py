"""How do other peers reach this one about checkpoints?  `ledger.v1.Checkpointing`, behind mutual TLS.

Whoever connects has shown a certificate of one of the roots that the server takes. Before a conversation begins:

1. its first notice decodes, and is a greeting ("greeting first");
2. the channel of the greeting is one of this peer's ("channel");
3. the certificate was issued by a TLS certificate authority of an organisation of that channel, by the channel's
   present configuration ("TLS certificate").

That organisation is the *source* of what is said in the conversation: quotas go by it. Who signed a checkpoint is
another question, which the signatures answer.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

import grpc

from ledger.core.certificates import Certificate, is_signed_by, parse_pem
from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import Hello, Notice
from ledger.core.errors import (
    Busy,
    Forbidden,
    InvalidIdentity,
    LedgerError,
    MalformedMessage,
    PeerUnreachable,
    Refused,
    WorldFailed,
)
from ledger.wire.checkpoint import decode_notice, encode_notice

SERVICE, METHOD = "ledger.v1.Checkpointing", "Exchange"

SETTLE_TIMEOUT_S = 2.0
"""How long the last notice may take to leave before the conversation ends."""

TLS_ROOTS_KEY = "TLS certificate authorities of checkpointing"
"""Where a configuration remembers its authorities."""


class Line(Protocol):
    """A conversation, as `services.checkpointing` sees it."""

    @property
    def source(self) -> str:
        """Whose messages these are."""
        ...

    async def read(self) -> Notice | None:
        """Wait for the next notice; None at the end."""
        ...

    async def write(self, notice: Notice) -> None:
        """Send a notice."""
        ...


class Conversations(Protocol):
    """Who talks about the checkpoints of a channel; `services.checkpointing.CheckpointingService`."""

    async def converse(self, line: Line) -> None:
        """Talk until either side ends it."""
        ...


class Configured(Protocol):
    """A channel, for its configuration."""

    @property
    def bundle(self) -> Bundle:
        """The configuration in force."""
        ...


class ServerLine:
    """The conversation that another peer opened.

    Args:
        source: The organisation that its certificate shows.
        first: The greeting, which was read already.
        context: The call.
    """

    def __init__(self, source: str, first: Notice, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """Stand before the greeting."""
        self.source = source
        self._first: Notice | None = first
        self._context = context
        self._writing: asyncio.Future[None] | None = None

    async def read(self) -> Notice | None:
        """Give the greeting first, then wait for what follows; None at the end; raises `MalformedMessage`."""
        first, self._first = self._first, None
        return first if first is not None else await read_notice(self._context)

    async def write(self, notice: Notice) -> None:
        """Send a notice; raises `PeerUnreachable`."""
        self._writing = asyncio.ensure_future(self._context.write(encode_notice(notice)))
        try:
            await asyncio.shield(self._writing)
        except (grpc.aio.BaseError, grpc.RpcError) as error:
            raise PeerUnreachable(f"peer of {self.source}: {error}") from error

    async def settle(self) -> None:
        """Let a notice that is leaving leave: gRPC takes no status while a write is under way, cancelled or not."""
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=SETTLE_TIMEOUT_S)
            if self._writing.done() and not self._writing.cancelled():
                self._writing.exception()  # Whoever waited has heard of it.


class CheckpointingDoor:
    """The service.

    Args:
        channels: The peer's channels by name, for their configurations.
        services: Who talks about each of them.
    """

    def __init__(self, channels: Mapping[str, Configured], services: Mapping[str, Conversations]) -> None:
        """Take the channels."""
        self._channels = channels
        self._services = services

    def handler(self) -> grpc.GenericRpcHandler:
        """Give what a mutual server is to be told of."""
        method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self.exchange)
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})

    async def exchange(self, _: Any, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """Have one conversation; bytes in and bytes out."""
        try:
            await self._converse(context)
        except LedgerError as error:
            await context.abort(*status_of(error))
        except ExceptionGroup as group:
            known, unknown = group.split(LedgerError)
            if known is None or unknown is not None:
                raise
            await context.abort(*status_of(first_of(known)))

    async def _converse(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        hello = await read_greeting(context)
        service, channel = self._services.get(hello.channel), self._channels.get(hello.channel)
        if service is None or channel is None:
            raise Forbidden("checkpoint conversation", rule="channel", found=hello.channel)
        source = organisation_of(peer_certificate(context), channel.bundle)
        line = ServerLine(source, hello, context)
        try:
            await service.converse(line)
        finally:
            await line.settle()


async def read_greeting(context: grpc.aio.ServicerContext[bytes, bytes]) -> Hello:
    """Read the first notice of a conversation.

    Raises:
        MalformedMessage: It is no greeting.
    """
    notice = await read_notice(context)
    if not isinstance(notice, Hello):
        found = "nothing" if notice is None else type(notice).__name__
        raise MalformedMessage("checkpoint conversation", rule="greeting first", expected="a greeting", found=found)
    return notice


async def read_notice(context: grpc.aio.ServicerContext[bytes, bytes]) -> Notice | None:
    """Read one notice; None at the end; raises `MalformedMessage`."""
    data: Any = await context.read()
    return None if data is grpc.aio.EOF else decode_notice(data)


def peer_certificate(context: grpc.aio.ServicerContext[bytes, bytes]) -> Certificate:
    """Give the certificate that the other side showed; the server has checked that it holds the key.

    Raises:
        InvalidIdentity: There is none, or one that we don't read.
    """
    shown = context.auth_context().get("x509_pem_cert") or ()
    return parse_pem(next(iter(shown), b""), "TLS certificate")


def organisation_of(certificate: Certificate, bundle: Bundle) -> str:
    """Give the MSP ID of the organisation of a channel whose TLS authority issued a certificate.

    Where organisations share an authority it is the first of them: it is for quotas alone.

    Raises:
        Forbidden: There is none.
    """
    for msp_id, authority in authorities(bundle):
        if authority.subject == certificate.issuer and is_signed_by(certificate, authority):
            return msp_id
    raise Forbidden(
        "checkpoint conversation",
        rule="TLS certificate",
        expected=f"one of an organisation of {bundle.channel_id}",
        found=certificate.common_name,
    )


def authorities(bundle: Bundle) -> tuple[tuple[str, Certificate], ...]:
    """List the TLS authorities of a channel's organisations with their MSP IDs."""
    known: Any = bundle.cache.get(TLS_ROOTS_KEY)
    if known is None:
        known = bundle.cache[TLS_ROOTS_KEY] = tuple(
            (organisation.msp_id, parse_pem(pem))
            for organisation in bundle.application.organisations
            for pem in (*organisation.msp.tls_root_certs, *organisation.msp.tls_intermediate_certs)
        )
    found: tuple[tuple[str, Certificate], ...] = known
    return found


def first_of(group: ExceptionGroup[LedgerError]) -> LedgerError:
    """Give one error of a group, what the other side did wrong before what broke because of it."""
    errors: list[LedgerError] = []
    waiting: list[Exception] = [group]
    while waiting:
        error = waiting.pop()
        if isinstance(error, ExceptionGroup):
            waiting += error.exceptions
        elif isinstance(error, LedgerError):
            errors.append(error)
    return next((error for error in errors if isinstance(error, Refused)), errors[0])


def status_of(error: LedgerError) -> tuple[grpc.StatusCode, str]:
    """Give the status of an error, with its text."""
    match error:
        case Forbidden(rule="channel"):
            return grpc.StatusCode.NOT_FOUND, str(error)
        case Forbidden() | InvalidIdentity():
            return grpc.StatusCode.PERMISSION_DENIED, str(error)
        case Refused():
            return grpc.StatusCode.INVALID_ARGUMENT, str(error)
        case Busy():
            return grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
        case WorldFailed():
            return grpc.StatusCode.UNAVAILABLE, str(error)
        case _:
            return grpc.StatusCode.INTERNAL, str(error)


__all__ = ["CheckpointingDoor", "organisation_of", "status_of"]
