"""Agreeing on checkpoints between peers that really talk: mutual TLS on loopback, records on disk."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledger.client.checkpointing import METHOD, CheckpointLink
from ledger.client.tls import ClientTls, open_channel
from ledger.core.checkpoint import Ask, Hello, Notice
from ledger.core.checkpoint_proof import CheckpointRules, Scope, check_proof
from ledger.core.checkpoint_status import CheckpointState
from ledger.core.errors import InvalidPolicy, MalformedMessage, NotFound, PeerUnreachable, StorageFailed
from ledger.core.names import BlockNumber, ChannelId
from ledger.services.checkpointing import conversations
from ledger.storage.checkpoints import CheckpointStore, Divergence, Equivocation
from ledger.wire.checkpoint import encode_notice
from tests.kit.checkpointing import (
    CHANNEL_ID,
    MemorySource,
    TalkingPeer,
    default_bundle,
    message,
    organisations,
    proof,
    roots_at,
    statement_at,
    tls_files,
    tls_roots,
    until,
)

TEN = BlockNumber(10)


def make_peers(folder: Path, count: int = 2, **options: Any) -> list[TalkingPeer]:
    return [
        TalkingPeer(organisation, folder / organisation.msp_id, MemorySource(default_bundle(count)), **options)
        for organisation in organisations(count)
    ]


def latest(peer: TalkingPeer) -> int | None:
    return peer.service.status().latest_valid


# -- coming to agree


async def test_two_peers_reach_a_valid_checkpoint(tmp_path: Path) -> None:
    first, second = make_peers(tmp_path)
    async with first.running():
        second.links = [second.link_to(first)]
        async with second.running():
            first.reach(10)
            await until(lambda: first.service.status().newest_computed == 10)
            assert first.service.waiting_for() == "checkpoint 10 waits for 1 more signature: Org2MSP"
            assert first.service.checkpoint(TEN).state is CheckpointState.PENDING
            second.reach(10)
            await until(lambda: first.valid == [10] and second.valid == [10])
            for peer in (first, second):
                status = peer.service.status()
                assert (status.latest_valid, status.newest_computed, status.diverged) == (10, 10, "")
                assert status.global_policy == "MAJORITY Endorsement (/Channel/Application/Endorsement)"
                assert status.received["counted"] >= 1
                assert peer.source.kept == [10]
                found = peer.service.proof_for_pruning()
                assert found is not None and found.statement == statement_at(10)
                assert check_proof(found, peer.source.bundle, CheckpointRules())
                shown = peer.service.checkpoint(TEN)
                assert (shown.state, shown.missing, shown.signed_here) == (CheckpointState.VALID, (), True)
                assert {signer.msp_id for signer in shown.signers} == {"Org1MSP", "Org2MSP"}
                assert peer.service.waiting_for() == ""
            assert first.service.status().connected == ("peer0.Org2MSP",)


async def test_proof_and_latest_valid_checkpoint_are_in_the_record(tmp_path: Path) -> None:
    await agree(tmp_path)
    with CheckpointStore(tmp_path / "Org1MSP", CHANNEL_ID) as store:
        found = store.latest_valid
        assert found is not None and store.proof(TEN) == found
        assert check_proof(found, default_bundle(2), CheckpointRules())
        assert store.signed(TEN) is not None


async def agree(folder: Path, number: int = 10) -> list[TalkingPeer]:
    """Let two peers agree on one checkpoint, and stop them."""
    first, second = peers = make_peers(folder)
    async with first.running():
        second.links = [second.link_to(first)]
        async with second.running():
            for peer in peers:
                peer.reach(number)
            await until(lambda: first.valid == [number] == second.valid)
    return peers


async def test_who_was_away_catches_up(tmp_path: Path) -> None:
    """The third peer hears of nothing while two of three agree; back again it learns what is valid."""
    first, second, third = make_peers(tmp_path, 3)
    async with first.running():
        second.links = [second.link_to(first)]
        third.links = [third.link_to(first)]
        async with second.running():
            for number in (10, 20, 30):
                first.reach(number)
                second.reach(number)
                await until(lambda number=number: latest(first) == number == latest(second))  # type: ignore[misc]
            async with third.running():
                third.reach(10)
                await until(lambda: latest(third) == 10)
                third.reach(20)
                third.reach(30)
                await until(lambda: latest(third) == 30)
    assert {signed.identity for signed in third.store.proof(BlockNumber(30)).signatures} == {  # type: ignore[union-attr]
        first.organisation.peer.serialized,
        second.organisation.peer.serialized,
    }


async def test_signatures_are_passed_on_to_who_can_not_reach_the_signer(tmp_path: Path) -> None:
    """Of three peers, where all three must sign by the local policies, the outer two talk only to the middle one."""
    peers = make_peers(tmp_path, 3, local_policy="any(3)")
    middle, left, right = peers
    async with middle.running():
        left.links, right.links = [left.link_to(middle)], [right.link_to(middle)]
        async with left.running(), right.running():
            for peer in peers:
                peer.reach(10)
            await until(lambda: all(latest(peer) == 10 for peer in peers))


async def test_conversation_is_taken_up_again_after_the_other_side_was_gone(tmp_path: Path) -> None:
    first, second = make_peers(tmp_path)
    async with first.running():
        second.links = [second.link_to(first)]
        async with second.running():
            await until(lambda: second.service.status().connected == ("peer0.Org1MSP",))
            await first.stop()
            await until(lambda: second.service.status().connected == ())
            second.reach(10)
            async with first.running():
                first.reach(10)
                await until(lambda: latest(first) == 10 == latest(second))


# -- restarts


async def test_restart_signs_the_same_statement_and_never_a_second(tmp_path: Path) -> None:
    (first, _) = make_peers(tmp_path)
    async with first.running():
        first.reach(10)
        await until(lambda: first.service.status().newest_computed == 10)
        said = first.store.signed(TEN)
        assert said is not None
    async with first.running():  # The same again: said as it was.
        await until(lambda: first.service.status().newest_computed == 10)
        assert first.store.signed(TEN) == said
        (own,) = first.service.tally.heights[TEN].signers
        assert own.signed == said.signed
    first.source.roots[TEN] = roots_at(10, "other")
    async with first.running():  # Something else: not signed, and no word of it.
        await until(lambda: first.service.status().newest_computed == 10)
        assert first.store.signed(TEN) == said
        height = first.service.tally.heights[TEN]
        assert (height.statement, height.signed_here, height.signers) == (statement_at(10, "other"), False, ())


async def test_restart_tells_pruning_of_the_latest_valid_checkpoint_again(tmp_path: Path) -> None:
    first, _ = await agree(tmp_path)
    first.valid.clear()
    first.source.roots[BlockNumber(5)] = roots_at(5)
    async with first.running():
        await until(lambda: first.valid == [10])
        assert first.source.released == [5]
        assert latest(first) == 10
        status = first.service.checkpoint(TEN)
        assert (status.state, len(status.signers)) == (CheckpointState.VALID, 2)


async def test_statement_is_durable_before_anybody_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_peers(tmp_path)

    def full(*_: object) -> None:
        raise StorageFailed("no space left on device")

    async with first.running():
        second.links = [second.link_to(first)]
        async with second.running(fails=True):
            await until(lambda: second.service.status().connected == ("peer0.Org1MSP",))
            monkeypatch.setattr(second.store, "record_signed", full)
            first.reach(10)
            second.reach(10)
            await until(lambda: second.has_ended)
            await asyncio.sleep(0.3)  # Several repetitions.
            assert first.service.checkpoint(TEN).state is CheckpointState.PENDING
            assert [signer.msp_id for signer in first.service.checkpoint(TEN).signers] == ["Org1MSP"]
        assert str(second.failure) == "no space left on device"


async def test_computation_that_fails_is_tried_again(tmp_path: Path) -> None:
    first, _ = make_peers(tmp_path)
    first.source.failures.append(StorageFailed("the disk hiccups"))
    async with first.running():
        first.reach(10)
        await until(lambda: first.service.status().failed != "")
        assert first.service.waiting_for() == "checkpoint 10 could not be computed: the disk hiccups"
        await until(lambda: first.service.status().newest_computed == 10)
        assert first.service.status().failed == ""


async def test_computation_that_keeps_failing_lets_the_next_one_have_its_turn(tmp_path: Path) -> None:
    first, _ = make_peers(tmp_path)
    first.source.failures += [StorageFailed("a bad sector")] * 3
    async with first.running():
        first.reach(10)
        first.reach(20)
        await until(lambda: first.service.status().newest_computed == 20)
        assert list(first.service.tally.heights) == [20]


async def test_pruning_that_fails_ends_nothing(tmp_path: Path) -> None:
    first, second = make_peers(tmp_path)
    second.valid_failure = StorageFailed("the archive is full")
    async with first.running():
        second.links = [second.link_to(first)]
        async with second.running():
            for number in (10, 20):
                for peer in (first, second):
                    peer.reach(number)
                await until(lambda number=number: latest(first) == number == latest(second))  # type: ignore[misc]
            await until(lambda: second.valid == [10, 20])


# -- silence after a restore


async def test_peer_restored_from_an_older_copy_is_silent_until_the_orderers_have_spoken(tmp_path: Path) -> None:
    """It signed 10 before; the copy doesn't know.  What it computes now may differ, and is not signed up to 40."""
    first, second = make_peers(tmp_path)
    second.newest_ordered = 40
    second.orderers_answer.clear()
    async with first.running():
        first.reach(10)
        await until(lambda: first.service.status().newest_computed == 10)
        before = message(second.organisation.peer, statement_at(10))
        await tell(first, second, before)
        await until(lambda: latest(first) == 10)

        second.links = [second.link_to(first)]
        async with second.running():
            await tell(second, first, before)
            await until(lambda: second.service.status().silent != "")
            assert second.service.status().silent == "its own signature was seen at block 10, above its record"
            second.reach(20)
            first.reach(20)
            await until(lambda: second.service.status().newest_computed == 20)
            assert second.store.signed(BlockNumber(20)) is None
            second.orderers_answer.set()
            await until(lambda: second.service.status().silent == "")
            assert second.store.floor == 40
            for number in (30, 40, 50):
                second.reach(number)
                first.reach(number)
            await until(lambda: latest(first) == 50 == latest(second))
            assert second.store.signed(BlockNumber(30)) is None
            assert second.store.signed(BlockNumber(40)) is None
            assert second.store.signed(BlockNumber(50)) is not None


