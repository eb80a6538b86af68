"""What goes into a simulation, and what comes out?  The values that endorser, runtime and contracts exchange."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ledger.core.names import TxId

STATUS_OK = 200
"""Status of a response that a contract gives when nothing else is said."""

STATUS_ERROR = 500
"""Status of a response that a contract gives for a failure."""

ENDORSED_STATUS_BOUND = 400
"""A response with a status below this is endorsed."""

SYSTEM_VERSION = "syscc"
"""Version that a built-in chaincode has in results."""


class Timestamp(NamedTuple):
    """A time as the client put it into the channel header."""

    seconds: int
    nanos: int = 0


@dataclass(frozen=True, slots=True)
class TransactionContext:
    """One proposal, checked and taken apart: what a chaincode may know of the transaction that it runs for."""

    tx_id: TxId
    """Transaction id of the proposal."""

    channel_id: str
    """Channel of the proposal; "" for a call without channel."""

    creator: bytes
    """SerializedIdentity of the client, as in the signature header."""

    timestamp: Timestamp
    """Time in the channel header."""

    args: tuple[bytes, ...]
    """Function name and parameters."""

    transient: Mapping[str, bytes] = field(default_factory=dict)
    """Data for the chaincode's eyes only; never part of the transaction."""

    is_init: bool = False
    """Whether the client calls the chaincode's initialisation."""

    proposal: bytes = b""
    """Serialized Proposal, as signed."""

    signature: bytes = b""
    """The client's signature over it, for access checks that a built-in chaincode asks for."""


@dataclass(frozen=True, slots=True)
class ChaincodeEvent:
    """What a chaincode announces; only the outermost chaincode's last event counts."""

    name: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class ChaincodeResponse:
    """What a chaincode answers."""

    status: int
    """Below 400 it is endorsed; 500 and above is a failure."""

    message: str = ""
    payload: bytes = b""
    event: ChaincodeEvent | None = None
    """Set for statuses below 400 only."""

    @property
    def endorsable(self) -> bool:
        """Whether an endorser signs a result with this response."""
        return self.status < ENDORSED_STATUS_BOUND


class KeyModification(NamedTuple):
    """One past change of a key, as a history query tells it."""

    tx_id: str
    value: bytes
    timestamp: Timestamp
    is_delete: bool


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Everything that an endorser needs for its answer."""

    response: ChaincodeResponse
    """Full response of the chaincode; the result rules of the endorser service go by its status."""

    results: bytes
    """Serialized TxReadWriteSet; empty for a call without channel or a built-in query."""

    chaincode: str
    """Name of the chaincode that was invoked: `ChaincodeAction.chaincode_id.name`."""

    version: str
    """Version of the committed definition, `syscc` for a built-in one: `ChaincodeAction.chaincode_id.version`."""

    namespaces: tuple[str, ...] = ()
    """Chaincodes whose state was touched, without built-in ones, ascending: for an endorser's `interest`."""

    @property
    def event(self) -> ChaincodeEvent | None:
        """Event to endorse, if any."""
        return self.response.event


def failure(message: str, status: int = STATUS_ERROR) -> ChaincodeResponse:
    """Make a failing response."""
    return ChaincodeResponse(status, message)
