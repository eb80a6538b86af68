"""A small file of records: a crash costs at most the record that nobody was told of, damage is named, never skipped."""

import random
import zlib
from pathlib import Path

import pytest

from ledger.core.encoding import u32
from ledger.core.errors import StorageDamaged, StorageFailed
from ledger.storage.files import Files
from ledger.storage.record_log import (
    BEGIN_BYTES,
    CHECK_BYTES,
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    SEAL_BYTES,
    RecordLog,
)
from tests.kit.stores import Crash, SteppingFiles, Steps

RECORDS = [b"first", b"", b"third record \0\0\0\0\0\0\0\0\0", bytes(range(64)), b"last"]


def written(path: Path, records: list[bytes] = RECORDS) -> bytes:
    """Write records and give the file."""
    log = RecordLog(path)
    for index, record in enumerate(records):
        assert log.append(record) == index
    log.close()
    return path.read_bytes()


def read_all(path: Path) -> list[bytes]:
    log = RecordLog(path)
    try:
        return list(log.records())
    finally:
        log.close()


def ends(records: list[bytes] = RECORDS) -> list[int]:
    """Where the file ends behind each number of records and their seals."""
    sizes = [BEGIN_BYTES]
    for record in records:
        sizes.append(sizes[-1] + HEADER_BYTES + len(record) + CHECK_BYTES + SEAL_BYTES)
    return sizes


def whole_at(size: int) -> list[bytes]:
    """The records that are whole in so many bytes; the last one's seal may be missing."""
    return [record for record, end in zip(RECORDS, ends()[1:], strict=True) if end - SEAL_BYTES <= size]


def test_records_are_given_back_in_order_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "some.log"
    data = written(path)
    assert len(data) == ends()[-1]
    assert read_all(path) == RECORDS
    log = RecordLog(path)
    assert (len(log), log.size_bytes) == (len(RECORDS), len(data))
    assert log.append(b"one more") == len(RECORDS)
    assert log.read(len(RECORDS)) == b"one more"
    log.close()
    assert read_all(path) == [*RECORDS, b"one more"]


def test_torn_tail_is_cut_at_every_byte_and_the_next_record_follows_what_was_whole(tmp_path: Path) -> None:
    data = written(tmp_path / "whole.log")
    for size in [*range(0, len(data), 3), *range(ends()[-2] - 2, len(data) + 1)]:
        path = tmp_path / "torn.log"
        path.write_bytes(data[:size])
        whole = whole_at(size)
        assert read_all(path) == whole, f"cut to {size} bytes"
        assert path.stat().st_size <= ends()[len(whole)], "the torn part is gone from the disk too"
        log = RecordLog(path)
        log.append(b"next")
        log.close()
        assert read_all(path) == [*whole, b"next"]


@pytest.mark.parametrize("spoilt", ["zeros", "garbage"])
def test_tail_that_a_power_cut_left_as_zeros_or_garbage_is_cut(spoilt: str, tmp_path: Path) -> None:
    """Goal: no start needs a repair.  Method: from any byte of the last record on, and of the seal before it."""
    data = written(tmp_path / "whole.log")
    chance = random.Random(7)
    for begin in range(ends()[-2] - SEAL_BYTES, len(data)):
        path = tmp_path / "spoilt.log"
        rest = len(data) - begin
        path.write_bytes(data[:begin] + (bytes(rest) if spoilt == "zeros" else chance.randbytes(rest)))
        whole = RECORDS if begin >= len(data) - SEAL_BYTES else RECORDS[:-1]
        found = read_all(path)
        assert found == whole or (found == RECORDS and not any(data[begin : len(data) - SEAL_BYTES])), f"from {begin}"


