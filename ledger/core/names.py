"""What are the quantities called?  The types that give each plain number, text and byte string its meaning.

The words are those of section 2 of the design: block, verdict, stub, version, checkpoint, prune point.
"""

from enum import IntEnum
from typing import NewType

BlockNumber = NewType("BlockNumber", int)
"""Number of a block in its channel; the genesis block is 0."""

TxIndex = NewType("TxIndex", int)
"""Index of a transaction in its *ordered* block, never renumbered."""

Digest = NewType("Digest", bytes)
"""A SHA-256 digest, 32 bytes."""

ChannelId = NewType("ChannelId", str)
"""Name of a channel, `[a-z][a-z0-9.-]*`, at most 249 characters."""

TxId = NewType("TxId", str)
"""A *claimed* transaction id as Fabric indexes it; "" means that there is none that could be indexed."""

MspId = NewType("MspId", str)
"""Name of a membership service provider, that is, of an organisation in signatures."""

NEVER = 2**64 - 1
"""The expiry block of an entry that never expires."""

ZERO_DIGEST = Digest(bytes(32))
"""32 zero bytes: the vBlock hash before block 0, the hash of an empty subtree of the state tree."""


class Verdict(IntEnum):
    """Fabric's TxValidationCode: what a committer said of one transaction (fabric-protos, transaction.proto)."""

    VALID = 0
    NIL_ENVELOPE = 1
    BAD_PAYLOAD = 2
    BAD_COMMON_HEADER = 3
    BAD_CREATOR_SIGNATURE = 4
    INVALID_ENDORSER_TRANSACTION = 5
    INVALID_CONFIG_TRANSACTION = 6
    UNSUPPORTED_TX_PAYLOAD = 7
    BAD_PROPOSAL_TXID = 8
    DUPLICATE_TXID = 9
    ENDORSEMENT_POLICY_FAILURE = 10
    MVCC_READ_CONFLICT = 11
    PHANTOM_READ_CONFLICT = 12
    UNKNOWN_TX_TYPE = 13
    TARGET_CHAIN_NOT_FOUND = 14
    MARSHAL_TX_ERROR = 15
    NIL_TXACTION = 16
    EXPIRED_CHAINCODE = 17
    CHAINCODE_VERSION_CONFLICT = 18
    BAD_HEADER_EXTENSION = 19
    BAD_CHANNEL_HEADER = 20
    BAD_RESPONSE_PAYLOAD = 21
    BAD_RWSET = 22
    ILLEGAL_WRITESET = 23
    INVALID_WRITESET = 24
    INVALID_CHAINCODE = 25
    NOT_VALIDATED = 254
    INVALID_OTHER_REASON = 255


def verdict_name(code: int) -> str:
    """Give the name of a validation code, or the number itself for a code that Fabric does not know."""
    try:
        return Verdict(code).name
    except ValueError:
        return str(code)
