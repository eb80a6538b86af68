"""What do the segments keep of a block?  The contents of its two records: the kept one and that of the bodies.

*Kept*: header, the orderer's metadata as received, verdicts, commit hash, a stub for each invalid transaction, then the
valid envelopes, then their ids (they stand in the envelopes too, so compression makes them nearly free). *Bodies*: the
envelopes of the invalid transactions, in their order. Both together give the block back byte for byte; the kept one
alone gives the vBlock, its leaves and everything needed to replay it. A ledger that was joined from a checkpoint has
*leaves alone* of the blocks below it: header, verdicts, commit hash and a stub for every transaction.

A stub holds what can't be computed any more once the body is gone: the digest of its envelope and its claimed id. The
index and the verdict stand in the verdicts. An id of 64 hex digits takes 33 bytes, so a stub takes 65 as a rule.
"""

from collections.abc import Sequence
from hashlib import sha256

from ledger.core.block import Header
from ledger.core.encoding import Reader
from ledger.core.errors import MalformedMessage
from ledger.core.names import BlockNumber, Digest, TxId, TxIndex
from ledger.core.outcome import Outcome
from ledger.core.vblock import Leaf
from ledger.storage.ledger_values import StoredBlock

_HEX_ID = b"\x00"
_OTHER_ID = b"\x01"
_CONFIG, _LEAVES_ALONE = 1, 2
_DIGEST_BYTES = 32

BODIES = "record of bodies"
"""What errors in it begin with."""


def kept_content(outcome: Outcome, leaves: Sequence[Leaf]) -> bytes:
    """Write what is kept of a block for ever."""
    block = outcome.block
    parts = [
        block.header.number.to_bytes(8, "big"),
        bytes((_CONFIG if outcome.is_config else 0,)),
        _lp(block.header.previous_hash),
        _lp(block.header.data_hash),
        len(block.metadata).to_bytes(4, "big"),
        *map(_lp, block.metadata),
        _lp(outcome.verdicts),
        _lp(outcome.commit_hash),
    ]
    valid: list[bytes] = []
    ids: list[bytes] = []
    for leaf, envelope in zip(leaves, block.envelopes, strict=True):
        if leaf.verdict:
            parts.append(stub(leaf))
        else:
            valid += (len(envelope).to_bytes(4, "big"), envelope)
            ids.append(_lp(leaf.tx_id.encode()))
    return b"".join([*parts, *valid, *ids])


def leaves_content(header: Header, verdicts: bytes, commit_hash: bytes, leaves: Sequence[Leaf]) -> bytes:
    """Write what a joined ledger keeps of a block below its checkpoint: header and leaves, no envelope."""
    return b"".join(
        (
            header.number.to_bytes(8, "big"),
            bytes((_LEAVES_ALONE,)),
            _lp(header.previous_hash),
            _lp(header.data_hash),
            (0).to_bytes(4, "big"),
            _lp(verdicts),
            _lp(commit_hash),
            *map(stub, leaves),
        )
    )


def bodies_content(outcome: Outcome) -> bytes:
    """Write the envelopes of the invalid transactions; empty if there is none."""
    return b"".join(
        [_lp(envelope) for verdict, envelope in zip(outcome.verdicts, outcome.block.envelopes, strict=True) if verdict]
    )


def stub(leaf: Leaf) -> bytes:
    """Write what remains of an invalid transaction besides its place and verdict."""
    return leaf.envelope_digest + id_bytes(leaf.tx_id)


def id_bytes(tx_id: TxId) -> bytes:
    """Write a claimed id in the least room: one of 64 lower-case hex digits as 32 bytes."""
    text = tx_id.encode()
    if len(text) == 64:
        try:
            raw = bytes.fromhex(tx_id)
        except ValueError:
            raw = b""
        if raw.hex() == tx_id:
            return _HEX_ID + raw
    return _OTHER_ID + _lp(text)


def stored_block(kept: bytes, bodies: bytes | None) -> StoredBlock:
    """Read a block back.

    Args:
        kept: The content of its kept record.
        bodies: The content of its record of bodies; None if that was pruned or is not wanted.

    Raises:
        MalformedMessage: The contents are not what this module writes.
    """
    reader = Reader(kept, "kept record")
    number = BlockNumber(reader.u64())
    flags = reader.u8()
    header = Header(number, reader.lp(), reader.lp())
    metadata = tuple([reader.lp() for _ in range(reader.u32())])
    verdicts, commit_hash = reader.lp(), reader.lp()
    if flags & _LEAVES_ALONE:
        found = [(reader.take(_DIGEST_BYTES), _read_id(reader)) for _ in verdicts]
        reader.done()
        alone = tuple(
            Leaf(TxIndex(index), verdict, Digest(digest), TxId(tx_id))
            for index, (verdict, (digest, tx_id)) in enumerate(zip(verdicts, found, strict=True))
        )
        return StoredBlock(header, metadata, verdicts, commit_hash, False, alone, (None,) * len(alone))
    stubs = [(reader.take(_DIGEST_BYTES), _read_id(reader)) for verdict in verdicts if verdict]
    valid = [reader.lp() for verdict in verdicts if not verdict]
    ids = [reader.text() for _ in valid]
    reader.done()
    invalid = _read_bodies(bodies, number, [digest for digest, _ in stubs])
    leaves: list[Leaf] = []
    envelopes: list[bytes | None] = []
    next_stub, next_valid = 0, 0
    for index, verdict in enumerate(verdicts):
        if verdict:
            digest, tx_id = stubs[next_stub]
            envelopes.append(invalid[next_stub] if invalid else None)
            next_stub += 1
        else:
            digest, tx_id = sha256(valid[next_valid]).digest(), ids[next_valid]
            envelopes.append(valid[next_valid])
            next_valid += 1
        leaves.append(Leaf(TxIndex(index), verdict, Digest(digest), TxId(tx_id)))
    return StoredBlock(header, metadata, verdicts, commit_hash, bool(flags & _CONFIG), tuple(leaves), tuple(envelopes))


def _read_bodies(bodies: bytes | None, number: int, digests: Sequence[bytes]) -> list[bytes]:
    """Read the invalid envelopes and see that they are those that the stubs name."""
    if bodies is None or not digests:
        return []
    reader = Reader(bodies, BODIES)
    envelopes = [reader.lp() for _ in digests]
    reader.done()
    for digest, envelope in zip(digests, envelopes, strict=True):
        found = sha256(envelope).digest()
        if found != digest:
            raise MalformedMessage(f"{BODIES} of block {number}", rule="envelope digest", expected=digest, found=found)
    return envelopes


def _read_id(reader: Reader) -> str:
    return reader.take(32).hex() if reader.take(1) == _HEX_ID else reader.text()


def _lp(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content
