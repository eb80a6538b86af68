"""Does `peerledger replay` say what a recorded channel shows, and stop where it must?"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fabric_protos.common import common_pb2

from ledger.core.block import SLOT_COMMIT_HASH, SLOT_VERDICTS
from ledger.core.names import Verdict, verdict_name
from tests.cli.running import Runner
from tests.kit.outcomes import channel_id, genesis_block, judged, recorded_blocks
from tests.kit.paths import CHANNELS, ROOT, VECTORS

MINI = VECTORS / "mini"
SLOT_SIGNATURES = 0
MEMBERS = [
    "channel",
    "height",
    "transactions",
    "verdicts",
    "verdict_mismatches",
    "commit_hash_mismatches",
    "snapshot_mismatches",
    "vblock_hash",
    "state_hash",
    "first_mismatch",
]


class Recording:
    """Block files of a channel that a test may change."""

    def __init__(self, directory: Path, channel: str = "mini", count: int | None = None) -> None:
        self.channel = channel
        self.blocks = directory / "blocks"
        self.data = directory / "data"
        self.blocks.mkdir(parents=True)
        for number in range(len(recorded_blocks(channel)) if count is None else count):
            self.restore(number)

    def path(self, number: int) -> Path:
        return self.blocks / f"{number:06d}.block"

    def restore(self, number: int) -> None:
        self.path(number).write_bytes(recorded_blocks(self.channel)[number])

    def change(self, number: int, change: Callable[[common_pb2.Block], object]) -> None:
        block = common_pb2.Block.FromString(self.path(number).read_bytes())
        change(block)
        self.path(number).write_bytes(block.SerializeToString())

    def arguments(self, *more: str | Path) -> Sequence[str | Path]:
        genesis = VECTORS / self.channel / "genesis.block"
        return ("replay", "--genesis", genesis, "--blocks", self.blocks, "--data", self.data, *more)


def empty_slots(block: common_pb2.Block) -> None:
    block.metadata.metadata[SLOT_VERDICTS] = b""
    block.metadata.metadata[SLOT_COMMIT_HASH] = b""


def set_slot(slot: int, content: bytes) -> Callable[[common_pb2.Block], None]:
    def change(block: common_pb2.Block) -> None:
        block.metadata.metadata[slot] = content

    return change


# What a channel shows.


@pytest.mark.parametrize("channel", CHANNELS)
def test_recorded_channel_is_judged_the_same_with_the_peers_slots_emptied(
    channel: str, peerledger: Runner, tmp_path: Path
) -> None:
    """Goal: nothing is read off the peer's answers.  Method: with slots 2 and 4 of every block empty all results are
    those of the recorded blocks; there is nothing to compare with then, which is no mismatch, and is said.
    """
    as_recorded, emptied = Recording(tmp_path / "recorded", channel), Recording(tmp_path / "emptied", channel)
    for number in range(len(recorded_blocks(channel))):
        emptied.change(number, empty_slots)
    snapshot = VECTORS / channel / "snapshot"
    first = peerledger(*as_recorded.arguments("--snapshot", snapshot, "--json"))
    second = peerledger(*emptied.arguments("--snapshot", snapshot, "--json"))
    assert (first.status, second.status, first.stderr, second.stderr) == (0, 0, "", "")
    assert second.json == first.json
    outcomes = judged(channel).outcomes
    recorded = b"".join(
        bytes(common_pb2.Block.FromString(raw).metadata.metadata[SLOT_VERDICTS]) for raw in recorded_blocks(channel)
    )
    report = first.json
    assert list(report) == MEMBERS
    assert (report["channel"], report["height"], report["transactions"]) == (
        channel_id(channel),
        len(outcomes),
        len(recorded),
    )
    assert report["verdicts"] == {verdict_name(code): recorded.count(code) for code in sorted(set(recorded))}
    assert [report[name] for name in MEMBERS[4:7]] == [0, 0, 0]
    assert report["first_mismatch"] is None
    words = peerledger(*emptied.arguments())
    assert words.status == 0
    assert words.stdout.count("nothing to compare with") == 3


def test_without_snapshot_nothing_is_said_of_one(peerledger: Runner, tmp_path: Path) -> None:
    done = peerledger(*Recording(tmp_path, count=3).arguments("--json"))
    assert (done.status, done.json["snapshot_mismatches"]) == (0, None)


def test_the_installed_command_runs(tmp_path: Path) -> None:
    """One real process: the script of the package, its exit status, results on standard output only."""
    recording = Recording(tmp_path, count=3)
    script = Path(sys.executable).parent / "peerledger"
    done = subprocess.run(
        [script, *recording.arguments("--json")], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('{\n  "channel": "mini",\n  "height": 3,\n')


# Mismatches: status 1, and the first one in full.


def test_changed_verdict_is_a_mismatch_and_the_replay_goes_on_with_ours(peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    outcome = judged("mini").outcomes[20]
    recording.change(20, set_slot(SLOT_VERDICTS, bytes([Verdict.PHANTOM_READ_CONFLICT, *outcome.verdicts[1:]])))
    done = peerledger(*recording.arguments("--snapshot", MINI / "snapshot", "--json"))
    assert done.status == 1
    assert [done.json[name] for name in MEMBERS[4:7]] == [1, 0, 0]
    assert done.json["height"] == len(recorded_blocks("mini"))
    assert done.json["first_mismatch"] == {
        "what": "verdict",
        "block": 20,
        "index": 0,
        "key": None,
        "expected": "PHANTOM_READ_CONFLICT",
        "found": verdict_name(outcome.verdicts[0]),
    }


def test_verdicts_of_another_number_are_a_mismatch(peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path, count=4)
    verdicts = judged("mini").outcomes[2].verdicts
    recording.change(2, set_slot(SLOT_VERDICTS, verdicts + b"\0"))
    done = peerledger(*recording.arguments("--json"))
    assert (done.status, done.json["verdict_mismatches"]) == (1, 1)
    first = done.json["first_mismatch"]
    assert (first["what"], first["block"]) == ("verdict count", 2)
    assert (first["expected"], first["found"]) == (str(len(verdicts) + 1), str(len(verdicts)))


@pytest.mark.parametrize(
    ("slot", "expected"),
    [
        (common_pb2.Metadata(value=bytes(32)).SerializeToString(), "00" * 32),
        (b"\xff", "undecodable ff"),
        (common_pb2.Metadata(value=b"short").SerializeToString(), b"short".hex()),
    ],
)
def test_changed_commit_hash_is_a_mismatch(slot: bytes, expected: str, peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path, count=6)
    recording.change(5, set_slot(SLOT_COMMIT_HASH, slot))
    done = peerledger(*recording.arguments("--json"))
    assert (done.status, done.json["commit_hash_mismatches"]) == (1, 1)
    assert done.json["first_mismatch"] == {
        "what": "commit hash",
        "block": 5,
        "index": None,
        "key": None,
        "expected": expected,
        "found": judged("mini").outcomes[5].commit_hash.hex(),
    }


def test_altered_snapshot_record_is_one_mismatch(peerledger: Runner, tmp_path: Path) -> None:
    shutil.copytree(MINI / "snapshot", tmp_path / "snapshot")
    path = tmp_path / "snapshot" / "txids.data"
    content = bytearray(path.read_bytes())
    content[-1] = ord("z")
    path.write_bytes(content)
    last = content[-64:].decode()
    done = peerledger(*Recording(tmp_path).arguments("--snapshot", tmp_path / "snapshot", "--json"))
    assert done.status == 1
    assert done.json["snapshot_mismatches"] == 2, "one id is too many, another is missing"
    assert done.json["first_mismatch"]["what"] == "txids"
    assert last[:-1] in done.json["first_mismatch"]["key"]


def test_altered_value_in_the_snapshot_is_named_by_its_key(peerledger: Runner, tmp_path: Path) -> None:
    shutil.copytree(MINI / "snapshot", tmp_path / "snapshot")
    path = tmp_path / "snapshot" / "private_state_hashes.data"
    content = bytearray(path.read_bytes())
    content[40] ^= 1  # In the hash of the first value: 1 format, 1 length, 2 + 32 key, 2 head of the value.
    path.write_bytes(content)
    done = peerledger(*Recording(tmp_path).arguments("--snapshot", tmp_path / "snapshot", "--json"))
    assert (done.status, done.json["snapshot_mismatches"]) == (1, 1)
    first = done.json["first_mismatch"]
    assert (first["what"], first["block"]) == ("private_state_hashes", None)
    assert first["key"].startswith(b"_lifecycle$$h_implicit_org_Org1MSP\0".hex())
    assert first["expected"] != first["found"]


def test_words_name_the_first_mismatch(peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path, count=6)
    recording.change(5, set_slot(SLOT_VERDICTS, b"\x0c" * len(judged("mini").outcomes[5].verdicts)))
    done = peerledger(*recording.arguments())
    assert done.status == 1
    assert "first: verdict at block 5, transaction 0" in done.stdout
    assert "expected PHANTOM_READ_CONFLICT\n" in done.stdout


# Refusals: status 2, the rule and the file named, nothing lost.


def corrupt_envelope(block: common_pb2.Block) -> None:
    envelope = bytearray(block.data.data[0])
    envelope[-1] ^= 1
    block.data.data[0] = bytes(envelope)


def other_signature(block: common_pb2.Block) -> None:
    block.metadata.metadata[SLOT_SIGNATURES] = common_pb2.Block.FromString(
        recorded_blocks("mini")[8]
    ).metadata.metadata[SLOT_SIGNATURES]


def other_previous(block: common_pb2.Block) -> None:
    block.header.previous_hash = bytes(32)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (corrupt_envelope, "data hash"),
        (other_signature, "orderer signatures"),
        (other_previous, "previous hash"),
        (lambda block: block.ClearField("header"), "block header"),
        (lambda block: block.data.ClearField("data"), "empty block"),
        (lambda block: block.metadata.ClearField("metadata"), "metadata slots"),
    ],
)
def test_refused_block_names_file_and_rule_and_is_made_good_by_a_repair(
    change: Callable[[common_pb2.Block], object], rule: str, peerledger: Runner, tmp_path: Path
) -> None:
    recording = Recording(tmp_path, count=12)
    recording.change(7, change)
    done = peerledger(*recording.arguments("--json"))
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr.startswith("error: InvalidBlock: 000007.block: block")
    assert f": {rule}; expected " in done.stderr
    recording.restore(7)
    again = peerledger(*recording.arguments("--json"))
    assert (again.status, again.json["height"]) == (0, 12)
    reference = peerledger(*Recording(tmp_path / "reference", count=12).arguments("--json"))
    assert again.json == reference.json


def test_blocks_before_a_refused_one_are_kept(peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path, count=12)
    recording.path(7).write_bytes(b"\xff")
    assert peerledger(*recording.arguments()).status == 2
    for number in range(7, 12):
        recording.path(number).unlink()
    done = peerledger(*recording.arguments("--json"))
    assert (done.status, done.json["height"]) == (0, 7)


def test_missing_block_file_is_refused_by_its_number(peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path, count=9)
    recording.path(4).unlink()
    done = peerledger(*recording.arguments())
    assert done.status == 2
    assert "000005.block: block 5: block number; expected 4; found 5" in done.stderr


def test_missing_first_block_is_refused_by_its_number(peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path, count=3)
    recording.path(0).unlink()
    done = peerledger(*recording.arguments())
    assert done.status == 2
    assert "000001.block: block 1: block number; expected 0; found 1" in done.stderr


def test_directory_without_blocks_is_said_to_be_one(peerledger: Runner, tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "nowhere"):
        done = peerledger(
            "replay", "--genesis", MINI / "genesis.block", "--blocks", directory, "--data", tmp_path / "data"
        )
        assert (done.status, f"{directory} holds no .block files" in done.stderr) == (1, True)


def test_another_genesis_block_is_refused_with_both_hashes(peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path, count=3)
    done = peerledger(
        "replay", "--genesis", VECTORS / "rich" / "genesis.block", "--blocks", recording.blocks,
        "--data", recording.data,
    )  # fmt: skip
    ours, theirs = judged("rich").outcomes[0].block_hash.hex(), judged("mini").outcomes[0].block_hash.hex()
    assert done.status == 2
    assert f"genesis block; expected {ours}; found {theirs}" in done.stderr
    assert not recording.data.exists()


def test_block_that_is_no_genesis_block_is_refused_as_one(peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path, count=3)
    done = peerledger("replay", "--genesis", recording.path(1), "--blocks", recording.blocks, "--data", recording.data)
    assert done.status == 2
    assert "genesis block: block number; expected 0; found 1" in done.stderr


# Running again.


def test_second_run_continues_behind_the_last_committed_block(peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path, count=40)
    first = peerledger(*recording.arguments("--json"))
    assert first.json["height"] == 40
    for number in range(40, len(recorded_blocks("mini"))):
        recording.restore(number)
    second = peerledger(*recording.arguments("--snapshot", MINI / "snapshot", "--json"))
    once = peerledger(*Recording(tmp_path / "once").arguments("--snapshot", MINI / "snapshot", "--json"))
    assert second.status == 0
    assert second.json == once.json
    third = peerledger(*recording.arguments("--snapshot", MINI / "snapshot", "--json"))
    assert third.json == once.json


def test_second_run_with_other_blocks_is_refused(peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path, count=6)
    peerledger(*recording.arguments())
    recording.change(3, other_previous)
    done = peerledger(*recording.arguments())
    assert done.status == 2
    assert "000003.block: block 3: stored block; expected " in done.stderr


def test_second_run_reports_mismatches_in_blocks_that_were_there(peerledger: Runner, tmp_path: Path) -> None:
    recording = Recording(tmp_path, count=8)
    peerledger(*recording.arguments())
    recording.change(5, set_slot(SLOT_VERDICTS, b"\x0c"))
    done = peerledger(*recording.arguments("--json"))
    assert (done.status, done.json["verdict_mismatches"]) == (1, 1)
    assert done.json["first_mismatch"]["block"] == 5


def test_genesis_bytes_are_those_of_the_trust_root() -> None:
    """The recorded block 0 differs from the genesis block in the peer's slot 2 only, which the hash does not cover."""
    recorded, trusted = (
        common_pb2.Block.FromString(raw) for raw in (recorded_blocks("mini")[0], genesis_block("mini"))
    )
    assert recorded != trusted
    assert recorded.header == trusted.header
