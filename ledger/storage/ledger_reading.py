"""How is a channel's ledger read while blocks are committed?  Everything that takes one short snapshot.

What was pruned raises `Pruned`, what never was raises `NotFound`, what is damaged names file and record.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ledger.core.encoding import u64
from ledger.core.errors import BeforeJoining, Fault, NotFound, Pruned
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId, Digest, TxId, TxIndex
from ledger.core.state import Entry, HistoryEntry, StateKey, TxPlace
from ledger.core.vblock import VBlock, VBlockHeader
from ledger.storage.block_encoding import block_message, with_own_slots
from ledger.storage.block_files import BlockFiles, Places, block_not_found
from ledger.storage.engine import Engine, Snapshot, after_prefix
from ledger.storage.keys import (
    BLOCK_HASH,
    COLLECTIONS,
    CONFIG,
    FAULTS,
    HEX_ID,
    JOINED_KEY,
    OTHER_ID,
    SAVEPOINT_KEY,
    STATE,
    BlockRow,
    Savepoint,
    block_key,
    collections_of,
    entry_of,
    faults_of,
    history_place,
    history_prefix,
    id_key,
    id_of,
    places_of,
    row_of,
    savepoint_of,
    state_key_of,
)
from ledger.storage.ledger_values import BlockSummary, CollectionCommit, ConfigBlock, StoredBlock
from ledger.storage.opening_checks import check_stored
from ledger.storage.segments import damaged
from ledger.storage.views import StoreView

EMPTY_SAVEPOINT = Savepoint(0, None, None, ZERO_DIGEST, ZERO_DIGEST, b"", BlockNumber(0), BlockNumber(0))
"""The savepoint of a ledger without blocks."""


class LedgerReading:
    """The reading half of a channel's store; safe from any thread.

    Args:
        channel_id: The channel.
        engine: The database.
        block_files: The segments.

    Attributes:
        channel_id: As given.
        joined_at: Block of the checkpoint that this ledger was joined from; None for one that has all blocks since the
            genesis block. Of the blocks below it the heads, leaves and config blocks are here, and nothing else.
    """

    def __init__(self, channel_id: ChannelId, engine: Engine, block_files: BlockFiles) -> None:
        """Read the savepoint."""
        self.channel_id = channel_id
        self._engine = engine
        self._files = block_files
        raw = engine.get(SAVEPOINT_KEY)
        self._savepoint = EMPTY_SAVEPOINT if raw is None else savepoint_of(raw)
        joined = engine.get(JOINED_KEY)
        self.joined_at = None if joined is None else BlockNumber(int.from_bytes(joined, "big"))
        self._prune_point = -1 if self.joined_at is None else self.joined_at - 1

    @property
    def height(self) -> int:
        """Number of blocks committed."""
        return self._savepoint.height

    @property
    def block_hash(self) -> Digest:
        """Header hash of the last block."""
        return self._savepoint.block_hash

    @property
    def vblock_hash(self) -> Digest:
        """VBlock hash of the last block."""
        return self._savepoint.vblock_hash

    @property
    def commit_hash(self) -> bytes:
        """Commit hash of the last block."""
        return self._savepoint.commit_hash

    @property
    def prune_point(self) -> int:
        """Highest block whose whole form is gone, -1 for none."""
        return self._prune_point

    @property
    def first_block(self) -> BlockNumber:
        """First block that is held whole."""
        return BlockNumber(self._prune_point + 1)

    def view(self) -> StoreView:
        """Return a view as of the last committed block; close it."""
        snapshot = self._engine.snapshot()
        raw = snapshot.get(SAVEPOINT_KEY)
        savepoint = EMPTY_SAVEPOINT if raw is None else savepoint_of(raw)
        return StoreView(snapshot, savepoint.height, savepoint.commit_hash)

    def block_bytes(self, number: BlockNumber) -> bytes:
        """Return a serialized block with this peer's verdicts and commit hash.

        Raises:
            Pruned: It is at or below the prune point.
            NotFound: It is not there yet.
        """
        if self.joined_at is not None and 0 <= number < self.joined_at:
            raise BeforeJoining(f"block {number}", block=number, first_block=self.first_block)
        if 0 <= number <= self._prune_point:
            raise Pruned(block=number, first_block=self.first_block)
        return self._serialized(self.stored_block(number))

    def config_block_bytes(self, number: BlockNumber) -> bytes:
        """Return a config block, also below the prune point: its one transaction is valid and kept.

        Raises:
            NotFound: It is not there, or is no config block.
        """
        stored = self.stored_block(number)
        if not stored.is_config:
            raise NotFound(f"block {number} is no config block")
        return self._serialized(stored)

    def _serialized(self, stored: StoredBlock) -> bytes:
        block = stored.block()
        metadata = with_own_slots(block.metadata, stored.verdicts, stored.commit_hash)
        return block_message(type(block)(block.header, block.envelopes, metadata))

    def stored_block(self, number: BlockNumber) -> StoredBlock:
        """Read a block as the segments hold it; bodies that were pruned are None."""
        row = self._row(number)
        stored = self._files.read(number, Places(row.kept, row.bodies), with_bodies=number > self._prune_point)
        check_stored(self._files, row, stored)
        if row.bodies is not None and not stored.is_whole and number > self._prune_point:  # As it is by now.
            raise damaged(self._files.bodies.path(row.bodies.file), row.bodies.offset, "the file is gone")
        return stored

    def vblock(self, number: BlockNumber) -> VBlock:
        """Return a vBlock with its leaves and valid envelopes."""
        row = self._row(number)
        previous = self._row(BlockNumber(number - 1)).vblock_hash if number else ZERO_DIGEST
        stored = self._files.read(number, Places(row.kept, row.bodies), with_bodies=False)
        check_stored(self._files, row, stored)
        header = VBlockHeader(
            number, previous, row.block_hash, len(row.verdicts), row.verdicts.count(0), row.tx_root, row.commit_hash
        )
        valid = tuple(
            (leaf.index, envelope)
            for leaf, envelope in zip(stored.leaves, stored.envelopes, strict=True)
            if leaf.verdict == 0 and envelope is not None
        )
        return VBlock(header, row.vblock_hash, stored.leaves, valid)

    def summary(self, number: BlockNumber) -> BlockSummary:
        """Say what is known of a block without reading it."""
        row = self._row(number)
        return BlockSummary(
            number, row.block_hash, row.vblock_hash, row.tx_root, row.commit_hash, row.verdicts, row.is_config,
            row.last_config,
        )  # fmt: skip

    def number_of(self, block_hash: bytes) -> BlockNumber:
        """Find a block by its header hash; raises NotFound."""
        with self._snapshot() as snapshot:
            raw = snapshot.get(BLOCK_HASH + block_hash)
        if raw is None:
            raise NotFound(f"no block has the hash {block_hash.hex()}")
        return BlockNumber(int.from_bytes(raw, "big"))

    def places(self, tx_id: TxId) -> tuple[TxPlace, ...]:
        """Return all places of a claimed id in order; empty if it was never seen."""
        if not tx_id:
            return ()
        with self._snapshot() as snapshot:
            raw = snapshot.get(id_key(tx_id))
        return () if raw is None else places_of(raw)

    def envelope(self, place: TxPlace) -> bytes:
        """Return an envelope.

        Raises:
            Pruned: It is that of an invalid transaction at or below the prune point, or of any one below the
                checkpoint that this ledger was joined from.
        """
        stored = self.stored_block(place.block)
        found = stored.envelopes[place.index]
        if found is None:
            verdict = stored.verdicts[place.index]
            if self.joined_at is not None and place.block < self.joined_at:
                raise BeforeJoining(
                    f"transaction {place.index} of block {place.block} (verdict {verdict})", block=place.block,
                    first_block=self.joined_at, index=place.index, verdict=verdict,
                )  # fmt: skip
            raise Pruned(block=place.block, first_block=self.first_block, index=place.index, verdict=verdict)
        return found

    def faults(self, number: BlockNumber) -> Mapping[TxIndex, Fault]:
        """Say why the invalid transactions of a block are invalid."""
        with self._snapshot() as snapshot:
            raw = snapshot.get(FAULTS + u64(number))
        return {} if raw is None else dict(faults_of(raw))

    def history(self, namespace: str, key: str) -> Iterator[HistoryEntry]:
        """Yield the changes of a public key, newest first.

        Raises:
            BeforeJoining: This ledger was joined, so it has no whole history: no short one is given in its place.
        """
        self._check_not_joined("the history of a key")
        return self._history(history_prefix(namespace, key))

    def _history(self, prefix: bytes) -> Iterator[HistoryEntry]:
        with self._snapshot() as snapshot:
            for raw, _ in snapshot.range(prefix, after_prefix(prefix)):
                yield HistoryEntry(*history_place(raw))

    def config_blocks(self) -> tuple[ConfigBlock, ...]:
        """List the trail of config blocks."""
        with self._snapshot() as snapshot:
            pairs = list(snapshot.range(CONFIG, after_prefix(CONFIG)))
        return tuple(ConfigBlock(BlockNumber(int.from_bytes(key[1:], "big")), Digest(value)) for key, value in pairs)

    def last_config(self, number: BlockNumber) -> ConfigBlock:
        """Give the config block in force after a block."""
        last = self._row(number).last_config
        with self._snapshot() as snapshot:
            raw = snapshot.get(CONFIG + u64(last))
        assert raw is not None, "a block names a config block that is there"
        return ConfigBlock(last, Digest(raw))

    def collection_commits(self) -> Iterator[CollectionCommit]:
        """Yield every commit of collections, per chaincode the newest first.

        Raises:
            BeforeJoining: This ledger was joined, so it does not know all of them.
        """
        self._check_not_joined("which collections were committed when")
        return self._collection_commits()

    def _collection_commits(self) -> Iterator[CollectionCommit]:
        with self._snapshot() as snapshot:
            for raw, package in snapshot.range(COLLECTIONS, after_prefix(COLLECTIONS)):
                yield CollectionCommit(*collections_of(raw), package)

    def iter_state(self) -> Iterator[tuple[StateKey, Entry]]:
        """Yield all live entries in the database's order."""
        with self._snapshot() as snapshot:
            for raw, value in snapshot.range(STATE, after_prefix(STATE)):
                yield state_key_of(raw), entry_of(value)

    def iter_tx_ids(self) -> Iterator[TxId]:
        """Yield each distinct claimed id once, in no special order."""
        with self._snapshot() as snapshot:
            for table in (HEX_ID, OTHER_ID):
                for raw, _ in snapshot.range(table, after_prefix(table)):
                    yield id_of(raw)

    def _check_not_joined(self, what: str) -> None:
        if self.joined_at is not None:
            raise BeforeJoining(what, block=self.joined_at, first_block=self.joined_at + 1)

    def _row(self, number: BlockNumber) -> BlockRow:
        with self._snapshot() as snapshot:
            raw = snapshot.get(block_key(number)) if number >= 0 else None
        if raw is None:
            raise block_not_found(number, self.height)
        return row_of(raw)

    @contextmanager
    def _snapshot(self) -> Iterator[Snapshot]:
        snapshot = self._engine.snapshot()
        try:
            yield snapshot
        finally:
            snapshot.close()
