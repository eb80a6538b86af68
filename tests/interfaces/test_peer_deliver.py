"""A peer's events over real TLS: whole blocks with their verdicts, or ids, codes and events alone, and for whom."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from fabric_protos.common import common_pb2
from fabric_protos.orderer import configuration_pb2 as orderer_pb2
from fabric_protos.peer import configuration_pb2, events_pb2, events_pb2_grpc

from ledger.chaincode.pool import ContractPool
from ledger.client.tls import open_channel
from ledger.core.channel_config import ConfigGroup
from ledger.core.names import BlockNumber, Verdict
from ledger.interfaces.grpc import peer_deliver
from ledger.wire.block import encode_block
from ledger.wire.codec import CODEC
from ledger.wire.config import config_from_update
from ledger.wire.ordering import config_envelope
from tests.kit.channel import CHANNEL, Channel, definition_fields, definition_writes
from tests.kit.checkpointing import until
from tests.kit.orderer_node import (
    NEWEST,
    NEXT_COMMIT,
    NOW,
    OLDEST,
    changed,
    seek,
    seek_info,
    specified,
    update_envelope,
    with_values,
)
from tests.kit.peers import ORGANISATIONS, Peer, client_tls, open_peer, served
from tests.kit.proposals import ORG1, ORG2, STRANGER
from tests.kit.transactions import event, writes

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENT = ORG1.client
LAST = 2**64 - 1
LAST_OF_NODE_CLIENT = 2**53 - 1
HEIGHT = 4
CONFIG_BLOCK = 3
SUCCESS, BAD_REQUEST, FORBIDDEN, NOT_FOUND = "status 200", "status 400", "status 403", "status 404"
UNDECODABLE = b"\xff\xff"


@dataclass(frozen=True)
class Events:
    """A peer with some blocks, and a client's stub of its events."""

    channel: Channel
    peer: Peer
    stub: Any

    def commit(self, *envelopes: bytes) -> None:
        block = self.channel.block(*envelopes)
        self.channel.commit_block(block)
        self.peer.channel.committer.commit([encode_block(block)])

    def call(self, name: str, *seeks: Any) -> Any:
        async def send() -> AsyncIterator[Any]:
            for each in seeks:
                yield each

        return getattr(self.stub, name)(send())


def transactions(channel: Channel) -> list[bytes]:
    """Block 2: with an event, without, invalid with an event, an event of nobody, an undecodable one, no type 3."""
    happened = event("asset", "happened", "some id", b"for readers of whole blocks")
    nameless = event("", "happened", "some id", b"payload")
    return [
        channel.draft(writes("asset", "a"), event=happened).envelope(),
        channel.draft(writes("asset", "b")).envelope(),
        channel.draft(writes("asset", "c"), event=happened, endorsers=()).envelope(),
        channel.draft(writes("asset", "d"), event=nameless).envelope(),
        channel.draft(event=UNDECODABLE).envelope(),
        channel.draft(data=UNDECODABLE).envelope(),
        channel.draft(kind=0, data=b"no transaction").envelope(),
        common_pb2.Envelope(payload=UNDECODABLE, signature=b"x").SerializeToString(),
    ]


def fill(made: Events) -> None:
    """Blocks 1 to 3: a definition, transactions of all kinds, a configuration."""
    channel = made.channel
    made.commit(channel.draft(definition_writes("asset", definition_fields()), "_lifecycle").envelope())
    made.commit(*transactions(channel))
    orderers = channel.orderer_organisation.admin
    size = orderer_pb2.BatchSize(max_message_count=7, absolute_max_bytes=10**6, preferred_max_bytes=10**5)
    update = update_envelope(["Orderer"], {"BatchSize": size}, signers=[orderers], creator=orderers).envelope()
    config = config_from_update(channel.bundle, update, CODEC)
    made.commit(config_envelope(CHANNEL, config, int(NOW.timestamp()), channel.orderer, b"nonce"))


@pytest.fixture(scope="module")
def pool() -> Iterator[ContractPool]:
    """No contract runs here."""
    yield ContractPool({})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def events(pool: ContractPool, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Events]:
    channel = Channel(ORGANISATIONS)
    with open_peer(tmp_path_factory.mktemp("peer"), ORG1, encode_block(channel.genesis), pool) as peer:
        async with served(peer, lambda: NOW) as serving, open_channel(serving.address, client_tls()) as client:
            made = Events(channel, peer, events_pb2_grpc.DeliverStub(client))
            fill(made)
            yield made


async def received(call: Any, count: int | None = None) -> list[Any]:
    """Block numbers and statuses, so many of them or until the stream ends."""
    found: list[Any] = []
    async for response in call:
        match response.WhichOneof("Type"):
            case "block":
                found.append(response.block.header.number)
            case "filtered_block":
                found.append(response.filtered_block.number)
            case _:
                found.append(f"status {response.status}")
        if len(found) == count:
            call.cancel()
            break
    return found


# From where to where, alike for both kinds; every case of the engine is tried with the orderer's.

