"""Outcomes of recorded channels, judged once a process, and what tests of stores compare with."""

from functools import cache

from ledger.core.block import Block
from ledger.core.channel_config import Bundle
from ledger.core.names import BlockNumber, ChannelId
from ledger.core.outcome import Outcome
from ledger.core.state import Entry, LedgerView, StateKey
from ledger.node.rules import genesis_bundle, make_rules
from ledger.storage.ledger_values import StoredBlock
from ledger.wire.block import decode_block
from tests.kit.memory_view import MemoryLedger
from tests.kit.paths import VECTORS

State = dict[StateKey, Entry]


@cache
def recorded_blocks(channel: str) -> tuple[bytes, ...]:
    """Give the recorded blocks as a real peer serialized them, its verdicts and commit hashes included."""
    return tuple(path.read_bytes() for path in sorted((VECTORS / channel / "blocks").glob("*.block")))


@cache
def genesis_block(channel: str) -> bytes:
    return (VECTORS / channel / "genesis.block").read_bytes()


@cache
def channel_id(channel: str) -> ChannelId:
    return ChannelId(genesis_bundle(genesis_block(channel)).channel_id)


class Judged:
    """A recorded channel: its outcomes, and the state and configuration after each block."""

    def __init__(self, channel: str) -> None:
        rules = make_rules(None)
        bundle = genesis_bundle(genesis_block(channel))
        ledger = MemoryLedger()
        self.channel_id = channel_id(channel)
        self.outcomes: list[Outcome] = []
        self.states: list[State] = [{}]
        """`states[n]` is the state of the first n blocks."""
        self.bundles: list[Bundle] = [bundle]
        """`bundles[n]` is the configuration in force for block n."""
        for raw in recorded_blocks(channel):
            block = decode_block(raw)
            outcome = rules.judge(rules.prepare(block, bundle), ledger, bundle)
            ledger.apply(outcome)
            bundle = rules.bundle_after(outcome, bundle)
            self.outcomes.append(outcome)
            self.states.append(dict(ledger.state))
            self.bundles.append(bundle)
        self.ledger = ledger

    def rejudge(self, stored: StoredBlock, view: LedgerView) -> Outcome:
        """Give the outcome that is known, if the block is the one that was judged."""
        outcome = self.outcomes[stored.number]
        assert stored.block() == outcome.block
        assert view.commit_hash == (self.outcomes[stored.number - 1].commit_hash if stored.number else b"")
        return outcome


@cache
def judged(channel: str) -> Judged:
    """Judge a recorded channel by this node's rules, in memory."""
    return Judged(channel)


def bare(block: Block) -> Block:
    """The block without the slots that a peer adds."""
    slots = list(block.metadata)
    slots[2] = slots[4] = b""
    return Block(block.header, block.envelopes, tuple(slots))


def numbered(number: int) -> BlockNumber:
    return BlockNumber(number)
