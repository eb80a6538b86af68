"""An older state is read through pre-images; joining or removing intervals disturbs no reader, wherever it stops."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.core.encoding import u64
from ledger.core.state import public_key
from ledger.storage import intervals as module
from ledger.storage.engine import Engine, after_prefix
from ledger.storage.engine_memory import MemoryEngine
from ledger.storage.intervals import Past, changed_keys, delete_interval, intervals, merge_interval
from ledger.storage.keys import INTERVAL, PAGE, PAGE_PRE_IMAGE, PRE_IMAGE, state_key
from tests.kit.stores import Crash, SteppingEngine, Steps

FIRSTS = (0, 101, 201, 301)
ABSENT = b""
KEYS = [state_key(public_key("cc", f"key{each}")) for each in range(12)]


def raw(text: str) -> bytes:
    return text.encode()


def filled() -> MemoryEngine:
    """The database of the module's picture, larger: twelve keys and pages that changed in some intervals.

    Key i changed in interval j where (i + j) is even; what it was before is named after the interval; key 5 was absent
    before interval 201, key 7 is gone now.
    """
    engine = MemoryEngine()
    batch = engine.batch()
    for rank, first in enumerate(FIRSTS):
        batch.put(INTERVAL + u64(first), b"")
        for index, key in enumerate(KEYS):
            if (index + rank) % 2 == 0:
                before = ABSENT if index == 5 and first <= 201 else raw(f"key {index} before {first}")
                batch.put(PRE_IMAGE + u64(first) + key, before)
                batch.put(PAGE_PRE_IMAGE + u64(first) + b"page%d" % index, before)
    for index, key in enumerate(KEYS):
        if index != 7:
            batch.put(key, raw(f"key {index} now"))
            batch.put(PAGE + b"page%d" % index, raw(f"key {index} now"))
    batch.write()
    return engine


def seen(engine: Engine, number: int) -> dict[bytes, bytes]:
    """All entries as of a captured block; read one by one, in a row and from the middle, which must be the same."""
    snapshot = engine.snapshot()
    try:
        past = Past(snapshot, number)
        one_by_one = {key: found for key in KEYS if (found := past.entry(key)) is not None}
        in_a_row = list(past.entries(b""))
        assert dict(in_a_row) == one_by_one
        assert [key for key, _ in in_a_row] == sorted(one_by_one)
        assert list(past.entries(KEYS[4])) == [pair for pair in in_a_row if pair[0] >= KEYS[4]]
        for index, key in enumerate(KEYS):
            assert past.page(b"page%d" % index) == one_by_one.get(key)
        return one_by_one
    finally:
        snapshot.close()


def expected(number: int) -> dict[bytes, bytes]:
    """The same by the rule: the earliest pre-image behind the block, else what is live."""
    found = {}
    for index, key in enumerate(KEYS):
        later = [first for rank, first in enumerate(FIRSTS) if first > number and (index + rank) % 2 == 0]
        if later:
            value = ABSENT if index == 5 and later[0] <= 201 else raw(f"key {index} before {later[0]}")
        else:
            value = ABSENT if index == 7 else raw(f"key {index} now")
        if value != ABSENT:
            found[key] = value
    return found


@pytest.mark.parametrize("number", [100, 200, 300])
def test_state_at_a_captured_block_is_the_live_one_seen_through_the_intervals_behind_it(number: int) -> None:
    assert seen(filled(), number) == expected(number)


def test_key_that_was_absent_and_key_that_is_gone_are_told_apart() -> None:
    engine = filled()
    assert KEYS[5] not in seen(engine, 100), "absent then, there now"
    assert KEYS[5] in seen(engine, 300)
    assert KEYS[7] in seen(engine, 200), "there then, gone now"


def test_changed_keys_of_an_interval_are_those_with_a_pre_image_from_a_key_on() -> None:
    snapshot = filled().snapshot()
    assert list(changed_keys(snapshot, 101)) == sorted(KEYS[1::2])
    assert list(changed_keys(snapshot, 101, KEYS[5])) == [key for key in sorted(KEYS[1::2]) if key >= KEYS[5]]
    assert intervals(snapshot) == list(FIRSTS)
    snapshot.close()


@pytest.fixture(params=[1, 3, 1000])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """So many pre-images move in one batch."""
    monkeypatch.setattr(module, "MERGE_CHUNK", request.param)
    yield request.param


def test_merging_two_intervals_changes_no_state_that_is_still_captured(chunk: int) -> None:
    """Block 200, between the two, is given up; the others read as before."""
    engine = filled()
    merge_interval(engine, 101, 201)
    snapshot = engine.snapshot()
    assert intervals(snapshot) == [0, 101, 301]
    assert not list(snapshot.range(PRE_IMAGE + u64(201), after_prefix(PRE_IMAGE + u64(201))))
    assert not list(snapshot.range(PAGE_PRE_IMAGE + u64(201), after_prefix(PAGE_PRE_IMAGE + u64(201))))
    snapshot.close()
    for number in (100, 300):
        assert seen(engine, number) == expected(number)


def test_merge_that_a_crash_stops_anywhere_changes_nothing_and_is_finished_by_a_repetition(chunk: int) -> None:
    """Goal: a pre-image is never lost and never counts for the wrong interval.  Method: crash before each batch."""
    for step in range(1, 200):
        engine = filled()
        reader = engine.snapshot()  # Somebody who reads since before the merge.
        before = list(reader.range(b"", None))
        try:
            merge_interval(SteppingEngine(engine, Steps(crash_at=step), Path("db")), 101, 201)
        except Crash:
            for number in (100, 300):
                assert seen(engine, number) == expected(number), f"after a crash at step {step}"
            merge_interval(engine, 101, 201)
        else:
            break
        assert list(reader.range(b"", None)) == before
        reader.close()
        snapshot = engine.snapshot()
        assert intervals(snapshot) == [0, 101, 301]
        snapshot.close()
        for number in (100, 300):
            assert seen(engine, number) == expected(number)
    assert step > 2


def test_interval_that_nobody_looks_through_goes_whole_also_when_a_crash_stops_it(chunk: int) -> None:
    for step in range(1, 200):
        engine = filled()
        try:
            delete_interval(SteppingEngine(engine, Steps(crash_at=step), Path("db")), 0)
        except Crash:
            delete_interval(engine, 0)
        else:
            break
        snapshot = engine.snapshot()
        assert intervals(snapshot) == [101, 201, 301]
        for table in (PRE_IMAGE, PAGE_PRE_IMAGE):
            assert not list(snapshot.range(table + u64(0), after_prefix(table + u64(0))))
        snapshot.close()
        for number in (100, 200, 300):
            assert seen(engine, number) == expected(number)
    assert step > 2
