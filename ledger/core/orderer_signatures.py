"""Did the channel's orderers sign this block?  Their signature set against the policy `BlockValidation`.

Source: fabric protoutil/blockutils.go. The genesis block carries no signature; whoever joined the peer trusts it.
"""

from dataclasses import dataclass

from ledger.core.block import Block
from ledger.core.channel_config import Bundle
from ledger.core.errors import InvalidBlock, PolicyNotSatisfied
from ledger.core.names import BlockNumber
from ledger.core.policy.evaluate import SignedData

BLOCK_VALIDATION = "/Channel/Orderer/BlockValidation"


@dataclass(frozen=True, slots=True)
class OrdererMetadata:
    """What the orderers wrote into metadata slot 0."""

    last_config: BlockNumber
    """Number of the newest config block at or below this one, as the orderer says."""

    signed: tuple[SignedData, ...]
    """The signature set, each with what it is over."""


def check_orderer_signatures(block: Block, metadata: OrdererMetadata, bundle: Bundle) -> None:
    """Check a block's orderer signatures under the configuration before it.

    Raises:
        InvalidBlock: They don't satisfy the policy.
    """
    try:
        bundle.check(BLOCK_VALIDATION, metadata.signed)
    except PolicyNotSatisfied as error:
        raise InvalidBlock(
            f"block {block.number}", rule="orderer signatures", expected=f"{BLOCK_VALIDATION}: {error.expected}",
            found=error.found,
        ) from error  # fmt: skip


def check_last_config(block: Block, metadata: OrdererMetadata, last_config: BlockNumber) -> None:
    """Check the index of the last config block that a block names.

    Whoever joins at a block asks for it: the configuration must be the one that the orderers signed with the block. A
    peer that commits every block knows its configuration, and no more than Fabric's does it look here.

    Args:
        block: The block.
        metadata: Its slot 0.
        last_config: Number of the newest config block at or below it, as this peer knows it.

    Raises:
        InvalidBlock: It names another.
    """
    if metadata.last_config != last_config:
        raise InvalidBlock(
            f"block {block.number}", rule="last config index", expected=last_config, found=metadata.last_config
        )