@pytest.mark.parametrize("spoilt", ["zeros", "garbage"])
def test_file_whose_beginning_never_reached_the_disk_is_made_anew(spoilt: str, tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    path.write_bytes(bytes(BEGIN_BYTES) if spoilt == "zeros" else random.Random(7).randbytes(BEGIN_BYTES))
    assert read_all(path) == []
    assert written(path)[:BEGIN_BYTES] == path.read_bytes()[:BEGIN_BYTES]
    assert read_all(path) == RECORDS


def test_last_record_whose_seal_never_reached_the_disk_counts_and_is_sealed_with_the_next(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    data = written(path)
    path.write_bytes(data[:-SEAL_BYTES])
    log = RecordLog(path)
    log.append(b"next")
    log.close()
    assert path.read_bytes()[: len(data)] == data
    assert read_all(path) == [*RECORDS, b"next"]


def test_payload_that_holds_another_files_seals_is_no_seal(tmp_path: Path) -> None:
    """Goal: nobody makes a torn tail look like damage.  Method: the tail of a file that is, at the same offsets."""
    other, path = written(tmp_path / "other.log"), tmp_path / "torn.log"
    data = written(path)
    path.write_bytes(data[: ends()[2]] + b"torn" + other[ends()[2] + 4 :])
    assert read_all(path) == RECORDS[:2]


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_is_damage_that_names_file_and_record(mask: int, tmp_path: Path) -> None:
    data = written(tmp_path / "whole.log")
    path = tmp_path / "flipped.log"
    for at in range(len(data) - SEAL_BYTES):  # What the last seal says is known without it.
        path.write_bytes(data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])
        with pytest.raises(StorageDamaged) as caught:
            RecordLog(path)
        if at < BEGIN_BYTES:
            expected = f"{path} does not begin as a file of records; restore it from a copy"
            assert str(caught.value) == expected
        else:
            index = sum(end <= at for end in ends()) - 1
            assert f"{path}: record {index} is damaged" in str(caught.value), f"byte {at}"
        assert path.read_bytes()[:at] == data[:at], "what is damaged is not cut"


def test_record_that_changes_on_the_disk_while_the_file_is_open_is_noticed_when_read(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    written(path)
    log = RecordLog(path)
    with path.open("r+b") as file:
        file.seek(ends()[3] + HEADER_BYTES + 5)
        file.write(b"\xff")
    assert log.read(2) == RECORDS[2]
    with pytest.raises(StorageDamaged, match="record 3 is damaged: its check does not fit"):
        log.read(3)
    log.close()


def test_length_that_is_whole_but_absurd_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    data = written(path)
    length = u32(PAYLOAD_BYTES_MAX + 1)
    path.write_bytes(data[: ends()[2]] + length + u32(zlib.crc32(length)) + data[ends()[2] + HEADER_BYTES :])
    with pytest.raises(StorageDamaged, match="record 2 is damaged"):
        RecordLog(path)


class FailingFiles(Files):
    """Files whose disk fails at a verb as often as told."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}

    def before(self, verb: str, path: Path) -> None:
        if self.failing.get(verb, 0):
            self.failing[verb] -= 1
            raise OSError(5, "Input/output error")


def test_failed_append_does_not_count_and_the_next_one_opens_the_file_again(tmp_path: Path) -> None:
    files = FailingFiles()
    path = tmp_path / "some.log"
    log = RecordLog(path, files)
    log.append(b"told")
    files.failing["sync"] = 1
    with pytest.raises(StorageFailed, match=r"some\.log failed"):
        log.append(b"never told")
    assert list(log.records()) == [b"told"]
    log.append(b"after")
    assert list(log.records()) == [b"told", b"after"]
    log.close()
    assert read_all(path) == [b"told", b"after"]


def test_power_cut_between_any_two_steps_leaves_what_was_told(tmp_path: Path) -> None:
    """Goal: an appended record is durable on return.  Method: cut what was not synced before each step in turn."""
    for step in range(1, 100):
        path = tmp_path / str(step) / "some.log"
        files = SteppingFiles(Steps(crash_at=step))
        told: list[bytes] = []
        try:
            log = RecordLog(path, files)
            for record in RECORDS:
                log.append(record)
                told.append(record)
        except Crash:
            files.cut_power()
            found = read_all(path)
            assert found[: len(told)] == told
            assert found == RECORDS[: len(found)]
        else:
            assert step > 2 * len(RECORDS)
            break
    else:
        pytest.fail("the records took more than a hundred steps")


def test_file_that_can_not_be_opened_is_a_failure_of_the_disk_not_damage(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    path.mkdir()
    with pytest.raises(StorageFailed, match=r"some\.log failed"):
        RecordLog(path)
