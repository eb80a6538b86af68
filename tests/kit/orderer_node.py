"""An orderer as clients meet it: its log on disk, its service over TLS on loopback, and a clock that tests set."""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
from fabric_protos.common import common_pb2, configtx_pb2
from fabric_protos.orderer import ab_pb2, ab_pb2_grpc
from fabric_protos.orderer import configuration_pb2 as orderer_pb2

from ledger.client.tls import ClientTls, open_channel
from ledger.core.block import Block
from ledger.core.channel_config import ConfigGroup, ConfigValue
from ledger.core.names import BlockNumber
from ledger.interfaces.grpc.orderer import AtomicBroadcast
from ledger.interfaces.grpc.server import ServerTls, make_server
from ledger.node.authorities import make_authority
from ledger.services.ordering.embedded import EmbeddedOrderer
from ledger.storage.order_log import OrderLog
from ledger.wire.block import decode_block, encode_block
from ledger.wire.codec import CODEC
from ledger.wire.config import encode_group
from tests.kit.channel import CHANNEL, Channel, config_value
from tests.kit.organisations import Organisation, Signer
from tests.kit.transactions import Draft

NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
"""What the clock of these orderers says at first; certificates of the kit are valid then."""


@dataclass
class Clock:
    """A clock that stands still until a test moves it."""

    time: datetime.datetime = NOW

    def __call__(self) -> datetime.datetime:
        return self.time

    def advance(self, **duration: float) -> None:
        self.time += datetime.timedelta(**duration)


def changed(tree: ConfigGroup, path: Sequence[str], change: Callable[[ConfigGroup], ConfigGroup]) -> ConfigGroup:
    """The tree with the group at a path (below /Channel) replaced by what `change` makes of it."""
    if not path:
        return change(tree)
    inner = changed(tree.groups[path[0]], path[1:], change)
    return replace(tree, groups={**tree.groups, path[0]: inner})


def with_values(**values: Any) -> Callable[[ConfigGroup], ConfigGroup]:
    """A change of values at genesis: messages by name."""
    made = {name: config_value(message) for name, message in values.items()}
    return lambda group: replace(group, values={**group.values, **made})


def batching(tree: ConfigGroup, *, count: int = 10, preferred: int = 2**19, absolute: int = 10**6,
             timeout: str = "2s") -> ConfigGroup:  # fmt: skip
    """The tree with other limits for blocks."""
    size = orderer_pb2.BatchSize(max_message_count=count, absolute_max_bytes=absolute, preferred_max_bytes=preferred)
    return changed(
        tree, ["Orderer"], with_values(BatchSize=size, BatchTimeout=orderer_pb2.BatchTimeout(timeout=timeout))
    )


def plain(
    signer: Signer, *, channel: str = CHANNEL, kind: int = 3, data: bytes = b"no transaction", **parts: Any
) -> Draft:
    """An envelope that orderers take whatever is in it."""
    return Draft(channel, signer, (), kind=kind, data=data, **parts)


def update_envelope(
    group_path: Sequence[str],
    values: Mapping[str, Any],
    *,
    signers: Sequence[Signer],
    creator: Signer,
    version: int = 1,
    group_version: int = 0,
    channel: str = CHANNEL,
    extra: Any = None,
) -> Draft:
    """A CONFIG_UPDATE that gives values of one group a new version."""
    target = ConfigGroup(group_version, "", {}, {}, {})
    read = write = target
    made = {name: ConfigValue(version, "Admins", message.SerializeToString()) for name, message in values.items()}
    write = replace(target, values=made)
    for name in reversed(group_path):
        read, write = ConfigGroup(groups={name: read}), ConfigGroup(groups={name: write})
    update = configtx_pb2.ConfigUpdate(
        channel_id=channel, read_set=encode_group(read), write_set=encode_group(write)
    ).SerializeToString()
    signatures = []
    for signer in signers:
        header = common_pb2.SignatureHeader(creator=signer.serialized, nonce=b"nonce").SerializeToString()
        signatures.append(configtx_pb2.ConfigSignature(signature_header=header, signature=signer.sign(header + update)))
    data = configtx_pb2.ConfigUpdateEnvelope(config_update=update, signatures=signatures).SerializeToString()
    return Draft(channel, creator, (), kind=common_pb2.CONFIG_UPDATE, tx_id="", data=data)


