"""Does this node judge recorded blocks as a Fabric peer did?  Commits block files in order and compares.

The peer's verdicts (metadata slot 2) and commit hash (slot 4) are read from a block only after ours are fixed. After a
mismatch in a verdict the replay goes on with ours. A slot that is empty, as in a block fresh from an orderer, says
nothing: it is no mismatch, and the block does not count as compared. Blocks that the data directory holds already are
compared by what was stored, so that a run that was interrupted and continued reports the same as one that was not.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

from ledger.core.block import SLOT_COMMIT_HASH, SLOT_VERDICTS, Block
from ledger.core.errors import InvalidBlock, MalformedMessage, NotFound
from ledger.core.hashing import header_hash
from ledger.core.names import BlockNumber, verdict_name
from ledger.node.files import read
from ledger.node.ledgers import open_ledger
from ledger.node.rules import genesis_bundle, make_rules
from ledger.services.committer import Committer
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.snapshot import compare_snapshot
from ledger.wire.block import decode_block, metadata_value

GROUP_BLOCKS = 16
"""Blocks that are committed with one sync."""


@dataclass(slots=True)
class Mismatch:
    """The first thing that differs from what the peer wrote."""

    what: str
    """`verdict`, `commit hash` or the snapshot file."""

    block: int | None
    index: int | None
    key: str | None
    expected: str
    found: str


@dataclass(slots=True)
class ReplayReport:
    """What a replay found; the members are those of the command's JSON."""

    channel: str
    height: int = 0
    transactions: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    verdict_mismatches: int = 0
    commit_hash_mismatches: int = 0
    snapshot_mismatches: int | None = None
    vblock_hash: str = ""
    state_hash: str = ""
    first_mismatch: Mismatch | None = None

    verdicts_compared: int = 0
    """Blocks in which the peer wrote verdicts."""

    commit_hashes_compared: int = 0
    """Blocks in which it wrote a commit hash."""

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not (self.verdict_mismatches or self.commit_hash_mismatches or self.snapshot_mismatches)

    def members(self) -> dict[str, object]:
        """Give the report as JSON members."""
        members = asdict(self)
        del members["verdicts_compared"], members["commit_hashes_compared"]
        return members

    def differs(self, mismatch: Mismatch) -> None:
        """Remember the first difference."""
        if self.first_mismatch is None:
            self.first_mismatch = mismatch


def replay(
    genesis: Path, blocks: Path, data: Path, snapshot: Path | None, progress: Callable[[int, int], None]
) -> ReplayReport:
    """Commit all block files of a directory and compare with what they and a snapshot say.

    Args:
        genesis: The channel's genesis block: the trust root.
        blocks: Directory of serialized blocks `NNNNNN.block`, all of them from block 0 on.
        data: The peer's data directory, made if it is not there; a second run continues in it.
        snapshot: Directory of a snapshot in Fabric's format as of the last block, to compare the end state with.
        progress: Called with blocks done and blocks in all.

    Returns:
        The report.

    Raises:
        InvalidBlock: A block is refused, and its file named; those before it are committed.
        ChannelStopped: A config block can't be applied.
        NotFound: There are no block files, or no snapshot there.
        StorageFailed, StorageDamaged, Conflict: The data directory can't be used.
    """
    files = block_files(blocks)
    if snapshot is not None and not snapshot.is_dir():
        raise NotFound(f"{snapshot} is no directory")
    genesis_bytes = read(genesis)
    bundle = genesis_bundle(genesis_bytes)
    check_same_genesis(genesis_bytes, files[0])
    report = ReplayReport(bundle.channel_id)
    counts: Counter[int] = Counter()
    with ThreadPoolExecutor(2, "verify") as verifiers, ThreadPoolExecutor(2, "prepare") as workers:
        rules = make_rules(verifiers)
        ledger = open_ledger(data, genesis_bytes, rules)
        try:
            compare_stored(ledger.store, files, report, counts, progress)
            done = ledger.store.height
            committer = Committer(
                ledger.store, ledger.bundle, rules, workers=workers, on_committed=lambda outcomes: None
            )
            for group in groups(files[done:]):
                raw = [read(path) for path in group]
                try:
                    outcomes = committer.commit(raw)
                except InvalidBlock as error:
                    raise in_file(files[ledger.store.height], error) from error
                for outcome, data_bytes in zip(outcomes, raw, strict=True):
                    compare(report, counts, outcome.block.number, outcome.verdicts, outcome.commit_hash, data_bytes)
                done += len(group)
                progress(done, len(files))
            finish(report, ledger.store, counts, snapshot)
        finally:
            ledger.store.close()
    return report


