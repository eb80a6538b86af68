"""Which event did a valid transaction set?  What the gateway's clients listen to."""

from fabric_protos.common import common_pb2
from fabric_protos.peer import chaincode_event_pb2

from ledger.core.errors import MalformedMessage
from ledger.core.transaction import ENDORSER_TRANSACTION, Event
from ledger.wire.messages import parse
from ledger.wire.proposal import actions_in, chaincode_action


def event_in(envelope: bytes) -> Event | None:
    """Take the chaincode event out of an endorser transaction; None if it has none, or is none."""
    try:
        payload = parse(common_pb2.Payload, parse(common_pb2.Envelope, envelope, "Envelope").payload, "Payload")
        header = parse(common_pb2.ChannelHeader, payload.header.channel_header, "ChannelHeader")
        if header.type != ENDORSER_TRANSACTION:
            return None
        data = chaincode_action(actions_in(payload.data)[0]).events
        event = parse(chaincode_event_pb2.ChaincodeEvent, data, "ChaincodeEvent")
    except (MalformedMessage, IndexError):
        return None  # A valid transaction of another kind.
    if not (event.chaincode_id and event.event_name and event.tx_id):
        return None
    return Event(event.chaincode_id, event.tx_id, event.event_name, event.payload)
