"""A ledger on disk as a peer leaves it: blocks of two organisations, valid checkpoints, pruned below the latest."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from ledger.core.checkpoint import CheckpointProof, PeerSignature, Statement, signed_bytes
from ledger.core.checkpoint_proof import Scope
from ledger.core.names import BlockNumber, ChannelId
from ledger.core.outcome import Outcome
from ledger.core.rwset import CollectionSet, HashedWrite, ReadWriteSet, Write
from ledger.services.pruning import PruningMode, PruningService, PruningSettings
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.ledger_store import LedgerStore
from ledger.wire.block import encode_block
from tests.kit.channel import CHANNEL, Channel, TestCollection, definition_fields, definition_writes
from tests.kit.memory_view import MemoryLedger
from tests.kit.organisations import Signer
from tests.kit.transactions import Draft, in_namespace, writes

CHK = 4
"""Blocks between checkpoints."""

HEIGHT = 15
CHECKPOINTS = (BlockNumber(4), BlockNumber(8))
PRUNE_POINT = BlockNumber(7)

ProofOf = Callable[[Statement, Sequence[Signer]], CheckpointProof]
"""Makes a proof of a statement; an honest one or another."""


@dataclass(frozen=True)
class Life:
    """What happened on a channel."""

    channel: Channel
    genesis: bytes
    outcomes: tuple[Outcome, ...]


@cache
def life() -> Life:
    """Let things happen, once a process: valid and invalid transactions, deletes, private data that expires."""
    channel = Channel()
    rules, genesis = channel.transition, channel.genesis
    outcomes = [rules.judge(rules.prepare(genesis, channel.bundle), MemoryLedger(), channel.bundle)]
    fields = definition_fields(collections=[TestCollection("secret", block_to_live=2)])
    outcomes.append(channel.commit(channel.draft(definition_writes("asset", fields), "_lifecycle")))
    outcomes += [channel.commit(*transactions(channel, number)) for number in range(2, HEIGHT)]
    assert all(set(outcome.verdicts) == {0, 4, 10, 11} for outcome in outcomes[2:])
    assert any(outcome.expired for outcome in outcomes)
    return Life(channel, encode_block(genesis), tuple(outcomes))


def transactions(channel: Channel, number: int) -> Iterable[Draft]:
    """Make the transactions of one block: four are valid, and one each is forged, unendorsed, and too late."""
    private = CollectionSet("secret", writes=(HashedWrite(digest(number), digest(-number)),))
    yield channel.draft(writes("asset", f"key{number}", "last", value=b"%d" % number))
    yield channel.draft(writes("asset", "forged")).but(signature=b"forged")
    yield channel.draft(ReadWriteSet((in_namespace("asset", collections=[private]),)))
    yield channel.draft(writes("asset", "unendorsed"), endorsers=())
    yield channel.draft(ReadWriteSet((in_namespace("asset", writes=[Write(f"key{number - 1}", b"", True)]),)))
    yield channel.draft(ReadWriteSet((in_namespace("asset", reads=[("last", (1, 0))], writes=[Write("late", b"x")]),)))
    yield channel.draft(ReadWriteSet((in_namespace("asset", reads=[("last", (number, 0))]),)))


def digest(number: int) -> bytes:
    return sha256(b"%d" % number).digest()


def honest_proof(statement: Statement, signers: Sequence[Signer]) -> CheckpointProof:
    """The proof that signers make."""
    return CheckpointProof(
        statement,
        tuple(PeerSignature(each.serialized, each.sign(signed_bytes(statement, each.serialized))) for each in signers),
    )


@dataclass(frozen=True)
class Proofs:
    """What pruning rests on."""

    proof: CheckpointProof
    stopped: str = ""

    def proof_for_pruning(self) -> CheckpointProof:
        return self.proof

    def policies(self) -> tuple[str, ...]:
        return ()

    def waiting_for(self) -> str:
        return ""


class PeerFolder:
    """The data directory of a stopped peer."""

    def __init__(self, directory: Path, outcomes: Sequence[Outcome] = ()) -> None:
        """Commit what happened, or what a lying peer would have of it."""
        known = life()
        self.data = directory / "data"
        self.genesis = directory / "genesis.block"
        directory.mkdir(exist_ok=True)
        self.genesis.write_bytes(known.genesis)
        self.channel = self.data / "channels" / CHANNEL
        with_store = self.open()
        for outcome in outcomes or known.outcomes:
            with_store.commit(outcome)
        self.vblock_hash = with_store.vblock_hash
        self.state_hash = with_store.roots_now().state_hash
        with_store.close()

    def open(self) -> LedgerStore:
        """Open the ledger."""
        return LedgerStore.open(self.data, ChannelId(CHANNEL), chk=CHK)

    def agree(self, make: ProofOf = honest_proof, scope: Scope = Scope.FULL) -> "PeerFolder":
        """Let the checkpoints become valid, the latest by a proof that `make` makes."""
        store = self.open()
        records = CheckpointStore(store.records_directory, ChannelId(CHANNEL))
        for number in CHECKPOINTS:
            statement = store.compute_checkpoint(number).statement(ChannelId(CHANNEL))
            latest = number == CHECKPOINTS[-1]
            proof = (make if latest else honest_proof)(statement, life().channel.peers)
            records.record_valid(proof, scope if latest else Scope.FULL)
        records.close()
        store.close()
        return self

    def prune(self) -> "PeerFolder":
        """Prune below the latest valid checkpoint, as the peer's service does."""
        store = self.open()
        records = CheckpointStore(store.records_directory, ChannelId(CHANNEL))
        proof = records.latest_for_pruning
        records.close()
        assert proof is not None
        settings = PruningSettings(PruningMode.MANUAL, CHK)
        receipt = PruningService(
            store, Proofs(proof), life().channel.peers[0], settings, now_ms=lambda: 1_800_000_000_000
        ).prune()
        assert receipt is not None and receipt.to_block == PRUNE_POINT
        store.close()
        return self


__all__ = ["CHECKPOINTS", "CHK", "HEIGHT", "PRUNE_POINT", "PeerFolder", "honest_proof", "life"]