def block_files(directory: Path) -> list[Path]:
    """List the block files of a directory by number.

    Raises:
        NotFound: There are none.
    """
    files = [path for path in directory.iterdir() if path.suffix == ".block"] if directory.is_dir() else []
    if not files:
        raise NotFound(f"{directory} holds no .block files")
    return sorted(files, key=lambda path: (len(path.name), path.name))  # The name of block 1,000,000 is longer.


def groups(files: list[Path]) -> Iterator[list[Path]]:
    """Cut a list of files into groups."""
    iterator = iter(files)
    while group := list(islice(iterator, GROUP_BLOCKS)):
        yield group


def check_same_genesis(genesis: bytes, first: Path) -> None:
    """Check that the first recorded block is the genesis block: the same header hash (metadata may differ).

    Raises:
        InvalidBlock: It is another block.
    """
    found = decoded(first, read(first))
    if found.number != 0:
        raise InvalidBlock(f"{first.name}: block {found.number}", rule="block number", expected=0, found=found.number)
    expected_hash, found_hash = block_hash(decode_block(genesis)), block_hash(found)
    if expected_hash != found_hash:
        raise InvalidBlock(f"{first.name}: block 0", rule="genesis block", expected=expected_hash, found=found_hash)


def decoded(path: Path, data: bytes) -> Block:
    """Decode the content of a block file; raises `InvalidBlock` that names it."""
    try:
        return decode_block(data)
    except InvalidBlock as error:
        raise in_file(path, error) from error


def in_file(path: Path, error: InvalidBlock) -> InvalidBlock:
    """Say in which file a refused block lies."""
    return InvalidBlock(f"{path.name}: {error.subject}", rule=error.rule, expected=error.expected, found=error.found)


def block_hash(block: Block) -> bytes:
    """Hash a block's header."""
    return header_hash(block.number, block.header.previous_hash, block.header.data_hash)


def compare_stored(
    store: LedgerStore,
    files: list[Path],
    report: ReplayReport,
    counts: Counter[int],
    progress: Callable[[int, int], None],
) -> None:
    """Compare the blocks that the store holds already.

    Raises:
        InvalidBlock: The store holds another block at that height.
    """
    for number, path in zip(range(store.height), files, strict=False):
        summary = store.summary(BlockNumber(number))
        data = read(path)
        found = block_hash(decoded(path, data))
        if found != summary.block_hash:
            subject = f"{path.name}: block {number}"
            raise InvalidBlock(subject, rule="stored block", expected=summary.block_hash, found=found)
        compare(report, counts, number, summary.verdicts, summary.commit_hash, data)
        progress(number + 1, len(files))


def compare(
    report: ReplayReport, counts: Counter[int], number: int, verdicts: bytes, commit_hash: bytes, recorded: bytes
) -> None:
    """Compare our verdicts and commit hash with what the peer wrote into the block."""
    counts.update(verdicts)
    report.transactions += len(verdicts)
    metadata = decode_block(recorded).metadata
    theirs = metadata[SLOT_VERDICTS] if len(metadata) > SLOT_VERDICTS else b""
    if theirs:
        report.verdicts_compared += 1
        for index, (expected, found) in enumerate(zip(theirs, verdicts, strict=False)):
            if expected != found:
                report.verdict_mismatches += 1
                report.differs(Mismatch("verdict", number, index, None, verdict_name(expected), verdict_name(found)))
        if len(theirs) != len(verdicts):
            report.verdict_mismatches += 1
            report.differs(Mismatch("verdict count", number, None, None, str(len(theirs)), str(len(verdicts))))
    slot = metadata[SLOT_COMMIT_HASH] if len(metadata) > SLOT_COMMIT_HASH else b""
    if slot:
        report.commit_hashes_compared += 1
        expected_hash = recorded_hash(slot)
        if expected_hash != commit_hash.hex():
            report.commit_hash_mismatches += 1
            report.differs(Mismatch("commit hash", number, None, None, expected_hash, commit_hash.hex()))


def recorded_hash(slot: bytes) -> str:
    """Read a commit hash from slot 4; what does not decode is shown as it is."""
    try:
        return metadata_value(slot).hex()
    except MalformedMessage:
        return f"undecodable {slot.hex()}"


def finish(report: ReplayReport, store: LedgerStore, counts: Counter[int], snapshot: Path | None) -> None:
    """Fill in the end state and compare it with the snapshot."""
    roots = store.roots_now()
    report.height = store.height
    report.verdicts = {verdict_name(code): counts[code] for code in sorted(counts)}
    report.vblock_hash = store.vblock_hash.hex()
    report.state_hash = roots.state_hash.hex()
    if snapshot is None:
        return
    comparison = compare_snapshot(store, snapshot)
    report.snapshot_mismatches = comparison.mismatches
    if comparison.first is not None:
        first = comparison.first
        report.differs(Mismatch(first.what, None, None, first.key, first.expected, first.found))


__all__ = ["Mismatch", "ReplayReport", "replay"]
