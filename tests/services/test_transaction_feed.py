"""Is anybody who waits for a transaction forgotten?  A real ledger that commits while waiters come and go.

What the feed answers step by step is tried in `test_block_feed`; here nobody arranges who comes first.
"""

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledger.chaincode.pool import ContractPool
from ledger.core.errors import ChannelStopped
from ledger.core.names import BlockNumber, TxId, Verdict
from ledger.services.events import Committed
from ledger.wire.block import encode_block
from tests.kit.channel import Channel, definition_fields, definition_writes
from tests.kit.checkpointing import until
from tests.kit.peers import ORGANISATIONS, Peer, open_peer
from tests.kit.transactions import Draft, writes

BLOCKS = 40
EACH = 3
"""Transactions of a block; the last one is not endorsed."""


@pytest.fixture
def channel() -> Channel:
    return Channel(ORGANISATIONS)


@pytest.fixture
def peer(channel: Channel, tmp_path: Path) -> Iterator[Peer]:
    with open_peer(tmp_path, ORGANISATIONS[0], encode_block(channel.genesis), ContractPool({})) as made:
        definition = channel.draft(definition_writes("asset", definition_fields()), "_lifecycle")
        made.channel.committer.commit([ordered(channel, definition)])
        yield made


def ordered(channel: Channel, *drafts: Draft) -> bytes:
    """The next block."""
    block = channel.block(*(draft.envelope() for draft in drafts))
    channel.commit_block(block)
    return encode_block(block)


def some_drafts(channel: Channel) -> list[Draft]:
    good = [channel.draft(writes("asset", f"key{number}")) for number in range(EACH - 1)]
    return [*good, channel.draft(writes("asset", "unendorsed"), endorsers=())]


async def watch(peer: Peer, tx_id: str, begin_s: float, patience_s: float | None) -> Committed | None:
    """Begin to wait at some time; the impatient leave."""
    await asyncio.sleep(begin_s)
    try:
        async with asyncio.timeout(patience_s):
            return await peer.channel.committed(TxId(tx_id))
    except TimeoutError:
        return None


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_nobody_misses_a_commit_whenever_it_comes_and_whoever_leaves(
    seed: int, channel: Channel, peer: Peer
) -> None:
    chance = random.Random(seed)
    made = [some_drafts(channel) for _ in range(BLOCKS)]
    blocks = [ordered(channel, *drafts) for drafts in made]
    loop = asyncio.get_running_loop()
    waiters: dict[asyncio.Task[Committed | None], str] = {}
    impatient = []
    with ThreadPoolExecutor(1) as thread:
        committing = [loop.run_in_executor(thread, peer.channel.committer.commit, [block]) for block in blocks]
        for tx_id in (draft.id() for drafts in made for draft in drafts):
            for _ in range(2):
                waiters[asyncio.create_task(watch(peer, tx_id, chance.random() / 5, None))] = tx_id
            begin_s, patience_s = chance.random() / 5, chance.random() / 100
            impatient.append(asyncio.create_task(watch(peer, tx_id, begin_s, patience_s)))
        await asyncio.wait_for(asyncio.gather(*waiters, *impatient, *committing), 60)
    for task, tx_id in waiters.items():
        (place,) = peer.store.places(TxId(tx_id))
        assert task.result() == Committed(place.verdict, place.block)
    assert {found.verdict for task in waiters if (found := task.result())} == {
        Verdict.VALID, Verdict.ENDORSEMENT_POLICY_FAILURE,
    }  # fmt: skip
    assert peer.channel._transactions._waiting == {}


async def test_everybody_hears_of_the_end_now_and_later_but_what_is_committed_is_still_told(
    channel: Channel, peer: Peer
) -> None:
    draft = channel.draft(writes("asset", "key"))
    peer.channel.committer.commit([ordered(channel, draft)])
    waiting = [asyncio.create_task(peer.channel.committed(TxId(f"never {number}"))) for number in range(20)]
    await until(lambda: len(peer.channel._transactions._waiting) == 20)
    peer.channel.halt("what was agreed on differs")
    late = asyncio.create_task(peer.channel.committed(TxId("later")))
    for found in await asyncio.gather(*waiting, late, return_exceptions=True):
        assert isinstance(found, ChannelStopped)
        assert str(found).endswith("has stopped: what was agreed on differs")
    assert await peer.channel.committed(TxId(draft.id())) == Committed(Verdict.VALID, BlockNumber(2))
    assert peer.channel._transactions._waiting == {}
