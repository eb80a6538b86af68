"""Paths of checkpoints and pruning. Planning and applying a prune need an admin's token."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from ledger.core.errors import (
    AbandonRefused,
    Busy,
    ChannelStopped,
    Forbidden,
    NotFound,
    PruneRefused,
)
from ledger.core.names import BlockNumber
from ledger.interfaces.rest import models, views
from ledger.interfaces.rest.admin import admin_only
from ledger.interfaces.rest.asking import AskedChannel, BlockPath, problems
from ledger.interfaces.rest.ports import AdminAction
from ledger.interfaces.rest.problems import Unauthenticated

router = APIRouter()

PRUNE_TIMEOUT_MS = 60_000
"""Time for a prune: it goes by the number of files, and an archive is copied before."""

may_prune = admin_only(AdminAction.PRUNE)
may_abandon = admin_only(AdminAction.ABANDON)


@router.get(
    "/v1/channels/{channel}/checkpoints",
    tags=["checkpoints"],
    summary="List the checkpoints",
    responses=problems(NotFound, ChannelStopped, Busy),
)
async def list_checkpoints(asked: AskedChannel) -> models.CheckpointList:
    """Every checkpoint that this peer knows, newest first: who signed, and what the policies still ask for."""

    def read() -> models.CheckpointList:
        items = [views.checkpoint_item(report) for report in asked.channel.checkpoints()]
        latest = asked.channel.status().latest_valid_checkpoint
        return models.CheckpointList(latest_valid=latest, checkpoints=items)

    return await asked.read(read)


@router.get(
    "/v1/channels/{channel}/checkpoints/{number}",
    tags=["checkpoints"],
    summary="Show a checkpoint and its proof",
    responses=problems(NotFound, ChannelStopped, Busy),
)
async def show_checkpoint(asked: AskedChannel, number: BlockPath) -> models.CheckpointAnswer:
    """The statement, its parts, and the signatures.

    Of a valid checkpoint the signatures are its proof: evaluated in this order they satisfy the channel's policy. Each
    is over the statement followed by the signer's serialized identity, so anybody can check it with the channel's
    configuration alone.
    """
    return await asked.read(lambda: views.checkpoint_answer(asked.channel.checkpoint(BlockNumber(number))))


@router.post(
    "/v1/channels/{channel}/checkpoints/{number}/abandon",
    tags=["checkpoints"],
    summary="Give up a pending checkpoint (admin)",
    dependencies=[Depends(may_abandon)],
    responses=problems(Unauthenticated, Forbidden, NotFound, AbandonRefused, ChannelStopped, Busy),
)
async def abandon_checkpoint(asked: AskedChannel, number: BlockPath) -> models.CheckpointItem:
    """Nothing more is collected for it, and its state is let go of: later checkpoints go on as before.

    Only this peer gives it up. A valid checkpoint, or one below a valid one, is refused.
    """
    return await asked.read(lambda: views.checkpoint_item(asked.channel.abandon(BlockNumber(number))))


@router.get(
    "/v1/channels/{channel}/divergence",
    tags=["checkpoints"],
    summary="Show where this peer differs from the others",
    responses=problems(NotFound, ChannelStopped, Busy),
)
async def show_divergence(asked: AskedChannel) -> models.DivergenceAnswer:
    """What this peer computed, what others validly agreed on, and where the difference begins.

    The first differing vBlock and the differing keys are found by asking other peers, whose answers are checked; until
    then `found` is null. Of values only hashes are told. A peer that did not diverge answers "not found".
    """
    return await asked.read(lambda: views.divergence_answer(asked.channel.divergence()))


@router.get(
    "/v1/channels/{channel}/prune",
    tags=["pruning"],
    summary="Plan a prune (admin)",
    dependencies=[Depends(may_prune)],
    responses=problems(Unauthenticated, Forbidden, NotFound, PruneRefused, ChannelStopped, Busy),
)
async def plan_prune(
    asked: AskedChannel,
    to: Annotated[
        int | None, Query(description="Prune point asked for; absent: as far as allowed.", ge=0, lt=2**64)
    ] = None,
) -> models.PrunePlanAnswer:
    """What would go and stay, on which checkpoint it rests, and who holds it back. Nothing is changed."""
    return await asked.read(lambda: views.plan_answer(asked.channel.prune_plan(_block(to))))


@router.post(
    "/v1/channels/{channel}/prune",
    tags=["pruning"],
    summary="Prune (admin)",
    dependencies=[Depends(may_prune)],
    responses=problems(Unauthenticated, Forbidden, NotFound, PruneRefused, ChannelStopped, Busy),
)
async def apply_prune(asked: AskedChannel, wanted: models.PruneRequest) -> models.PruneAnswer:
    """Remove the bodies of invalid transactions up to a height, and keep a signed receipt.

    Durability: when the answer arrives the prune is final. When none arrives in time it is still being done; asking
    again does no harm, since a prune point that is already reached prunes nothing.
    """

    def prune() -> models.PruneAnswer:
        receipt = asked.channel.prune(_block(wanted.to))
        shown = views.receipt_answer(receipt) if receipt is not None else None
        return models.PruneAnswer(pruned=receipt is not None, receipt=shown)

    return await asked.read(prune, timeout_ms=PRUNE_TIMEOUT_MS)


@router.get(
    "/v1/channels/{channel}/receipts",
    tags=["pruning"],
    summary="List the receipts of pruning",
    responses=problems(NotFound, ChannelStopped, Busy),
)
async def list_receipts(asked: AskedChannel) -> models.ReceiptList:
    """What was ever pruned here, with the proof that it rested on; signed by this peer, kept for ever."""

    def read() -> models.ReceiptList:
        return models.ReceiptList(receipts=[views.receipt_answer(receipt) for receipt in asked.channel.receipts()])

    return await asked.read(read)


def _block(number: int | None) -> BlockNumber | None:
    return None if number is None else BlockNumber(number)
