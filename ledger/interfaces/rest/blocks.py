"""Paths of channels, blocks and vBlocks."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from ledger.core.errors import BeforeJoining, Busy, ChannelStopped, NotFound, Pruned
from ledger.core.names import BlockNumber, TxIndex
from ledger.interfaces.rest import models, views
from ledger.interfaces.rest.asking import (
    OCTETS,
    Accept,
    AskedChannel,
    BlockPath,
    Format,
    bytes_or_json,
    problems,
    wants_bytes,
)
from ledger.interfaces.rest.ports import ChannelView, NodeView
from ledger.wire.block import decode_block
from ledger.wire.render import render_block

router = APIRouter()


@router.get("/v1/channels", tags=["channels"], summary="List the channels of this peer", responses=problems(Busy))
async def list_channels(request: Request) -> models.ChannelList:
    """Names every channel, also one that stopped or did not open, with the reason."""
    node: NodeView = request.app.state.node
    summaries = await request.app.state.reads.run(node.channels)
    return models.ChannelList(channels=[views.channel_item(summary) for summary in summaries])


@router.get(
    "/v1/channels/{channel}",
    tags=["channels"],
    summary="Show a channel",
    responses=problems(NotFound, ChannelStopped, Busy),
)
async def show_channel(asked: AskedChannel) -> models.ChannelInfo:
    """Height, hashes as of the last block, checkpoints, and the pruning policy in effect.

    Pruning changes neither height nor hashes. Where nothing is pruned, `pruning.reason` says why.
    """

    def read() -> models.ChannelInfo:
        ledger = asked.channel.ledger
        last = ledger.vblock(BlockNumber(ledger.height - 1))
        return views.channel_info(asked.channel_id, last, ledger.first_block, ledger.joined_at, asked.channel.status())

    return await asked.read(read)


@router.get(
    "/v1/channels/{channel}/blocks/{number}",
    tags=["blocks"],
    summary="Show a block",
    response_model=models.BlockAnswer,
    responses=bytes_or_json() | problems(NotFound, Pruned, BeforeJoining, ChannelStopped, Busy),
)
async def show_block(asked: AskedChannel, number: BlockPath, format: Format = None, accept: Accept = "") -> Response:
    """The block as the ordering service delivered it, with this peer's verdicts (metadata slots 2 and 4).

    As protobuf it is the serialized `common.Block`, byte for byte. Blocks at or below the prune point answer "pruned".
    """
    block_number = BlockNumber(number)
    if wants_bytes(format, accept):
        return Response(await asked.read(lambda: asked.channel.ledger.block_bytes(block_number)), media_type=OCTETS)
    return await asked.written(lambda: rendered_block(asked.channel, block_number))


def rendered_block(channel: ChannelView, number: BlockNumber) -> models.BlockAnswer:
    """Read a block and show it, with the reason beside each invalid transaction."""
    block: dict[str, Any] = render_block(decode_block(channel.ledger.block_bytes(number)))
    faults = channel.faults(number)
    for transaction in block["transactions"]:
        if TxIndex(transaction["index"]) in faults:
            transaction |= views.fault_fields(faults, transaction["index"])
    return models.BlockAnswer.model_validate(block)


@router.get(
    "/v1/channels/{channel}/vblocks/{number}",
    tags=["blocks"],
    summary="Show a vBlock",
    response_model=models.VBlockAnswer,
    responses=problems(NotFound, ChannelStopped, Busy),
)
async def show_vblock(
    asked: AskedChannel,
    number: BlockPath,
    transactions: Annotated[bool, Query(description="Whether to show the valid transactions.")] = True,
) -> Response:
    """What the validated ledger keeps of a block: its valid transactions, and a stub for each invalid one.

    Pruning never changes a vBlock. On a peer that joined from a later checkpoint, `envelopes` says that its valid
    transactions are not here: the leaves are all there is.
    """

    def read() -> models.VBlockAnswer:
        vblock = asked.channel.ledger.vblock(BlockNumber(number))
        return views.vblock_answer(vblock, asked.channel.faults(vblock.header.number), with_transactions=transactions)

    return await asked.written(read)
