"""Broadcast over real TLS: which envelope gets which status and text, and what becomes of the stream."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from fabric_protos.common import common_pb2, configuration_pb2
from fabric_protos.orderer import configuration_pb2 as orderer_pb2

from ledger.client.tls import ClientTls, open_channel
from ledger.core.channel_config import ConfigGroup
from ledger.core.policy.ast import OutOf, Role, SignaturePolicy
from ledger.core.signatures import half_order, read_der_signature
from ledger.node.authorities import make_authority
from tests.kit.channel import Channel, config_policy, out_of
from tests.kit.orderer_node import (
    NOW,
    OrdererNode,
    batching,
    changed,
    plain,
    running_orderer,
    update_envelope,
)
from tests.kit.organisations import END, Signer, make_organisation, shared_organisation
from tests.kit.transactions import Draft

ORG1 = shared_organisation("Org1MSP")
ORG2 = shared_organisation("Org2MSP")
ORDERERS = shared_organisation("OrdererMSP")
CLIENT = ORG1.client
LIMIT = 20_000
"""Bytes of the largest envelope on the channel of these tests."""

NO_WRITER = (
    "implicit policy evaluation failed - 0 sub-policies were satisfied, but this policy requires 1 of the 'Writers' "
    "sub-policies to be satisfied: permission denied"
)


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[OrdererNode]:
    """An orderer that makes a block of every envelope."""
    tree = batching(Channel().tree, count=1, preferred=LIMIT, absolute=LIMIT)
    async with running_orderer(tmp_path / "log", tree) as made:
        yield made


def high_s(signer: Signer) -> Callable[[bytes], bytes]:
    """Sign with the other one of the two s that verify."""

    def sign(message: bytes) -> bytes:
        read = read_der_signature(signer.sign(message))
        assert read is not None
        order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
        assert read[1] <= half_order("secp256r1")
        return encode_dss_signature(read[0], order - read[1])

    return sign


def envelope_of(payload: bytes, signature: bytes) -> bytes:
    return bytes(common_pb2.Envelope(payload=payload, signature=signature).SerializeToString())


def high_s_envelope() -> bytes:
    payload = plain(CLIENT).the_payload()
    return envelope_of(payload, high_s(CLIENT)(payload))


def without_header() -> bytes:
    payload = common_pb2.Payload(data=b"x").SerializeToString()
    return envelope_of(payload, CLIENT.sign(payload))


def header_garbage() -> bytes:
    payload = common_pb2.Payload(header=common_pb2.Header(channel_header=b"\xff\xff"), data=b"x").SerializeToString()
    return envelope_of(payload, CLIENT.sign(payload))


def sized(size_bytes: int) -> bytes:
    """An envelope whose payload and signature have exactly so many bytes, or one less or two (signatures vary)."""
    draft = plain(CLIENT, data=b"x")
    base = len(draft.the_payload()) + 70
    data = b"x" * (size_bytes - base - 2)
    payload = draft.but(data=data).the_payload()
    return envelope_of(payload, b"\x30" * (size_bytes - len(payload)))


STRANGER = make_organisation("StrangerMSP").client
IMPOSTOR = make_organisation("Org1MSP").client
EXPIRED = ORG1.issue("expired", "client", not_after=NOW - datetime.timedelta(seconds=1))

REFUSED: dict[str, tuple[Callable[[], bytes], int, str]] = {
    "payload garbage": (lambda: envelope_of(b"\xff\xff", b"x"), 400, "could not determine channel ID"),
    "empty": (lambda: envelope_of(b"", b""), 400, "could not determine channel ID: header not set"),
    "no header": (without_header, 400, "could not determine channel ID: header not set"),
    "channel header garbage": (header_garbage, 400, "could not determine channel ID"),
    "unknown channel": (lambda: plain(CLIENT, channel="nope").envelope(), 400, "channel does not exist"),
    "empty channel": (lambda: plain(CLIENT, channel="").envelope(), 400, "channel does not exist"),
    "type CONFIG": (
        lambda: plain(CLIENT, kind=1).envelope(), 400, "message is of type that cannot be processed directly",
    ),
    "type 4": (lambda: plain(CLIENT, kind=4).envelope(), 400, "message is of type that is no longer supported"),
    "wrong signature": (lambda: plain(CLIENT, signature=CLIENT.sign(b"other")).envelope(), 403, NO_WRITER),
    "no signature": (lambda: plain(CLIENT, signature=b"").envelope(), 403, NO_WRITER),
    "signature garbage": (lambda: plain(CLIENT, signature=b"garbage").envelope(), 403, NO_WRITER),
    "high S": (high_s_envelope, 403, NO_WRITER),
    "no creator": (lambda: plain(CLIENT, creator_bytes=b"").envelope(), 403, NO_WRITER),
    "creator garbage": (lambda: plain(CLIENT, creator_bytes=b"\xff\xff").envelope(), 403, NO_WRITER),
    "stranger": (lambda: plain(STRANGER).envelope(), 403, NO_WRITER),
    "impostor": (lambda: plain(IMPOSTOR).envelope(), 403, NO_WRITER),
    "expired": (lambda: plain(EXPIRED).envelope(), 400, "broadcast client identity expired"),
    "too large": (
        lambda: sized(LIMIT + 1), 400, f"message payload is {LIMIT + 1} bytes and exceeds maximum allowed {LIMIT}",
    ),
    "long id": (
        lambda: plain(CLIENT, tx_id="f" * 65).envelope(), 400,
        "transaction id has 65 characters, at most 64 are allowed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_refused_envelope_gets_its_status_and_is_in_no_block(case: str, node: OrdererNode) -> None:
    make, status, info = REFUSED[case]
    ((found_status, found_info),) = await node.send(make())
    assert (found_status, found_info.startswith(info)) == (status, True), found_info
    assert node.orderer.height == 1


TAKEN: dict[str, Callable[[], bytes]] = {
    "garbage in the data": lambda: plain(CLIENT, data=b"\xff").envelope(),
    "no data": lambda: plain(CLIENT, data=b"").envelope(),
    "type 0": lambda: plain(CLIENT, kind=0).envelope(),
    "type 6": lambda: plain(CLIENT, kind=6).envelope(),
    "epoch": lambda: plain(CLIENT, epoch=7).envelope(),
    "wrong id": lambda: plain(CLIENT, tx_id="00").envelope(),
    "no id": lambda: plain(CLIENT, tx_id="").envelope(),
    "peer": lambda: plain(ORG2.peer).envelope(),
    "member of the orderer's organisation": lambda: plain(ORDERERS.admin).envelope(),
    "trailing bytes behind the signature": lambda: trailing(),
}


def trailing() -> bytes:
    draft = plain(CLIENT)
    return replace(draft, signature=CLIENT.sign(draft.the_payload()) + b"\0").envelope()


async def test_what_is_inside_an_envelope_is_not_looked_at(node: OrdererNode) -> None:
    """One after the other on one stream: each is answered with success, and stands in a block as it was sent."""
    envelopes = [make() for make in TAKEN.values()]
    answers = await node.send(*envelopes)
    assert dict(zip(TAKEN, answers, strict=True)) == dict.fromkeys(TAKEN, (200, ""))
    assert [node.block(number).envelopes for number in range(1, node.orderer.height)] == [(one,) for one in envelopes]


async def test_envelope_of_exactly_the_largest_size_is_not_too_large(node: OrdererNode) -> None:
    """The signature in it is none, so that policy refuses it, which comes after the size."""
    assert await node.send(sized(LIMIT)) == [(403, NO_WRITER)]


async def test_first_refusal_closes_the_stream_and_answers_come_in_order(node: OrdererNode) -> None:
    good = [plain(CLIENT).envelope() for _ in range(3)]
    answers = await node.send(good[0], good[1], plain(STRANGER).envelope(), good[2])
    assert [status for status, _ in answers] == [200, 200, 403]
    assert await node.send(good[2]) == [(200, "")], "another stream is not touched"


async def test_expired_comes_before_policy_and_a_clock_that_moves_makes_a_good_one_expired(node: OrdererNode) -> None:
    assert await node.send(plain(CLIENT).envelope()) == [(200, "")]
    node.clock.time = END + datetime.timedelta(seconds=1)
    assert await node.send(plain(CLIENT).envelope()) == [(400, "broadcast client identity expired")]


async def test_stream_that_the_client_breaks_leaves_the_orderer_serving(node: OrdererNode) -> None:
    for _ in range(3):
        stream = node.stub.Broadcast()
        await stream.write(common_pb2.Envelope.FromString(plain(CLIENT).envelope()))
        stream.cancel()
    assert await node.send(plain(CLIENT).envelope()) == [(200, "")]


async def test_client_that_trusts_another_root_does_not_connect(node: OrdererNode) -> None:
    other = make_authority("tlsca", "other", datetime.datetime.now(datetime.UTC)).credential.certificate
    channel = open_channel(node.address, ClientTls(other))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        call: Any = channel.stream_stream("/orderer.AtomicBroadcast/Broadcast")()
        await call.write(plain(CLIENT).envelope())
        await call.read()
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    await channel.close()


# Who is a writer, by policy.


def writers(policy: SignaturePolicy) -> ConfigGroup:
    """The channel whose first organisation has another Writers policy, and each envelope its block."""
    tree = batching(Channel().tree, count=1)
    return changed(
        tree,
        ["Application", "Org1"],
        lambda group: replace(group, policies={**group.policies, "Writers": config_policy(policy)}),
    )


async def test_creator_without_writers_is_forbidden_though_its_signature_is_good(tmp_path: Path) -> None:
    async with running_orderer(tmp_path, writers(out_of(1, ("Org1MSP", Role.ADMIN)))) as node:
        assert await node.send(plain(CLIENT).envelope()) == [(403, NO_WRITER)]
        assert await node.send(plain(ORG1.admin).envelope()) == [(200, "")]
        assert await node.send(plain(ORG2.client).envelope()) == [(200, "")]


async def test_envelope_without_signature_is_refused_where_the_policy_asks_for_none(tmp_path: Path) -> None:
    """A policy of none out of none lets bad signatures and strangers through, as in Fabric; but a block with an
    envelope without signature is one that every peer refuses for ever."""
    nobody = SignaturePolicy(0, (OutOf(0, 0),), ())
    async with running_orderer(tmp_path, writers(nobody)) as node:
        assert await node.send(plain(STRANGER, signature=b"garbage").envelope()) == [(200, "")]
        assert await node.send(plain(CLIENT, signature=b"").envelope()) == [(400, "envelope signature is empty")]
        assert node.orderer.height == 2


# Configuration updates.


def size(count: int) -> orderer_pb2.BatchSize:
    return orderer_pb2.BatchSize(max_message_count=count, absolute_max_bytes=LIMIT, preferred_max_bytes=LIMIT)


def batch_update(count: int = 2, **parts: object) -> Draft:
    """An update of the batch size, signed by the orderers' admin and sent by it."""
    defaults: dict[str, object] = {"signers": [ORDERERS.admin], "creator": ORDERERS.admin}
    return update_envelope(["Orderer"], {"BatchSize": size(count)}, **(defaults | parts))  # type: ignore[arg-type]


