"""What did the orderers write into a block's metadata?  Slot 0 with its signatures, in the Raft and in the BFT form.

Raft signs `value | signature header | DER(header)`; BFT has no signature header but an identifier, which names a
consenter of the channel configuration, and signs `value | identifier header | DER(header)`.
"""

from typing import Any

from fabric_protos.common import common_pb2

from ledger.core.block import SLOT_SIGNATURES, Block, check_slots
from ledger.core.channel_config import Bundle
from ledger.core.errors import InvalidBlock, MalformedMessage
from ledger.core.hashing import header_der
from ledger.core.names import BlockNumber
from ledger.core.orderer_signatures import OrdererMetadata
from ledger.core.policy.evaluate import SignedData
from ledger.wire.codec import encode_identity
from ledger.wire.messages import parse


def metadata_value(slot: bytes) -> bytes:
    """Give the value of a metadata slot that holds a `Metadata` message; empty if it holds none.

    Raises:
        MalformedMessage: The slot does not decode.
    """
    return bytes(parse(common_pb2.Metadata, slot, "Metadata").value)


def commit_hash_slot(commit_hash: bytes) -> bytes:
    """Make metadata slot 4 of a commit hash; empty for none."""
    return bytes(common_pb2.Metadata(value=commit_hash).SerializeToString()) if commit_hash else b""


def orderer_metadata(block: Block, bundle: Bundle) -> OrdererMetadata:
    """Read slot 0 of a block.

    Args:
        block: The block.
        bundle: The configuration whose consenters a BFT identifier means.

    Raises:
        InvalidBlock: There are too few slots, or slot 0 does not decode.
    """
    subject = f"block {block.number}"
    check_slots(block)
    try:
        message = parse(common_pb2.Metadata, block.metadata[SLOT_SIGNATURES], "Metadata")
        inner = parse(common_pb2.OrdererBlockMetadata, message.value, "OrdererBlockMetadata")
        signed = [_signed(block, message.value, one, bundle) for one in message.signatures]
    except MalformedMessage as error:
        raise InvalidBlock(subject, rule="orderer metadata", expected="slot 0", found=error) from error
    return OrdererMetadata(BlockNumber(inner.last_config.index), tuple(one for one in signed if one is not None))


def _signed(block: Block, value: bytes, one: Any, bundle: Bundle) -> SignedData | None:
    """Make signed data of one signature; None for a BFT identifier that names nobody."""
    header = header_der(block.number, block.header.previous_hash, block.header.data_hash)
    if one.signature_header or not one.identifier_header or "V3_0" not in bundle.channel_capabilities:
        creator = parse(common_pb2.SignatureHeader, one.signature_header, "SignatureHeader").creator
        return SignedData(value + one.signature_header + header, creator, one.signature)
    identifier = parse(common_pb2.IdentifierHeader, one.identifier_header, "IdentifierHeader").identifier
    consenter = next((node for node in bundle.orderer.consenters if node.id == identifier), None)
    if consenter is None:
        return None
    identity = encode_identity(consenter.msp_id, consenter.identity)
    return SignedData(value + one.identifier_header + header, identity, one.signature)
