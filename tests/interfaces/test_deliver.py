"""Deliver over real TLS: from where to where, who may read, which status, and when a stream ends."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from fabric_protos.common import common_pb2, configtx_pb2
from fabric_protos.orderer import ab_pb2
from fabric_protos.orderer import configuration_pb2 as orderer_pb2

from ledger.client.tls import ClientTls, open_channel
from ledger.core.channel_config import Bundle, ConfigGroup
from ledger.core.errors import Pruned
from ledger.core.names import BlockNumber
from ledger.core.policy.ast import Role
from ledger.interfaces.grpc.deliver import TIME_WINDOW_S, DeliverEngine
from ledger.interfaces.grpc.orderer import readers, render
from ledger.interfaces.grpc.server import ServerTls, make_server
from ledger.node.authorities import make_authority
from ledger.services.events import BlockFeed
from ledger.wire.block import encode_block
from ledger.wire.config import encode_group
from tests.kit.channel import CHANNEL, Channel, config_policy, out_of
from tests.kit.orderer_node import (
    NEWEST,
    NEXT_COMMIT,
    NOW,
    OLDEST,
    OrdererNode,
    batching,
    changed,
    plain,
    running_orderer,
    seek,
    seek_info,
    specified,
    update_envelope,
)
from tests.kit.organisations import make_organisation, shared_organisation

ORG1 = shared_organisation("Org1MSP")
ORG2 = shared_organisation("Org2MSP")
ORDERERS = shared_organisation("OrdererMSP")
CLIENT = ORG1.client
LAST = 2**64 - 1
HEIGHT = 6
CONFIG_BLOCK = 3
SUCCESS, BAD_REQUEST, FORBIDDEN, NOT_FOUND = "status 200", "status 400", "status 403", "status 404"


def size_update(count: int, version: int = 1) -> bytes:
    size = orderer_pb2.BatchSize(max_message_count=count, absolute_max_bytes=10**6, preferred_max_bytes=10**5)
    return update_envelope(
        ["Orderer"], {"BatchSize": size}, version=version, signers=[ORDERERS.admin], creator=ORDERERS.admin
    ).envelope()


async def fill(node: OrdererNode) -> None:
    """Blocks 1 to 5, the third of them a config block."""
    for number in range(1, HEIGHT):
        envelope = size_update(1) if number == CONFIG_BLOCK else plain(CLIENT).envelope()
        assert await node.send(envelope) == [(200, "")]


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[OrdererNode]:
    async with running_orderer(tmp_path / "log", batching(Channel().tree, count=1)) as made:
        await fill(made)
        yield made


# From where to where.

SEEKS: dict[str, tuple[Any, Any, bool, list[Any]]] = {
    "oldest to newest": (OLDEST, NEWEST, False, [0, 1, 2, 3, 4, 5, SUCCESS]),
    "oldest alone": (OLDEST, OLDEST, False, [0, SUCCESS]),
    "newest alone": (NEWEST, NEWEST, False, [5, SUCCESS]),
    "one by number": (specified(2), specified(2), False, [2, SUCCESS]),
    "some by number": (specified(2), specified(4), True, [2, 3, 4, SUCCESS]),
    "number to oldest is that one": (specified(2), OLDEST, False, [2, SUCCESS]),
    "number to newest": (specified(4), NEWEST, False, [4, 5, SUCCESS]),
    "stop before start": (specified(3), specified(2), False, [BAD_REQUEST]),
    "newest to an older number": (NEWEST, specified(4), False, [BAD_REQUEST]),
    "beyond the next block": (specified(HEIGHT + 1), specified(LAST), False, [NOT_FOUND]),
    "beyond the next block, failing": (specified(HEIGHT + 1), specified(LAST), True, [NOT_FOUND]),
    "next block, failing": (specified(HEIGHT), specified(LAST), True, [NOT_FOUND]),
    "next commit, failing": (NEXT_COMMIT, specified(LAST), True, [NOT_FOUND]),
    "to beyond the end, failing": (specified(4), specified(9), True, [4, 5, NOT_FOUND]),
    "for ever, failing": (OLDEST, specified(LAST), True, [0, 1, 2, 3, 4, 5, NOT_FOUND]),
    "no start": (None, NEWEST, False, [BAD_REQUEST]),
    "no stop": (OLDEST, None, False, [BAD_REQUEST]),
    "start without a kind": (ab_pb2.SeekPosition(), NEWEST, False, [BAD_REQUEST]),
}


@pytest.mark.parametrize("case", SEEKS)
async def test_seek_gets_its_blocks_and_its_status(case: str, node: OrdererNode) -> None:
    start, stop, fail, expected = SEEKS[case]
    assert await node.seek(seek(CLIENT, seek_info(start, stop, fail=fail))) == expected


async def test_blocks_are_those_of_the_log_byte_for_byte(node: OrdererNode) -> None:
    stream = node.stub.Deliver()
    await stream.write(seek(CLIENT, seek_info(OLDEST, NEWEST)))
    await stream.done_writing()
    found = [response.block.SerializeToString() async for response in stream if response.HasField("block")]
    assert found == [node.orderer.block_bytes(BlockNumber(number)) for number in range(HEIGHT)]


@pytest.mark.parametrize("start", [NEXT_COMMIT, specified(HEIGHT)], ids=["next commit", "next number"])
async def test_who_waits_gets_the_next_blocks_as_they_are_made(start: Any, node: OrdererNode) -> None:
    waiting = asyncio.create_task(node.seek(seek(CLIENT, seek_info(start, specified(HEIGHT + 1)))))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert await node.send(plain(CLIENT).envelope(), plain(CLIENT).envelope()) == [(200, ""), (200, "")]
    assert await asyncio.wait_for(waiting, 5) == [HEIGHT, HEIGHT + 1, SUCCESS]


async def test_who_waits_and_goes_away_leaves_nobody_waiting(node: OrdererNode) -> None:
    stream = node.stub.Deliver()
    await stream.write(seek(CLIENT, seek_info(NEXT_COMMIT, specified(LAST))))
    await asyncio.sleep(0.05)
    assert len(node.orderer.feed._waiting) == 1
    stream.cancel()
    async with asyncio.timeout(5):
        while node.orderer.feed._waiting:  # noqa: ASYNC110 (nobody tells of a waiter that left)
            await asyncio.sleep(0.01)


async def test_seeks_on_one_stream_are_served_in_turn_until_one_fails(node: OrdererNode) -> None:
    first, second = seek_info(specified(1), specified(2)), seek_info(NEWEST, NEWEST)
    bad = seek_info(specified(3), specified(2))
    answers = await node.seek(*(seek(CLIENT, each) for each in (first, second, bad, first)))
    assert answers == [1, 2, SUCCESS, 5, SUCCESS, BAD_REQUEST]


async def test_headers_alone_come_without_data_but_configurations_whole(node: OrdererNode) -> None:
    stream = node.stub.Deliver()
    await stream.write(seek(CLIENT, seek_info(OLDEST, NEWEST, headers=True)))
    await stream.done_writing()
    blocks = [response.block async for response in stream if response.HasField("block")]
    assert [block.header.number for block in blocks] == list(range(HEIGHT))
    for block in blocks:
        whole = common_pb2.Block.FromString(node.orderer.block_bytes(BlockNumber(block.header.number)))
        assert (block.header, block.metadata) == (whole.header, whole.metadata), "enough to check the signatures"
        if block.header.number in (0, CONFIG_BLOCK):
            assert block.data == whole.data
        else:
            assert not block.HasField("data")


# Malformed seeks, and who may read.


def raw(payload: bytes) -> Any:
    return common_pb2.Envelope(payload=payload, signature=CLIENT.sign(payload))


def headed(channel_header: bytes, signature_header: bytes) -> Any:
    header = common_pb2.Header(channel_header=channel_header, signature_header=signature_header)
    return raw(common_pb2.Payload(header=header, data=seek_info(OLDEST, OLDEST)).SerializeToString())


STRANGER = make_organisation("StrangerMSP").client
IMPOSTOR = make_organisation("Org1MSP").client
EXPIRED = ORG1.issue("reader who expired", "client", not_after=NOW - datetime.timedelta(seconds=1))
WINDOW = datetime.timedelta(seconds=TIME_WINDOW_S)
ONE = seek_info(OLDEST, OLDEST)

ASKED: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "payload garbage": (lambda: raw(b"\xff\xff"), [BAD_REQUEST]),
    "no payload": (lambda: common_pb2.Envelope(), [BAD_REQUEST]),
    "channel header garbage": (lambda: headed(b"\xff\xff", b""), [BAD_REQUEST]),
    "signature header garbage": (lambda: headed(b"", b"\xff\xff"), [BAD_REQUEST]),
    "no time": (lambda: seek(CLIENT, ONE, at=None), [BAD_REQUEST]),
    "too old": (lambda: seek(CLIENT, ONE, at=NOW - WINDOW - datetime.timedelta(seconds=1)), [BAD_REQUEST]),
    "too new": (lambda: seek(CLIENT, ONE, at=NOW + WINDOW + datetime.timedelta(seconds=1)), [BAD_REQUEST]),
    "just old enough": (lambda: seek(CLIENT, ONE, at=NOW - WINDOW), [0, SUCCESS]),
    "unknown channel": (lambda: seek(CLIENT, ONE, channel="nope"), [NOT_FOUND]),
    "unknown channel, stranger": (lambda: seek(STRANGER, ONE, channel="nope"), [NOT_FOUND]),
    "seek garbage": (lambda: seek(CLIENT, b"\xff\xff"), [BAD_REQUEST]),
    "no seek": (lambda: seek(CLIENT, b""), [BAD_REQUEST]),
    "wrong signature": (lambda: seek(CLIENT, ONE, sign=lambda _: CLIENT.sign(b"other")), [FORBIDDEN]),
    "no signature": (lambda: seek(CLIENT, ONE, sign=lambda _: b""), [FORBIDDEN]),
    "stranger": (lambda: seek(STRANGER, ONE), [FORBIDDEN]),
    "impostor": (lambda: seek(IMPOSTOR, ONE), [FORBIDDEN]),
    "expired": (lambda: seek(EXPIRED, ONE), [FORBIDDEN]),
    "creator garbage": (lambda: seek(replace(CLIENT, serialized=b"\xff\xff"), ONE), [FORBIDDEN]),
    "no creator": (lambda: seek(replace(CLIENT, serialized=b""), ONE), [FORBIDDEN]),
    "no nonce": (lambda: seek(CLIENT, ONE, nonce=b""), [0, SUCCESS]),
    "peer": (lambda: seek(ORG2.peer, ONE), [0, SUCCESS]),
    "orderer": (lambda: seek(ORDERERS.admin, ONE), [0, SUCCESS]),
}


@pytest.mark.parametrize("case", ASKED)
async def test_asker_gets_the_status_of_the_first_check_that_fails(case: str, node: OrdererNode) -> None:
    make, expected = ASKED[case]
    assert await node.seek(make()) == expected


async def test_reader_whose_certificate_expires_while_it_follows_is_forbidden_from_then_on(node: OrdererNode) -> None:
    reader = ORG1.issue("reader for a minute", "client", not_after=NOW + datetime.timedelta(minutes=1))
    following = asyncio.create_task(node.seek(seek(reader, seek_info(NEXT_COMMIT, specified(LAST)))))
    await asyncio.sleep(0.05)
    await node.send(plain(CLIENT).envelope())
    await asyncio.sleep(0.05)
    node.clock.advance(minutes=2)
    await node.send(plain(CLIENT).envelope())
    assert await asyncio.wait_for(following, 5) == [HEIGHT, FORBIDDEN]


def readers_policy(*roles: tuple[str, Role]) -> Callable[[ConfigGroup], ConfigGroup]:
    return lambda group: replace(group, policies={**group.policies, "Readers": config_policy(out_of(1, *roles))})


async def test_reader_outside_the_readers_policy_is_forbidden(tmp_path: Path) -> None:
    tree = changed(Channel().tree, ["Application", "Org1"], readers_policy(("Org1MSP", Role.ADMIN)))
    async with running_orderer(tmp_path, tree) as node:
        assert await node.seek(seek(CLIENT, ONE)) == [FORBIDDEN]
        assert await node.seek(seek(ORG1.admin, ONE)) == [0, SUCCESS]
        assert await node.seek(seek(ORG2.client, ONE)) == [0, SUCCESS]


async def test_followers_that_a_new_configuration_shuts_out_are_forbidden_before_its_block(node: OrdererNode) -> None:
    """Maintenance leaves the orderers' organisation alone as readers: others are asked again before the next block."""
    follower = asyncio.create_task(node.seek(seek(CLIENT, seek_info(NEXT_COMMIT, specified(LAST)))))
    orderer = asyncio.create_task(node.seek(seek(ORDERERS.admin, seek_info(NEXT_COMMIT, specified(HEIGHT + 1)))))
    await asyncio.sleep(0.05)
    maintenance = {"ConsensusType": orderer_pb2.ConsensusType(type="etcdraft", state=1)}
    update = update_envelope(["Orderer"], maintenance, signers=[ORDERERS.admin], creator=ORDERERS.admin).envelope()
    assert await node.send(update) == [(200, "")]
    last = update_envelope(
        ["Orderer"], {"ConsensusType": orderer_pb2.ConsensusType(type="etcdraft")}, version=2,
        signers=[ORDERERS.admin], creator=ORDERERS.admin,
    ).envelope()  # fmt: skip
    assert await node.seek(seek(CLIENT, ONE)) == [FORBIDDEN]
    assert await node.send(last) == [(200, "")]
    assert await asyncio.wait_for(orderer, 5) == [HEIGHT, HEIGHT + 1, SUCCESS]
    assert await asyncio.wait_for(follower, 5) == [FORBIDDEN]
    assert await node.seek(seek(CLIENT, ONE)) == [0, SUCCESS]


