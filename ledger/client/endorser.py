"""How does one peer ask another to endorse?  `protos.Endorser` over TLS; any peer of Fabric's answers as well."""

import grpc

from ledger.client.tls import ClientTls, open_channel
from ledger.core.errors import InvalidProposal, MalformedMessage, PeerUnreachable
from ledger.core.proposal import ProposalAnswer
from ledger.wire.proposal import decode_answer, encode_signed_proposal

METHOD = "/protos.Endorser/ProcessProposal"

REFUSAL = grpc.StatusCode.UNKNOWN
"""Code of a proposal that breaks a rule, Go's for any error; after another one, another peer may answer."""


class RemoteEndorser:
    """Another peer, to be asked for endorsements.

    Args:
        name: Its name, for people.
        msp_id: Its organisation.
        address: host:port.
        tls: Whom to trust.
    """

    def __init__(self, name: str, msp_id: str, address: str, tls: ClientTls | None) -> None:
        """Open the connection lazily."""
        self.name = name
        self.msp_id = msp_id
        self.address = address
        self._channel = open_channel(address, tls)
        # Bytes in, bytes out: proposals are passed on as they came.
        self._call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(METHOD)

    async def endorse(self, signed: bytes, signature: bytes, timeout_s: float) -> ProposalAnswer:
        """Ask for an endorsement.

        Args:
            signed: Serialized Proposal.
            signature: The client's signature over it.
            timeout_s: How long to wait.

        Raises:
            PeerUnreachable: It did not answer, or not with a ProposalResponse.
            InvalidProposal: It refused the proposal; the subject is its text.
        """
        try:
            data = await self._call(encode_signed_proposal(signed, signature), timeout=timeout_s)
            return decode_answer(data)
        except grpc.aio.AioRpcError as error:
            text = error.details() or error.code().name
            if error.code() != REFUSAL:
                raise PeerUnreachable(f"peer {self.name}: {error.code().name}: {text}") from error
            raise InvalidProposal(text, rule="endorser's refusal", found=error.code().name) from error
        except MalformedMessage as error:
            raise PeerUnreachable(f"peer {self.name}: {error}") from error

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()
