"""When does a peer prune, and what does it leave behind?  By its mode, on request or after each valid checkpoint.

`off` prunes nothing, `manual` when an administrator says so, `auto` also by itself after each valid checkpoint. The
rules (how far, what is refused) are in `core.pruning`; the store does it in one synced record that holds the new prune
point and the signed receipt, and finishes the unlinking at the next start if it was interrupted (design, section 6).

Methods are plain and may wait for the disk; they are safe to call from any thread, one pruning at a time.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ledger.core.checkpoint import CheckpointProof
from ledger.core.errors import PruneRefused
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId
from ledger.core.pruning import Limits, Pin, PrunableFile, PrunePlan, PruneReceipt, decode_receipt, plan


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


class PrunableLedger(Protocol):
    """What pruning needs of the store."""

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

    def prunable_files(self) -> Sequence[PrunableFile]:
        """List the prunable files that exist; the one being written included."""
        ...

    def pins(self) -> Sequence[Pin]:
        """List who still needs whole blocks."""
        ...

    def prune(self, to_block: BlockNumber, receipt: bytes) -> None:
        """Move the prune point and remove what lies at or below it.

        Durability: prune point and receipt are one synced record; what it unlinks is finished at the next start.
        """
        ...

    def receipts(self) -> Sequence[bytes]:
        """Return the receipts of all prunings, oldest first."""
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
        return plan(self._ledger.prunable_files(), self._limits(self._proof()), to_block)

    def prune(self, to_block: BlockNumber | None = None) -> PruneReceipt | None:
        """Prune up to `to_block` (rounded down to a border between files), or as far as allowed.

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
            files = self._ledger.prunable_files()
            todo = plan(files, self._limits(proof), to_block)
            if todo.to_block is None:
                return None
            assert proof is not None and todo.to_block < proof.statement.number, "pruned above what is proved"
            receipt = self._receipt(todo, todo.to_block, proof)
            self._ledger.prune(todo.to_block, receipt.encoded)
            assert self._ledger.first_block == todo.to_block + 1, "the store did not move the prune point"
            return receipt

    def checkpoint_valid(self, number: BlockNumber) -> PruneReceipt | None:
        """Hear that a checkpoint became valid, and prune if the mode is `auto`."""
        if self.settings.mode is not PruningMode.AUTO or self._proofs.stopped:
            return None
        return self.prune()

    def receipts(self) -> tuple[PruneReceipt, ...]:
        """Return all receipts, oldest first."""
        return tuple(decode_receipt(raw) for raw in self._ledger.receipts())

    @property
    def reason(self) -> str:
        """Why nothing is pruned at present, in words; empty if the next pruning would remove something."""
        if self.settings.mode is PruningMode.OFF:
            return "pruning is off"
        if self._proofs.stopped:
            return self._proofs.stopped
        todo = self.plan()
        if todo.to_block is not None:
            return ""
        if todo.checkpoint is not None and todo.checkpoint > todo.first_block:
            return todo.held_back_by[0]
        return self._proofs.waiting_for() or todo.held_back_by[0]

    def _proof(self) -> CheckpointProof | None:
        return self._proofs.proof_for_pruning()

    def _limits(self, proof: CheckpointProof | None) -> Limits:
        ledger, settings = self._ledger, self.settings
        return Limits(
            height=ledger.height,
            first_block=ledger.first_block,
            interval_blocks=settings.interval_blocks,
            keep_blocks_min=settings.keep_blocks_min,
            checkpoint=proof.statement.number if proof is not None else None,
            pins=tuple(ledger.pins()),
        )

    def _receipt(self, todo: PrunePlan, to_block: BlockNumber, proof: CheckpointProof) -> PruneReceipt:
        """Write and sign the receipt of a planned pruning."""
        earlier = self._ledger.receipts()
        last = decode_receipt(earlier[-1]) if earlier else None
        receipt = PruneReceipt(
            channel=self._ledger.channel_id,
            sequence=len(earlier),
            previous=last.receipt_hash if last is not None else ZERO_DIGEST,
            first_block=todo.first_block,
            to_block=to_block,
            by_verdict=todo.by_verdict,
            size_bytes=todo.size_bytes,
            checkpoint=proof,
            archived=(),
            issued_at_ms=self._now_ms(),
            identity=self._signer.serialized,
        )
        return receipt.with_signature(self._signer.sign(receipt.signed_bytes))


__all__ = ["PrunableLedger", "ProofKeeper", "PruningMode", "PruningService", "PruningSettings", "Signer"]
