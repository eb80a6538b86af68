"""How does one submit to an orderer and follow its blocks?  One long-lived stream each."""

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import grpc
from fabric_protos.common import common_pb2
from fabric_protos.orderer import ab_pb2, ab_pb2_grpc

from ledger.client.tls import ClientTls, open_channel
from ledger.core.errors import PeerUnreachable
from ledger.core.ports import Signer

LAST_NUMBER = 2**64 - 1
"""Stop position of who follows for ever."""


def position(number: int) -> Any:
    """Make the seek position of a block."""
    return ab_pb2.SeekPosition(specified=ab_pb2.SeekSpecified(number=number))


def seek_envelope(channel_id: str, signer: Signer, start: Any, stop: Any) -> Any:
    """Make and sign a seek for the blocks between two positions."""
    header = common_pb2.ChannelHeader(type=common_pb2.DELIVER_SEEK_INFO, channel_id=channel_id)
    header.timestamp.FromNanoseconds(time.time_ns())
    seek = ab_pb2.SeekInfo(
        start=start,
        stop=stop,
        behavior=ab_pb2.SeekInfo.BLOCK_UNTIL_READY,
    )
    payload = common_pb2.Payload(
        header=common_pb2.Header(
            channel_header=header.SerializeToString(),
            signature_header=common_pb2.SignatureHeader(
                creator=signer.serialized, nonce=os.urandom(24)
            ).SerializeToString(),
        ),
        data=seek.SerializeToString(),
    ).SerializeToString()
    return common_pb2.Envelope(payload=payload, signature=signer.sign(payload))


class OrdererClient:
    """A connection to one orderer.

    Args:
        address: host:port.
        tls: Whom to trust.
    """

    def __init__(self, address: str, tls: ClientTls | None) -> None:
        """Open the connection lazily."""
        self.address = address
        self._channel = open_channel(address, tls)
        self._stub = ab_pb2_grpc.AtomicBroadcastStub(self._channel)
        self._stream: Any = None
        self._answers: deque[asyncio.Future[tuple[int, str]]] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    async def follow(self, channel_id: str, signer: Signer, start: int) -> AsyncIterator[bytes]:
        """Yield serialized blocks from number `start` on.

        Raises:
            PeerUnreachable: The stream ended or the orderer sent a status: ask again, from where you are.
        """
        call = self._stub.Deliver(_once(seek_envelope(channel_id, signer, position(start), position(LAST_NUMBER))))
        try:
            async for response in call:
                if response.WhichOneof("Type") == "block":
                    yield bytes(response.block.SerializeToString())
                else:
                    raise PeerUnreachable(f"orderer {self.address}: status {response.status} instead of a block")
        except grpc.aio.AioRpcError as error:
            raise PeerUnreachable(f"orderer {self.address}: {error.code().name}: {error.details()}") from error
        finally:
            call.cancel()
        raise PeerUnreachable(f"orderer {self.address}: the stream ended")

    async def newest(self, channel_id: str, signer: Signer) -> int:
        """Give the number of the orderer's newest block.

        Raises:
            PeerUnreachable: It does not say.
        """
        return int(common_pb2.Block.FromString(await self.newest_block(channel_id, signer)).header.number)

    async def newest_block(self, channel_id: str, signer: Signer) -> bytes:
        """Give the orderer's newest block, serialized; raises `PeerUnreachable`."""
        return await self._one(channel_id, signer, ab_pb2.SeekPosition(newest=ab_pb2.SeekNewest()))

    async def block(self, channel_id: str, signer: Signer, number: int) -> bytes:
        """Give a block, serialized; waits for one that is not there yet; raises `PeerUnreachable`."""
        return await self._one(channel_id, signer, position(number))

    async def _one(self, channel_id: str, signer: Signer, at: Any) -> bytes:
        """Seek the block at one position."""
        call = self._stub.Deliver(_once(seek_envelope(channel_id, signer, at, at)))
        try:
            async for response in call:
                if response.WhichOneof("Type") == "block":
                    return bytes(response.block.SerializeToString())
                raise PeerUnreachable(f"orderer {self.address}: status {response.status} instead of a block")
        except grpc.aio.AioRpcError as error:
            raise PeerUnreachable(f"orderer {self.address}: {error.code().name}: {error.details()}") from error
        finally:
            call.cancel()
        raise PeerUnreachable(f"orderer {self.address}: no block")

    async def broadcast(self, envelope: bytes) -> tuple[int, str]:
        """Send an envelope and wait for its status and text.

        Raises:
            PeerUnreachable: The orderer did not answer; whether the envelope is ordered is unknown.
        """
        answer: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        async with self._writing:
            if self._stream is None:
                self._stream = self._stub.Broadcast()
                self._reading = asyncio.create_task(self._read(self._stream))
            self._answers.append(answer)
            try:
                await self._stream.write(common_pb2.Envelope.FromString(envelope))
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                self._drop("the stream broke")
        return await answer

    async def _read(self, stream: Any) -> None:
        """Hand out the answers of a stream in order."""
        reason = "the stream ended"
        try:
            async for response in stream:
                if self._stream is not stream or not self._answers:
                    return
                answer = self._answers.popleft()
                if not answer.done():
                    answer.set_result((response.status, response.info))
        except grpc.aio.AioRpcError as error:
            reason = f"{error.code().name}: {error.details()}"
        finally:
            if self._stream is stream:
                self._drop(reason)

    def _drop(self, reason: str) -> None:
        """Forget a stream that ended; its senders learn that they know nothing."""
        self._stream = None
        answers, self._answers = self._answers, deque()
        for answer in answers:
            if not answer.done():
                answer.set_exception(PeerUnreachable(f"orderer {self.address}: {reason}"))

    async def close(self) -> None:
        """Close the connection."""
        if self._reading is not None:
            self._reading.cancel()
        self._drop("the connection was closed")
        await self._channel.close()


async def _once(message: Any) -> AsyncIterator[Any]:
    """Send one message and keep the sending side open."""
    yield message
    await asyncio.Event().wait()
