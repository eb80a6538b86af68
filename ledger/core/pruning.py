"""How far may this peer prune, and what does it keep as a receipt?

Design, sections 4 (rules 5 and 6) and 6. A prunable file holds the bodies of invalid transactions of one interval
between checkpoints, begins with the block at a multiple of CHK, and goes as a whole. So the prune point is always
*n* - 1 for a multiple *n* of CHK (or the latest valid checkpoint itself, if it was announced elsewhere):

- it is below the latest valid checkpoint: the block *at* the checkpoint stays, a joiner needs it whole;
- it leaves at least `keep_blocks_min` blocks;
- it is below every block that a reader, snapshot or joiner has pinned.

A request to prune "to N" above any of these is refused and told the largest height allowed. One below is rounded
**down** to the next border between files, never up: nothing goes that was not asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ledger.core.checkpoint import CheckpointProof, encode_proof, read_proof
from ledger.core.encoding import Reader, lp, u8, u32, u64
from ledger.core.errors import MalformedMessage, PruneRefused
from ledger.core.hashing import digest
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId, Digest

RECEIPT_TAG = "peerledger/receipt/v1"


@dataclass(frozen=True, slots=True)
class Pin:
    """Somebody still needs whole blocks."""

    holder: str
    """Who, for people: `joiner peer0.org2.example.com`, `snapshot 300`."""

    block: BlockNumber
    """The lowest block that it needs."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What pruning has to respect at one moment."""

    height: int
    """Blocks committed."""

    first_block: BlockNumber
    """First block held whole: prune point + 1."""

    interval_blocks: int
    """CHK."""

    keep_blocks_min: int
    """Least number of whole blocks to keep."""

    checkpoint: BlockNumber | None
    """The latest valid checkpoint that this peer can serve; None if there is none."""

    pins: tuple[Pin, ...] = ()


@dataclass(frozen=True, slots=True)
class PruneDecision:
    """How far pruning would go, and what keeps it from going further."""

    first_block: BlockNumber
    """First block held whole at present."""

    to_block: BlockNumber | None
    """The prune point after it; None if nothing would go."""

    requested: BlockNumber | None
    """What was asked for, before rounding; None for "as far as allowed"."""

    checkpoint: BlockNumber | None
    """The valid checkpoint that it rests on."""

    held_back_by: tuple[str, ...]
    """What keeps the prune point from being higher, in words; the first is the tightest."""


def decide(limits: Limits, requested: BlockNumber | None = None) -> PruneDecision:
    """Decide how far to prune.

    Args:
        limits: What has to be respected now.
        requested: The highest block that the caller wants gone, or None for as far as allowed.

    Returns:
        The decision; its `to_block` is None if nothing is left to do.

    Raises:
        PruneRefused: `requested` is above a limit; `expected` names the largest height allowed.
    """
    bounds = sorted(_bounds(limits))
    highest, rule, reason = bounds[0]
    allowed = largest_border(highest, limits)
    if requested is not None and requested > highest:
        raise PruneRefused(
            f"prune to block {requested}",
            rule=rule,
            expected=f"at most {allowed}" if allowed >= 0 else "no pruning yet",
            found=f"{requested}: {reason}",
        )
    border = allowed if requested is None else largest_border(requested, limits)
    to_block = BlockNumber(border) if border >= limits.first_block else None
    return PruneDecision(
        limits.first_block, to_block, requested, limits.checkpoint, tuple(text for _, _, text in bounds)
    )


def largest_border(to_block: int, limits: Limits) -> int:
    """Return the largest prune point at or below `to_block` at which an interval ends, or -1."""
    if limits.checkpoint is not None and to_block + 1 == limits.checkpoint:
        return to_block
    return (to_block + 1) // limits.interval_blocks * limits.interval_blocks - 1


def _bounds(limits: Limits) -> list[tuple[int, str, str]]:
    """List (highest prune point, rule, reason) of every limit."""
    if limits.checkpoint is None:
        return [(-1, "latest valid checkpoint", "no checkpoint is valid yet")]
    reason = f"the latest valid checkpoint is at block {limits.checkpoint}"
    bounds = [(limits.checkpoint - 1, "latest valid checkpoint", reason)]
    if limits.keep_blocks_min > 0:
        kept = f"{limits.keep_blocks_min} blocks are to be kept and the height is {limits.height}"
        bounds.append((max(limits.height - 1 - limits.keep_blocks_min, -1), "blocks to keep", kept))
    for pin in limits.pins:
        bounds.append((pin.block - 1, "pinned", f"{pin.holder} needs blocks from {pin.block} on"))
    return bounds


