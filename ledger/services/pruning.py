"""When does a peer prune, and what does it leave behind?  By its mode, on request or after each valid checkpoint.

`off` prunes nothing, `manual` when an administrator says so, `auto` also by itself after each valid checkpoint. The
rules (how far, what is refused) are in `core.pruning`; the store does it in one synced record that holds the new prune
point and the signed receipt, and finishes the unlinking at the next start if it was interrupted (design, section 6).

Methods are plain and may wait for the disk; they are safe to call from any thread, one pruning at a time.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from ledger.core.checkpoint import CheckpointProof
from ledger.core.errors import PruneRefused
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId, Verdict
from ledger.core.pruning import Limits, Pin, PruneDecision, PruneReceipt, decide, decode_receipt
from ledger.storage.ledger_values import ArchivedFile, PruneRecord
from ledger.storage.ledger_values import Pin as StoredPin
from ledger.storage.ledger_values import PrunePlan as StoredPlan


class PruningMode(StrEnum):
    """Who starts pruning."""

    OFF = "off"
    MANUAL = "manual"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class PruningSettings:
    """The peer's settings for one channel."""

    mode: PruningMode = PruningMode.OFF
    interval_blocks: int = 100
    """CHK."""

    keep_blocks_min: int = 0
    """Least number of blocks that stay whole."""

    archive_directory: Path | None = None
    """Where the files that go are copied first; None for nowhere."""


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What pruning would remove and keep."""

    decision: PruneDecision

    transactions_by_verdict: Mapping[int, int]
    """Bodies that would go, by validation code."""

    files: tuple[str, ...]
    """Names of the files that would go."""

    bytes_freed: int

    policies: tuple[str, ...]
    """The policies that the checkpoint satisfies, as text."""

    still_provable: tuple[str, ...]
    """What can be answered and proved afterwards as before, in words."""


class PrunableLedger(Protocol):
    """What pruning needs of the store; `storage.ledger_store` has it."""

    @property
    def channel_id(self) -> ChannelId:
        """Name of the channel."""
        ...

    @property
    def height(self) -> int:
        """Number of blocks committed."""
        ...

    @property
    def first_block(self) -> BlockNumber:
        """First block that is held whole: prune point + 1."""
        ...

    def captured(self) -> tuple[BlockNumber, ...]:
        """List the heights whose state can still be served."""
        ...

    def prune_plan(self, to: BlockNumber) -> StoredPlan:
        """Say what moving the prune point to a block would remove."""
        ...

    def archive(self, to: BlockNumber, directory: Path) -> tuple[ArchivedFile, ...]:
        """Copy the files that would go, sync, read back and compare."""
        ...

    def prune(self, to: BlockNumber, receipt: bytes) -> None:
        """Move the prune point and remove what lies at or below it.

        Durability: prune point and receipt are one synced record; what it unlinks is finished at the next start.
        """
        ...

    def prune_records(self) -> tuple[PruneRecord, ...]:
        """Return every step of the prune point with its receipt, oldest first."""
        ...

    def pins(self) -> tuple[StoredPin, ...]:
        """List who still needs whole blocks."""
        ...


class ProofKeeper(Protocol):
    """Who knows which checkpoint pruning may rest on."""

    def proof_for_pruning(self) -> CheckpointProof | None:
        """Return the proof of the latest checkpoint that this peer may rest its pruning on."""
        ...

    @property
    def stopped(self) -> str:
        """Why nothing may be pruned at present (the peer diverged); empty if nothing is wrong."""
        ...

    def policies(self) -> tuple[str, ...]:
        """The policies that make a checkpoint good enough for pruning, as text."""
        ...

    def waiting_for(self) -> str:
        """Say what the next checkpoint waits for, for the status; empty if for nothing."""
        ...


class Signer(Protocol):
    """The peer's own identity."""

    @property
    def serialized(self) -> bytes:
        """SerializedIdentity."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Sign a message with the identity's key."""
        ...