async def test_peer_that_may_not_sign_yet_still_learns_what_is_valid(tmp_path: Path) -> None:
    first, second, third = make_peers(tmp_path, 3)
    third.signs = False
    async with first.running():
        second.links, third.links = [second.link_to(first)], [third.link_to(first)]
        async with second.running(), third.running():
            for peer in (first, second, third):
                peer.reach(10)
            await until(lambda: latest(third) == 10)
            assert third.store.signed(TEN) is None
            assert third.service.status().silent == "this peer has not validated the blocks itself"
            assert not third.service.checkpoint(TEN).signed_here


# -- divergence and lies


async def test_divergence_halts_and_is_recorded_before_it_is_told(tmp_path: Path) -> None:
    first, second, third = make_peers(tmp_path, 3)
    found: list[Divergence | None] = []

    def read_the_disk(_: str) -> None:
        with CheckpointStore(third.directory, CHANNEL_ID) as copy:
            found.append(copy.divergence)

    third.on_diverged = read_the_disk
    async with first.running():
        second.links, third.links = [second.link_to(first)], [third.link_to(first)]
        async with second.running(), third.running():
            first.reach(10)
            second.reach(10)
            third.reach(10, "bit flipped")
            await until(lambda: latest(first) == 10 == latest(second) and bool(third.diverged))
            assert third.diverged == ["diverged: a valid checkpoint at block 10 differs from what this peer computed"]
            assert found[0] is not None
            assert found[0].computed == statement_at(10, "bit flipped")
            assert found[0].proof.statement == statement_at(10)
            assert third.valid == [] and latest(third) is None
            assert third.service.stopped == third.diverged[0] == third.service.status().diverged
            shown = third.service.checkpoint(TEN)
            assert (shown.state, shown.statement) == (CheckpointState.DIVERGED, statement_at(10, "bit flipped"))
            assert (first.diverged, second.diverged) == ([], [])