async def test_organisation_that_is_removed_while_it_follows_is_forbidden(tmp_path: Path) -> None:
    async with running_orderer(tmp_path, batching(Channel().tree, count=1)) as node:
        following = asyncio.create_task(node.seek(seek(CLIENT, seek_info(OLDEST, specified(LAST)))))
        await asyncio.sleep(0.05)
        update = remove_org1(node).envelope()
        assert await node.send(update) == [(200, "")]
        assert await node.send(plain(ORG2.client).envelope()) == [(200, "")]
        assert await asyncio.wait_for(following, 5) == [0, FORBIDDEN]
        assert await node.seek(seek(CLIENT, ONE)) == [FORBIDDEN]


def remove_org1(node: OrdererNode) -> Any:
    """An update by which the application group no longer names the first organisation."""
    application = node.channel.tree.groups["Application"]
    bare = {name: ConfigGroup() for name in application.groups}
    values = {name: replace(value, value=b"", mod_policy="") for name, value in application.values.items()}
    policies = {
        name: replace(policy, kind=None, value=b"", mod_policy="") for name, policy in application.policies.items()
    }
    read = ConfigGroup(groups={"Application": ConfigGroup(groups=bare, values=values, policies=policies)})
    write = ConfigGroup(
        groups={
            "Application": ConfigGroup(
                1, "Admins", {"Org2": ConfigGroup()}, dict(application.values), dict(application.policies)
            )
        }
    )
    update = configtx_pb2.ConfigUpdate(
        channel_id=CHANNEL, read_set=encode_group(read), write_set=encode_group(write)
    ).SerializeToString()
    signatures = []
    for admin in (ORG1.admin, ORG2.admin):
        header = common_pb2.SignatureHeader(creator=admin.serialized, nonce=b"nonce").SerializeToString()
        signatures.append(configtx_pb2.ConfigSignature(signature_header=header, signature=admin.sign(header + update)))
    data = configtx_pb2.ConfigUpdateEnvelope(config_update=update, signatures=signatures).SerializeToString()
    return plain(ORG1.admin, kind=common_pb2.CONFIG_UPDATE, tx_id="", data=data)


