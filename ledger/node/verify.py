"""Is what lies in a data directory what it should be?  Everything is derived again, from the genesis block on.

Levels, each with what it checked and what it could not:

- *structure*: every record of the segments is whole, and is what the database says of it;
- *chain*: block headers follow each other from the genesis block on, data hashes fit, every envelope has the digest its
  leaf says, vBlock hashes are made again from the leaves;
- *signatures*: every block is judged again, orderer, creator and endorser signatures included, in a ledger that is made
  anew beside this one: same verdicts, same commit hashes;
- *state*: that ledger comes to the same state hash as the one on disk.

A block whose invalid transactions were pruned is not judged again; from there on `signatures` and `state` say so.
"""

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from ledger.core.errors import LedgerError, NotFound
from ledger.core.hashing import data_hash, header_hash
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId, Digest, verdict_name
from ledger.core.outcome import Outcome
from ledger.core.vblock import VBlockHeader, tx_root, vblock_hash
from ledger.node.files import read
from ledger.node.ledgers import open_ledger
from ledger.node.rules import genesis_bundle, make_rules
from ledger.services.committer import Committer
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.ledger_values import StoredBlock

GROUP_BLOCKS = 16


@dataclass(slots=True)
class Level:
    """What one level found."""

    ok: bool = True
    checked: int = 0
    """Blocks."""

    not_checked: int = 0
    """Blocks that this level could not check."""

    first_failure: str | None = None

    def fail(self, reason: str) -> None:
        """Remember the first failure."""
        self.ok = False
        if self.first_failure is None:
            self.first_failure = reason


@dataclass(slots=True)
class VerifyReport:
    """What was proved; the members are those of the command's JSON."""

    channel: str
    height: int
    prune_point: int | None
    checkpoint: int | None
    vblock_hash: str
    state_hash: str
    levels: dict[str, Level] = field(
        default_factory=lambda: {name: Level() for name in ("structure", "chain", "signatures", "state")}
    )

    @property
    def ok(self) -> bool:
        """Whether no level failed."""
        return all(level.ok for level in self.levels.values())

    def members(self) -> dict[str, object]:
        """Give the report as JSON members."""
        return asdict(self)


def verify(data: Path, genesis: Path, progress: Callable[[int, int], None]) -> VerifyReport:
    """Verify the ledger of a channel in a peer's data directory.

    The peer must not be running. What a crash left beyond the last commit is committed first, as at a start.

    Args:
        data: The data directory.
        genesis: The channel's genesis block: the trust root.
        progress: Called with blocks done and blocks in all.

    Raises:
        NotFound: The directory holds no such channel.
        Conflict: A process has it open.
        InvalidBlock: The genesis block is another one.
        StorageDamaged, StorageFailed: The ledger can't be opened.
    """
    genesis_bytes = read(genesis)
    bundle = genesis_bundle(genesis_bytes)
    if not (data / "channels" / bundle.channel_id).is_dir():
        raise NotFound(f"{data} holds no channel {bundle.channel_id}")
    with ThreadPoolExecutor(2, "verify") as verifiers, ThreadPoolExecutor(2, "prepare") as workers:
        rules = make_rules(verifiers)
        opened = open_ledger(data, genesis_bytes, rules)
        store = opened.store
        try:
            if store.height == 0:
                raise NotFound(f"the ledger of {bundle.channel_id} in {data} is empty")
            roots = store.roots_now()
            report = VerifyReport(
                bundle.channel_id, store.height, store.prune_point if store.prune_point >= 0 else None, None,
                store.vblock_hash.hex(), roots.state_hash.hex(),
            )  # fmt: skip
            with tempfile.TemporaryDirectory(prefix="peerledger-verify-") as folder:
                again = LedgerStore.open(Path(folder), ChannelId(bundle.channel_id))
                try:
                    committer = Committer(again, bundle, rules, workers=workers, on_committed=lambda outcomes: None)
                    check_blocks(store, committer, report, progress)
                    check_state(store, again, report)
                finally:
                    again.close()
        finally:
            store.close()
    return report


def stored_blocks(store: LedgerStore, structure: Level) -> Iterator[StoredBlock]:
    """Read every block; end at the first that can't be read."""
    for number in range(store.height):
        try:
            stored = store.stored_block(BlockNumber(number))
        except LedgerError as error:
            structure.fail(str(error))
            structure.not_checked = store.height - number
            return
        if stored.number != number or stored.verdicts != store.summary(BlockNumber(number)).verdicts:
            structure.fail(f"block {number}: the segment and the database differ")
        structure.checked += 1
        yield stored


