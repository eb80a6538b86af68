"""How does a peer prove what its ledger says?  Proofs that hold without it, made from the ledger and its checkpoints.

A proof rests on a checkpoint that is valid for everybody. Which one: of a transaction the first at or above its block,
so that the same proof is given whenever it is asked for; of a key the latest, whose state is kept. Pruning takes
nothing away that a proof needs: the leaves of all transactions stay, so a rejection is proved as before.

Everything here may wait for the disk: it is called in an executor.
"""

from collections.abc import Sequence
from typing import Protocol

from ledger.core.block import SLOT_COUNT, Block
from ledger.core.checkpoint import CheckpointProof
from ledger.core.errors import Diverged, NotFound, Refused, shown
from ledger.core.merkle import consistency_proof, inclusion_proof, tree_hash
from ledger.core.names import BlockNumber, TxId, Verdict
from ledger.core.proofs import Proof, ProvenCheckpoint, ProvenEntry, ProvenPrefix, ProvenTransaction, Subject
from ledger.core.state import StateKey, TxPlace
from ledger.core.vblock import leaf_hash
from ledger.storage.ledger_store import LedgerStore
from ledger.wire.block import decode_block
from ledger.wire.proofs import unsigned_slots_left_out


class ValidCheckpoints(Protocol):
    """The checkpoints that are valid for everybody."""

    @property
    def latest_valid(self) -> CheckpointProof | None:
        """The proof of the latest."""
        ...

    def proof(self, number: BlockNumber) -> CheckpointProof | None:
        """Return the proof at a height, None if none is valid there."""
        ...

    def numbers(self) -> Sequence[BlockNumber]:
        """List heights, ascending, among them all that have a valid checkpoint."""
        ...


