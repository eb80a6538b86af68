"""Which blocks become ledger, which are refused whole, and what is told to whom when the disk or a block fails."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from fabric_protos.common import common_pb2

from ledger.core.block import Block
from ledger.core.errors import ChannelStopped, InvalidBlock, StorageFailed
from ledger.core.hashing import data_hash
from ledger.core.names import BlockNumber, ChannelId
from ledger.core.outcome import Outcome
from ledger.node.rules import genesis_bundle, make_rules
from ledger.services.committer import Committer
from ledger.storage.files import Files
from ledger.storage.ledger_store import LedgerStore
from ledger.wire.block import encode_block
from tests.kit.channel import CHANNEL, Channel
from tests.kit.organisations import shared_organisation
from tests.kit.outcomes import bare, channel_id, genesis_block, judged, recorded_blocks
from tests.kit.transactions import writes


class FailingFiles(Files):
    """Files whose disk fails at the next sync when it is told to."""

    fails = False

    def before(self, verb: str, path: Path) -> None:
        if self.fails and verb == "sync":
            self.fails = False
            raise OSError(5, "Input/output error")


class Peer:
    """A store with its committer, and what was told of it; the blocks come from a channel of the kit."""

    def __init__(self, directory: Path, workers: ThreadPoolExecutor) -> None:
        self.channel = Channel()
        self.directory, self.workers = directory, workers
        self.files = FailingFiles()
        self.told: list[int] = []
        self.blocks = [encode_block(self.channel.genesis)]
        self.open()

    def open(self) -> None:
        self.store = LedgerStore.open(self.directory, ChannelId(CHANNEL), files=self.files)
        rules = make_rules(None)
        if self.store.pending_count:
            bundle = genesis_bundle(self.blocks[0])
            self.store.recommit(lambda stored, view: rules.judge(rules.prepare(stored.block(), bundle), view, bundle))
        self.committer = Committer(
            self.store, genesis_bundle(self.blocks[0]), rules, workers=self.workers, on_committed=self.tell
        )

    def tell(self, outcomes: tuple[Outcome, ...]) -> None:
        assert self.store.height == outcomes[-1].block.number + 1, "what is told is durable"
        self.told += [outcome.block.number for outcome in outcomes]

    def make(self, count: int) -> list[bytes]:
        """The next blocks, each with one transaction."""
        made = []
        for _ in range(count):
            block = self.channel.block(self.channel.draft(writes("asset", f"key{len(self.blocks)}")).envelope())
            self.channel.commit_block(block)
            self.blocks.append(encode_block(block))
            made.append(self.blocks[-1])
        return made


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    with ThreadPoolExecutor(2) as workers:
        made = Peer(tmp_path, workers)
        made.committer.commit([made.blocks[0]])
        made.told.clear()
        yield made
        made.store.close()


def test_group_of_blocks_is_committed_in_order_and_told_once_it_is_durable(peer: Peer) -> None:
    outcomes = peer.committer.commit(peer.make(5))
    assert [outcome.block.number for outcome in outcomes] == [1, 2, 3, 4, 5]
    assert peer.told == [1, 2, 3, 4, 5]
    assert peer.store.commit_hash == peer.channel.ledger.commit_hash
    assert peer.committer.commit([]) == ()


def forged(block: Block, **header: object) -> bytes:
    return encode_block(replace(block, header=replace(block.header, **header)))  # type: ignore[arg-type]


def resigned(peer: Peer, block: Block, signer_of: str) -> bytes:
    """The block with the orderer's signature by somebody else."""
    channel = peer.channel
    real, channel.orderer = channel.orderer, shared_organisation(signer_of).client
    try:
        return encode_block(channel.block(*block.envelopes))
    finally:
        channel.orderer = real


def unsigned(block: Block) -> bytes:
    slot = common_pb2.Metadata.FromString(block.metadata[0])
    del slot.signatures[:]
    return encode_block(replace(block, metadata=(slot.SerializeToString(), *block.metadata[1:])))


def moved_border(block: Block) -> bytes:
    """Move a byte over the border of two transactions: the data hash stays."""
    first, second = block.envelopes
    moved = (first + second[:1], second[1:])
    assert data_hash(moved) == data_hash(block.envelopes)
    return encode_block(replace(block, envelopes=moved))