def check_blocks(
    store: LedgerStore, committer: Committer, report: VerifyReport, progress: Callable[[int, int], None]
) -> None:
    """Check all blocks on the levels structure, chain and signatures."""
    chain, signatures = report.levels["chain"], report.levels["signatures"]
    previous, previous_vblock = b"", ZERO_DIGEST
    group: list[StoredBlock] = []
    judging = True
    for stored in stored_blocks(store, report.levels["structure"]):
        previous, previous_vblock = check_chain(store, stored, previous, previous_vblock, chain)
        judging = judging and stored.is_whole
        if judging:
            group.append(stored)
        else:
            signatures.not_checked += 1
        if len(group) == GROUP_BLOCKS:
            judging = judge_again(group, committer, signatures)
            group = []
        progress(stored.number + 1, store.height)
    if group:
        judge_again(group, committer, signatures)
    if chain.ok and previous_vblock != store.vblock_hash:
        chain.fail(f"vBlock hash of the last block: expected {previous_vblock.hex()}, found {store.vblock_hash.hex()}")


def check_chain(
    store: LedgerStore, stored: StoredBlock, previous: bytes, previous_vblock: Digest, chain: Level
) -> tuple[bytes, Digest]:
    """Check one block against the one before it; give its header hash and vBlock hash."""
    header, number = stored.header, stored.number
    if header.previous_hash != previous:
        chain.fail(f"block {number}: previous hash: expected {previous.hex()}, found {header.previous_hash.hex()}")
    if stored.is_whole and data_hash(stored.block().envelopes) != header.data_hash:
        chain.fail(f"block {number}: data hash: the envelopes are not those of the header")
    for leaf, envelope in zip(stored.leaves, stored.envelopes, strict=True):
        if envelope is not None and sha256(envelope).digest() != leaf.envelope_digest:
            chain.fail(f"block {number}, transaction {leaf.index}: envelope digest")
        if envelope is None and leaf.verdict == 0:
            chain.fail(f"block {number}, transaction {leaf.index}: a valid transaction has no envelope")
    block_hash = header_hash(number, header.previous_hash, header.data_hash)
    vheader = VBlockHeader(
        number, previous_vblock, block_hash, len(stored.leaves), stored.verdicts.count(0), tx_root(stored.leaves),
        stored.commit_hash,
    )  # fmt: skip
    found = vblock_hash(store.channel_id, vheader)
    summary = store.summary(number)
    if found != summary.vblock_hash:
        chain.fail(f"block {number}: vBlock hash: expected {found.hex()}, found {summary.vblock_hash.hex()}")
    if bytes(leaf.verdict for leaf in stored.leaves) != stored.verdicts:
        chain.fail(f"block {number}: verdicts of leaves and block differ")
    chain.checked += 1
    return block_hash, found


def judge_again(group: list[StoredBlock], committer: Committer, signatures: Level) -> bool:
    """Judge blocks again and compare; False if judging can't go on."""
    try:
        outcomes: tuple[Outcome, ...] = committer.commit_decoded([stored.block() for stored in group])
    except LedgerError as error:
        signatures.fail(str(error))
        signatures.not_checked += len(group)
        return False
    for stored, outcome in zip(group, outcomes, strict=True):
        for index, (found, expected) in enumerate(zip(stored.verdicts, outcome.verdicts, strict=True)):
            if found != expected:
                signatures.fail(
                    f"block {stored.number}, transaction {index}: verdict: expected {verdict_name(expected)}, "
                    f"found {verdict_name(found)}"
                )
        if stored.commit_hash != outcome.commit_hash:
            signatures.fail(
                f"block {stored.number}: commit hash: expected {outcome.commit_hash.hex()}, "
                f"found {stored.commit_hash.hex()}"
            )
        signatures.checked += 1
    return True


def check_state(store: LedgerStore, again: LedgerStore, report: VerifyReport) -> None:
    """Compare the state on disk with the one that was made anew."""
    state = report.levels["state"]
    if again.height < store.height:
        state.not_checked = store.height
        return
    state.checked = store.height
    expected = again.roots_now().state_hash.hex()
    if expected != report.state_hash:
        state.fail(f"state hash at block {store.height - 1}: expected {expected}, found {report.state_hash}")


__all__ = ["Level", "VerifyReport", "verify"]