async def test_divergence_is_found_at_the_next_start(tmp_path: Path) -> None:
    (first, _) = make_peers(tmp_path)
    signers = [each.peer for each in organisations(2)]
    with CheckpointStore(first.directory, CHANNEL_ID) as store:
        store.record_divergence(statement_at(10, "ours"), proof(statement_at(10), *signers))
    first.source.roots[BlockNumber(20)] = roots_at(20)
    async with first.running():
        await until(lambda: bool(first.diverged))
        assert first.service.stopped == first.diverged[0]
        await asyncio.sleep(0.1)
        assert first.store.numbers() == (), "a peer that diverged signs nothing"


async def test_equivocation_is_kept_as_evidence_and_stops_nobody(tmp_path: Path) -> None:
    first, second, third = make_peers(tmp_path, 3)
    liar = third.organisation.peer
    async with first.running():
        first.reach(10)
        await until(lambda: first.service.status().newest_computed == 10)
        lies = [message(liar, statement_at(10, flavour)) for flavour in ("one", "two", "three")]
        await tell(first, third, *lies)
        await until(lambda: first.service.status().received.get("equivocation") == 2)
        (evidence,) = first.store.evidence()
        assert isinstance(evidence, Equivocation)
        assert evidence.first == (statement_at(10, "one"), lies[0].signed)
        assert evidence.second == (statement_at(10, "two"), lies[1].signed)
        second.links = [second.link_to(first)]
        async with second.running():
            second.reach(10)
            await until(lambda: latest(first) == 10 == latest(second))
        assert first.diverged == []


