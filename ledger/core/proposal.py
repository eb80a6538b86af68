"""What does a client propose, is it fit to be simulated, and what does an endorser answer?  Values and rules.

Source: fabric core/endorser/msgvalidation.go and endorser.go. A refusal's `subject` is the text that Fabric's endorser
sends, so that clients which look at it find what they know.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from ledger.core.errors import InvalidProposal, shown
from ledger.core.hashing import transaction_id
from ledger.core.names import TxId
from ledger.core.transaction import CONFIG, ENDORSER_TRANSACTION, Endorsement

TIME_WINDOW_S = 15 * 60
"""How far a proposal's time may be from the endorser's clock."""

VALIDATING = "error validating proposal: "

TYPE_NAMES = {
    0: "MESSAGE",
    1: "CONFIG",
    2: "CONFIG_UPDATE",
    3: "ENDORSER_TRANSACTION",
    4: "ORDERER_TRANSACTION",
    5: "DELIVER_SEEK_INFO",
    6: "CHAINCODE_PACKAGE",
}
"""Header types as Fabric's messages name them."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A SignedProposal, taken apart."""

    kind: int
    """Header type."""

    channel_id: str
    """Channel; "" for a call without channel."""

    epoch: int
    tx_id: TxId
    """Id that the header claims."""

    timestamp: tuple[int, int] | None
    """Seconds since 1970 and nanoseconds, as the client wrote them."""

    creator: bytes
    """SerializedIdentity of the client."""

    nonce: bytes
    chaincode: str
    """Name in the header's extension: what is called."""

    args: tuple[bytes, ...]
    """Function name and parameters."""

    transient: Mapping[str, bytes]
    """Data for the chaincode's eyes only."""

    is_init: bool
    channel_header: bytes
    """ChannelHeader as received."""

    signature_header: bytes
    """SignatureHeader as received."""

    payload: bytes
    """ChaincodeProposalPayload without the transient data: what goes into the transaction."""

    signed: bytes
    """Serialized Proposal: what the client signed."""

    signature: bytes

    @property
    def hash(self) -> bytes:
        """Give the proposal hash, which the endorsers sign and every peer checks at commit."""
        return sha256(self.channel_header + self.signature_header + self.payload).digest()


@dataclass(frozen=True, slots=True)
class ProposalAnswer:
    """A ProposalResponse, taken apart."""

    status: int
    """The chaincode's status, or 500 if there is no response of a chaincode."""

    message: str = ""
    payload: bytes = b""
    """What the chaincode returned."""

    response_payload: bytes = b""
    """ProposalResponsePayload: what is endorsed; empty where there is no result."""

    endorsement: Endorsement | None = None
    namespaces: tuple[str, ...] = ()
    """Chaincodes whose state was touched, built-in ones excepted."""

    @property
    def is_success(self) -> bool:
        """Whether clients take it for a success."""
        return 200 <= self.status < 400


def check_header(proposal: Proposal) -> None:
    """Check the headers of a proposal.

    1. type; 2. epoch; 3. nonce; 4. creator; 5. transaction id; 6. there is a signature.

    Raises:
        InvalidProposal: A rule is broken.
    """
    if proposal.kind not in (ENDORSER_TRANSACTION, CONFIG):
        name = TYPE_NAMES.get(proposal.kind, str(proposal.kind))
        raise InvalidProposal(
            f"{VALIDATING}invalid header type {name}", rule="header type", expected="ENDORSER_TRANSACTION", found=name
        )
    if proposal.epoch != 0:
        raise InvalidProposal(f"{VALIDATING}epoch is non-zero", rule="epoch", expected=0, found=proposal.epoch)
    if not proposal.nonce:
        raise InvalidProposal(f"{VALIDATING}nonce is empty", rule="nonce", expected="some bytes", found="none")
    if not proposal.creator:
        raise InvalidProposal(f"{VALIDATING}creator is empty", rule="creator", expected="an identity", found="none")
    computed = transaction_id(proposal.nonce, proposal.creator)
    if proposal.tx_id != computed:
        raise InvalidProposal(
            f"{VALIDATING}incorrectly computed txid '{shown(proposal.tx_id)}' -- expected '{computed}'",
            rule="transaction id", expected=computed, found=proposal.tx_id,
        )  # fmt: skip
    if not proposal.signature:
        raise InvalidProposal(f"{VALIDATING}empty signature bytes", rule="signature", expected="one", found="none")


def check_time(proposal: Proposal, now: datetime) -> None:
    """Check that a proposal was made at about this time.

    Args:
        proposal: The proposal; one without time was made in 1970.
        now: The endorser's clock.

    Raises:
        InvalidProposal: Its time is too far from now.
    """
    seconds, nanos = proposal.timestamp or (0, 0)
    if abs(seconds + nanos / 1e9 - now.timestamp()) > TIME_WINDOW_S:
        claimed, ours = written_as_go(seconds), written_as_go(int(now.timestamp()))
        raise InvalidProposal(
            f"request unauthorized due to incorrect timestamp {claimed}, peer time {ours}, "
            f"peer.authentication.timewindow {TIME_WINDOW_S // 60}m0s",
            rule="time window", expected=f"within {TIME_WINDOW_S} s of {ours}", found=claimed,
        )  # fmt: skip


def written_as_go(seconds: int) -> str:
    """Write seconds since 1970 as Go prints a time; as they are, where no calendar reaches."""
    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S} +0000 UTC"
    except OverflowError:
        return f"{seconds} s after 1970"


__all__ = ["Proposal", "ProposalAnswer", "check_header", "check_time"]