SEEKS: dict[str, tuple[bytes, list[Any]]] = {
    "all": (seek_info(OLDEST, NEWEST), [0, 1, 2, 3, SUCCESS]),
    "newest alone": (seek_info(NEWEST, NEWEST), [3, SUCCESS]),
    "some by number": (seek_info(specified(1), specified(2)), [1, 2, SUCCESS]),
    "stop before start": (seek_info(specified(2), specified(1)), [BAD_REQUEST]),
    "no start": (seek_info(None, NEWEST), [BAD_REQUEST]),
    "beyond the next block": (seek_info(specified(HEIGHT + 1), specified(LAST)), [NOT_FOUND]),
    "next block, failing": (seek_info(NEXT_COMMIT, specified(LAST), fail=True), [NOT_FOUND]),
    "for ever, failing": (seek_info(OLDEST, specified(LAST), fail=True), [0, 1, 2, 3, NOT_FOUND]),
    "as the node client asks": (seek_info(specified(2), specified(LAST_OF_NODE_CLIENT), fail=True), [2, 3, NOT_FOUND]),
    "no seek": (b"", [BAD_REQUEST]),
    "garbage": (UNDECODABLE, [BAD_REQUEST]),
}
KINDS = ["Deliver", "DeliverFiltered"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", SEEKS)
async def test_seek_gets_its_blocks_and_its_status(case: str, kind: str, events: Events) -> None:
    info, expected = SEEKS[case]
    assert await received(events.call(kind, seek(CLIENT, info))) == expected


ONE = seek_info(OLDEST, OLDEST)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (seek(CLIENT, ONE, nonce=b""), [0, SUCCESS]),
        (seek(ORG2.peer, ONE), [0, SUCCESS]),
        (seek(STRANGER.client, ONE), [FORBIDDEN]),
        (seek(CLIENT, ONE, sign=ORG1.admin.sign), [FORBIDDEN]),
        (seek(ORG1.issue("late", not_after=NOW - datetime.timedelta(seconds=1)), ONE), [FORBIDDEN]),
        (seek(CLIENT, ONE, channel="nope"), [NOT_FOUND]),
        (seek(CLIENT, ONE, at=None), [BAD_REQUEST]),
        (seek(CLIENT, ONE, at=NOW - datetime.timedelta(hours=1)), [BAD_REQUEST]),
    ],
    ids=["no nonce", "other organisation", "stranger", "forged", "expired", "unknown channel", "no time", "stale"],
)
async def test_reader_gets_the_status_of_the_first_check_that_fails(
    asked: Any, expected: list[Any], kind: str, events: Events
) -> None:
    assert await received(events.call(kind, asked)) == expected


@pytest.mark.parametrize(
    ("resource", "closed"), [("event/Block", "Deliver"), ("event/FilteredBlock", "DeliverFiltered")]
)
async def test_each_kind_has_an_access_list_of_its_own(
    resource: str, closed: str, pool: ContractPool, tmp_path: Path
) -> None:
    acls = configuration_pb2.ACLs()
    acls.acls[resource].policy_ref = "/Channel/Application/Org2/Readers"
    tree: ConfigGroup = changed(Channel(ORGANISATIONS).tree, ["Application"], with_values(ACLs=acls))
    channel = Channel(ORGANISATIONS, tree=tree)
    with open_peer(tmp_path, ORG1, encode_block(channel.genesis), pool) as peer:
        async with served(peer, lambda: NOW) as serving, open_channel(serving.address, client_tls()) as client:
            made = Events(channel, peer, events_pb2_grpc.DeliverStub(client))
            for kind in KINDS:
                expected = [FORBIDDEN] if kind == closed else [0, SUCCESS]
                assert await received(made.call(kind, seek(CLIENT, ONE))) == expected
                assert await received(made.call(kind, seek(ORG2.client, ONE))) == [0, SUCCESS]


async def test_seeks_of_one_stream_are_served_in_turn(events: Events) -> None:
    seeks = [seek(CLIENT, seek_info(specified(n), specified(n))) for n in (1, 0)]
    assert await received(events.call("Deliver", *seeks)) == [1, SUCCESS, 0, SUCCESS]
    assert await received(events.call("DeliverFiltered", *seeks)) == [1, SUCCESS, 0, SUCCESS]


@pytest.mark.parametrize("kind", KINDS)
async def test_who_follows_hears_of_a_block_once_it_is_committed(kind: str, pool: ContractPool, tmp_path: Path) -> None:
    channel = Channel(ORGANISATIONS)
    with open_peer(tmp_path, ORG1, encode_block(channel.genesis), pool) as peer:
        async with served(peer, lambda: NOW) as serving, open_channel(serving.address, client_tls()) as client:
            made = Events(channel, peer, events_pb2_grpc.DeliverStub(client))
            call = made.call(kind, seek(CLIENT, seek_info(OLDEST, specified(LAST))))
            following = asyncio.create_task(received(call, 4))
            await until(lambda: len(peer.channel.feed._waiting) == 1)
            for _ in range(3):
                made.commit(channel.draft(writes("asset", "a")).envelope())
            assert await asyncio.wait_for(following, 10) == [0, 1, 2, 3]
            await until(lambda: not peer.channel.feed._waiting)