async def test_good_update_gets_a_block_of_its_own_and_governs_what_follows(node: OrdererNode) -> None:
    before, update, after = plain(CLIENT).envelope(), batch_update(2).envelope(), plain(CLIENT).envelope()
    assert await node.send(before, update) == [(200, ""), (200, "")]
    assert node.orderer.bundle.sequence == 1
    assert node.orderer.bundle.orderer.batch_size.max_message_count == 2
    both = await asyncio.gather(node.send(after), node.send(plain(CLIENT).envelope()))
    assert list(both) == [[(200, "")], [(200, "")]]
    assert [len(node.block(number).envelopes) for number in range(1, node.orderer.height)] == [1, 1, 2]
    payload = common_pb2.Payload.FromString(common_pb2.Envelope.FromString(node.block(2).envelopes[0]).payload)
    header = common_pb2.ChannelHeader.FromString(payload.header.channel_header)
    assert (header.type, header.tx_id, header.channel_id) == (common_pb2.CONFIG, "", "testchannel")
    assert header.timestamp.ToDatetime(datetime.UTC) == NOW


UPDATES_REFUSED: dict[str, tuple[Callable[[], Draft], int, str]] = {
    "no admin signed": (lambda: batch_update(signers=[]), 400, "mod_policy satisfied"),
    "admin of another group signed": (lambda: batch_update(signers=[ORG1.admin]), 400, "mod_policy satisfied"),
    "client signed": (lambda: batch_update(signers=[ORDERERS.client]), 400, "mod_policy satisfied"),
    "version too high": (lambda: batch_update(version=2), 400, "version"),
    "version as it is": (lambda: batch_update(version=0), 400, "version"),
    "read set of another version": (lambda: batch_update(group_version=3), 400, "read set"),
    "value out of range": (
        lambda: update_envelope(
            ["Orderer"], {"BatchSize": orderer_pb2.BatchSize(max_message_count=0)},
            signers=[ORDERERS.admin], creator=ORDERERS.admin,
        ), 400, "BatchSize.max_message_count",
    ),
    "unknown capability": (
        lambda: update_envelope(
            ["Orderer"], {"Capabilities": capability("V9_9")}, signers=[ORDERERS.admin], creator=ORDERERS.admin,
        ), 400, "known capability",
    ),
    "consensus type outside maintenance": (
        lambda: update_envelope(
            ["Orderer"], {"ConsensusType": orderer_pb2.ConsensusType(type="BFT")},
            signers=[ORDERERS.admin], creator=ORDERERS.admin,
        ), 400, "consensus type change",
    ),
    "sent by a stranger": (lambda: batch_update(creator=STRANGER), 403, NO_WRITER),
    "sent by one who expired": (lambda: batch_update(creator=EXPIRED), 400, "broadcast client identity expired"),
    "garbage": (lambda: plain(ORDERERS.admin, kind=2, data=b"\xff\xff", tx_id=""), 400, "ConfigUpdateEnvelope"),
    "too large": (
        lambda: plain(ORDERERS.admin, kind=2, data=bytes(LIMIT), tx_id=""), 400, "exceeds maximum allowed",
    ),
}  # fmt: skip


