"""Is a checkpoint fresh?  The orderers are asked: those of the settings, and those that the config trail names.

Each orderer that answers is judged by what it can show, not by what it says:

1. Its newest block is signed, and not below the checkpoint.
2. A newer configuration than the trail's is believed if the config block is shown and follows from it.
3. It still delivers the block behind the checkpoint, signed, and that names the checkpoint's block before it.

One orderer that passes is enough: what it shows was signed. A newer configuration that is shown refuses the checkpoint
whatever the others say. An orderer that answers what can't be counts as one that did not answer.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.client.orderer import OrdererClient
from ledger.core.block import Block, block_hash
from ledger.core.channel_config import Bundle
from ledger.core.errors import InvalidBlock, LedgerError, PeerUnreachable, Refused
from ledger.core.names import BlockNumber, ChannelId
from ledger.core.orderer_signatures import check_orderer_signatures
from ledger.core.ports import Signer
from ledger.node.rules import check_block
from ledger.wire.block import decode_block
from ledger.wire.codec import CODEC
from ledger.wire.config import config_payload, next_bundle
from ledger.wire.orderer_metadata import orderer_metadata

log = logging.getLogger("peerledger.join")

ORDERER_TIMEOUT_S = 5.0
"""How long one orderer may take for everything."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """What is joined from, as the trail and the sources have it."""

    channel_id: ChannelId
    block: Block
    """The block at the checkpoint."""

    last_config: BlockNumber
    """The last config block of the trail."""

    before: Bundle
    """The configuration before the checkpoint's block."""

    after: Bundle
    """The configuration after it."""


NEWER = "newer configuration"


class NotFresh(Refused):
    """A checkpoint that the orderers have gone beyond."""


async def newest_height(anchor: Anchor, orderers: Sequence[OrdererClient], signer: Signer) -> tuple[int, list[str]]:
    """Ask all orderers.

    Returns:
        The number of the newest block that one of them showed, -1 if none showed any; and why the others did not count.

    Raises:
        NotFresh: There is a newer configuration; or of those that answered none can deliver what follows.
    """
    tasks = [_asked(anchor, orderer, signer) for orderer in orderers]
    found = await asyncio.gather(*tasks)
    newest = [one for one in found if isinstance(one, int)]
    failures = [one for one in found if isinstance(one, LedgerError)]
    refusals = [one for one in failures if isinstance(one, NotFresh)]
    for refusal in refusals:
        if not newest or refusal.rule == NEWER:
            raise refusal
    return max(newest, default=-1), [str(one) for one in failures]


async def _asked(anchor: Anchor, orderer: OrdererClient, signer: Signer) -> int | LedgerError:
    """Ask one orderer; give its newest height, or why it does not count."""
    try:
        async with asyncio.timeout(ORDERER_TIMEOUT_S):
            return await _ask(anchor, orderer, signer)
    except TimeoutError:
        failure: LedgerError = PeerUnreachable(f"orderer {orderer.address}: no answer within {ORDERER_TIMEOUT_S:.0f} s")
    except LedgerError as error:
        failure = error
    log.info("orderer_does_not_count", extra={"orderer": orderer.address, "reason": str(failure)})
    return failure


async def _ask(anchor: Anchor, orderer: OrdererClient, signer: Signer) -> int:
    number = anchor.block.number
    subject = f"checkpoint {number}, by orderer {orderer.address}"

    # 1.
    newest = decode_block(await orderer.newest_block(anchor.channel_id, signer))
    if newest.number < number:
        raise NotFresh(subject, rule="freshness", expected=f"an orderer that has block {number}",
                       found=f"its newest is {newest.number}")  # fmt: skip
    metadata = orderer_metadata(newest, anchor.after)

    # 2.
    if metadata.last_config > anchor.last_config:
        config = decode_block(await orderer.block(anchor.channel_id, signer, metadata.last_config))
        try:
            _check_follows(config, anchor, metadata.last_config)
        except Refused as error:  # There may be several since: then only another orderer can make up for this.
            raise NotFresh(subject, rule="freshness", expected=f"no config block after {anchor.last_config}",
                           found=error) from error  # fmt: skip
        raise NotFresh(
            subject, rule=NEWER, expected=f"none after block {anchor.last_config}",
            found=f"config block {config.number}; join once a checkpoint above it is valid",
        )  # fmt: skip
    _check_signed(newest, anchor)
    if newest.number == number:
        if block_hash(newest) != block_hash(anchor.block):
            raise NotFresh(subject, rule="same chain", expected=block_hash(anchor.block), found=block_hash(newest))
        return newest.number

    # 3.
    try:
        following = decode_block(await orderer.block(anchor.channel_id, signer, number + 1))
    except PeerUnreachable as error:
        raise NotFresh(subject, rule="freshness", expected=f"an orderer that delivers block {number + 1}",
                       found=error) from error  # fmt: skip
    _check_signed(following, anchor)
    expected, named = block_hash(anchor.block), following.header.previous_hash
    if following.number != number + 1 or named != expected:
        raise NotFresh(subject, rule="same chain", expected=expected, found=named)
    return newest.number


def _check_signed(block: Block, anchor: Anchor) -> None:
    """Check an orderer's block; raises `InvalidBlock`."""
    check_block(block)
    bundle = anchor.before if block.number == anchor.block.number else anchor.after
    check_orderer_signatures(block, orderer_metadata(block, bundle), bundle)


def _check_follows(config: Block, anchor: Anchor, number: BlockNumber) -> None:
    """Check that a block is a config block behind the trail.

    Raises:
        InvalidBlock, InvalidConfig: It is none.
    """
    check_block(config)
    if config.number != number:
        raise InvalidBlock(f"config block {number}", rule="block number", expected=number, found=config.number)
    check_orderer_signatures(config, orderer_metadata(config, anchor.after), anchor.after)
    next_bundle(anchor.after, config_payload(config.envelopes[0])[1], CODEC)


__all__ = ["Anchor", "NotFresh", "newest_height"]
