"""An orderer's log of blocks: what was appended is there, in order, and what is not whole is never given out."""

from pathlib import Path

import pytest

from ledger.core.errors import Conflict, NotFound, StorageDamaged
from ledger.core.names import BlockNumber
from ledger.storage.order_log import OrderLog
from ledger.storage.record_log import CHECK_BYTES, HEADER_BYTES, SEAL_BYTES
from tests.kit.outcomes import recorded_blocks

BLOCKS = recorded_blocks("mini")[:6]


def filled(directory: Path) -> Path:
    """Append some recorded blocks; give the file."""
    log = OrderLog(directory)
    for number, block in enumerate(BLOCKS):
        log.append(BlockNumber(number), block)
    log.close()
    return directory / "blocks.log"


def contents(directory: Path) -> list[bytes]:
    log = OrderLog(directory)
    try:
        return [log.block_bytes(BlockNumber(number)) for number in range(log.height)]
    finally:
        log.close()


def test_blocks_are_given_back_byte_for_byte_after_reopening(tmp_path: Path) -> None:
    filled(tmp_path)
    assert contents(tmp_path) == list(BLOCKS)
    log = OrderLog(tmp_path)
    assert (log.height, log.first_block) == (len(BLOCKS), 0)
    log.close()


@pytest.mark.parametrize("number", [-1, len(BLOCKS), 2**64 - 1])
def test_block_that_is_not_there_yet_is_not_found_and_the_height_is_told(number: int, tmp_path: Path) -> None:
    filled(tmp_path)
    log = OrderLog(tmp_path)
    with pytest.raises(NotFound, match=f"block {number} is not there; the height is {len(BLOCKS)}"):
        log.block_bytes(BlockNumber(number))
    log.close()


def test_blocks_out_of_order_are_our_own_mistake(tmp_path: Path) -> None:
    log = OrderLog(tmp_path)
    with pytest.raises(AssertionError, match="in order"):
        log.append(BlockNumber(1), BLOCKS[1])
    assert log.height == 0
    log.close()


def test_second_process_on_the_same_folder_is_a_conflict_and_the_first_goes_on(tmp_path: Path) -> None:
    filled(tmp_path)
    first = OrderLog(tmp_path)
    with pytest.raises(Conflict, match="is in use by another process"):
        OrderLog(tmp_path)
    first.append(BlockNumber(len(BLOCKS)), b"next")
    first.close()
    assert contents(tmp_path) == [*BLOCKS, b"next"]


def test_torn_last_block_is_not_in_the_order(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    last = HEADER_BYTES + len(BLOCKS[-1]) + CHECK_BYTES
    for lost in (1, CHECK_BYTES, last // 2, last - HEADER_BYTES, last - 1, last):
        path.write_bytes(whole[: -lost - SEAL_BYTES])
        assert contents(tmp_path) == list(BLOCKS[:-1]), f"{lost} bytes lost"


def test_flipped_byte_in_an_older_block_stops_the_start_and_is_named(tmp_path: Path) -> None:
    path = filled(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageDamaged, match=r"blocks\.log: record \d is damaged: its check does not fit; restore"):
        OrderLog(tmp_path)


def test_folder_whose_opening_failed_can_be_opened_by_the_same_process_once_it_is_restored(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(b"garbage" * 20)
    with pytest.raises(StorageDamaged, match="does not begin as a file of records"):
        OrderLog(tmp_path)
    path.write_bytes(whole)
    assert contents(tmp_path) == list(BLOCKS)