@dataclass(frozen=True, slots=True)
class PruneReceipt:
    """What a peer pruned, signed by it and kept for ever; each names the one before it by its hash."""

    channel: ChannelId
    sequence: int
    """0 for the first receipt of this peer on the channel, then one more each."""

    previous: Digest
    """Hash of the receipt before it; 32 zero bytes for the first."""

    first_block: BlockNumber
    """First block that lost its whole form by this pruning."""

    to_block: BlockNumber
    """The prune point after it."""

    by_verdict: tuple[tuple[int, int], ...]
    """(validation code, bodies that went), ascending."""

    size_bytes: int
    """Bytes planned to be freed."""

    checkpoint: CheckpointProof
    """The proof that it rests on, whole."""

    archived: tuple[tuple[str, Digest], ...]
    """(name, SHA-256) of each file that was archived first, ascending."""

    issued_at_ms: int
    """By this peer's clock, milliseconds since 1970."""

    identity: bytes
    """SerializedIdentity of the peer."""

    signature: bytes = b""

    @property
    def signed_bytes(self) -> bytes:
        """What the signature is over."""
        verdicts = b"".join(u8(verdict) + u64(count) for verdict, count in self.by_verdict)
        archived = b"".join(lp(name) + lp(value) for name, value in self.archived)
        return b"".join(
            (
                lp(RECEIPT_TAG),
                lp(self.channel),
                u64(self.sequence),
                self.previous,
                u64(self.first_block),
                u64(self.to_block),
                u32(len(self.by_verdict)) + verdicts,
                u64(self.size_bytes),
                lp(encode_proof(self.checkpoint)),
                u32(len(self.archived)) + archived,
                u64(self.issued_at_ms),
                lp(self.identity),
            )
        )

    @property
    def encoded(self) -> bytes:
        """The receipt as it is kept."""
        return self.signed_bytes + lp(self.signature)

    @property
    def receipt_hash(self) -> Digest:
        """What the next receipt names."""
        return digest(self.encoded)

    def with_signature(self, signature: bytes) -> "PruneReceipt":
        """Return the signed receipt."""
        return replace(self, signature=signature)


def decode_receipt(data: bytes) -> PruneReceipt:
    """Read back `PruneReceipt.encoded`.

    Raises:
        MalformedMessage: The bytes are no receipt of this format.
    """
    reader = Reader(data, "prune receipt")
    if (tag := reader.text()) != RECEIPT_TAG:
        raise MalformedMessage("prune receipt", rule="format tag", expected=RECEIPT_TAG, found=tag)
    channel = ChannelId(reader.text())
    sequence, previous = reader.u64(), Digest(reader.take(32))
    first, to_block = BlockNumber(reader.u64()), BlockNumber(reader.u64())
    by_verdict = tuple((reader.u8(), reader.u64()) for _ in range(reader.u32()))
    size_bytes = reader.u64()
    proof_reader = Reader(reader.lp(), "prune receipt")
    proof = read_proof(proof_reader)
    proof_reader.done()
    archived = tuple((reader.text(), Digest(reader.lp())) for _ in range(reader.u32()))
    issued_at_ms, identity, signature = reader.u64(), reader.lp(), reader.lp()
    reader.done()
    return PruneReceipt(
        channel, sequence, previous, first, to_block, by_verdict, size_bytes, proof, archived, issued_at_ms, identity,
        signature,
    )  # fmt: skip


def check_chain(receipts: Sequence[PruneReceipt]) -> None:
    """Check that receipts follow each other without a gap, each naming the one before it.

    Raises:
        MalformedMessage: One does not; the message names it.
    """
    previous, sequence, first = ZERO_DIGEST, 0, BlockNumber(0)
    for receipt in receipts:
        for rule, expected, found in (
            ("sequence", sequence, receipt.sequence),
            ("previous receipt", previous.hex(), receipt.previous.hex()),
            ("first block", first, receipt.first_block),
        ):
            if expected != found:
                raise MalformedMessage(f"prune receipt {sequence}", rule=rule, expected=expected, found=found)
        previous, sequence, first = receipt.receipt_hash, sequence + 1, BlockNumber(receipt.to_block + 1)


__all__ = [
    "Limits",
    "Pin",
    "PruneDecision",
    "PruneReceipt",
    "check_chain",
    "decide",
    "decode_receipt",
    "largest_border",
]
