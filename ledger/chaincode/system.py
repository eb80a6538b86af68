"""What can be asked of a peer about its channels?  The built-in chaincodes `qscc` (ledger) and `cscc` (configuration).

They answer from the ledger, not from a simulation: their results are empty, and no contract can invoke them.
"""

from collections.abc import Callable, Mapping, Sequence

from ledger.chaincode.values import STATUS_OK, ChaincodeResponse, failure
from ledger.chaincode.views import opened
from ledger.core.errors import LedgerError, NotFound
from ledger.core.hashing import header_hash
from ledger.core.names import BlockNumber, TxId
from ledger.core.ports import LedgerReader
from ledger.core.state import CONFIG_KEY, TxPlace, public_key
from ledger.wire.block import decode_block
from ledger.wire.system_calls import (
    config_block_number,
    config_in,
    encode_chain_info,
    encode_channels,
    encode_processed_transaction,
    previous_hash_of,
)

QSCC = "qscc"
CSCC = "cscc"

SEARCHED_BLOCKS_MAX = 1_000
"""Blocks that a search by hash looks into: there is no index of hashes."""

Authorize = Callable[[str, str], None]
"""Checks that the caller may use a resource (`qscc/GetChainInfo`) of a channel; raises `Refused`."""


class SystemChaincodes:
    """`qscc` and `cscc` of one peer.

    Args:
        ledgers: The peer's channels by name; read at each call.
    """

    def __init__(self, ledgers: Mapping[str, LedgerReader]) -> None:
        """Take the channels."""
        self._ledgers = ledgers

    def invoke(self, chaincode: str, args: Sequence[bytes], authorize: Authorize) -> ChaincodeResponse:
        """Answer a call; what can't be answered is a response of status 500 that says why."""
        if not args:
            return failure(f"{chaincode}: a call needs the name of a function")
        function, *parameters = [arg.decode(errors="surrogateescape") for arg in args]
        resource = f"{chaincode}/{function}"
        try:
            if resource == "cscc/GetChannels":
                authorize(resource, "")
                return ChaincodeResponse(STATUS_OK, payload=encode_channels(sorted(self._ledgers)))
            answer = ANSWERS.get(resource)
            if answer is None:
                return failure(f"{chaincode}: no such function: {function}")
            if not parameters or parameters[0] not in self._ledgers:
                return failure(f"{resource}: no such channel: {', '.join(parameters[:1]) or 'none is named'}")
            authorize(resource, parameters[0])
            payload = answer(self._ledgers[parameters[0]], parameters[1:])
        except (LedgerError, ValueError) as error:
            return failure(f"{resource}: {error}")
        return ChaincodeResponse(STATUS_OK, payload=payload)


def chain_info(ledger: LedgerReader, _: Sequence[str]) -> bytes:
    """Answer height and the last two block hashes, of one moment."""
    height = ledger.height
    last = decode_block(ledger.block_bytes(BlockNumber(height - 1)))
    own_hash = header_hash(last.number, last.header.previous_hash, last.header.data_hash)
    return encode_chain_info(height, own_hash, last.header.previous_hash)


def block_by_number(ledger: LedgerReader, parameters: Sequence[str]) -> bytes:
    """Answer a block; numbers are decimal, and the last block is 2^64-1."""
    number = int(one(parameters, "block number"))
    return ledger.block_bytes(BlockNumber(ledger.height - 1 if number == 2**64 - 1 else number))


def block_by_hash(ledger: LedgerReader, parameters: Sequence[str]) -> bytes:
    """Answer the block with a header hash, searched among the newest."""
    wanted = one(parameters, "block hash").encode(errors="surrogateescape")
    if wanted == ledger.block_hash:
        return ledger.block_bytes(BlockNumber(ledger.height - 1))
    height = ledger.height
    for number in range(height - 1, max(ledger.first_block, height - SEARCHED_BLOCKS_MAX), -1):
        if previous_hash_of(ledger.block_bytes(BlockNumber(number))) == wanted:
            return ledger.block_bytes(BlockNumber(number - 1))
    raise NotFound(f"none of the newest {SEARCHED_BLOCKS_MAX} whole blocks has the hash {wanted.hex()}")


def transaction_by_id(ledger: LedgerReader, parameters: Sequence[str]) -> bytes:
    """Answer the first transaction of an id, with its verdict."""
    place = first_place(ledger, parameters)
    return encode_processed_transaction(ledger.envelope(place), place.verdict)


def block_by_transaction(ledger: LedgerReader, parameters: Sequence[str]) -> bytes:
    """Answer the block that holds the first transaction of an id."""
    return ledger.block_bytes(first_place(ledger, parameters).block)


def config_block(ledger: LedgerReader, _: Sequence[str]) -> bytes:
    """Answer the last config block, also where it lies below the prune point."""
    last = ledger.block_bytes(BlockNumber(ledger.height - 1))
    return ledger.config_block_bytes(BlockNumber(config_block_number(last)))


def channel_config(ledger: LedgerReader, _: Sequence[str]) -> bytes:
    """Answer the configuration in force."""
    with opened(ledger) as view:
        entry = view.get(public_key("", CONFIG_KEY))
    if entry is None:
        raise NotFound("the channel has no configuration in its state")
    return config_in(entry.value)


ANSWERS: Mapping[str, Callable[[LedgerReader, Sequence[str]], bytes]] = {
    "qscc/GetChainInfo": chain_info,
    "qscc/GetBlockByNumber": block_by_number,
    "qscc/GetBlockByHash": block_by_hash,
    "qscc/GetTransactionByID": transaction_by_id,
    "qscc/GetBlockByTxID": block_by_transaction,
    "cscc/GetConfigBlock": config_block,
    "cscc/GetChannelConfig": channel_config,
}


def first_place(ledger: LedgerReader, parameters: Sequence[str]) -> TxPlace:
    """Find the first place of a transaction id."""
    tx_id = one(parameters, "transaction id")
    places = ledger.places(TxId(tx_id))
    if not places:
        raise NotFound(f"no transaction {tx_id}")
    return places[0]


def one(parameters: Sequence[str], what: str) -> str:
    """Take the only parameter behind the channel."""
    if len(parameters) != 1:
        raise ValueError(f"expected the channel and a {what}, found {len(parameters) + 1} parameters")
    return parameters[0]