async def test_dropped_messages_are_counted_by_rule(tmp_path: Path) -> None:
    first, second, _ = make_peers(tmp_path, 3)
    stranger = organisations(4)[3].peer
    async with first.running():
        first.reach(10)
        await until(lambda: first.service.status().newest_computed == 10)
        await tell(
            first,
            second,
            message(stranger, statement_at(10)),
            message(second.organisation.client, statement_at(10)),
            message(second.organisation.peer, statement_at(7)),
            message(second.organisation.peer, statement_at(10, channel="elsewhere")),
            proof(statement_at(20), second.organisation.peer),
        )
        expected = {"unknown identity": 1, "not a peer": 1, "no checkpoint here": 1, "foreign channel": 1, "early": 1}
        await until(lambda: first.service.status().received == expected)


# -- the door


def hello(channel: str = CHANNEL_ID, **changes: Any) -> Hello:
    return Hello(ChannelId(channel), "visitor", 10, **changes)


async def tell(peer: TalkingPeer, other: TalkingPeer, *notices: Notice, first: Notice | None = None) -> None:
    """Say something to a peer in the name of another, and wait until it was heard."""
    async with other.link_to(peer).open() as line:
        await line.write(first or hello())
        assert isinstance(await line.read(), Hello)
        for notice in notices:
            await line.write(notice)
        await line.write(Ask(BlockNumber(999)))
        await asyncio.sleep(0.2)


async def refusal(link: CheckpointLink, *notices: Notice) -> str:
    """Give the text with which a conversation ends."""
    with pytest.raises(PeerUnreachable) as refused:
        async with link.open() as line, asyncio.timeout(5):
            for notice in notices:
                await line.write(notice)
            while await line.read() is not None:
                pass
    return str(refused.value)


@pytest.mark.parametrize(
    ("notices", "status", "text"),
    [
        ([hello("elsewhere")], "NOT_FOUND", "checkpoint conversation: channel; found elsewhere"),
        ([Ask(TEN)], "INVALID_ARGUMENT", "checkpoint conversation: greeting first; expected a greeting; found Ask"),
        ([hello(format=2)], "INVALID_ARGUMENT", "checkpoint greeting: format version; expected 1; found 2"),
        ([hello(), hello("elsewhere")], "INVALID_ARGUMENT", "checkpoint greeting: foreign channel"),
    ],
)
async def test_door_refuses_by_name(tmp_path: Path, notices: list[Notice], status: str, text: str) -> None:
    first, second = make_peers(tmp_path)
    async with first.running():
        said = await refusal(second.link_to(first), *notices)
    assert said.startswith(f"peer peer0.Org1MSP: {status}: {text}")


