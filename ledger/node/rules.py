"""How does this node decode and judge blocks?  The rules of `core` with the decoders of `wire`, put together."""

from concurrent.futures import Executor
from functools import partial

from ledger.core.block import Block, check_slots
from ledger.core.channel_config import Bundle
from ledger.core.definitions import Definitions, Unusable
from ledger.core.endorsement import Policies
from ledger.core.errors import InvalidBlock, InvalidConfig
from ledger.core.orderer_signatures import check_orderer_signatures
from ledger.core.outcome import Outcome
from ledger.core.policy.ast import ApplicationPolicy
from ledger.core.state import CONFIG_KEY, StateView, public_key
from ledger.services.committer import Rules
from ledger.wire.block import check_well_formed, decode_block, is_config_block
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_block, bundle_from_envelope, next_bundle
from ledger.wire.judging import make_transition
from ledger.wire.lifecycle import decode_definition
from ledger.wire.orderer_metadata import orderer_metadata


def make_rules(workers: Executor | None) -> Rules:
    """Put the rules of one channel together.

    Args:
        workers: Threads that share the signature checks of one block; not the pool that prepares blocks.
    """
    transition = make_transition(CODEC, lambda bundle, config: next_bundle(bundle, config, CODEC))
    return Rules(
        decode=decode_block,
        check_well_formed=check_block,
        check_signatures=check_signatures,
        prepare=lambda block, bundle: transition.prepare(block, bundle, workers),
        judge=transition.judge,
        bundle_after=bundle_after,
        is_config=is_config_block,
    )


def check_block(block: Block) -> None:
    """Check what can be checked of a block by itself: its metadata slots, its envelopes' form and its data hash.

    Raises:
        InvalidBlock: A rule is broken.
    """
    if block.number > 0:  # The genesis block comes from a file, not from an orderer.
        check_slots(block)
    check_well_formed(block)


def check_signatures(block: Block, bundle: Bundle) -> None:
    """Check a block's orderer signatures under the configuration before it; raises `InvalidBlock`."""
    check_orderer_signatures(block, orderer_metadata(block, bundle), bundle)


def bundle_after(outcome: Outcome, bundle: Bundle) -> Bundle:
    """Give the configuration in force after a block."""
    entry = outcome.updates.get(public_key("", CONFIG_KEY))
    return bundle if entry is None else bundle_from_envelope(entry.value, CODEC, bundle.channel_id)


def endorsement_policy(view: StateView, bundle: Bundle, chaincode: str) -> ApplicationPolicy | None:
    """Give the endorsement policy of a committed definition, as blocks are judged by; None if there is none to use."""
    definition = Definitions(view.get, partial(decode_definition, codec=CODEC)).usable(chaincode)
    if isinstance(definition, Unusable):
        return None
    policies = Policies(bundle, CODEC)
    return policies.decoded(policies.of_chaincode(chaincode, definition))


def genesis_bundle(genesis: bytes) -> Bundle:
    """Make the configuration of a genesis block.

    Raises:
        InvalidBlock: It is no genesis block, or its configuration can't be used.
    """
    block = decode_block(genesis)
    if block.number != 0:
        raise InvalidBlock("genesis block", rule="block number", expected=0, found=block.number)
    check_block(block)
    try:
        return bundle_from_block(block, CODEC)
    except InvalidConfig as error:
        raise InvalidBlock(
            "genesis block", rule=f"configuration: {error.rule}", expected=error.expected, found=error.found
        ) from error