class PruningService:
    """Prunes one channel of this peer.

    Args:
        ledger: The store.
        proofs: Who knows the latest valid checkpoint.
        signer: The peer's identity, which signs receipts.
        settings: Mode and limits.
        now_ms: The peer's clock, milliseconds since 1970; for receipts only.
    """

    def __init__(
        self,
        ledger: PrunableLedger,
        proofs: ProofKeeper,
        signer: Signer,
        settings: PruningSettings,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """Keep what it works with; nothing is pruned before it is asked to."""
        self.settings = settings
        self._ledger = ledger
        self._proofs = proofs
        self._signer = signer
        self._now_ms = now_ms
        self._lock = threading.Lock()

    def plan(self, to_block: BlockNumber | None = None) -> PrunePlan:
        """Say what pruning up to `to_block`, or as far as allowed, would do; also while the mode is `off`.

        Raises:
            PruneRefused: `to_block` is above what may be pruned; `expected` names the largest height allowed.
        """
        decision = decide(self._limits(self._proof()), to_block)
        content = self._content(decision)
        return PrunePlan(
            decision=decision,
            transactions_by_verdict=_bodies(content),
            files=content.files if content is not None else (),
            bytes_freed=content.bytes_freed if content is not None else 0,
            policies=self._proofs.policies(),
            still_provable=STILL_PROVABLE,
        )

    def prune(self, to_block: BlockNumber | None = None) -> PruneReceipt | None:
        """Prune up to `to_block` (rounded down to where an interval ends), or as far as allowed.

        Returns:
            The receipt, or None if nothing was left to prune.

        Raises:
            PruneRefused: The mode is `off`, the peer diverged, or `to_block` is above what may be pruned.
            StorageFailed: The disk failed; the prune point is either the old or the new one, never between.

        Durability: the receipt and the prune point are durable on return.
        """
        if self.settings.mode is PruningMode.OFF:
            raise PruneRefused("pruning", rule="pruning mode", expected="manual or auto", found="off")
        if self._proofs.stopped:
            raise PruneRefused("pruning", rule="divergence", expected="no divergence", found=self._proofs.stopped)
        with self._lock:
            proof = self._proof()
            decision = decide(self._limits(proof), to_block)
            content = self._content(decision)
            if decision.to_block is None or content is None:
                return None
            assert proof is not None and decision.to_block < proof.statement.number, "pruned above what is proved"
            archived: tuple[ArchivedFile, ...] = ()
            if self.settings.archive_directory is not None:
                archived = self._ledger.archive(decision.to_block, self.settings.archive_directory)
            receipt = self._receipt(decision, decision.to_block, content, proof, archived)
            self._ledger.prune(decision.to_block, receipt.encoded)
            assert self._ledger.first_block == decision.to_block + 1, "the store did not move the prune point"
            return receipt

    def checkpoint_valid(self, number: BlockNumber) -> PruneReceipt | None:
        """Hear that a checkpoint became valid, and prune if the mode is `auto`."""
        if self.settings.mode is not PruningMode.AUTO or self._proofs.stopped:
            return None
        return self.prune()

    def receipts(self) -> tuple[PruneReceipt, ...]:
        """Return all receipts, oldest first."""
        return tuple(decode_receipt(record.receipt) for record in self._ledger.prune_records())

    @property
    def reason(self) -> str:
        """Why nothing is pruned at present, in words; empty if the next pruning would remove something."""
        if self.settings.mode is PruningMode.OFF:
            return "pruning is off"
        if self._proofs.stopped:
            return self._proofs.stopped
        decision = decide(self._limits(self._proof()))
        if decision.to_block is not None:
            return ""
        if decision.checkpoint is not None and decision.checkpoint > decision.first_block:
            return decision.held_back_by[0]
        return self._proofs.waiting_for() or decision.held_back_by[0]

    def _proof(self) -> CheckpointProof | None:
        """Return the proof to rest on, if this peer can still serve the state that it speaks of."""
        proof = self._proofs.proof_for_pruning()
        if proof is None or proof.statement.number not in self._ledger.captured():
            return None
        return proof

    def _content(self, decision: PruneDecision) -> StoredPlan | None:
        return self._ledger.prune_plan(decision.to_block) if decision.to_block is not None else None

    def _limits(self, proof: CheckpointProof | None) -> Limits:
        ledger, settings = self._ledger, self.settings
        return Limits(
            height=ledger.height,
            first_block=ledger.first_block,
            interval_blocks=settings.interval_blocks,
            keep_blocks_min=settings.keep_blocks_min,
            checkpoint=proof.statement.number if proof is not None else None,
            pins=tuple(Pin(pin.owner, pin.number) for pin in ledger.pins()),
        )

    def _receipt(
        self,
        decision: PruneDecision,
        to_block: BlockNumber,
        content: StoredPlan,
        proof: CheckpointProof,
        archived: tuple[ArchivedFile, ...],
    ) -> PruneReceipt:
        """Write and sign the receipt of a planned pruning."""
        earlier = self._ledger.prune_records()
        receipt = PruneReceipt(
            channel=self._ledger.channel_id,
            sequence=len(earlier),
            previous=decode_receipt(earlier[-1].receipt).receipt_hash if earlier else ZERO_DIGEST,
            first_block=decision.first_block,
            to_block=to_block,
            by_verdict=tuple(sorted(_bodies(content).items())),
            size_bytes=content.bytes_freed,
            checkpoint=proof,
            archived=tuple(sorted((file.name, file.sha256) for file in archived)),
            issued_at_ms=self._now_ms(),
            identity=self._signer.serialized,
        )
        return receipt.with_signature(self._signer.sign(receipt.signed_bytes))


def _bodies(content: StoredPlan | None) -> dict[int, int]:
    """Count the bodies that go by verdict: those of valid transactions stay."""
    if content is None:
        return {}
    return {verdict: count for verdict, count in content.transactions_by_verdict.items() if verdict != Verdict.VALID}


STILL_PROVABLE = (
    "inclusion and content of every valid transaction",
    "rejection of every invalid transaction by the digest of its envelope, with its verdict",
    "which transaction ids were used, and where",
    "the state at the latest valid checkpoint, to a joiner",
)
"""What pruning leaves as it was."""

__all__ = [
    "PrunableLedger",
    "ProofKeeper",
    "PrunePlan",
    "PruningMode",
    "PruningService",
    "PruningSettings",
    "Signer",
]