REFUSED: dict[str, tuple[Callable[[Peer, Block], bytes], str]] = {
    "garbage": (lambda peer, block: b"\xff\xff", "block message"),
    "nothing": (lambda peer, block: b"", "block header"),
    "number too high": (lambda peer, block: forged(block, number=9), "block number"),
    "number of the one before": (lambda peer, block: forged(block, number=2), "block number"),
    "other block before it": (lambda peer, block: forged(block, previous_hash=bytes(32)), "previous hash"),
    "other data hash": (lambda peer, block: forged(block, data_hash=bytes(32)), "data hash"),
    "envelope missing": (
        lambda peer, block: encode_block(replace(block, envelopes=block.envelopes[:1])), "data hash",
    ),
    "border moved": (lambda peer, block: moved_border(block), "envelope"),
    "no signature": (lambda peer, block: unsigned(block), "orderer signatures"),
    "signed by a peer organisation": (
        lambda peer, block: resigned(peer, block, "Org1MSP"), "orderer signatures",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_block_is_refused_whole_by_its_rule_those_before_stay_and_the_peer_goes_on(case: str, peer: Peer) -> None:
    before = peer.make(2)
    channel = peer.channel
    good = channel.block(*(channel.draft(writes("asset", f"last{each}")).envelope() for each in range(2)))
    wrong = REFUSED[case][0](peer, good)
    channel.commit_block(good)
    behind = peer.make(1)
    with pytest.raises(InvalidBlock) as caught:
        peer.committer.commit([*before, wrong, *behind])
    assert caught.value.rule.startswith(REFUSED[case][1]), caught.value.rule
    assert str(caught.value)
    assert peer.told == [1, 2]
    assert peer.store.height == 3
    peer.committer.commit([encode_block(good), *behind])
    assert peer.told == [1, 2, 3, 4]
    assert peer.store.commit_hash == channel.ledger.commit_hash


def test_block_that_was_committed_already_is_refused_and_changes_nothing(peer: Peer) -> None:
    blocks = peer.make(2)
    peer.committer.commit(blocks)
    with pytest.raises(InvalidBlock) as caught:
        peer.committer.commit(blocks)
    assert (caught.value.rule, caught.value.expected, caught.value.found) == ("block number", 3, 1)
    assert peer.told == [1, 2]


def test_configuration_that_can_not_be_applied_stops_the_channel_before_it(peer: Peer) -> None:
    """It is signed by the orderers and follows the last block, but no update leads to it."""
    before = peer.make(2)
    config = encode_block(peer.channel.config_block(peer.channel.tree))
    with pytest.raises(ChannelStopped, match="block 3"):
        peer.committer.commit([*before, config])
    assert peer.told == [1, 2]
    assert peer.store.height == 3
    with pytest.raises(ChannelStopped):
        peer.committer.commit([config])
    assert peer.store.height == 3


@pytest.mark.parametrize("is_reopened", [False, True])
def test_failing_disk_is_no_verdict_nothing_is_told_and_the_same_blocks_are_taken_later(
    is_reopened: bool, peer: Peer
) -> None:
    first, rest = peer.make(1), peer.make(3)
    peer.committer.commit(first)
    peer.files.fails = True
    with pytest.raises(StorageFailed, match="Input/output error"):
        peer.committer.commit(rest)
    assert peer.told == [1]
    assert peer.store.height == 2
    if is_reopened:
        peer.store.close()
        peer.open()
    peer.committer.commit(peer.blocks[peer.store.height :])
    assert peer.told == [1, 2, 3, 4]
    assert peer.store.commit_hash == peer.channel.ledger.commit_hash


def test_failure_of_whoever_is_told_is_not_hidden(peer: Peer) -> None:
    """The group is durable by then, so the ledger stands behind it."""

    def fail(outcomes: tuple[Outcome, ...]) -> None:
        raise RuntimeError("listener")

    rules = make_rules(None)
    committer = Committer(peer.store, peer.committer.bundle, rules, workers=peer.workers, on_committed=fail)
    with pytest.raises(RuntimeError, match="listener"):
        committer.commit(peer.make(1))
    assert peer.store.height == 2


def test_recorded_configurations_are_barriers_however_the_blocks_are_grouped(tmp_path: Path) -> None:
    """Goal: what stands behind a config block is judged under it.  Method: one group of all, and groups of seven."""
    known, name = judged("mini"), channel_id("mini")
    blocks = recorded_blocks("mini")
    with ThreadPoolExecutor(2) as workers:
        for size in (len(blocks), 7):
            told: list[tuple[Outcome, ...]] = []
            store = LedgerStore.open(tmp_path / str(size), name)
            committer = Committer(
                store,
                genesis_bundle(genesis_block("mini")),
                make_rules(None),
                workers=workers,
                on_committed=told.append,
            )
            for start in range(0, len(blocks), size):
                committer.commit(blocks[start : start + size])
            assert [bare(outcome.block) for group in told for outcome in group] == [
                bare(outcome.block) for outcome in known.outcomes
            ]
            assert store.commit_hash == known.outcomes[-1].commit_hash
            for group in told:
                assert not any(outcome.is_config for outcome in group[:-1]), "a config block ends its group"
            assert committer.bundle.sequence == known.bundles[-1].sequence
            assert store.height == BlockNumber(len(blocks))
            store.close()