def capability(name: str) -> configuration_pb2.Capabilities:
    message = configuration_pb2.Capabilities()
    message.capabilities[name].SetInParent()
    return message


@pytest.mark.parametrize("case", UPDATES_REFUSED)
async def test_refused_update_names_the_rule_changes_nothing_and_the_orderer_goes_on(
    case: str, node: OrdererNode
) -> None:
    make, status, rule = UPDATES_REFUSED[case]
    ((found_status, info),) = await node.send(make().envelope())
    assert found_status == status, info
    assert rule in info
    initial = case in ("sent by a stranger", "sent by one who expired", "too large")
    text = "did not pass initial checks: " if initial else "error applying config update to existing channel "
    assert text in info
    assert (node.orderer.height, node.orderer.bundle.sequence) == (1, 0)
    assert await node.send(plain(CLIENT).envelope()) == [(200, "")]


async def test_update_whose_result_would_be_too_large_is_refused_before_it_is_ordered(tmp_path: Path) -> None:
    """The whole configuration travels in the result, so it may be larger than the update that leads to it."""
    tree = batching(Channel().tree, count=1, preferred=4_000, absolute=4_000)
    async with running_orderer(tmp_path, tree) as node:
        ((status, info),) = await node.send(batch_update(2).envelope())
        assert status == 400
        assert "did not pass final checks: message payload is" in info
        assert node.orderer.height == 1


