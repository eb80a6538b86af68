"""Segments of blocks: what was appended is read back, what is torn is not, what is damaged is named."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.core.errors import MalformedMessage, StorageDamaged
from ledger.core.names import BlockNumber
from ledger.core.vblock import leaves_of
from ledger.storage.files import Files
from ledger.storage.segment_records import bodies_content, kept_content, stored_block
from ledger.storage.segments import (
    NO_END,
    RECORD_BLOCK_WITH_BODIES,
    Place,
    Position,
    SegmentFolder,
)
from tests.kit.organisations import shared_organisation
from tests.kit.outcomes import judged

MAGIC = b"testsegm"


def certificates() -> list[bytes]:
    return [shared_organisation(name).peer.certificate for name in ("Org1MSP", "Org2MSP", "OrdererMSP")]


def contents() -> list[bytes]:
    """Contents as blocks have them: certificates that repeat, new ones in between, an empty one, random bytes."""
    first, second, third = certificates()
    rng = random.Random(7)
    return [
        b"genesis" + first + first,
        b"block 1" + second + rng.randbytes(50) + first,
        b"",
        b"block 3" + first + second + b"x" * 500,
        b"block 4" + third + b"-----BEGIN CERTIFICATE-----\nnever ends",
        rng.randbytes(300),
        b"block 6" + first + second + third,
    ]


class Written:
    """A folder with one segment that holds the contents."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.folder = folder_at(directory)
        self.folder.begin(BlockNumber(0))
        self.contents = contents()
        self.places = [self.folder.append(BlockNumber(number), each) for number, each in enumerate(self.contents)]
        self.folder.sync()
        self.path = self.folder.path(0)
        self.data = self.path.read_bytes()


def folder_at(directory: Path) -> SegmentFolder:
    return SegmentFolder(Files(), directory, suffix=".seg", magic=MAGIC)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path / "segments")
    yield made
    made.folder.resume(None)


def test_contents_are_read_back_by_their_place_in_any_order(written: Written) -> None:
    order = list(range(len(written.contents)))
    random.Random(1).shuffle(order)
    fresh = folder_at(written.folder.directory)
    for number in order:
        assert fresh.read(written.places[number], BlockNumber(number)) == written.contents[number]
    assert [fresh.content(record) for record in fresh.scan(0)] == written.contents
    assert [record.place for record in fresh.scan(0)] == written.places
    assert fresh.bounds(0) == (0, NO_END)


def test_certificates_that_repeat_are_stored_once(written: Written) -> None:
    """The last block brings three certificates that the segment has met: it takes less than one of them."""
    assert written.places[6].length < min(map(len, certificates())) / 2
    alone = folder_at(written.folder.directory)
    alone.begin(BlockNumber(100))
    alone.append(BlockNumber(100), written.contents[6])
    assert alone.position is not None
    assert alone.position.size > sum(map(len, certificates())) / 2
    alone.resume(None)


def test_torn_tail_at_any_byte_leaves_the_whole_records_before_it(written: Written) -> None:
    reader = folder_at(written.folder.directory)
    for size in [*range(0, 60), *range(60, len(written.data), 11), len(written.data)]:
        written.path.write_bytes(written.data[:size])
        if size < reader.header_size():
            assert not reader.has_whole_header(0)
            assert list(reader.scan(0)) == []
            with pytest.raises(StorageDamaged, match="no whole header"):
                reader.bounds(0)
            continue
        whole = [place for place in written.places if place.offset + place.length <= size]
        assert [record.place for record in reader.scan(0)] == whole
        for number, place in enumerate(written.places[len(whole) :], len(whole)):
            with pytest.raises(StorageDamaged, match=rf"record at {place.offset}: no whole record of block {number}"):
                reader.read(place, BlockNumber(number))


@pytest.mark.parametrize("mask", [0x01, 0xFF])
def test_no_flipped_byte_of_a_record_goes_unnoticed(mask: int, written: Written) -> None:
    """Every byte behind the header belongs to a record of a block or to a dictionary: each is checked when read."""
    for at in range(written.folder.header_size(), len(written.data), 7):
        written.path.write_bytes(written.data[:at] + bytes([written.data[at] ^ mask]) + written.data[at + 1 :])
        reader = folder_at(written.folder.directory)
        noticed = 0
        for number, place in enumerate(written.places):
            try:
                assert reader.read(place, BlockNumber(number)) == written.contents[number]
            except StorageDamaged as error:
                noticed += 1
                assert str(written.path) in str(error)
                assert "peerledger rebuild" in str(error)
        assert noticed, f"byte {at}"


