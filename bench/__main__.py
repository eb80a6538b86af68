"""What does committing cost beside the bare signature checks?  `make bench`: a table, and build/bench.json.

Workload: 100-byte values, three signatures a transaction (creator and two endorsers), 100 transactions a block,
pre-signed; committed with everything on (vBlocks, segments, indexes, synced). Both figures are CPU seconds of this
process, measured one after the other in one run, several times; the table shows the medians.
"""

import json
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ledger.core.block import Block
from ledger.core.names import ChannelId
from ledger.core.outcome import Outcome
from ledger.core.policy.evaluate import SignedData
from ledger.node.rules import make_rules
from ledger.services.committer import Committer
from ledger.storage.ledger_store import LedgerStore
from ledger.wire.block import encode_block
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_block
from ledger.wire.transaction import decode_transaction
from tests.kit.channel import CHANNEL, Channel
from tests.kit.transactions import writes

BLOCKS = 20
TRANSACTIONS_PER_BLOCK = 100
ROUNDS = 3
TARGET = 1.6


class Recording(Channel):
    """A channel that keeps its blocks."""

    def commit_block(self, block: Block) -> Outcome:
        """Judge and commit a block."""
        self.blocks = [*getattr(self, "blocks", []), block]
        return super().commit_block(block)


def make_blocks() -> tuple[Recording, list[Block]]:
    """Make a channel with a chaincode and the blocks of the workload."""
    channel = Recording()
    channel.define("asset")
    before = len(channel.blocks)
    for number in range(BLOCKS):
        keys = [f"key{number:04}-{index:03}" for index in range(TRANSACTIONS_PER_BLOCK)]
        outcome = channel.commit(*[channel.draft(writes("asset", key, value=b"v" * 100)) for key in keys])
        assert not any(outcome.verdicts), "every transaction of the workload is valid"
    return channel, channel.blocks[before:]


def signatures_of(blocks: list[Block]) -> list[SignedData]:
    """List the signatures of the transactions: creator and endorsers."""
    found = []
    for block in blocks:
        for envelope in block.envelopes:
            one = decode_transaction(envelope)
            assert one.action is not None
            found.append(SignedData(one.payload, one.creator, one.signature))
            response = one.action.response_payload
            found += [SignedData(response + by.endorser, by.endorser, by.signature) for by in one.action.endorsements]
    return found


def cpu_seconds_of_signatures(channel: Recording, signed: list[SignedData]) -> float:
    """Check the signatures with identities that are known already."""
    msps = channel.bundle.msps
    identities = [msps.deserialize(one.identity) for one in signed]
    started = time.process_time()
    for identity, one in zip(identities, signed, strict=True):
        assert identity.verify(one.message, one.signature)
    return time.process_time() - started


def cpu_seconds_of_commit(channel: Recording, raw: list[bytes], before: list[bytes]) -> float:
    """Commit the blocks to a fresh ledger; what comes before them is not counted."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(2) as verifiers,
        ThreadPoolExecutor(2) as workers,
    ):
        store = LedgerStore.open(Path(folder), ChannelId(CHANNEL))
        committer = Committer(
            store,
            bundle_from_block(channel.genesis, CODEC),
            make_rules(verifiers),
            workers=workers,
            on_committed=lambda outcomes: None,
        )
        committer.commit(before)
        started = time.process_time()
        for start in range(0, len(raw), 10):
            committer.commit(raw[start : start + 10])
        spent = time.process_time() - started
        assert store.height == len(before) + len(raw)
        store.close()
    return spent


def main() -> None:
    """Measure, print and write build/bench.json."""
    channel, blocks = make_blocks()
    raw = [encode_block(block) for block in blocks]
    before = [encode_block(block) for block in channel.blocks[: len(channel.blocks) - len(blocks)]]
    signed = signatures_of(blocks)
    count = BLOCKS * TRANSACTIONS_PER_BLOCK
    bare = statistics.median(cpu_seconds_of_signatures(channel, signed) for _ in range(ROUNDS))
    commit = statistics.median(cpu_seconds_of_commit(channel, raw, before) for _ in range(ROUNDS))
    ratio = commit / bare
    print(f"{count} transactions, {len(signed)} signatures, median of {ROUNDS}")
    print(f"  bare signature checks  {bare / count * 1000:.3f} CPU s per 1,000 transactions")
    print(f"  commit                 {commit / count * 1000:.3f} CPU s per 1,000 transactions")
    print(f"  ratio                  {ratio:.2f}  target {TARGET}  {'met' if ratio <= TARGET else 'missed'}")
    figures = [
        {"figure": "commit CPU / signature CPU", "value": round(ratio, 3), "target": TARGET, "met": ratio <= TARGET},
        {"figure": "commit CPU s per 1000 tx", "value": round(commit / count * 1000, 4), "target": None, "met": None},
        {"figure": "signature CPU s per 1000 tx", "value": round(bare / count * 1000, 4), "target": None, "met": None},
    ]
    Path("build").mkdir(exist_ok=True)
    Path("build/bench.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