# What was pruned.


class PrunedSource:
    """A channel of which blocks below 4 are gone."""

    first_block = BlockNumber(4)

    def __init__(self, channel: Channel) -> None:
        self.bundle: Bundle = channel.bundle
        self._channel = channel
        self._blocks = [encode_block(channel.genesis)]
        self.feed = BlockFeed(1)
        while len(self._blocks) < HEIGHT:
            block = channel.block(plain(CLIENT).envelope())
            channel.commit_block(block)
            self._blocks.append(encode_block(block))
        self.feed.publish(HEIGHT)

    @property
    def height(self) -> int:
        return self.feed.height

    def block_bytes(self, number: BlockNumber) -> bytes:
        if number < self.first_block:
            raise Pruned(block=number, first_block=self.first_block)
        return self._blocks[number]

    async def wait_above(self, height: int) -> int:
        return await self.feed.wait_above(height)


@pytest_asyncio.fixture
async def pruned() -> AsyncIterator[Callable[[Any], Any]]:
    """Serves the pruned channel; gives a way to ask it."""
    source = PrunedSource(Channel())
    engine = DeliverEngine(
        {CHANNEL: source}.get, readers, lambda: NOW, render, lambda code: ab_pb2.DeliverResponse(status=code)
    )
    authority = make_authority("tlsca", "test", datetime.datetime.now(datetime.UTC))
    tls = authority.issue("peer", None, ("localhost",))
    root = authority.credential.certificate
    server, port = make_server("127.0.0.1:0", ServerTls(tls.certificate, tls.key, root))
    handler = grpc.stream_stream_rpc_method_handler(
        engine.serve,
        request_deserializer=common_pb2.Envelope.FromString,
        response_serializer=ab_pb2.DeliverResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Deliver", {"Deliver": handler}),))
    await server.start()
    client = open_channel(f"localhost:{port}", ClientTls(root))
    method = client.stream_stream(
        "/test.Deliver/Deliver",
        request_serializer=common_pb2.Envelope.SerializeToString,
        response_deserializer=ab_pb2.DeliverResponse.FromString,
    )

    async def ask(data: bytes) -> list[Any]:
        stream = method()
        await stream.write(seek(CLIENT, data))
        await stream.done_writing()
        return [
            response.block.header.number if response.HasField("block") else f"status {response.status}"
            async for response in stream
        ]

    yield ask
    await client.close()
    await server.stop(0)


async def test_pruned_block_ends_the_call_with_a_text_that_names_the_first_whole_one(
    pruned: Callable[[bytes], Any],
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await pruned(seek_info(specified(2), specified(5)))
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.details() == "block 2 was pruned; the first whole block is 4"


async def test_oldest_is_the_first_block_that_is_held_whole(pruned: Callable[[bytes], Any]) -> None:
    assert await pruned(seek_info(OLDEST, NEWEST)) == [4, 5, SUCCESS]
    assert await pruned(seek_info(OLDEST, OLDEST)) == [4, SUCCESS]
