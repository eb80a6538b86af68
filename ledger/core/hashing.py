"""Which hash names a block, its data, a transaction?  Fabric's rules, exactly.

Sources: hyperledger/fabric v3.1.5, protoutil/blockutils.go (header and data hash), protoutil/proputils.go (transaction
id). The commit hash is in `transition`, ours are in `vblock`, `state_tree` and `checkpoint`.
"""

from collections.abc import Iterable
from hashlib import sha256

from ledger.core.encoding import der_integer, der_length, der_octets
from ledger.core.names import BlockNumber, Digest, TxId


def digest(data: bytes) -> Digest:
    """Hash bytes with SHA-256."""
    return Digest(sha256(data).digest())


def header_der(number: BlockNumber, previous_hash: bytes, data_hash: bytes) -> bytes:
    """Encode a block header as the DER sequence that is hashed and that orderers sign."""
    content = der_integer(number) + der_octets(previous_hash) + der_octets(data_hash)
    return b"\x30" + der_length(len(content)) + content


def header_hash(number: BlockNumber, previous_hash: bytes, data_hash: bytes) -> Digest:
    """Hash a block header: the block's name, and the next block's `previous_hash`."""
    return digest(header_der(number, previous_hash, data_hash))


def data_hash(envelopes: Iterable[bytes]) -> Digest:
    """Hash a block's envelopes: SHA-256 of their plain concatenation, no lengths (so borders need another check)."""
    hasher = sha256()
    for envelope in envelopes:
        hasher.update(envelope)
    return Digest(hasher.digest())


def transaction_id(nonce: bytes, creator: bytes) -> TxId:
    """Compute the id that a transaction with this nonce and creator must carry, in lower-case hex."""
    return TxId(sha256(nonce + creator).hexdigest())