async def test_door_refuses_bytes_that_are_no_notice(tmp_path: Path) -> None:
    first, second = make_peers(tmp_path)
    async with first.running():
        own = tls_files(second.organisation.msp_id)
        tls = ClientTls(tls_roots("Org1MSP"), own.certificate, own.key, server_name="peer0")
        for before in ([], [encode_notice(hello())]):
            channel = open_channel(f"127.0.0.1:{first.port}", tls)
            call: Any = channel.stream_stream(METHOD)()
            for data in (*before, b"\xff"):
                await call.write(data)
            with pytest.raises(grpc.aio.AioRpcError):
                while await call.read() is not grpc.aio.EOF:
                    pass
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "protobuf" in await call.details()
            await channel.close()


async def test_door_refuses_a_certificate_of_no_organisation_of_the_channel(tmp_path: Path) -> None:
    """The server takes the roots of several channels; the channel of the greeting decides."""
    first, _ = make_peers(tmp_path)
    first.further_roots = ("Org4MSP",)
    async with first.running():
        own = tls_files("Org4MSP")
        tls = ClientTls(tls_roots("Org1MSP"), own.certificate, own.key, server_name="peer0")
        said = await refusal(CheckpointLink("it", f"127.0.0.1:{first.port}", tls), hello())
    expected = "PERMISSION_DENIED: checkpoint conversation: TLS certificate; expected one of an organisation of"
    assert said.startswith(f"peer it: {expected}")


@pytest.mark.parametrize("shown", ["nothing", "a stranger's"])
async def test_server_demands_a_certificate_that_it_knows(tmp_path: Path, shown: str) -> None:
    first, _ = make_peers(tmp_path)
    async with first.running():
        stranger = tls_files("Org4MSP")
        tls = ClientTls(tls_roots("Org1MSP"), stranger.certificate, stranger.key, server_name="peer0")
        if shown == "nothing":
            tls = replace(tls, certificate=None, key=None)
        said = await refusal(CheckpointLink("it", f"127.0.0.1:{first.port}", tls), hello())
    assert said.startswith("peer it: UNAVAILABLE")


async def test_client_refuses_a_server_that_is_not_of_the_roots(tmp_path: Path) -> None:
    first, second = make_peers(tmp_path)
    async with first.running():
        own = tls_files("Org2MSP")
        tls = ClientTls(tls_roots("Org4MSP"), own.certificate, own.key, server_name="peer0")
        said = await refusal(CheckpointLink("it", f"127.0.0.1:{first.port}", tls), hello())
    assert said.startswith("peer it: UNAVAILABLE")
    assert second.valid == []


async def test_conversations_of_one_organisation_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "CONVERSATIONS_PER_SOURCE_MAX", 1)
    first, second = make_peers(tmp_path)
    async with first.running(), second.link_to(first).open() as line:
        await line.write(hello())
        assert isinstance(await line.read(), Hello)
        said = await refusal(second.link_to(first), hello())
    assert said == "peer peer0.Org1MSP: RESOURCE_EXHAUSTED: 1 conversations with Org2MSP are under way"


async def test_question_is_answered_with_the_proof_or_with_what_is_known(tmp_path: Path) -> None:
    first, second = await agree(tmp_path)
    async with first.running():
        first.reach(20)
        await until(lambda: first.service.status().newest_computed == 20)
        async with second.link_to(first).open() as line, asyncio.timeout(5):
            await line.write(hello(latest_valid=TEN))
            for number in (10, 20, 999):
                await line.write(Ask(BlockNumber(number)))
            heard = [await line.read() for _ in range(4)]
        kept, own = first.store.proof(TEN), first.store.signed(BlockNumber(20))
        # The greeting is answered with what is pending, and with a question about it.
        assert isinstance(heard[0], Hello)
        assert heard[1] == own
        assert heard[2] == Ask(BlockNumber(20))
        assert heard[3] == kept


