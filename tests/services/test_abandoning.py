"""A checkpoint that can't complete blocks no later one, and an admin can give it up.

What the machine says to it, what the service does with disk and ledger, and the real ledger's intervals.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.core.checkpoint_proof import CheckpointRules, Scope
from ledger.core.checkpoint_status import CheckpointState
from ledger.core.checkpoint_tally import (
    Abandon,
    Abandoned,
    Arrived,
    Computed,
    Dropped,
    ProofArrived,
    Tally,
    TallySettings,
    step,
)
from ledger.core.errors import AbandonRefused, NotFound, PeerUnreachable, StorageFailed
from ledger.core.names import BlockNumber, Digest
from ledger.core.state import public_key
from ledger.core.state_tree import slow_root
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.engine import Snapshot
from ledger.storage.intervals import intervals
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
    until,
)
from tests.storage.test_checkpoint_state import Ledger, one_set, public

TEN, TWENTY = BlockNumber(10), BlockNumber(20)


def make_peer(folder: Path, number: int = 0, count: int = 2) -> TalkingPeer:
    organisation = organisations(count)[number]
    return TalkingPeer(organisation, folder / organisation.msp_id, MemorySource(default_bundle(count)))


async def abandoned(peer: TalkingPeer, number: int = 10) -> CheckpointState:
    """Give a height up as the REST door does: from another thread."""
    return (await asyncio.to_thread(peer.service.abandon, BlockNumber(number))).state


# -- the machine


def tally_with(number: int) -> Tally:
    tally = Tally(TallySettings(CHANNEL_ID, CheckpointRules()))
    return step(tally, Computed(statement_at(number), default_bundle(2), None))[0]


def test_a_pending_height_is_given_up_and_nothing_about_it_is_taken_in_any_more() -> None:
    one, two = (each.peer for each in organisations(2))
    tally, effects = step(tally_with(10), Abandon(TEN))
    assert effects == (Abandoned(TEN, statement_at(10)),)
    assert TEN not in tally.heights
    events = (Arrived(message(one, statement_at(10)), "x"), ProofArrived(proof(statement_at(10), one, two), "x"))
    for event in (*events, Computed(statement_at(20), default_bundle(2), None)):
        tally, effects = step(tally, event)
        assert [one.rule for one in effects if isinstance(one, Dropped)] == (
            ["abandoned"] if not isinstance(event, Computed) else []
        )
    assert list(tally.heights) == [20], "the next one goes on"


def test_a_height_that_was_not_computed_is_given_up_with_what_was_heard_of_it() -> None:
    tally = step(tally_with(10), Arrived(message(organisations(2)[0].peer, statement_at(20)), "x"))[0]
    tally, effects = step(tally, Abandon(TWENTY))
    assert (effects, dict(tally.early)) == ((Abandoned(TWENTY, None),), {})
    tally, effects = step(tally, Computed(statement_at(20), default_bundle(2), None))
    assert [one.rule for one in effects if isinstance(one, Dropped)] == ["abandoned"]


def test_giving_up_twice_or_below_a_valid_one_is_dropped() -> None:
    signers = [each.peer for each in organisations(2)]
    tally = step(tally_with(10), Abandon(TEN))[0]
    assert step(tally, Abandon(TEN)) == (tally, (Dropped("not pending", TEN, "own"),))
    tally = step(tally_with(10), ProofArrived(proof(statement_at(10), *signers), "x"))[0]
    for number in (5, 10):
        assert step(tally, Abandon(BlockNumber(number)))[1] == (Dropped("not pending", BlockNumber(number), "own"),)


# -- the service


async def test_abandoned_checkpoint_lets_go_of_its_state_says_so_and_stays_so_over_a_restart(tmp_path: Path) -> None:
    peer = make_peer(tmp_path)
    async with peer.running():
        peer.reach(10)
        await until(lambda: peer.service.status().newest_computed == 10)
        assert await abandoned(peer) is CheckpointState.ABANDONED
        assert peer.source.released == [10]
        assert peer.service.waiting_for() == ""
        assert await abandoned(peer) is CheckpointState.ABANDONED, "again is no change"
    peer.source.roots[TEN] = roots_at(10)  # As a ledger that is made again captures it.
    async with peer.running():
        peer.reach(20)
        await until(lambda: peer.service.status().newest_computed == 20)
        assert list(peer.service.tally.heights) == [20], "the abandoned one is not published again"
        assert TEN not in peer.source.roots
        shown = peer.service.checkpoint(TEN)
        assert (shown.state, shown.statement, shown.signed_here) == (
            CheckpointState.ABANDONED,
            statement_at(10),
            True,
        )
        assert [(one.number, one.state) for one in peer.service.checkpoints()] == [
            (20, CheckpointState.PENDING),
            (10, CheckpointState.ABANDONED),
        ]


async def test_checkpoint_that_can_not_be_computed_is_given_up_and_the_next_becomes_valid(tmp_path: Path) -> None:
    first, second = make_peer(tmp_path), make_peer(tmp_path, 1)
    first.source.failures += [StorageFailed("a bad sector")] * 3
    async with first.running():
        first.reach(10)
        await until(lambda: TEN in first.service._given_up)
        assert await abandoned(first) is CheckpointState.ABANDONED
        second.links = [second.link_to(first)]
        async with second.running():
            first.reach(20)
            second.reach(20)
            await until(lambda: first.service.status().latest_valid == 20 == second.service.status().latest_valid)


async def test_others_may_make_valid_what_one_peer_has_given_up(tmp_path: Path) -> None:
    first, second, third = (make_peer(tmp_path, number, 3) for number in range(3))
    async with first.running():
        first.reach(10)
        await until(lambda: first.service.status().newest_computed == 10)
        await abandoned(first)
        second.links, third.links = [second.link_to(first)], [third.link_to(first)]
        async with second.running():
            third.links.append(third.link_to(second))
            async with third.running():
                second.reach(10)
                third.reach(10)
                await until(lambda: second.service.status().latest_valid == 10)
                await until(lambda: first.service.status().received.get("abandoned", 0) > 0)
                assert first.service.status().latest_valid is None
                for peer in (first, second, third):
                    peer.reach(20)
                await until(lambda: first.service.status().latest_valid == 20)


@pytest.mark.parametrize(
    ("number", "found"),
    [
        (20, "valid: pruning and proofs rest on it"),
        (10, "superseded by checkpoint 20, which is valid"),
    ],
)
async def test_what_is_valid_or_overtaken_is_not_given_up(tmp_path: Path, number: int, found: str) -> None:
    peer = make_peer(tmp_path)
    signers = [each.peer for each in organisations(2)]
    with CheckpointStore(peer.directory, CHANNEL_ID) as store:
        store.record_signed(message(peer.organisation.peer, statement_at(10)))
        store.record_valid(proof(statement_at(20), *signers), Scope.FULL)
    async with peer.running():
        await until(lambda: peer.service.is_running)
        with pytest.raises(AbandonRefused) as refused:
            await abandoned(peer, number)
        assert (refused.value.rule, refused.value.found) == ("pending", found)
        assert dict(peer.store.abandoned) == {}


async def test_what_pruning_rests_on_and_a_divergence_are_not_given_up(tmp_path: Path) -> None:
    peer = make_peer(tmp_path)
    with CheckpointStore(peer.directory, CHANNEL_ID) as store:
        store.record_valid(proof(statement_at(10), peer.organisation.peer), Scope.LOCAL)
    async with peer.running():
        await until(lambda: peer.service.is_running)
        with pytest.raises(AbandonRefused, match="valid for this peer's own pruning"):
            await abandoned(peer)
        peer.store.record_divergence(statement_at(20, "ours"), proof(statement_at(20), peer.organisation.peer))
        with pytest.raises(AbandonRefused, match="diverged: a valid checkpoint at block 20"):
            await abandoned(peer, 20)


async def test_what_is_not_known_and_what_nobody_judges_is_not_given_up(tmp_path: Path) -> None:
    peer = make_peer(tmp_path)
    async with peer.running():
        await until(lambda: peer.service.is_running)
        with pytest.raises(NotFound, match="no checkpoint is known at block 7"):
            await abandoned(peer, 7)
        peer.reach(10)
        await until(lambda: peer.service.status().newest_computed == 10)
        await peer.stop_service()
        with pytest.raises(PeerUnreachable, match="is not running"):
            await abandoned(peer)


# -- the real ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "data")
    yield made
    made.store.close()


def intervals_of(ledger: Ledger) -> list[int]:
    snapshot: Snapshot = ledger.store._engine.snapshot()
    try:
        return intervals(snapshot)
    finally:
        snapshot.close()


@pytest.mark.parametrize("computed", [True, False])
def test_interval_of_an_abandoned_checkpoint_is_merged_into_the_older_one(ledger: Ledger, computed: bool) -> None:
    """The state at 4 is still what it was, that at 12 is right, and one interval is gone."""
    ledger.define()
    for number in range(2, 14):
        ledger.commit(one_set(public((f"key{number}", b"%d" % number), ("same", b"%d" % number))))
    store = ledger.store
    store.compute_checkpoint(BlockNumber(4))
    if computed:
        store.compute_checkpoint(BlockNumber(8))
    before = intervals_of(ledger)
    assert {5, 9, 13} <= set(before)
    store.release(BlockNumber(8))
    assert intervals_of(ledger) == [first for first in before if first != 9]
    roots = store.compute_checkpoint(BlockNumber(12))
    assert roots.state_root == slow_root(ledger.states[12])
    for number in (4, 12):
        with store.checkpoint_view(BlockNumber(number)) as view:
            assert dict(view.entries()) == ledger.states[number]
    entry = ledger.states[12][public_key("asset", "same")]
    assert entry is not None and entry.value == b"12"
    assert isinstance(roots.state_root, bytes) and roots.state_root != Digest(bytes(32))
