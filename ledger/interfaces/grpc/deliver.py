"""Who may read which blocks, from where to where?  Fabric's Deliver, for orderers and peers alike.

Source: fabric common/deliver. Checks of a seek, in order, each with its status: 1. the envelope parses and its time is
within the window (400); 2. the channel exists (404); 3. the SeekInfo parses (400); 4. the creator's certificate has not
expired and the readers' policy holds (403); 5. start and stop are there and in order (400). Step 4 is asked again
before every block: the certificate may expire while the stream goes on, and the policy changes with the configuration.
After the stop block comes SUCCESS, and the next seek is read from the same stream; any other status ends it.

A block that was pruned has no status of Fabric's: the call ends with FAILED_PRECONDITION and a text that names the
first whole block. "Oldest" is the first block that is held whole.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import grpc
from fabric_protos.common import common_pb2
from fabric_protos.orderer import ab_pb2

from ledger.core.channel_config import Bundle
from ledger.core.errors import InvalidIdentity, MalformedMessage, NotFound, PolicyNotSatisfied, Pruned
from ledger.core.names import BlockNumber
from ledger.core.policy.evaluate import SignedData
from ledger.wire.block import decode_block, is_config_block
from ledger.wire.messages import parse

TIME_WINDOW_S = 15 * 60
"""How far a seek's time may be from ours."""

BAD_REQUEST, FORBIDDEN, NOT_FOUND, SUCCESS = 400, 403, 404, 200
HEADER_WITH_SIG_BYTES = 1
"""SeekInfo.SeekContentType: data blocks come without their envelopes."""


class BlockSource(Protocol):
    """A channel whose blocks can be delivered."""

    @property
    def bundle(self) -> Bundle:
        """The configuration in force."""
        ...

    @property
    def height(self) -> int:
        """Number of durable blocks."""
        ...

    @property
    def first_block(self) -> BlockNumber:
        """First block that is held whole."""
        ...

    def block_bytes(self, number: BlockNumber) -> bytes:
        """Read a serialized block; raises `Pruned`, `NotFound`."""
        ...

    async def wait_above(self, height: int) -> int:
        """Wait until the height is above `height`."""
        ...


@dataclass(frozen=True, slots=True)
class Refusal(Exception):  # It is a status, not an error of ours.
    """A seek that is answered with a status."""

    status: int


@dataclass(frozen=True, slots=True)
class Seek:
    """A checked seek."""

    source: BlockSource
    start: int
    stop: int
    fail_if_not_ready: bool
    headers_only: bool
    signed: SignedData
    expires_at: datetime
    """End of the asker's certificate."""


Render = Callable[[BlockSource, bytes, Seek], Any]
"""Makes the response message of a serialized block."""


class DeliverEngine:
    """Serves seeks of one kind.

    Args:
        sources: Gives the channel of a name, None if there is none.
        policy: Gives the path of the policy that readers must satisfy, in a configuration.
        now: The clock.
        render: Makes responses of blocks.
        status: Makes responses of statuses.
    """

    def __init__(
        self,
        sources: Callable[[str], BlockSource | None],
        policy: Callable[[Bundle], str],
        now: Callable[[], datetime],
        render: Render,
        status: Callable[[int], Any],
    ) -> None:
        """Take the parts."""
        self._sources = sources
        self._policy = policy
        self._now = now
        self._render = render
        self._status = status

    async def serve(
        self, requests: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """Answer the seeks of one stream in turn."""
        async for envelope in requests:
            try:
                seek = self._check(envelope)
                async for response in self._deliver(seek, context):
                    yield response
            except Refusal as refusal:
                yield self._status(refusal.status)
                return
            yield self._status(SUCCESS)

    def _check(self, envelope: Any) -> Seek:
        """Check a seek (steps above)."""
        try:
            payload = parse(common_pb2.Payload, envelope.payload, "Payload")
            if not payload.HasField("header"):
                raise Refusal(BAD_REQUEST)
            header = parse(common_pb2.ChannelHeader, payload.header.channel_header, "ChannelHeader")
            signer = parse(common_pb2.SignatureHeader, payload.header.signature_header, "SignatureHeader")
        except MalformedMessage as error:
            raise Refusal(BAD_REQUEST) from error
        asked_at = header.timestamp.seconds + header.timestamp.nanos / 1e9
        if not header.HasField("timestamp") or abs(self._now().timestamp() - asked_at) > TIME_WINDOW_S:
            raise Refusal(BAD_REQUEST)
        source = self._sources(header.channel_id)
        if source is None:
            raise Refusal(NOT_FOUND)
        try:
            info = parse(ab_pb2.SeekInfo, payload.data, "SeekInfo")
        except MalformedMessage as error:
            raise Refusal(BAD_REQUEST) from error
        signed = SignedData(envelope.payload, signer.creator, envelope.signature)
        return make_seek(info, source, signed, self._check_reader(source, signed))

    def _check_reader(self, source: BlockSource, signed: SignedData) -> datetime:
        """Check that the asker may read now (step 4); give the end of its certificate."""
        bundle = source.bundle
        try:
            identity = bundle.msps.deserialize(signed.identity)
            if identity.certificate.not_after < self._now():
                raise Refusal(FORBIDDEN)
            bundle.check(self._policy(bundle), (signed,))
        except (InvalidIdentity, PolicyNotSatisfied) as error:
            raise Refusal(FORBIDDEN) from error
        return identity.certificate.not_after

    async def _deliver(self, seek: Seek, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        """Send the blocks of a seek."""
        source, sequence = seek.source, seek.source.bundle.sequence
        number = seek.start
        while number <= seek.stop:
            if number >= source.height:
                if seek.fail_if_not_ready:
                    raise Refusal(NOT_FOUND)
                await source.wait_above(number)
            if seek.expires_at < self._now():
                raise Refusal(FORBIDDEN)
            if source.bundle.sequence != sequence:
                sequence = source.bundle.sequence
                self._check_reader(source, seek.signed)
            try:
                data = source.block_bytes(BlockNumber(number))
            except Pruned as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            except NotFound as error:
                raise Refusal(NOT_FOUND) from error
            yield self._render(source, data, seek)
            number += 1


def make_seek(info: Any, source: BlockSource, signed: SignedData, expires_at: datetime) -> Seek:
    """Find the first and last number of a seek (step 5)."""
    height, first = source.height, int(source.first_block)
    start_kind, stop_kind = (part.WhichOneof("Type") for part in (info.start, info.stop))
    if start_kind is None or stop_kind is None:
        raise Refusal(BAD_REQUEST)
    match start_kind:
        case "oldest":
            start = first
        case "newest":
            start = height - 1
        case "next_commit":
            start = height
        case _:
            start = info.start.specified.number
            if start > height:
                raise Refusal(NOT_FOUND)
    match stop_kind:
        case "oldest":
            stop = start
        case "newest":
            stop = start if start_kind == "newest" else height - 1
        case "next_commit":
            stop = height
        case _:
            stop = info.stop.specified.number
            if stop < start:
                raise Refusal(BAD_REQUEST)
    headers_only = info.content_type == HEADER_WITH_SIG_BYTES
    fail_if_not_ready = info.behavior == ab_pb2.SeekInfo.FAIL_IF_NOT_READY
    return Seek(source, start, stop, fail_if_not_ready, headers_only, signed, expires_at)


def block_message(data: bytes, seek: Seek) -> Any:
    """Make the block message of a response; without envelopes where only headers were asked for."""
    block = common_pb2.Block.FromString(data)
    if seek.headers_only and not is_config_block(decode_block(data)):
        block.ClearField("data")
    return block
