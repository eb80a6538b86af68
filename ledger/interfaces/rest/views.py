"""How do the ledger's values become answers?  One function for each, from core values to models."""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ledger.core.checkpoint import PeerSignature, Statement
from ledger.core.errors import Fault
from ledger.core.hashing import digest
from ledger.core.names import BlockNumber, TxIndex, Verdict, verdict_name
from ledger.core.pruning import PruneReceipt
from ledger.core.state import Entry, TxPlace
from ledger.core.vblock import VBlock
from ledger.interfaces.rest import models
from ledger.interfaces.rest.ports import ChannelStatus, ChannelSummary, CheckpointReport
from ledger.services.pruning import PrunePlan
from ledger.wire.render import readable_text, render_envelope, render_identity

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Faults = Mapping[TxIndex, Fault]
"""Why transactions of one block are invalid."""


def channel_item(summary: ChannelSummary) -> models.ChannelItem:
    """Show a line of the list of channels."""
    return models.ChannelItem(
        channel=summary.channel_id,
        state=summary.state.value,
        reason=summary.reason,
        href=f"/v1/channels/{summary.channel_id}",
    )


def channel_info(
    channel_id: str, last: VBlock, first_block: BlockNumber, joined_at: BlockNumber | None, status: ChannelStatus
) -> models.ChannelInfo:
    """Show a channel; everything about its height comes from one vBlock, so that it fits together."""
    return models.ChannelInfo(
        channel=channel_id,
        state=status.state.value,
        reason=status.reason,
        height=last.header.number + 1,
        first_block=first_block,
        joined_at=joined_at,
        block_hash=last.header.block_hash.hex(),
        vblock_hash=last.vblock_hash.hex(),
        commit_hash=last.header.commit_hash.hex(),
        checkpoints=models.CheckpointInfo(
            interval_blocks=status.checkpoint_interval_blocks,
            intervals_of_others=dict(sorted(status.checkpoint_intervals_of_others.items())),
            latest_valid=status.latest_valid_checkpoint,
            global_policy=status.global_policy,
            local_policy=status.local_policy,
        ),
        pruning=models.PruningInfo(
            mode=status.pruning_mode,
            keep_blocks=status.pruning_keep_blocks,
            prune_point=first_block - 1 if first_block else None,
            reason=status.pruning_reason,
        ),
    )


def vblock_answer(vblock: VBlock, faults: Faults, *, with_transactions: bool) -> models.VBlockAnswer:
    """Show a vBlock, its valid transactions rendered if asked for."""
    header = vblock.header
    return models.VBlockAnswer(
        header=models.VBlockHeaderAnswer(
            number=header.number,
            previous_hash=header.previous_hash.hex(),
            block_hash=header.block_hash.hex(),
            transaction_count=header.transaction_count,
            valid_count=header.valid_count,
            tx_root=header.tx_root.hex(),
            commit_hash=header.commit_hash.hex(),
        ),
        vblock_hash=vblock.vblock_hash.hex(),
        leaves=[
            models.LeafAnswer(
                index=leaf.index,
                verdict=verdict_name(leaf.verdict),
                verdict_code=leaf.verdict,
                envelope_digest=leaf.envelope_digest.hex(),
                tx_id=leaf.tx_id,
                **fault_fields(faults, leaf.index),
            )
            for leaf in vblock.leaves
        ],
        envelopes="pruned" if vblock.lacks_envelopes else "whole",
        transactions=[
            models.TransactionItem.model_validate(
                {"index": index, "verdict": Verdict.VALID.name, "verdict_code": 0, **render_envelope(envelope)}
            )
            for index, envelope in (vblock.valid_envelopes if with_transactions else ())
        ],
    )


def fault_fields(faults: Faults, index: int) -> dict[str, str | None]:
    """Give rule and detail of an invalid transaction, null where none is known."""
    fault = faults.get(TxIndex(index))
    return {"rule": fault.rule, "detail": fault.detail} if fault is not None else {"rule": None, "detail": None}


def place_answer(
    place: TxPlace, faults: Faults, first_block: BlockNumber, joined_at: BlockNumber | None
) -> models.PlaceAnswer:
    """Show one place of an id.

    Only bodies of invalid transactions go, and only at or below the prune point; a peer that joined from a checkpoint
    never had any below it.
    """
    first_whole = (joined_at or 0) if place.verdict == Verdict.VALID else first_block
    pruned = place.block < first_whole
    return models.PlaceAnswer(
        block=place.block,
        index=place.index,
        verdict=verdict_name(place.verdict),
        verdict_code=place.verdict,
        envelope="pruned" if pruned else "whole",
        **fault_fields(faults, place.index),
    )


