"""What did real peers simulate?  Recorded endorser transactions with their arguments, and the states before them."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fabric_protos.common import common_pb2
from fabric_protos.msp import identities_pb2
from fabric_protos.peer import chaincode_pb2, proposal_pb2, proposal_response_pb2, transaction_pb2
from google.protobuf.message import DecodeError

from ledger.core.merge import merge, operations
from ledger.core.names import NEVER, BlockNumber, TxIndex, Verdict
from ledger.core.rwset import ReadWriteSet
from ledger.core.state import CONFIG_KEY, HASHED, PUBLIC, Entry, StateKey, Version, public_key
from ledger.core.transaction import Transaction
from ledger.wire.transaction import decode_transaction
from tests.kit.paths import VECTORS

ENDORSER_TRANSACTION = 3
SLOT_VERDICTS = 2

SHORT_LIVED = {"btl": 2}
"""Block-to-live of the recorded collections that have one."""

State = dict[StateKey, Entry]


@dataclass(frozen=True, slots=True)
class RecordedTransaction:
    """One endorser transaction of a recorded channel, taken apart."""

    block: int
    index: int
    verdict: int
    label: str
    chaincode: str
    args: tuple[bytes, ...]
    is_init: bool
    creator: bytes
    endorsers: tuple[bytes, ...]
    """SerializedIdentity of each endorser."""

    results: bytes
    response: tuple[int, str, bytes]
    event: bytes
    version: str


def recorded_transactions(channel: str) -> Iterator[RecordedTransaction]:
    """Yield the endorser transactions that decode, in order."""
    with (VECTORS / channel / "transactions.tsv").open() as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        labels = {(int(row["block"]), int(row["index"])): row["label"] for row in rows}
    for number, block in enumerate(blocks(channel)):
        for index, envelope in enumerate(block.data.data):
            try:
                found = taken_apart(envelope, number, index, block.metadata.metadata[SLOT_VERDICTS][index], labels)
            except DecodeError:
                continue
            if found is not None:
                yield found


def blocks(channel: str) -> Iterator[Any]:
    """Yield the recorded blocks as messages."""
    for path in sorted((VECTORS / channel / "blocks").glob("*.block")):
        yield common_pb2.Block.FromString(path.read_bytes())


def taken_apart(
    envelope: bytes, number: int, index: int, verdict: int, labels: Mapping[tuple[int, int], str]
) -> RecordedTransaction | None:
    """Decode an envelope as endorser transaction; None if it is none."""
    payload = common_pb2.Payload.FromString(common_pb2.Envelope.FromString(envelope).payload)
    if common_pb2.ChannelHeader.FromString(payload.header.channel_header).type != ENDORSER_TRANSACTION:
        return None
    transaction = transaction_pb2.Transaction.FromString(payload.data)
    if not transaction.actions:
        return None
    action = transaction_pb2.ChaincodeActionPayload.FromString(transaction.actions[0].payload)
    proposal = proposal_pb2.ChaincodeProposalPayload.FromString(action.chaincode_proposal_payload)
    spec = chaincode_pb2.ChaincodeInvocationSpec.FromString(proposal.input).chaincode_spec
    response = proposal_response_pb2.ProposalResponsePayload.FromString(action.action.proposal_response_payload)
    result = proposal_pb2.ChaincodeAction.FromString(response.extension)
    header = common_pb2.SignatureHeader.FromString(payload.header.signature_header)
    return RecordedTransaction(
        number,
        index,
        verdict,
        labels[number, index],
        spec.chaincode_id.name,
        tuple(spec.input.args),
        spec.input.is_init,
        header.creator,
        tuple(each.endorser for each in action.action.endorsements),
        result.results,
        (result.response.status, result.response.message, result.response.payload),
        result.events,
        result.chaincode_id.version,
    )


class RecordedState:
    """A view of a state at one height."""

    def __init__(self, entries: State) -> None:
        self.entries = entries
        self._keys = sorted(key for key in entries if key.kind == PUBLIC)

    def get(self, key: StateKey) -> Entry | None:
        return self.entries.get(key)

    def range(self, namespace: str, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, Entry]]:
        for key in self._keys:
            if key.namespace == namespace and start <= key.key and (end is None or key.key < end):
                yield key.key, self.entries[key]


@cache
def recorded_states(channel: str) -> tuple[RecordedState, ...]:
    """Give the state before each block, at its number, and the end state, by the recorded verdicts."""
    states = []
    state: State = {}
    for number, block in enumerate(blocks(channel)):
        states.append(RecordedState(dict(state)))
        before = dict(state)
        for index, envelope in enumerate(block.data.data):
            if block.metadata.metadata[SLOT_VERDICTS][index] == Verdict.VALID:
                apply(state, decode_transaction(envelope), Version(BlockNumber(number), TxIndex(index)))
        for key, entry in before.items():
            lifetime = SHORT_LIVED.get(key.collection) if key.kind == HASHED else None
            if lifetime is not None and entry.version.block + lifetime < number and state.get(key) == entry:
                del state[key]
    states.append(RecordedState(state))
    return tuple(states)


def apply(state: State, transaction: Transaction, version: Version) -> None:
    """Apply the writes of one valid transaction."""
    if transaction.config:
        state[public_key("", CONFIG_KEY)] = Entry(transaction.config, version)
    rwset = transaction.action.rwset if transaction.action is not None else ReadWriteSet()
    for key, operation in operations(rwset).items():
        entry = merge(operation, state.get(key), version, NEVER)
        if isinstance(entry, Entry):
            state[key] = entry
        elif entry is None:
            state.pop(key, None)


def msp_id_of(identity: bytes) -> str:
    """Name the organisation of a SerializedIdentity."""
    return str(identities_pb2.SerializedIdentity.FromString(identity).mspid)