@dataclass
class OrdererNode:
    """A running orderer and a client's channel to it."""

    channel: Channel
    log: OrderLog
    orderer: EmbeddedOrderer
    clock: Clock
    client: grpc.aio.Channel
    address: str
    tls_roots: bytes
    stub: Any = field(init=False)

    def __post_init__(self) -> None:
        self.stub = ab_pb2_grpc.AtomicBroadcastStub(self.client)

    def block(self, number: int) -> Block:
        return decode_block(self.orderer.block_bytes(BlockNumber(number)))

    async def send(self, *envelopes: bytes) -> list[tuple[int, str]]:
        """Send envelopes on one stream of their own; give the answers until the stream ends."""
        stream = self.stub.Broadcast()
        for envelope in envelopes:
            await stream.write(common_pb2.Envelope.FromString(envelope))
        await stream.done_writing()
        return [(answer.status, answer.info) async for answer in stream]

    async def seek(self, *seeks: Any, count: int | None = None) -> list[Any]:
        """Send seeks on one stream; give block numbers and statuses, so many of them or until the stream ends."""
        stream = self.stub.Deliver()
        for seek in seeks:
            await stream.write(seek)
        if count is None:
            await stream.done_writing()
        found: list[Any] = []
        async for response in stream:
            is_block = response.WhichOneof("Type") == "block"
            found.append(response.block.header.number if is_block else f"status {response.status}")
            if len(found) == count:
                stream.cancel()
                break
        return found


def specified(number: int) -> Any:
    return ab_pb2.SeekPosition(specified=ab_pb2.SeekSpecified(number=number))


OLDEST = ab_pb2.SeekPosition(oldest=ab_pb2.SeekOldest())
NEWEST = ab_pb2.SeekPosition(newest=ab_pb2.SeekNewest())
NEXT_COMMIT = ab_pb2.SeekPosition(next_commit=ab_pb2.SeekNextCommit())


def seek_info(start: Any, stop: Any, *, fail: bool = False, headers: bool = False) -> bytes:
    return bytes(
        ab_pb2.SeekInfo(
            start=start, stop=stop, behavior=1 if fail else 0, content_type=1 if headers else 0
        ).SerializeToString()
    )


def seek(
    signer: Signer,
    data: bytes,
    *,
    channel: str = CHANNEL,
    at: datetime.datetime | None = NOW,
    nonce: bytes = b"nonce",
    sign: Callable[[bytes], bytes] | None = None,
) -> Any:
    """A signed seek, as a message."""
    header = common_pb2.ChannelHeader(type=common_pb2.DELIVER_SEEK_INFO, channel_id=channel)
    if at is not None:
        header.timestamp.FromDatetime(at)
    payload = common_pb2.Payload(
        header=common_pb2.Header(
            channel_header=header.SerializeToString(),
            signature_header=common_pb2.SignatureHeader(creator=signer.serialized, nonce=nonce).SerializeToString(),
        ),
        data=data,
    ).SerializeToString()
    return common_pb2.Envelope(payload=payload, signature=(sign or signer.sign)(payload))


@contextlib.asynccontextmanager
async def running_orderer(
    directory: Path, tree: ConfigGroup | None = None, *, organisations: Sequence[Organisation] = ()
) -> AsyncIterator[OrdererNode]:
    """Run an orderer of the kit's channel in this process."""
    channel = Channel(organisations, tree=tree)
    clock = Clock()
    authority = make_authority("tlsca", "test", datetime.datetime.now(datetime.UTC))
    tls = authority.issue("orderer", None, ("localhost", "127.0.0.1"))
    log = OrderLog(directory)
    orderer = EmbeddedOrderer(log, encode_block(channel.genesis), channel.orderer, CODEC, clock)
    server, port = make_server("127.0.0.1:0", ServerTls(tls.certificate, tls.key, authority.credential.certificate))
    ab_pb2_grpc.add_AtomicBroadcastServicer_to_server(AtomicBroadcast({CHANNEL: orderer}, clock), server)
    await server.start()
    running = asyncio.create_task(orderer.run())
    address = f"localhost:{port}"
    client = open_channel(address, ClientTls(authority.credential.certificate))
    try:
        yield OrdererNode(channel, log, orderer, clock, client, address, authority.credential.certificate)
    finally:
        await client.close()
        await server.stop(0)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        log.close()
