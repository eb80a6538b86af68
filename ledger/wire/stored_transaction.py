"""What did a transaction do that was judged valid before?  Its type and its read-write set, and nothing else of it.

Whoever applies stored blocks again asks no envelope for signatures, ids or hashes: all that was checked when the
transaction was judged. So this reads the few messages on the way to the read-write set, as `wire.transaction` does.
"""

from fabric_protos.common import common_pb2
from fabric_protos.peer import proposal_pb2, proposal_response_pb2, transaction_pb2

from ledger.core.errors import MalformedMessage
from ledger.core.names import TxId
from ledger.core.transaction import CONFIG, Action, Stage, Transaction
from ledger.wire.messages import parse
from ledger.wire.rwset import decode_rwset


def decode_stored(envelope: bytes, tx_id: TxId) -> Transaction:
    """Take an envelope apart whose transaction was judged valid; creator, endorsements and event are left out.

    Call it inside `messages.parsed_before`.

    Args:
        envelope: A serialized `common.Envelope`.
        tx_id: The transaction's id, which is known.

    Raises:
        MalformedMessage: It is no valid transaction.
    """
    payload = parse(common_pb2.Payload, parse(common_pb2.Envelope, envelope, "Envelope").payload, "Payload")
    kind = parse(common_pb2.ChannelHeader, payload.header.channel_header, "ChannelHeader").type
    if kind == CONFIG:
        return Transaction(tx_id, kind, "", b"", b"", b"", payload.data, None, None, Stage.HEADER)
    actions = parse(transaction_pb2.Transaction, payload.data, "Transaction").actions
    if len(actions) != 1:
        raise MalformedMessage("Transaction", rule="action count", expected=1, found=len(actions))
    endorsed = parse(transaction_pb2.ChaincodeActionPayload, actions[0].payload, "ChaincodeActionPayload").action
    response = parse(
        proposal_response_pb2.ProposalResponsePayload, endorsed.proposal_response_payload, "ProposalResponsePayload"
    )
    results = parse(proposal_pb2.ChaincodeAction, response.extension, "ChaincodeAction").results
    action = Action("", "", decode_rwset(results), None, b"", ())
    return Transaction(tx_id, kind, "", b"", b"", b"", b"", action, None, Stage.HEADER)


__all__ = ["decode_stored"]
