"""Who waits for blocks and transactions is told once they are durable, from any thread, and leaves nothing behind."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import pytest_asyncio

from ledger.core.errors import ChannelStopped
from ledger.core.names import BlockNumber, TxId
from ledger.services.events import BlockFeed, Committed, TransactionFeed

ONE, TWO = TxId("one"), TxId("two")


async def settled() -> None:
    """Let every task run as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


# Heights.


async def test_height_that_is_there_is_given_at_once() -> None:
    feed = BlockFeed(7)
    assert await asyncio.wait_for(feed.wait_above(6), 1) == 7
    assert await asyncio.wait_for(feed.wait_above(-1), 1) == 7


async def test_those_who_wait_are_woken_by_the_height_that_they_wait_for_and_no_other() -> None:
    feed = BlockFeed(3)
    waiting = {height: asyncio.create_task(feed.wait_above(height)) for height in (3, 4, 4_000)}
    await settled()
    feed.publish(4)
    await settled()
    assert [height for height, task in waiting.items() if task.done()] == [3]
    feed.publish(9)
    await settled()
    assert waiting[4].result() == 9
    assert not waiting[4_000].done()
    waiting[4_000].cancel()
    await settled()
    assert not feed._waiting


async def test_height_never_goes_back() -> None:
    feed = BlockFeed(5)
    feed.publish(3)
    assert feed.height == 5


async def test_cancelled_waiter_leaves_nothing_and_others_are_still_told() -> None:
    feed = BlockFeed()
    gone, stays = (asyncio.create_task(feed.wait_above(0)) for _ in range(2))
    await settled()
    gone.cancel()
    await settled()
    assert len(feed._waiting) == 1
    feed.publish(1)
    assert await asyncio.wait_for(stays, 1) == 1
    assert not feed._waiting


async def test_publishing_from_another_thread_while_others_begin_to_wait_misses_nobody() -> None:
    """Goal: no interleaving of a publisher's thread and waiters loses a wake-up."""
    feed = BlockFeed()
    last = 2_000

    def publish_all() -> None:
        for height in range(1, last + 1):
            feed.publish(height)

    publisher = threading.Thread(target=publish_all)

    async def follow() -> int:
        height = 0
        while height < last:
            height = await feed.wait_above(height)
        return height

    followers = [asyncio.create_task(follow()) for _ in range(20)]
    publisher.start()
    assert await asyncio.wait_for(asyncio.gather(*followers), 20) == [last] * 20
    publisher.join()
    assert not feed._waiting


def test_loop_that_ended_with_waiters_is_no_harm_to_the_publisher() -> None:
    feed = BlockFeed()
    loop = asyncio.new_event_loop()
    task = loop.create_task(feed.wait_above(0))
    loop.run_until_complete(settled())
    waiting = dict(feed._waiting)
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    feed._waiting.update(waiting)  # As if the loop had been closed without cancelling.
    loop.close()
    feed.publish(1)
    assert feed.height == 1


# Transactions.


@pytest_asyncio.fixture
async def executor() -> AsyncIterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


async def test_waiter_gets_the_verdict_when_its_block_is_durable(executor: ThreadPoolExecutor) -> None:
    feed = TransactionFeed()
    waiting = [asyncio.create_task(feed.wait(ONE, lambda: None, executor)) for _ in range(3)]
    other = asyncio.create_task(feed.wait(TWO, lambda: None, executor))
    await asyncio.sleep(0.05)
    feed.publish(BlockNumber(4), [TxId("unrelated"), ONE], b"\x00\x0b")
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [Committed(11, BlockNumber(4))] * 3
    assert not other.done()
    other.cancel()
    await settled()
    assert not feed._waiting


async def test_first_of_an_id_counts_also_inside_one_block(executor: ThreadPoolExecutor) -> None:
    feed = TransactionFeed()
    waiting = asyncio.create_task(feed.wait(ONE, lambda: None, executor))
    await asyncio.sleep(0.05)
    feed.publish(BlockNumber(4), [ONE, ONE], b"\x00\x09")
    feed.publish(BlockNumber(5), [ONE], b"\x09")
    assert await asyncio.wait_for(waiting, 5) == Committed(0, BlockNumber(4))


async def test_transaction_that_is_in_the_ledger_already_is_answered_from_there(executor: ThreadPoolExecutor) -> None:
    feed = TransactionFeed()
    known = Committed(10, BlockNumber(2))
    assert await asyncio.wait_for(feed.wait(ONE, lambda: known, executor), 5) == known
    assert not feed._waiting


async def test_block_that_becomes_durable_during_the_look_up_is_not_missed(executor: ThreadPoolExecutor) -> None:
    """The look-up begins before the block and ends after it without seeing it: listening began before both."""
    feed = TransactionFeed()

    def look() -> Committed | None:
        feed.publish(BlockNumber(8), [ONE], b"\0")
        return None

    assert await asyncio.wait_for(feed.wait(ONE, look, executor), 5) == Committed(0, BlockNumber(8))


async def test_end_of_a_channel_is_told_to_those_who_wait_and_to_those_who_come_later(
    executor: ThreadPoolExecutor,
) -> None:
    feed = TransactionFeed()
    waiting = asyncio.create_task(feed.wait(ONE, lambda: None, executor))
    await asyncio.sleep(0.05)
    feed.end("block 9 can't be applied")
    with pytest.raises(ChannelStopped, match="block 9 can't be applied"):
        await asyncio.wait_for(waiting, 5)
    with pytest.raises(ChannelStopped, match="block 9 can't be applied"):
        await asyncio.wait_for(feed.wait(TWO, lambda: None, executor), 5)
    known = Committed(0, BlockNumber(1))
    assert await asyncio.wait_for(feed.wait(ONE, lambda: known, executor), 5) == known


async def test_failing_look_up_is_the_waiters_error_and_leaves_nothing(executor: ThreadPoolExecutor) -> None:
    feed = TransactionFeed()

    def look() -> Committed | None:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        await asyncio.wait_for(feed.wait(ONE, look, executor), 5)
    assert not feed._waiting


@pytest.mark.parametrize("known", [None, Committed(0, BlockNumber(1))], ids=["not in the ledger", "in the ledger"])
async def test_end_during_the_look_up_leaves_no_error_that_nobody_takes(
    known: Committed | None, executor: ThreadPoolExecutor
) -> None:
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    feed = TransactionFeed()

    def look() -> Committed | None:
        feed.end("stopped")
        return known

    waiting = feed.wait(ONE, look, executor)
    if known is None:
        with pytest.raises(ChannelStopped, match="stopped"):
            await asyncio.wait_for(waiting, 5)
    else:
        assert await asyncio.wait_for(waiting, 5) == known
    gc.collect()
    await settled()
    assert unheard == []
