"""What is in a transaction, and what is wrong with it before any state is asked?

Values that `wire.transaction` makes of an envelope. They keep the original bytes of all that is signed or hashed.
A transaction that can't be valid carries its first fault, as data, with the stage at which Fabric would find it: stages
stand between the checks that need identities or state, so that the verdict is always that of the first check in
Fabric's order.
"""

from dataclasses import dataclass
from enum import IntEnum

from ledger.core.errors import Fault
from ledger.core.names import TxId
from ledger.core.rwset import ReadWriteSet

CONFIG = 1
"""Header type of a channel configuration."""

CONFIG_UPDATE = 2
"""Header type of a request to change it, which has no place in a block."""

ENDORSER_TRANSACTION = 3
"""Header type of an endorsed transaction."""


class Stage(IntEnum):
    """Between which checks a fault of the bytes is found."""

    HEADER = 0
    """Before the creator's signature is checked."""

    BODY = 1
    """After it, before the ledger is asked for the transaction id."""

    CHAINCODE = 2
    """After that, before any policy is evaluated."""


@dataclass(frozen=True, slots=True)
class Endorsement:
    """One endorser's signature, over the proposal response payload followed by the endorser."""

    endorser: bytes
    """SerializedIdentity."""

    signature: bytes


@dataclass(frozen=True, slots=True)
class Event:
    """The event that a transaction sets."""

    chaincode: str
    tx_id: str
    name: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Action:
    """The action of an endorser transaction: what was called, what it did, who vouches for it."""

    chaincode: str
    """The chaincode invoked; header and action agree on it."""

    version: str
    """Version that the endorsers claim; never compared with the definition."""

    rwset: ReadWriteSet
    event: Event | None
    response_payload: bytes
    """ProposalResponsePayload as received: what endorsers signed."""

    endorsements: tuple[Endorsement, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One envelope of a block, taken apart."""

    tx_id: TxId
    """Claimed id as Fabric indexes it: that of the header; if empty, computed; "" if it can't be decoded."""

    kind: int
    """Header type; -1 if there is none to be decoded."""

    channel_id: str
    """Channel that the header names."""

    payload: bytes
    """Payload bytes: what the creator signed."""

    signature: bytes
    creator: bytes
    """SerializedIdentity of the creator."""

    config: bytes
    """ConfigEnvelope of a CONFIG transaction, as received; else empty."""

    action: Action | None
    """The action, if the envelope is an endorser transaction without fault."""

    fault: Fault | None = None
    """First fault of the bytes in Fabric's order of checks."""

    stage: Stage = Stage.HEADER
    """Where that fault is found."""


__all__ = [
    "CONFIG",
    "CONFIG_UPDATE",
    "ENDORSER_TRANSACTION",
    "Action",
    "Endorsement",
    "Event",
    "Stage",
    "Transaction",
]
