"""How is a channel's ledger opened?  Finish what a crash left, find the configuration, check the trust root.

A database that is damaged or gone is made again from the segments here, without being asked: it is derived. All is
judged again, since why a transaction is invalid stands nowhere else in words. Where the segments are damaged too, or
hold less than there once was, nothing is changed, and the error says what an operator may do.
"""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from ledger.core.channel_config import Bundle
from ledger.core.errors import DatabaseDamaged, InvalidBlock
from ledger.core.hashing import header_hash
from ledger.core.names import BlockNumber, ChannelId
from ledger.core.outcome import Outcome
from ledger.core.state import CONFIG_KEY, LedgerView, public_key
from ledger.node.rebuild import rebuild
from ledger.node.rejudging import prepare_stored
from ledger.node.rules import genesis_bundle
from ledger.services.committer import Rules
from ledger.storage.ledger_store import LedgerStore
from ledger.storage.ledger_values import StoredBlock
from ledger.storage.new_database import DATABASE, MADE
from ledger.storage.segments import HEADER_BYTES as KEPT_HEADER_BYTES
from ledger.wire.block import decode_block
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_envelope

log = logging.getLogger("peerledger.ledgers")


@dataclass(frozen=True, slots=True)
class OpenLedger:
    """A channel's store that is ready to commit, and the configuration in force after its last block."""

    store: LedgerStore
    bundle: Bundle
    recommitted: int
    """Blocks that stood whole in the files beyond the savepoint and were committed again."""


def open_ledger(data: Path, genesis: bytes, rules: Rules, *, chk: int = 100) -> OpenLedger:
    """Open or create the ledger of a channel.

    Args:
        data: The node's data directory.
        genesis: The channel's genesis block: the trust root.
        rules: How blocks are judged, for those that a crash left beyond the savepoint.
        chk: Blocks between checkpoints.

    Raises:
        InvalidBlock: The directory holds a channel of that name with another genesis block.
        Conflict: Another process has the directory open.
        StorageDamaged, StorageFailed: See `LedgerStore.open` and `storage.rebuilding.rebuild`.
    """
    channel = genesis_bundle(genesis).channel_id
    try:
        lost = why_lost(data / "channels" / channel)
        if lost:
            raise DatabaseDamaged(lost)
        return _open(data, genesis, rules, chk=chk)
    except DatabaseDamaged as error:
        log.warning("database_damaged", extra={"channel": channel, "reason": str(error)})
        made = rebuild(data, genesis, check=True, chk=chk, progress=lambda done, total: None).rebuilt
        log.warning("database_made_anew", extra={"channel": channel, "height": made.height})
        opened = _open(data, genesis, rules, chk=chk)
        return replace(opened, recommitted=made.height + opened.recommitted)


def why_lost(directory: Path) -> str:
    """Say why the database of a channel is gone although there are blocks; empty if it is there, or none was yet."""
    if any((directory / name / "CURRENT").exists() for name in (DATABASE, MADE)):
        return ""
    blocks = any(path.stat().st_size > KEPT_HEADER_BYTES for path in (directory / "kept").glob("*.kept"))
    return f"{directory / DATABASE} is gone" if blocks else ""


def _open(data: Path, genesis: bytes, rules: Rules, *, chk: int) -> OpenLedger:
    first = genesis_bundle(genesis)
    store = LedgerStore.open(data, ChannelId(first.channel_id), chk=chk)
    try:
        check_genesis(store, genesis)
        rejudge = Rejudge(bundle_of(store, first), rules)
        recommitted = store.recommit(rejudge) if store.pending_count else 0
        check_genesis(store, genesis)
        return OpenLedger(store, bundle_of(store, first), recommitted)
    except BaseException:
        store.close()
        raise


def check_genesis(store: LedgerStore, genesis: bytes) -> None:
    """Check that a store begins with this genesis block.

    Raises:
        InvalidBlock: It begins with another one.
    """
    if store.height == 0:
        return
    header = decode_block(genesis).header
    found = header_hash(header.number, header.previous_hash, header.data_hash)
    expected = store.summary(BlockNumber(0)).block_hash
    if found != expected:
        raise InvalidBlock(f"genesis block of {store.channel_id}", rule="genesis block", expected=expected, found=found)


def bundle_of(store: LedgerStore, first: Bundle) -> Bundle:
    """Build the configuration in force after the last committed block.

    Args:
        store: The channel's store.
        first: The configuration of the genesis block, for a store that is still empty.
    """
    if store.height == 0:
        return first
    entry = store.view().get(public_key("", CONFIG_KEY))
    assert entry is not None, "a ledger with blocks has a configuration"
    return bundle_from_envelope(entry.value, CODEC, store.channel_id)


class Rejudge:
    """Judges stored blocks again, in order, carrying the configuration along."""

    def __init__(self, bundle: Bundle, rules: Rules) -> None:
        """Stand before the first block to judge, under the configuration in force there."""
        self.bundle = bundle
        self._rules = rules

    def __call__(self, stored: StoredBlock, view: LedgerView) -> Outcome:
        """Judge one block in the state before it; of what was pruned of it, its stubs stand for the bodies."""
        outcome = self._rules.judge(prepare_stored(stored, self.bundle, self._rules).prepared, view, self.bundle)
        self.bundle = self._rules.bundle_after(outcome, self.bundle)
        return outcome
