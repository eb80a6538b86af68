"""Snapshots in Fabric's format: each difference from a recorded one is counted and named, each damage refused."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from ledger.core.encoding import uvarint
from ledger.core.errors import InvalidSetting, LedgerError, MalformedMessage, StorageFailed
from ledger.core.names import BlockNumber, TxId, TxIndex
from ledger.core.state import Entry, Version, public_key
from ledger.storage.ledger_values import CollectionCommit
from ledger.storage.snapshot import (
    FORMAT,
    KINDS,
    SIGNABLE,
    ChannelPoint,
    compare_snapshot,
    snapshot_files,
    write_snapshot,
)
from tests.kit.memory_view import MemoryLedger
from tests.kit.outcomes import judged
from tests.kit.paths import VECTORS

MINI = VECTORS / "mini" / "snapshot"


def point_of(channel: str) -> ChannelPoint:
    known = judged(channel)
    last = known.outcomes[-1]
    return ChannelPoint(
        known.channel_id, last.block.number, last.block_hash, last.block.header.previous_hash, last.commit_hash
    )


def test_metadata_name_the_hash_of_every_file(tmp_path: Path) -> None:
    write_snapshot(judged("mini").ledger, point_of("mini"), tmp_path)
    signable = json.loads((tmp_path / SIGNABLE).read_text())
    for name, digest in signable["snapshot_files_raw_hashes"].items():
        assert sha256((tmp_path / name).read_bytes()).hexdigest() == digest
    assert signable["last_block_number"] == len(judged("mini").outcomes) - 1


def test_kind_without_records_has_no_files() -> None:
    assert snapshot_files(MemoryLedger()) == {}
    ledger = MemoryLedger()
    ledger.places = {TxId("one"): []}
    assert snapshot_files(ledger) == {
        "txids.data": FORMAT + b"\x03one",
        "txids.metadata": FORMAT + b"\x01",
    }


class Changed:
    """A recorded ledger of which one thing is different."""

    def __init__(self) -> None:
        known = judged("mini").ledger
        self.state = dict(known.state)
        self.ids = list(known.places)
        self.commits = list(known.commits)

    def iter_state(self) -> object:
        return iter(self.state.items())

    def iter_tx_ids(self) -> object:
        return iter(self.ids)

    def collection_commits(self) -> object:
        return iter(self.commits)


def other_value(ledger: Changed) -> str:
    key = next(key for key in sorted(ledger.state) if key.kind == 0 and key.namespace)
    ledger.state[key] = ledger.state[key]._replace(value=b"another")
    return "public_state"


def other_version(ledger: Changed) -> str:
    key = next(key for key in sorted(ledger.state) if key.kind == 0 and key.namespace)
    ledger.state[key] = ledger.state[key]._replace(version=Version(BlockNumber(999), TxIndex(0)))
    return "public_state"


def missing_entry(ledger: Changed) -> str:
    del ledger.state[next(key for key in sorted(ledger.state) if key.kind == 0 and key.namespace)]
    return "public_state"


def further_entry(ledger: Changed) -> str:
    some = next(iter(ledger.state.values()))
    ledger.state[public_key("zz", "further")] = Entry(b"x", some.version)
    return "public_state"


def missing_hash(ledger: Changed) -> str:
    del ledger.state[next(key for key in sorted(ledger.state) if key.kind == 1)]
    return "private_state_hashes"


def missing_id(ledger: Changed) -> str:
    ledger.ids.pop()
    return "txids"


def further_id(ledger: Changed) -> str:
    ledger.ids.append(TxId("further"))
    return "txids"


def further_collections(ledger: Changed) -> str:
    ledger.commits.append(CollectionCommit("cc", BlockNumber(7), b"package"))
    return "confighistory"


@pytest.mark.parametrize(
    "change",
    [
        other_value, other_version, missing_entry, further_entry, missing_hash, missing_id, further_id,
        further_collections,
    ],
)  # fmt: skip
def test_one_difference_is_one_mismatch_and_says_what_was_expected_and_found(change: Callable[[Changed], str]) -> None:
    ledger = Changed()
    kind = change(ledger)
    comparison = compare_snapshot(ledger, MINI)  # type: ignore[arg-type]
    assert comparison.mismatches == 1
    assert not comparison.files_equal
    assert comparison.first is not None
    assert comparison.first.what == kind
    assert comparison.first.key
    assert comparison.first.expected != comparison.first.found
    if change.__name__.startswith("missing"):
        assert comparison.first.found == "absent"
    if change.__name__.startswith("further"):
        assert comparison.first.expected == "absent"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MINI, tmp_path / "copy"))


def compare(directory: Path) -> tuple[int, bool]:
    comparison = compare_snapshot(judged("mini").ledger, directory)
    return comparison.mismatches, comparison.files_equal


@pytest.mark.parametrize("kind", [kind for kind in KINDS if (MINI / f"{kind}.data").exists()])
def test_recorded_file_that_is_missing_is_as_many_mismatches_as_it_has_records(kind: str, copy: Path) -> None:
    for suffix in ("data", "metadata"):
        (copy / f"{kind}.{suffix}").unlink()
    mismatches, equal = compare(copy)
    assert mismatches > 0
    assert not equal


@pytest.mark.parametrize("kind", [kind for kind in KINDS if (MINI / f"{kind}.data").exists()])
def test_recorded_file_of_another_format_is_malformed(kind: str, copy: Path) -> None:
    path = copy / f"{kind}.data"
    path.write_bytes(b"\x02" + path.read_bytes()[1:])
    with pytest.raises(MalformedMessage) as caught:
        compare(copy)
    assert (caught.value.rule, caught.value.expected, caught.value.found) == ("snapshot format", FORMAT, b"\x02")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if (MINI / f"{kind}.data").exists()])
def test_no_cut_or_flipped_byte_of_a_recorded_file_passes_as_equal(kind: str, copy: Path) -> None:
    """It is a difference or malformed; never equal, never another kind of failure."""
    for path in (copy / f"{kind}.data", copy / f"{kind}.metadata"):
        data = path.read_bytes()
        step = max(len(data) // 25, 1)
        damaged = [data[:size] for size in range(0, len(data), step)]
        damaged += [data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :] for at in range(0, len(data), step)]
        for content in damaged:
            path.write_bytes(content)
            try:
                mismatches, equal = compare(copy)
            except LedgerError as error:
                assert isinstance(error, MalformedMessage), error
            else:
                assert mismatches > 0
                assert not equal
        path.write_bytes(data)
    assert compare(copy) == (0, True)


def test_same_records_with_another_count_are_one_mismatch_of_the_files(copy: Path) -> None:
    (copy / "txids.metadata").write_bytes(FORMAT + uvarint(len(judged("mini").ledger.places) + 1))
    comparison = compare_snapshot(judged("mini").ledger, copy)
    assert (comparison.mismatches, comparison.files_equal) == (1, False)
    assert comparison.first is not None
    assert comparison.first.what == "txids files"


def test_folder_without_a_snapshot_is_refused_and_one_that_can_not_be_read_is_the_worlds_fault(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as caught:
        compare(tmp_path)
    assert caught.value.rule == "snapshot directory"
    (tmp_path / "txids.data").mkdir()
    with pytest.raises(StorageFailed, match=r"txids\.data"):
        compare(tmp_path)
    with pytest.raises(StorageFailed, match="nowhere"):
        write_snapshot(MemoryLedger(), point_of("mini"), tmp_path / "nowhere")
