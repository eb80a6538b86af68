"""Does this peer put its name to what a proposal would do?  Checks, simulation, signature.

Source: fabric core/endorser/endorser.go. In order, each with the error that Fabric's endorser gives:

1. the proposal decodes, the client's certificate has not expired, the time is about now;
2. this peer is in its channel (a response of status 500, not an error), and the channel has not stopped;
3. header, transaction id, identity and signature are good;
4. no transaction of that id is in the ledger;
5. the client may propose (`peer/Propose`), where what is called is not built in;
6. the chaincode is simulated; from here on failures are responses of status 500.

Below status 400 the result is signed. The same proposal on the same state gives the same bytes on every peer.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Protocol

from ledger.chaincode.runtime import BUILT_IN
from ledger.chaincode.values import SimulationResult, Timestamp, TransactionContext
from ledger.core.access import PROPOSE, check_identity_access
from ledger.core.certificates import parse_pem
from ledger.core.channel_config import Bundle
from ledger.core.errors import ChannelStopped, InvalidIdentity, InvalidProposal, MalformedMessage, SimulationFailed
from ledger.core.identity import Identity, MspManager
from ledger.core.ports import LedgerReader, Signer
from ledger.core.proposal import VALIDATING, Proposal, ProposalAnswer, check_header, check_time
from ledger.core.transaction import Endorsement
from ledger.wire.codec import CODEC
from ledger.wire.proposal import encode_result, read_proposal

FAILED = 500
"""Status of a response without a chaincode's answer."""


class EndorsingChannel(Protocol):
    """A channel that proposals are simulated on."""

    @property
    def bundle(self) -> Bundle:
        """The configuration in force."""
        ...

    @property
    def ledger(self) -> LedgerReader:
        """The ledger."""
        ...

    @property
    def stopped_because(self) -> str:
        """Why nothing is committed any more; empty while it is."""
        ...


class Simulates(Protocol):
    """Runs chaincodes; `chaincode.runtime.Runtime`."""

    def simulate(
        self, chaincode: str, transaction: TransactionContext, ledger: LedgerReader | None
    ) -> SimulationResult:
        """Simulate one proposal; raises `SimulationFailed`, `StorageFailed`, `Busy`."""
        ...


class Endorser:
    """Endorses proposals for one peer.  Safe to use from several threads; `process` blocks while a chaincode runs.

    Args:
        signer: The peer's identity.
        channels: Its channels by name; read at each call.
        runtime: Runs chaincodes.
        now: The clock.
        local_msps: Knows the peer's own organisation alone: who may call without a channel.
    """

    def __init__(
        self,
        signer: Signer,
        channels: Mapping[str, EndorsingChannel],
        runtime: Simulates,
        now: Callable[[], datetime],
        local_msps: MspManager,
    ) -> None:
        """Take the parts."""
        self._signer = signer
        self._channels = channels
        self._runtime = runtime
        self._now = now
        self._local_msps = local_msps

    def process(self, signed: bytes, signature: bytes) -> ProposalAnswer:
        """Answer a proposal.

        Args:
            signed: Serialized Proposal.
            signature: The client's signature over it.

        Raises:
            InvalidProposal: It is refused (1, 3, 4); the subject is the text for the client.
            Forbidden: The client may not propose (5).
            ChannelStopped: The channel endorses nothing any more.
            StorageFailed: The state could not be read.
            Busy: All contract workers were busy for too long.
        """
        proposal = read_proposal(signed, signature)
        now = self._now()
        check_expiry(proposal, now)
        check_time(proposal, now)
        channel = self._channels.get(proposal.channel_id)
        if proposal.channel_id and channel is None:
            return ProposalAnswer(FAILED, f"channel '{proposal.channel_id}' not found")
        if channel is not None and channel.stopped_because:
            raise ChannelStopped(f"channel {proposal.channel_id} endorses nothing: {channel.stopped_because}")
        check_header(proposal)
        identity = check_creator(proposal, self._local_msps if channel is None else channel.bundle.msps)
        if channel is not None:
            if channel.ledger.places(proposal.tx_id):
                raise InvalidProposal(
                    f"duplicate transaction found [{proposal.tx_id}]. Creator [{proposal.creator.hex()}]",
                    rule="transaction id used already", expected="a new one", found=proposal.tx_id,
                )  # fmt: skip
            if proposal.chaincode not in BUILT_IN:
                check_identity_access(channel.bundle, PROPOSE, identity)
        return self._simulate(proposal, channel)

    def _simulate(self, proposal: Proposal, channel: EndorsingChannel | None) -> ProposalAnswer:
        """Run the chaincode and sign what came of it (6)."""
        ledger = None if channel is None else channel.ledger
        try:
            result = self._runtime.simulate(proposal.chaincode, context_of(proposal), ledger)
        except SimulationFailed as error:
            return ProposalAnswer(FAILED, str(error))
        response = result.response
        answer = ProposalAnswer(response.status, response.message, response.payload)
        if ledger is None or 400 <= response.status < FAILED:
            return answer
        event = None if result.event is None else (result.event.name, result.event.payload)
        payload = encode_result(
            proposal, results=result.results, event=event,
            response=(response.status, response.message, response.payload), version=result.version,
        )  # fmt: skip
        endorsement = None
        if response.endorsable:
            endorser = self._signer.serialized
            endorsement = Endorsement(endorser, self._signer.sign(payload + endorser))
        return ProposalAnswer(
            response.status, response.message, response.payload, payload, endorsement, result.namespaces
        )