# What is in them.


async def test_whole_blocks_are_those_of_the_ledger_with_its_verdicts(events: Events) -> None:
    call = events.call("Deliver", seek(CLIENT, seek_info(OLDEST, NEWEST)))
    blocks = [response.block async for response in call if response.HasField("block")]
    for number, block in enumerate(blocks):
        assert block.SerializeToString() == events.peer.store.block_bytes(BlockNumber(number))
    assert bytes(blocks[2].metadata.metadata[2]) == bytes(verdicts(events))
    assert blocks[2].metadata.metadata[4], "the commit hash"


def verdicts(events: Events) -> list[Verdict]:
    """Of block 2, by the ledger in memory that judged it too."""
    found = bytes(common_pb2.Block.FromString(events.peer.store.block_bytes(BlockNumber(2))).metadata.metadata[2])
    return [Verdict(each) for each in found]


async def filtered(events: Events, number: int) -> Any:
    one = seek_info(specified(number), specified(number))
    return (await events.call("DeliverFiltered", seek(CLIENT, one)).read()).filtered_block


async def test_filtered_block_has_ids_codes_and_events_without_payload(events: Events) -> None:
    block = await filtered(events, 2)
    assert (block.channel_id, block.number) == (CHANNEL, 2)
    assert [each.tx_validation_code for each in block.filtered_transactions] == verdicts(events)
    with_event, without, invalid, nameless, *_ = block.filtered_transactions
    assert (with_event.type, len(with_event.txid), with_event.tx_validation_code) == (3, 64, Verdict.VALID)
    assert invalid.tx_validation_code == Verdict.ENDORSEMENT_POLICY_FAILURE
    expected = events_pb2.FilteredChaincodeAction()
    expected.chaincode_event.chaincode_id = "asset"
    expected.chaincode_event.event_name = "happened"
    expected.chaincode_event.tx_id = "some id"
    for transaction in (with_event, invalid):
        assert list(transaction.transaction_actions.chaincode_actions) == [expected]
    for transaction in (without, nameless):
        assert transaction.HasField("transaction_actions")
        assert not transaction.transaction_actions.chaincode_actions
    assert b"for readers of whole blocks" not in block.SerializeToString()


async def test_what_does_not_decode_is_listed_without_actions_and_hides_nothing(events: Events) -> None:
    transactions = (await filtered(events, 2)).filtered_transactions
    assert len(transactions) == 8, "every transaction is listed"
    bad_event, bad_data, other_type, no_payload = transactions[4:]
    for each in (bad_event, bad_data):
        assert (each.type, len(each.txid), each.HasField("transaction_actions")) == (3, 64, False)
    assert Verdict.VALID not in (bad_event.tx_validation_code, bad_data.tx_validation_code)
    assert (other_type.type, other_type.HasField("transaction_actions")) == (0, False)
    assert (no_payload.txid, no_payload.HasField("transaction_actions")) == ("", False)
    assert no_payload.tx_validation_code != Verdict.VALID


@pytest.mark.parametrize("number", [0, CONFIG_BLOCK])
async def test_configuration_is_listed_without_actions(number: int, events: Events) -> None:
    (transaction,) = (await filtered(events, number)).filtered_transactions
    assert (transaction.type, transaction.tx_validation_code) == (1, Verdict.VALID)
    assert not transaction.HasField("transaction_actions")


# Bounds, and what was pruned.


async def test_streams_beyond_the_bound_are_turned_away(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_deliver, "STREAMS_MAX", 0)
    for kind in KINDS:
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await received(events.call(kind, seek(CLIENT, ONE)))
        assert found.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "exceeding concurrency limit (0)" in (found.value.details() or "")


async def test_pruned_block_names_the_first_whole_one(pool: ContractPool, tmp_path: Path) -> None:
    """Prunable files end at checkpoints, so with one every second block the first two go."""
    channel = Channel(ORGANISATIONS)
    with open_peer(tmp_path, ORG1, encode_block(channel.genesis), pool, chk=2) as peer:
        async with served(peer, lambda: NOW) as serving, open_channel(serving.address, client_tls()) as client:
            made = Events(channel, peer, events_pb2_grpc.DeliverStub(client))
            for _ in range(5):
                made.commit(channel.draft(writes("asset", "a")).envelope())
            peer.store.prune(BlockNumber(1), b"receipt")
            first = peer.store.first_block
            assert first == 2
            for kind in KINDS:
                call = made.call(kind, seek(CLIENT, seek_info(specified(1), specified(LAST))))
                with pytest.raises(grpc.aio.AioRpcError) as found:
                    await received(call)
                assert found.value.code() is grpc.StatusCode.FAILED_PRECONDITION
                assert found.value.details() == "block 1 was pruned; the first whole block is 2"
                oldest = seek(CLIENT, seek_info(OLDEST, NEWEST))
                assert await received(made.call(kind, oldest)) == [2, 3, 4, 5, SUCCESS], "oldest is what is whole"