def test_flipped_byte_of_the_header_is_named(written: Written) -> None:
    for at in range(written.folder.header_size()):
        written.path.write_bytes(written.data[:at] + bytes([written.data[at] ^ 1]) + written.data[at + 1 :])
        assert not written.folder.has_whole_header(0)
        with pytest.raises(StorageDamaged, match=r"000000000000\.seg is damaged: record at 0: no whole header"):
            written.folder.bounds(0)


def test_place_of_another_block_is_not_read_as_this_one(written: Written) -> None:
    with pytest.raises(StorageDamaged, match="no whole record of block 4"):
        written.folder.read(written.places[3], BlockNumber(4))
    wrong = Place(0, written.places[3].offset + 1, written.places[3].length)
    with pytest.raises(StorageDamaged, match="no whole record of block 3"):
        written.folder.read(wrong, BlockNumber(3))


def test_appending_goes_on_behind_a_position_and_what_lay_behind_it_is_overwritten(written: Written) -> None:
    """After a restart the dictionary begins anew; what was read before is read the same."""
    end = written.places[3].offset + written.places[3].length
    again = folder_at(written.folder.directory)
    again.resume(Position(0, end))
    place = again.append(BlockNumber(4), b"another block 4" + certificates()[0])
    again.sync()
    assert again.position == Position(0, place.offset + place.length)
    assert again.read(place, BlockNumber(4)) == b"another block 4" + certificates()[0]
    for number in range(4):
        assert again.read(written.places[number], BlockNumber(number)) == written.contents[number]
    again.resume(None)


def test_going_back_removes_what_was_appended_and_the_segments_begun_since(written: Written) -> None:
    folder = written.folder
    position = folder.position
    folder.append(BlockNumber(7), b"seven")
    folder.begin(BlockNumber(8), 20)
    folder.append(BlockNumber(8), b"eight", RECORD_BLOCK_WITH_BODIES)
    assert folder.segments() == [0, 8]
    assert folder.end == 20
    folder.go_back(position)
    assert folder.segments() == [0]
    assert written.path.read_bytes() == written.data
    assert folder.position == position


def test_segment_that_was_removed_is_gone_not_damaged(written: Written) -> None:
    written.path.unlink()
    with pytest.raises(FileNotFoundError):
        folder_at(written.folder.directory).read(written.places[0], BlockNumber(0))
    assert written.folder.size(0) == -1


# What stands in the records.


def test_recorded_blocks_come_back_from_their_records_whole_and_without_their_bodies() -> None:
    seen_invalid = 0
    for outcome in judged("mini").outcomes:
        leaves = leaves_of(outcome)
        kept, bodies = kept_content(outcome, leaves), bodies_content(outcome)
        whole = stored_block(kept, bodies)
        assert whole.block() == outcome.block
        assert (whole.verdicts, whole.commit_hash, whole.leaves) == (outcome.verdicts, outcome.commit_hash, leaves)
        without = stored_block(kept, None)
        assert (without.header, without.leaves) == (whole.header, leaves)
        for verdict, envelope, original in zip(
            outcome.verdicts, without.envelopes, outcome.block.envelopes, strict=True
        ):
            assert envelope == (None if verdict else original)
        seen_invalid += len(outcome.verdicts) - outcome.verdicts.count(0)
    assert seen_invalid > 10


def test_body_that_is_not_the_one_its_stub_names_is_refused_with_both_digests() -> None:
    outcome = next(each for each in judged("mini").outcomes if any(each.verdicts))
    kept, bodies = kept_content(outcome, leaves_of(outcome)), bytearray(bodies_content(outcome))
    bodies[-1] ^= 1
    with pytest.raises(MalformedMessage) as caught:
        stored_block(kept, bytes(bodies))
    assert caught.value.rule == "envelope digest"
    assert caught.value.expected in [leaf.envelope_digest for leaf in leaves_of(outcome)]
    assert caught.value.found != caught.value.expected


def test_kept_content_cut_or_with_bytes_behind_it_is_malformed() -> None:
    outcome = judged("mini").outcomes[5]
    kept = kept_content(outcome, leaves_of(outcome))
    for cut in itertools.chain(range(0, 200), range(200, len(kept), 97)):
        with pytest.raises(MalformedMessage):
            stored_block(kept[:cut], bodies_content(outcome))
    with pytest.raises(MalformedMessage):
        stored_block(kept + b"\0", bodies_content(outcome))
