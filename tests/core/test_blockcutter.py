"""How blocks are cut: Fabric's rule for count and sizes, and what is left to time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.blockcutter import Waiting, add
from ledger.core.channel_config import BatchSize

LIMITS = BatchSize(max_message_count=3, absolute_max_bytes=1000, preferred_max_bytes=100)
SIZES = st.lists(st.integers(1, 150), max_size=40)


def cut(sizes: list[int], limits: BatchSize = LIMITS) -> tuple[list[list[int]], list[int]]:
    """Offer messages that are their own sizes; give the batches cut and what waits."""
    waiting: Waiting[int] = Waiting()
    done: list[list[int]] = []
    for size in sizes:
        batches, waiting = add(waiting, size, size, limits)
        done += [list(batch) for batch in batches]
    return done, list(waiting.messages)


@pytest.mark.parametrize(
    ("sizes", "batches", "waiting"),
    [
        ([], [], []),
        ([10], [], [10]),
        ([10, 20], [], [10, 20]),
        ([10, 20, 30], [[10, 20, 30]], []),
        ([10, 20, 30, 40], [[10, 20, 30]], [40]),
        ([100], [], [100]),
        ([101], [[101]], []),
        ([10, 101], [[10], [101]], []),
        ([10, 101, 20], [[10], [101]], [20]),
        ([60, 40], [], [60, 40]),
        ([60, 41], [[60]], [41]),
        ([60, 41, 60], [[60], [41]], [60]),
        ([100, 1], [[100]], [1]),
        ([30, 30, 50], [[30, 30]], [50]),
        ([1000], [[1000]], []),
    ],
)
def test_count_and_preferred_size_cut_and_a_large_message_goes_alone(
    sizes: list[int], batches: list[list[int]], waiting: list[int]
) -> None:
    assert cut(sizes) == (batches, waiting)


def test_with_a_count_of_one_every_message_is_a_block_at_once() -> None:
    assert cut([5, 500, 5], BatchSize(1, 1000, 100)) == ([[5], [500], [5]], [])


def test_one_message_can_cut_two_batches() -> None:
    waiting: Waiting[str] = Waiting(("small",), 10)
    batches, after = add(waiting, "large", 101, LIMITS)
    assert (batches, after) == ((("small",), ("large",)), Waiting())
    batches, after = add(waiting, "large", 91, BatchSize(1, 1000, 100))
    assert (batches, after) == ((("small",), ("large",)), Waiting())


@given(sizes=SIZES, count=st.integers(1, 5), preferred=st.integers(1, 120))
def test_no_message_is_lost_doubled_or_moved_and_no_batch_is_larger_than_it_may_be(
    sizes: list[int], count: int, preferred: int
) -> None:
    batches, waiting = cut(sizes, BatchSize(count, 1000, preferred))
    assert [size for batch in batches for size in batch] + waiting == sizes
    for batch in batches:
        assert 1 <= len(batch) <= count
        assert sum(batch) <= preferred or len(batch) == 1
    assert len(waiting) < count
    assert sum(waiting) <= preferred


@given(sizes=SIZES)
def test_a_batch_is_cut_for_a_reason(sizes: list[int]) -> None:
    """Each batch is full, too large for the next message, or a large message alone."""
    batches, waiting = cut(sizes)
    following = [*batches, waiting][1:]
    for batch, after in zip(batches, following, strict=True):
        assert len(batch) == 3 or sum(batch) > 100 or sum(batch) + after[0] > 100


def test_adding_leaves_what_waited_as_it_was() -> None:
    waiting: Waiting[int] = Waiting((1,), 1)
    add(waiting, 2, 2, LIMITS)
    assert waiting == Waiting((1,), 1)
