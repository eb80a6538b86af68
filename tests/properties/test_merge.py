"""Merging operations and summarising ranges: the fast ways against slow, obvious ones."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.merge import UNCHANGED, Operation, merge
from ledger.core.names import NEVER, BlockNumber, TxIndex
from ledger.core.range_summary import RangeSummary
from ledger.core.rwset import MerkleSummary, Read
from ledger.core.state import Entry, Version
from ledger.wire.rwset import encode_query_reads

OLD = Entry(b"old", Version(BlockNumber(1), TxIndex(2)), b"old metadata", NEVER)
NOW = Version(BlockNumber(3), TxIndex(4))
NAMES = ("write", "set", "clear", "delete")


def merged_slowly(steps: list[tuple[str, bytes]], old: Entry | None) -> object:
    """By the words of the rule: sum the numbers, then look at the bits of the sum."""
    numbers = {"write": 1, "set": 2, "clear": 4, "delete": 8}
    total = sum(numbers[name] for name, _ in steps) % 256
    value = next((content for name, content in reversed(steps) if name == "write"), None)
    metadata = next((content for name, content in reversed(steps) if name == "set"), b"")
    bits = {number for number in (1, 2, 4, 8) if total // number % 2}
    if 8 in bits:
        return None
    if 1 in bits and bits & {2, 4}:
        return Entry(value or b"", NOW, metadata, NEVER)
    if total in (0, 1):
        return None if value is None else Entry(value, NOW, old.metadata if old else b"", NEVER)
    if old is None:
        return UNCHANGED
    return Entry(old.value, NOW, metadata, NEVER)


@given(
    steps=st.lists(st.tuples(st.sampled_from(NAMES), st.binary(min_size=1, max_size=3)), min_size=1, max_size=40),
    is_old=st.booleans(),
)
def test_any_sequence_of_operations_merges_as_the_sum_of_their_numbers_says(
    steps: list[tuple[str, bytes]], is_old: bool
) -> None:
    old = OLD if is_old else None
    operation = Operation()
    for name, content in steps:
        match name:
            case "write":
                operation.write(content)
            case "set":
                operation.describe((("name", content),), content)
            case "clear":
                operation.describe((), b"")
            case _:
                operation.delete()
    expected = merged_slowly(steps, old)
    assert merge(operation, old, NOW, NEVER) == expected
    if not operation.needs_old:
        assert merge(operation, None, NOW, NEVER) == expected


def test_256_writes_of_a_key_overflow_the_sum_and_keep_the_metadata() -> None:
    operation = Operation()
    for _ in range(256):
        operation.write(b"new")
    assert merge(operation, OLD, NOW, NEVER) == Entry(b"new", NOW, b"old metadata", NEVER)


def summarised_slowly(reads: list[Read], degree: int) -> MerkleSummary | None:
    """Keep everything, level by level, and fold only where the rule says so."""
    if len(reads) <= degree:
        return None
    levels: dict[int, list[bytes]] = {1: []}

    def add(level: int, node: bytes) -> None:
        levels.setdefault(level, []).append(node)
        if len(levels[level]) > degree:
            add(level + 1, sha256(b"".join(levels.pop(level))).digest())

    for start in range(0, len(reads), degree + 1):
        add(1, sha256(encode_query_reads(reads[start : start + degree + 1])).digest())
    top = max(levels)
    for level in range(1, top):
        below = levels.pop(level, [])
        if below:
            node = below[0] if len(below) == 1 else sha256(b"".join(below)).digest()
            levels.setdefault(level + 1, []).append(node)
    if len(levels[top]) > degree:
        levels = {top + 1: [sha256(b"".join(levels[top])).digest()]}
        top += 1
    return MerkleSummary(degree, top, tuple(levels[top]))


def summarised(reads: list[Read], degree: int) -> MerkleSummary | None:
    summary = RangeSummary(degree)
    for read in reads:
        assert read.version is not None
        summary.add(read.key.encode(), read.version)
    return summary.finish()


def some_reads(count: int) -> list[Read]:
    return [Read(f"key{n:05d}é", Version(BlockNumber(n % 7), TxIndex(n % 300))) for n in range(count)]


@pytest.mark.parametrize("counts", [range(121), (2550, 2551, 2552, 2600, 2601, 2602, 2650, 5203)])
def test_a_summary_of_degree_50_is_that_of_the_slow_twin(counts: "range | tuple[int, ...]") -> None:
    for count in counts:
        assert summarised(some_reads(count), 50) == summarised_slowly(some_reads(count), 50), count


@given(count=st.integers(0, 200), degree=st.integers(2, 7))
def test_a_summary_of_any_degree_is_that_of_the_slow_twin(count: int, degree: int) -> None:
    assert summarised(some_reads(count), degree) == summarised_slowly(some_reads(count), degree)


def test_50_results_have_no_summary_51_one_level_and_2551_two() -> None:
    assert summarised(some_reads(50), 50) is None
    levels = [summary.max_level for count in (51, 2550, 2551) if (summary := summarised(some_reads(count), 50))]
    assert levels == [1, 1, 2]