async def test_interval_and_libraries_of_others_are_shown(tmp_path: Path) -> None:
    first, second = make_peers(tmp_path)
    async with first.running():
        odd = Hello(CHANNEL_ID, "visitor", 25, (("protobuf", "9"),))
        await tell(first, second, first=odd)
        status = first.service.status()
        assert dict(status.intervals_of_others) == {"visitor": 25}
        assert status.libraries_of_others == {"visitor": {"protobuf": "9"}}


# -- settings and questions


def test_local_policy_that_is_none_stops_the_start(tmp_path: Path) -> None:
    (first, _) = make_peers(tmp_path, local_policy="any(0)")

    async def start() -> None:
        async with first.running():
            pass

    with pytest.raises(InvalidPolicy) as refused:
        asyncio.run(start())
    assert refused.value.rule == "syntax"


async def test_either_policy_is_enough_for_pruning_where_set_and_joiners_get_nothing(tmp_path: Path) -> None:
    first, second = make_peers(tmp_path, local_policy="'Org1MSP.peer'", either=True)
    async with first.running():
        first.reach(10)
        await until(lambda: first.valid == [10])
        status = first.service.status()
        assert (status.latest_valid, status.latest_local) == (None, 10)
        found = first.service.proof_for_pruning()
        assert found is not None and found.statement == statement_at(10)
        assert first.store.proof(TEN, Scope.LOCAL) == found
        assert await first.service.proof(TEN) is None
        assert first.service.checkpoint(TEN).state is CheckpointState.LOCAL
        assert first.service.policies() == (
            "MAJORITY Endorsement (/Channel/Application/Endorsement) or 'Org1MSP.peer'",
        )
        async with second.link_to(first).open() as line, asyncio.timeout(5):
            await line.write(hello())
            greeting = await line.read()
            assert isinstance(greeting, Hello) and greeting.latest_valid is None


async def test_checkpoint_that_was_overtaken_is_superseded_and_an_unknown_one_not_found(tmp_path: Path) -> None:
    first, second = make_peers(tmp_path)
    async with first.running():
        first.reach(10)
        await until(lambda: first.service.status().newest_computed == 10)
        second.links = [second.link_to(first)]
        async with second.running():
            first.reach(20)
            second.reach(20)
            await until(lambda: latest(first) == 20)
        assert first.service.checkpoint(TEN).state is CheckpointState.SUPERSEDED
        assert [each.number for each in first.service.checkpoints()] == [20, 10]
        assert first.source.released == [10]
        with pytest.raises(NotFound, match="no checkpoint is known at block 11"):
            first.service.checkpoint(BlockNumber(11))


async def test_without_a_run_nobody_is_heard(tmp_path: Path) -> None:
    first, second = make_peers(tmp_path)
    async with first.running():
        await until(lambda: first.service.is_running)
        await first.stop_service()
        said = await refusal(second.link_to(first), hello())
        assert said == NOT_RUNNING
        async with second.link_to(first).open() as line:
            await line.write(hello())
            said = await refusal(second.link_to(first), hello(), message(second.organisation.peer, statement_at(10)))
    assert said == NOT_RUNNING


NOT_RUNNING = "peer peer0.Org1MSP: UNAVAILABLE: this peer's checkpointing of testchannel is not running"


async def test_end_of_the_service_ends_conversations_under_way(tmp_path: Path) -> None:
    first, second = make_peers(tmp_path)
    async with first.running(), second.link_to(first).open() as line:
        await line.write(hello())
        assert isinstance(await line.read(), Hello)
        await until(lambda: first.service.status().connected == ("visitor",))
        await first.stop_service()
        with pytest.raises(PeerUnreachable) as ended:
            await line.read()
        assert str(ended.value) == NOT_RUNNING


async def test_own_line_tells_a_malformed_answer_from_a_broken_one(tmp_path: Path) -> None:
    """The other side's nonsense is its fault by name, so that the log says it."""
    first, second = make_peers(tmp_path)
    async with first.running(), second.link_to(first).open() as line:
        await line.write(hello())

        class Garbage:
            async def read(self) -> bytes:
                return b"\xff"

        line._call = Garbage()
        with pytest.raises(MalformedMessage) as refused:
            await line.read()
        assert refused.value.rule == "protobuf"
