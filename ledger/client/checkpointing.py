"""How does one peer reach another to agree on checkpoints?  `ledger.v1.Checkpointing` over gRPC with mutual TLS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from ledger.client.tls import ClientTls, open_channel
from ledger.core.checkpoint import Notice
from ledger.core.errors import PeerUnreachable
from ledger.wire.checkpoint import decode_notice, encode_notice

METHOD = "/ledger.v1.Checkpointing/Exchange"


class ClientLine:
    """The conversation that we opened.

    Args:
        source: Whose messages these are, for quotas.
        call: The open stream, of bytes.
    """

    def __init__(self, source: str, call: Any) -> None:
        """Take the stream."""
        self.source = source
        self._call = call

    async def read(self) -> Notice | None:
        """Wait for the next notice; None where the other side ended the conversation.

        Raises:
            MalformedMessage: The other side sent something that is no notice.
            PeerUnreachable: The connection broke, or the other side refused; its reason is in the text.
        """
        try:
            data = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._broken(f"{error.code().name}: {error.details()}") from error
        except asyncio.CancelledError as error:
            raise self._cancelled_there() from error
        return None if data is grpc.aio.EOF else decode_notice(data)

    async def write(self, notice: Notice) -> None:
        """Send a notice; raises `PeerUnreachable`."""
        try:
            await self._call.write(encode_notice(notice))
        except grpc.aio.AioRpcError as error:
            raise self._broken(f"{error.code().name}: {error.details()}") from error
        except asyncio.InvalidStateError as error:
            raise self._broken("the stream has ended") from error
        except asyncio.CancelledError as error:
            raise self._cancelled_there() from error

    def _cancelled_there(self) -> BaseException:
        """Tell our own cancellation from the other side's, which gRPC raises as the same error."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return asyncio.CancelledError()
        return self._broken("CANCELLED")

    def _broken(self, reason: str) -> PeerUnreachable:
        return PeerUnreachable(f"peer {self.source}: {reason}")


class CheckpointLink:
    """A way to one other peer, about one channel; the greeting says which.

    Args:
        name: Its name, for people.
        address: host:port of its checkpointing service.
        tls: Whom to trust, and what to show: the other side asks for a certificate.
    """

    def __init__(self, name: str, address: str, tls: ClientTls) -> None:
        """Take the address; nothing is opened yet."""
        self.name = name
        self.address = address
        self._tls = tls

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ClientLine]:
        """Open a conversation, and close the connection behind it; a failure to connect shows at its first use."""
        channel = open_channel(self.address, self._tls)
        try:
            method: Any = channel.stream_stream(METHOD)
            call = method()
            try:
                yield ClientLine(self.name, call)
            finally:
                call.cancel()
        finally:
            await channel.close()


__all__ = ["CheckpointLink", "ClientLine"]