def transaction_answer(tx_id: str, places: list[models.PlaceAnswer]) -> models.TransactionAnswer:
    """Show what became of a transaction; the first place of its id is the answer."""
    first = places[0]
    return models.TransactionAnswer(
        tx_id=tx_id, valid=first.verdict_code == Verdict.VALID, places=places, **first.model_dump()
    )


def state_answer(namespace: str, key: bytes, entry: Entry) -> models.StateAnswer:
    """Show a live entry."""
    return models.StateAnswer(
        namespace=namespace,
        key=key_text(key),
        key_base64url=urlsafe_b64encode(key).rstrip(b"=").decode(),
        value=bytes_answer(entry.value),
        version=models.VersionAnswer(block=entry.version.block, index=entry.version.index),
        metadata=bytes_answer(entry.metadata) if entry.metadata else None,
    )


def key_text(key: bytes) -> str:
    """Show a key as text; bytes that are no UTF-8, which no public key has, as escapes."""
    return key.decode(errors="backslashreplace")


def bytes_answer(value: bytes) -> models.Bytes:
    """Show a byte string."""
    return models.Bytes(base64=b64encode(value).decode(), text=readable_text(value))


def signer_answer(signed: PeerSignature, *, whole: bool) -> models.SignerAnswer:
    """Show who signed, with identity and signature if `whole`."""
    who = render_identity(signed.identity)
    return models.SignerAnswer(
        msp_id=who.get("msp_id"),
        name=who.get("name"),
        identity_digest=digest(signed.identity).hex(),
        identity=b64encode(signed.identity).decode() if whole else None,
        signature=b64encode(signed.signature).decode() if whole else None,
    )


def checkpoint_item(report: CheckpointReport) -> models.CheckpointItem:
    """Show a line of the list of checkpoints."""
    return models.CheckpointItem(
        number=report.statement.number,
        status=report.status.value,
        signers=[signer_answer(signed, whole=False) for signed in report.signatures],
        missing=list(report.missing),
    )


def checkpoint_answer(report: CheckpointReport) -> models.CheckpointAnswer:
    """Show a checkpoint with all that an outsider needs to check it."""
    return models.CheckpointAnswer(
        statement=statement_answer(report.statement),
        number=report.statement.number,
        status=report.status.value,
        signers=[signer_answer(signed, whole=True) for signed in report.signatures],
        missing=list(report.missing),
    )


def statement_answer(statement: Statement) -> models.StatementAnswer:
    """Show a statement: its parts, and the bytes that are signed."""
    return models.StatementAnswer(
        channel=statement.channel,
        number=statement.number,
        vblock_hash=statement.vblock_hash.hex(),
        vledger_root=statement.vledger_root.hex(),
        state_hash=statement.state_hash.hex(),
        encoded=b64encode(statement.encoded).decode(),
    )


def divergence_answer(found: Mapping[str, Any]) -> models.DivergenceAnswer:
    """Show how this peer differs from the others."""
    statements = {name: statement_answer(found[name]) for name in ("computed", "agreed")}
    return models.DivergenceAnswer.model_validate({**found, **statements})


def plan_answer(plan: PrunePlan) -> models.PrunePlanAnswer:
    """Show a plan."""
    decision = plan.decision
    return models.PrunePlanAnswer(
        first_block=decision.first_block,
        to_block=decision.to_block,
        blocks=0 if decision.to_block is None else decision.to_block + 1 - decision.first_block,
        transactions=counts_by_name(plan.transactions_by_verdict),
        files=list(plan.files),
        bytes_freed=plan.bytes_freed,
        checkpoint=decision.checkpoint,
        policies=list(plan.policies),
        held_back_by=list(decision.held_back_by),
        still_provable=list(plan.still_provable),
    )


def receipt_answer(receipt: PruneReceipt) -> models.ReceiptAnswer:
    """Show a receipt: in words, and as the bytes that were signed and are kept."""
    return models.ReceiptAnswer(
        sequence=receipt.sequence,
        previous=receipt.previous.hex(),
        first_block=receipt.first_block,
        to_block=receipt.to_block,
        transactions=counts_by_name(dict(receipt.by_verdict)),
        bytes_freed=receipt.size_bytes,
        checkpoint=statement_answer(receipt.checkpoint.statement),
        proof=[signer_answer(signed, whole=True) for signed in receipt.checkpoint.signatures],
        archived_files={name: value.hex() for name, value in receipt.archived},
        issued_at=_time_text(receipt.issued_at_ms),
        signer=signer_answer(PeerSignature(receipt.identity, receipt.signature), whole=True),
        encoded=b64encode(receipt.encoded).decode(),
    )


def _time_text(time_ms: int) -> str:
    return (EPOCH + timedelta(milliseconds=time_ms)).isoformat()


def counts_by_name(counts: Mapping[int, int]) -> dict[str, int]:
    """Show counts by the names of their verdicts, in order of the codes."""
    return {verdict_name(code): count for code, count in sorted(counts.items())}
