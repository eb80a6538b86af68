"""Did a fault cost anything?  What a peer told must be true, and in the end it must be as if nothing had happened."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ledger.core.errors import Pruned
from ledger.core.names import BlockNumber
from ledger.core.pruning import decode_receipt
from ledger.node.verify import verify
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.ledger_store import LedgerStore
from ledger.wire.block import decode_block
from tests.faults.lone_peer import LonePeer, blocks, opened
from tests.kit.peer_folder import HEIGHT
from tests.kit.stores import answers

Event = dict[str, Any]


@dataclass(frozen=True)
class End:
    """How a peer is in the end, as values that don't depend on signatures and on the number of starts."""

    height: int
    first_block: int
    vblock_hash: str
    state_hash: str
    answers: tuple[tuple[str, str], ...]
    """Digest of everything that the store answers, by what it is about."""
    whole_blocks: tuple[int, ...]
    """Blocks that are given back as they came; all others say that they were pruned."""
    captured: tuple[int, ...]
    signed: tuple[tuple[int, str], ...]
    valid: tuple[tuple[int, str], ...]
    pruned: tuple[tuple[int, int], ...]
    """(verdict, bodies that went), all receipts together; they follow each other without a gap."""
    prunable: tuple[str, ...]
    """Files of bodies that are there."""
    archived: tuple[str, ...]


def finish(folder: Path, told: Sequence[Event]) -> End:
    """Start again without faults, check what was told, go on to the end, verify.

    Raises:
        AssertionError: Something that was told is not true, or the verification failed.
    """
    peer = LonePeer(folder, lambda event, **data: None)
    if any(event["event"] == "committed" for event in told) or (folder / "data").is_dir():
        peer.live(until=0)  # What every start does: blocks beyond the savepoint are committed again.
        with opened(folder) as (store, records):
            check_told(store, records, told)
    peer.live()
    check_verified(folder)
    with opened(folder) as (store, records):
        check_told(store, records, told)
        return end_of(folder, store, records)


def check_told(store: LedgerStore, records: CheckpointStore, told: Sequence[Event]) -> None:
    """Check that everything a peer told is still true."""
    assert not store.pending_count, "the start committed what was beyond the savepoint"
    receipts = {decode_receipt(record.receipt).receipt_hash.hex() for record in store.prune_records()}
    for event in told:
        match event["event"]:
            case "committed":
                number = BlockNumber(event["number"])
                assert store.height > number, f"block {number} was told, the height is {store.height}"
                found = store.summary(number).vblock_hash.hex()
                assert found == event["vblock_hash"], f"block {number} was another one"
            case "signed":
                message = records.signed(BlockNumber(event["number"]))
                assert message is not None, f"statement {event['number']} was told and is not recorded"
                assert message.statement.encoded.hex() == event["statement"], f"statement {event['number']} was another"
            case "valid":
                proof = records.proof(BlockNumber(event["number"]))
                assert proof is not None, f"checkpoint {event['number']} was told valid and has no proof"
                assert proof.statement.encoded.hex() == event["statement"], f"proof {event['number']} is of another"
            case "pruned":
                assert store.prune_point >= event["to"], f"the prune point went back from {event['to']}"
                assert event["receipt"] in receipts, f"the receipt of pruning to {event['to']} is gone"


def check_verified(folder: Path) -> None:
    """Verify the ledger as an outsider does."""
    genesis = folder / "genesis.block"
    genesis.write_bytes(blocks()[0])
    report = verify(folder / "data", genesis, lambda what, done, of: None)
    failures = {name: level.first_failure for name, level in report.levels.items() if not level.ok}
    assert not failures, f"verification: {failures}"
    assert report.height == HEIGHT and report.pending == 0


def end_of(folder: Path, store: LedgerStore, records: CheckpointStore) -> End:
    """Take down how a peer is."""
    whole = []
    for number in range(store.height):
        try:
            given = store.block_bytes(BlockNumber(number))
        except Pruned as error:
            assert error.first_block == store.first_block > number
        else:
            found, expected = decode_block(given), decode_block(blocks()[number])
            assert (found.header, found.envelopes) == (expected.header, expected.envelopes), f"block {number}"
            assert number > store.prune_point, f"block {number} was pruned and is given"
            whole.append(number)
    return End(
        height=store.height,
        first_block=store.first_block,
        vblock_hash=store.vblock_hash.hex(),
        state_hash=store.roots_now().state_hash.hex(),
        answers=tuple((what, sha256(repr(answer).encode()).hexdigest()) for what, answer in answers(store).items()),
        whole_blocks=tuple(whole),
        captured=store.captured(),
        signed=_statements(records, lambda number: records.signed(number)),
        valid=_statements(records, lambda number: records.proof(number)),
        pruned=_pruned(folder, store),
        prunable=tuple(sorted(path.name for path in (store.directory / "prunable").iterdir())),
        archived=tuple(sorted(path.name for path in (folder / "archive").iterdir())),
    )


def _statements(records: CheckpointStore, look: Callable[[BlockNumber], Any]) -> tuple[tuple[int, str], ...]:
    found = ((number, look(number)) for number in records.numbers())
    return tuple((number, each.statement.encoded.hex()) for number, each in found if each is not None)


def _pruned(folder: Path, store: LedgerStore) -> tuple[tuple[int, int], ...]:
    """Add the receipts up; the archive must hold what they say."""
    counts: dict[int, int] = {}
    following = 0
    for record in store.prune_records():
        receipt = decode_receipt(record.receipt)
        assert receipt.first_block == following and receipt.to_block == record.prune_point
        following = receipt.to_block + 1
        for verdict, count in receipt.by_verdict:
            counts[verdict] = counts.get(verdict, 0) + count
        for name, expected in receipt.archived:
            content = (folder / "archive" / f"{store.channel_id}-{name}").read_bytes()
            assert sha256(content).digest() == expected, f"archived {name} is not what the receipt says"
    assert following == store.first_block
    return tuple(sorted(counts.items()))


def differences(expected: End, found: End, *, but: str = "") -> list[str]:
    """Name what differs, but for one kind of answers."""
    expected, found = (
        replace(end, answers=tuple(pair for pair in end.answers if pair[0] != but)) for end in (expected, found)
    )
    return [
        f"{each.name}: expected {getattr(expected, each.name)}, found {getattr(found, each.name)}"
        for each in fields(End)
        if getattr(expected, each.name) != getattr(found, each.name)
    ]


__all__ = ["End", "Event", "check_told", "check_verified", "differences", "end_of", "finish"]
