"""Every recorded channel of a real peer: its verdicts, its commit hashes, its snapshot, byte for byte."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ledger.core.block import SLOT_COMMIT_HASH, SLOT_VERDICTS, Block, check_link, check_slots
from ledger.core.names import BlockNumber, verdict_name
from ledger.core.outcome import Outcome
from ledger.core.state import CONFIG_KEY, public_key
from ledger.storage.snapshot import ChannelPoint, compare_snapshot, write_snapshot
from ledger.wire.block import check_well_formed, decode_block, encode_block, metadata_value
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_block, bundle_from_envelope, next_bundle
from ledger.wire.judging import make_transition
from tests.kit.memory_view import MemoryLedger
from tests.kit.paths import CHANNELS, VECTORS


@cache
def recorded_blocks(channel: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted((VECTORS / channel / "blocks").glob("*.block")))


def emptied(block: Block) -> Block:
    """The block without what a peer wrote into it."""
    slots = list(block.metadata)
    slots[SLOT_VERDICTS] = slots[SLOT_COMMIT_HASH] = b""
    return replace(block, metadata=tuple(slots))


@cache
def replayed(channel: str, *, is_emptied: bool) -> tuple[MemoryLedger, tuple[Outcome, ...]]:
    genesis = decode_block((VECTORS / channel / "genesis.block").read_bytes())
    bundle = bundle_from_block(genesis, CODEC)
    transition = make_transition(CODEC, lambda before, config: next_bundle(before, config, CODEC))
    ledger = MemoryLedger()
    outcomes = []
    for number, data in enumerate(recorded_blocks(channel)):
        block = decode_block(data)
        if is_emptied:
            block = emptied(block)
        check_link(block, BlockNumber(number), ledger.block_hash or None)  # type: ignore[arg-type]
        check_slots(block)
        check_well_formed(block)
        outcome = transition.judge(transition.prepare(block, bundle), ledger, bundle)
        ledger.apply(outcome)
        if outcome.is_config:
            entry = ledger.get(public_key("", CONFIG_KEY))
            assert entry is not None
            bundle = bundle_from_envelope(entry.value, CODEC, bundle.channel_id)
        outcomes.append(outcome)
    return ledger, tuple(outcomes)


@pytest.mark.parametrize("is_emptied", [False, True], ids=["as recorded", "slots emptied"])
@pytest.mark.parametrize("channel", CHANNELS)
def test_verdicts_and_commit_hashes_are_those_of_the_real_peer(channel: str, is_emptied: bool) -> None:
    _, outcomes = replayed(channel, is_emptied=is_emptied)
    for data, outcome in zip(recorded_blocks(channel), outcomes, strict=True):
        block = decode_block(data)
        expected = [verdict_name(code) for code in block.metadata[SLOT_VERDICTS]]
        assert [verdict_name(code) for code in outcome.verdicts] == expected, f"block {block.number}"
        slot = block.metadata[SLOT_COMMIT_HASH]
        assert outcome.commit_hash == (metadata_value(slot) if slot else b""), f"block {block.number}"


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_invalid_transaction_names_the_rule_that_decided(channel: str) -> None:
    _, outcomes = replayed(channel, is_emptied=False)
    for outcome in outcomes:
        invalid = {index: code for index, code in enumerate(outcome.verdicts) if code}
        assert {index: fault.verdict for index, fault in outcome.faults} == invalid
        assert all(fault.rule for _, fault in outcome.faults)


@pytest.mark.parametrize("channel", CHANNELS)
def test_end_state_is_the_recorded_snapshot(channel: str) -> None:
    ledger, _ = replayed(channel, is_emptied=True)
    comparison = compare_snapshot(ledger, VECTORS / channel / "snapshot")
    assert (comparison.mismatches, comparison.first, comparison.files_equal) == (0, None, True)


@pytest.mark.parametrize("channel", CHANNELS)
def test_snapshot_rebuilt_from_the_end_state_has_the_recorded_files_and_hash(channel: str, tmp_path: Path) -> None:
    ledger, outcomes = replayed(channel, is_emptied=False)
    recorded = VECTORS / channel / "snapshot"
    name = json.loads((recorded / "_snapshot_signable_metadata.json").read_text())["channel_name"]
    last = outcomes[-1]
    point = ChannelPoint(name, last.block.number, last.block_hash, last.block.header.previous_hash, last.commit_hash)
    written = write_snapshot(ledger, point, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in recorded.iterdir()
    }
    additional = json.loads((recorded / "_snapshot_additional_metadata.json").read_text())
    assert written.hex() == additional["snapshot_hash"]


@pytest.mark.parametrize("channel", CHANNELS)
def test_recorded_blocks_are_encoded_to_the_bytes_they_came_as(channel: str) -> None:
    for data in recorded_blocks(channel):
        assert encode_block(decode_block(data)) == data


def test_a_changed_entry_is_the_first_mismatch_with_its_key(tmp_path: Path) -> None:
    ledger, _ = replayed(CHANNELS[0], is_emptied=False)
    changed = MemoryLedger()
    changed.state, changed.places, changed.commits = dict(ledger.state), ledger.places, ledger.commits
    key = max(changed.state)
    changed.state[key] = changed.state[key]._replace(value=b"another")
    comparison = compare_snapshot(changed, VECTORS / CHANNELS[0] / "snapshot")
    assert comparison.mismatches == 1
    assert comparison.first is not None
    assert comparison.first.expected != comparison.first.found
    assert comparison.first.what in ("public_state", "private_state_hashes")