class ProofSource:
    """Makes the proofs of one channel.

    Args:
        store: The channel's ledger.
        checkpoints: Its checkpoints.
        interval_blocks: CHK, to say from which height on something will be provable.
    """

    def __init__(self, store: LedgerStore, checkpoints: ValidCheckpoints, interval_blocks: int) -> None:
        """Take the parts."""
        self._store = store
        self._checkpoints = checkpoints
        self._interval_blocks = interval_blocks

    def transaction(self, tx_id: TxId, place: int = 0, checkpoint: BlockNumber | None = None) -> Proof:
        """Prove what became of a transaction: inclusion if it is valid, rejection if it is not.

        Args:
            tx_id: The claimed id.
            place: Which of the id's places, counted from 0.
            checkpoint: The checkpoint that it is to rest on; by default the first at or above its block.

        Raises:
            NotFound: The id was never seen, or its block is not under a valid checkpoint yet.
            Pruned: This ledger was joined above it and does not hold the envelope.
        """
        places = self._store.places(tx_id)
        if not places:
            raise NotFound(f"no block of this channel holds transaction {shown(tx_id)}")
        if place >= len(places):
            raise NotFound(f"transaction {shown(tx_id)} has {len(places)} places, none numbered {place}")
        found = places[place]
        number = self._covering(f"transaction {shown(tx_id)} is in block {found.block}", found.block, checkpoint)
        return self._made(number, self._transaction(found, number))

    def entry(self, key: StateKey, checkpoint: BlockNumber | None = None) -> Proof:
        """Prove the entry of a key at a checkpoint, or that it has none.

        Args:
            key: The key.
            checkpoint: The checkpoint, by default the latest valid one.

        Raises:
            NotFound: No checkpoint is valid yet, this one is not, or its state is not kept any more.
        """
        latest = self._latest(f"the state of {self._store.channel_id}")
        number = latest if checkpoint is None else self._valid(checkpoint)
        try:
            view = self._store.checkpoint_view(number)
        except NotFound as error:
            raise NotFound(
                f"the state at checkpoint {number} is not kept here any more; ask for that at {latest}, the latest"
            ) from error
        with view:
            return self._made(number, ProvenEntry(key, view.get(key), view.prove(key)))

    def consistency(self, older: BlockNumber, newer: BlockNumber) -> Proof:
        """Prove that the ledger at one checkpoint is the beginning of that at a newer one.

        Raises:
            NotFound: One of them is not valid here.
            Refused: The older one is not below the newer.
        """
        if older >= newer:
            raise Refused("consistency proof", rule="order of checkpoints", expected=f"from below {newer}", found=older)
        first, second = self._valid(older), self._valid(newer)
        path = consistency_proof(first + 1, second + 1, self._store.log_node)
        return self._made(second, ProvenPrefix(self._checkpoint(first), path))

    def checkpoint(self, number: BlockNumber) -> Proof:
        """Prove that a checkpoint is valid; raises `NotFound`."""
        return self._made(self._valid(number), None)

    # -- which checkpoint

    def _latest(self, what: str) -> BlockNumber:
        proof = self._checkpoints.latest_valid
        if proof is None:
            first = self._next_height(BlockNumber(1))
            raise NotFound(f"{what} can't be proved yet: no checkpoint is valid; the first is due at block {first}")
        return proof.statement.number

    def _valid(self, number: BlockNumber) -> BlockNumber:
        if self._checkpoints.proof(number) is None:
            latest = self._latest(f"checkpoint {number}")
            raise NotFound(f"no checkpoint at block {number} is valid here; the latest valid one is at block {latest}")
        return number

    def _covering(self, what: str, block: BlockNumber, wanted: BlockNumber | None) -> BlockNumber:
        """Choose the checkpoint that a block's transactions rest on."""
        if wanted is not None:
            if wanted < block:
                raise NotFound(f"{what}, above checkpoint {wanted}: ask for one at or above it")
            return self._valid(wanted)
        for number in self._checkpoints.numbers():
            if number >= block and self._checkpoints.proof(number) and self._store.roots(number):
                return number
        latest = self._checkpoints.latest_valid
        known = "no checkpoint is valid yet" if latest is None else f"the latest valid one is {latest.statement.number}"
        raise NotFound(
            f"{what}, which no valid checkpoint covers yet ({known}); it can be proved once one at block "
            f"{self._next_height(block)} or above is valid"
        )

    def _next_height(self, block: BlockNumber) -> int:
        """Give the first height at or above a block at which a checkpoint is due."""
        return -(-block // self._interval_blocks) * self._interval_blocks

    # -- putting together

    def _made(self, number: BlockNumber, subject: Subject) -> Proof:
        trail = [each.number for each in self._store.config_blocks() if 0 < each.number <= number]
        blocks = tuple(unsigned_slots_left_out(decode_block(self._store.config_block_bytes(each))) for each in trail)
        return Proof(self._store.channel_id, blocks, self._checkpoint(number), subject)

    def _checkpoint(self, number: BlockNumber) -> ProvenCheckpoint:
        proof, roots = self._checkpoints.proof(number), self._store.roots(number)
        if proof is None or roots is None:
            raise NotFound(f"the roots of checkpoint {number} were never computed here; ask another peer")
        if roots.statement(self._store.channel_id) != proof.statement:
            raise Diverged(f"this peer came to something else at block {number} than what others agreed on")
        stored = self._store.stored_block(number)
        metadata = stored.metadata[:1]
        if not metadata:
            raise NotFound(f"the orderers' signatures on block {number} are not here; ask another peer")
        return ProvenCheckpoint(
            proof,
            roots.state_root,
            Block(stored.header, (), (*metadata, *(b"",) * (SLOT_COUNT - 1))),
            self._store.vblock(number).header,
            inclusion_proof(0, number + 1, self._store.log_node),
        )

    def _transaction(self, place: TxPlace, checkpoint: BlockNumber) -> ProvenTransaction:
        vblock = self._store.vblock(place.block)
        hashes = [leaf_hash(leaf) for leaf in vblock.leaves]
        envelope = self._store.envelope(place) if place.verdict == Verdict.VALID else None
        return ProvenTransaction(
            vblock.leaves[place.index],
            envelope,
            inclusion_proof(
                place.index, len(hashes), lambda level, at: tree_hash(hashes[at << level : at + 1 << level])
            ),
            vblock.header,
            inclusion_proof(place.block, checkpoint + 1, self._store.log_node),
        )


__all__ = ["ProofSource", "ValidCheckpoints"]
