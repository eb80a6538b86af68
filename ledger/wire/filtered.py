"""How does a block look to who may only see ids, verdicts and events?  `protos.FilteredBlock`.

Source: fabric core/peer/deliverevents.go. A transaction that does not decode is listed without actions; Fabric leaves
out the whole block then.
"""

from typing import Any

from fabric_protos.common import common_pb2
from fabric_protos.peer import chaincode_event_pb2, events_pb2

from ledger.core.block import Block
from ledger.core.errors import MalformedMessage
from ledger.core.transaction import ENDORSER_TRANSACTION
from ledger.wire.messages import parse
from ledger.wire.proposal import actions_in, chaincode_action

VERDICTS_SLOT = 2


def filtered_block(block: Block, channel_id: str) -> Any:
    """Make the FilteredBlock of a committed block, whose slot 2 holds the verdicts."""
    out = events_pb2.FilteredBlock(channel_id=channel_id, number=block.number)
    verdicts = block.metadata[VERDICTS_SLOT]
    for index, envelope in enumerate(block.envelopes):
        transaction = out.filtered_transactions.add(tx_validation_code=verdicts[index])
        try:
            _fill(transaction, envelope)
        except MalformedMessage:
            continue
    return out


def _fill(transaction: Any, envelope: bytes) -> None:
    """Fill in what decodes, in order."""
    payload = parse(common_pb2.Payload, parse(common_pb2.Envelope, envelope, "Envelope").payload, "Payload")
    header = parse(common_pb2.ChannelHeader, payload.header.channel_header, "ChannelHeader")
    transaction.txid = header.tx_id
    transaction.type = header.type
    if header.type != ENDORSER_TRANSACTION:
        return
    found = []
    for response_payload in actions_in(payload.data):
        event = parse(chaincode_event_pb2.ChaincodeEvent, chaincode_action(response_payload).events, "ChaincodeEvent")
        if event.chaincode_id:
            event.ClearField("payload")
            found.append(event)
    transaction.transaction_actions.SetInParent()
    for event in found:
        transaction.transaction_actions.chaincode_actions.add(chaincode_event=event)