async def test_second_of_two_updates_from_one_configuration_is_refused(node: OrdererNode) -> None:
    answers = await asyncio.gather(*(node.send(batch_update(count).envelope()) for count in (2, 3)))
    assert sorted(status for ((status, _),) in answers) == [200, 400]
    assert node.orderer.bundle.sequence == 1


# Maintenance.


def consensus(state: int, kind: str = "etcdraft") -> orderer_pb2.ConsensusType:
    return orderer_pb2.ConsensusType(type=kind, state=state)


async def test_in_maintenance_only_the_orderers_may_send_and_only_updates(tmp_path: Path) -> None:
    """Into maintenance and out of it again by updates; in between nobody's transaction is taken."""

    def set_state(state: int, version: int, creator: Signer = ORDERERS.admin) -> bytes:
        return update_envelope(
            ["Orderer"], {"ConsensusType": consensus(state)}, version=version, signers=[ORDERERS.admin], creator=creator
        ).envelope()

    async with running_orderer(tmp_path, batching(Channel().tree, count=1)) as node:
        assert await node.send(plain(CLIENT).envelope(), set_state(1, 1)) == [(200, ""), (200, "")]
        maintenance = [(503, "normal transactions are rejected: maintenance mode")]
        assert await node.send(plain(CLIENT).envelope()) == maintenance
        assert await node.send(plain(ORDERERS.admin).envelope()) == maintenance
        ((status, info),) = await node.send(set_state(0, 2, creator=ORG1.admin))
        assert (status, NO_WRITER in info) == (403, True)
        assert await node.send(set_state(0, 2)) == [(200, "")]
        assert await node.send(plain(CLIENT).envelope()) == [(200, "")]
        assert node.orderer.height == 5


async def test_envelope_that_waited_while_the_configuration_changed_is_checked_again(tmp_path: Path) -> None:
    """Goal: nobody gets in by a configuration that is no longer in force.

    Method: an envelope of an organisation's client waits in the queue behind an update that takes its right away.
    """
    async with running_orderer(tmp_path, batching(Channel().tree, count=10, timeout="100ms")) as node:
        into_maintenance = update_envelope(
            ["Orderer"], {"ConsensusType": consensus(1)}, signers=[ORDERERS.admin], creator=ORDERERS.admin
        )
        updating = asyncio.ensure_future(node.orderer.broadcast(into_maintenance.envelope()))
        waiting = asyncio.ensure_future(node.orderer.broadcast(plain(CLIENT).envelope()))
        assert (await updating).status == 200
        answer = await waiting
        assert (answer.status, answer.info) == (503, "normal transactions are rejected: maintenance mode")
        assert node.orderer.height == 2