def check_expiry(proposal: Proposal, now: datetime) -> None:
    """Check that the creator's certificate has not expired, whoever issued it; what is none is refused later.

    Raises:
        InvalidProposal: It has.
    """
    end = end_of_validity(proposal.creator)
    if end is not None and end < now:
        raise InvalidProposal(
            "proposal client identity expired", rule="creator certificate", expected=f"one that is valid at {now}",
            found=f"valid until {end}",
        )  # fmt: skip


@lru_cache(1_000)
def end_of_validity(creator: bytes) -> datetime | None:
    """Give the end of an identity's certificate; None if there is no certificate in it."""
    try:
        return parse_pem(CODEC.serialized_identity(creator)[1]).not_after
    except (InvalidIdentity, MalformedMessage):
        return None


def check_creator(proposal: Proposal, msps: MspManager) -> Identity:
    """Check who proposes, and that it is they.

    Raises:
        InvalidProposal: The identity is of no organisation of the channel or invalid, or the signature is bad.
    """
    where = f"channel [{proposal.channel_id}]"
    try:
        identity = msps.deserialize(proposal.creator)
    except InvalidIdentity as error:
        raise InvalidProposal(
            f"{VALIDATING}access denied: {where} creator org unknown, creator is malformed", rule="creator identity",
            expected=error.expected, found=error.found,
        ) from error  # fmt: skip
    text = f"{VALIDATING}access denied: {where} creator org [{identity.msp_id}]"
    try:
        msps.validate(identity)
    except InvalidIdentity as error:
        raise InvalidProposal(text, rule=error.rule, expected=error.expected, found=error.found) from error
    if not identity.verify(proposal.signed, proposal.signature):
        raise InvalidProposal(text, rule="creator signature", expected="one of the creator", found=proposal.signature)
    return identity


def context_of(proposal: Proposal) -> TransactionContext:
    """Give a chaincode what it may know of a proposal."""
    return TransactionContext(
        tx_id=proposal.tx_id,
        channel_id=proposal.channel_id,
        creator=proposal.creator,
        timestamp=Timestamp(*(proposal.timestamp or (0, 0))),
        args=proposal.args,
        transient=proposal.transient,
        is_init=proposal.is_init,
        proposal=proposal.signed,
        signature=proposal.signature,
    )
