"""How does one block become durable, all of it or nothing?  The one commit point of a channel (design, section 8).

Interface first; the bodies follow.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from ledger.core.checkpoint import CheckpointRoots
from ledger.core.errors import Fault
from ledger.core.names import BlockNumber, ChannelId, Digest, TxId, TxIndex
from ledger.core.outcome import Outcome
from ledger.core.state import Entry, HistoryEntry, LedgerView, StateKey, TxPlace
from ledger.core.state_tree import StateProof
from ledger.core.vblock import VBlock
from ledger.storage.ledger_values import (
    ArchivedFile,
    BlockSummary,
    CheckpointWork,
    CollectionCommit,
    ConfigBlock,
    DiskUse,
    Pin,
    PrunePlan,
    PruneRecord,
    StoredBlock,
)

Rejudge = Callable[[StoredBlock, LedgerView], Outcome]
"""Makes the outcome of a stored block again, in the state before it: by judging it, or, where bodies were pruned, by
applying its valid transactions under the verdicts that are stored."""


class CheckpointView(Protocol):
    """The state as of a captured checkpoint, while commits go on; close it."""

    roots: CheckpointRoots

    def get(self, key: StateKey) -> Entry | None:
        """Return the entry as of the checkpoint."""
        ...

    def entries(self) -> Iterator[tuple[StateKey, Entry]]:
        """Yield every entry live at the checkpoint, in the database's order."""
        ...

    def prove(self, key: StateKey) -> StateProof:
        """Prove presence or absence of a key against the state root."""
        ...

    def close(self) -> None:
        """Let go of the checkpoint."""
        ...


class LedgerStore:
    """One channel's ledger on disk; implements `core.ports.LedgerReader`. (bodies follow)"""

    # -- opening and recovery
    @classmethod
    def open(cls, directory: Path, channel_id: ChannelId, *, chk: int = 100) -> "LedgerStore":
        """Open or create `<directory>/channels/<channel_id>`; raises Conflict, StorageDamaged, StorageFailed."""
        raise NotImplementedError

    @property
    def pending_count(self) -> int:
        """Whole blocks in the segments beyond the savepoint: call `recommit` before anything else is committed."""
        raise NotImplementedError

    def recommit(self, rejudge: Rejudge) -> int:
        """Commit the pending blocks again; returns how many."""
        raise NotImplementedError

    @classmethod
    def rebuild(cls, directory: Path, channel_id: ChannelId, rejudge: Rejudge, *, chk: int = 100) -> "LedgerStore":
        """Drop the database and make it again from the segments."""
        raise NotImplementedError

    # -- committing (one thread)
    def staged_view(self) -> LedgerView:
        """The state after the last staged block."""
        raise NotImplementedError

    def stage(self, outcome: Outcome) -> None:
        """Append a judged block to the segments, not synced, and to the overlay that `staged_view` reads."""
        raise NotImplementedError

    def finish_group(self) -> None:
        """Sync the files once, write the staged batches, the last one synced."""
        raise NotImplementedError

    def abandon_group(self) -> None:
        """Forget staged blocks and cut them off the segments."""
        raise NotImplementedError

    def commit(self, outcome: Outcome) -> None:
        """Stage one block and finish."""
        raise NotImplementedError

    def commit_group(self, outcomes: Iterable[Outcome]) -> None:
        """Stage several and finish."""
        raise NotImplementedError

    # -- LedgerReader
    height: int
    first_block: BlockNumber
    prune_point: int  # -1: nothing was pruned
    block_hash: Digest
    vblock_hash: Digest
    commit_hash: bytes
    channel_id: ChannelId
    records_directory: Path  # for small append-only files of others (checkpoints, proofs)

    def view(self) -> LedgerView: ...  # type: ignore[empty-body]
    def block_bytes(self, number: BlockNumber) -> bytes: ...  # type: ignore[empty-body]
    def vblock(self, number: BlockNumber) -> VBlock: ...  # type: ignore[empty-body]
    def places(self, tx_id: TxId) -> tuple[TxPlace, ...]: ...  # type: ignore[empty-body]
    def envelope(self, place: TxPlace) -> bytes: ...  # type: ignore[empty-body]
    def history(self, namespace: str, key: str) -> Iterator[HistoryEntry]: ...  # type: ignore[empty-body]

    # -- more reading
    def summary(self, number: BlockNumber) -> BlockSummary: ...  # type: ignore[empty-body]
    def stored_block(self, number: BlockNumber) -> StoredBlock: ...  # type: ignore[empty-body]  # bodies None where pruned
    def number_of(self, block_hash: bytes) -> BlockNumber: ...  # type: ignore[empty-body]
    def faults(self, number: BlockNumber) -> Mapping[TxIndex, Fault]: ...  # type: ignore[empty-body]
    def config_blocks(self) -> tuple[ConfigBlock, ...]: ...  # type: ignore[empty-body]
    def last_config(self, number: BlockNumber) -> ConfigBlock: ...  # type: ignore[empty-body]
    def config_block_bytes(self, number: BlockNumber) -> bytes: ...  # type: ignore[empty-body]  # also below the prune point
    def collection_commits(self) -> Iterator[CollectionCommit]: ...  # type: ignore[empty-body]
    def iter_state(self) -> Iterator[tuple[StateKey, Entry]]: ...  # type: ignore[empty-body]  # kind, namespace, collection, key
    def iter_tx_ids(self) -> Iterator[TxId]: ...  # type: ignore[empty-body]  # by (length, bytes)
    def disk_use(self) -> DiskUse: ...  # type: ignore[empty-body]

    # -- checkpoints
    def announce_checkpoint(self, number: BlockNumber) -> None: ...  # a future height besides the multiples of chk
    def captured(self) -> tuple[BlockNumber, ...]: ...  # type: ignore[empty-body]  # ascending; survives restarts
    def compute_checkpoint(self, number: BlockNumber) -> CheckpointRoots: ...  # type: ignore[empty-body]  # off the commit thread
    def roots(self, number: BlockNumber) -> CheckpointRoots | None: ...  # type: ignore[empty-body]  # computed before
    def checkpoint_view(self, number: BlockNumber) -> CheckpointView: ...  # type: ignore[empty-body]
    def keep_checkpoint(self, number: BlockNumber) -> None: ...  # durable: never thinned until released
    def release(self, number: BlockNumber) -> None: ...
    def release_before(self, number: BlockNumber) -> None: ...  # all captured below that nobody keeps
    def roots_now(self) -> CheckpointRoots: ...  # type: ignore[empty-body]  # at the last block, whatever its height

    last_work: CheckpointWork

    # -- pruning
    def prune_plan(self, to: BlockNumber) -> PrunePlan: ...  # type: ignore[empty-body]  # `to` = the new prune point
    def archive(self, to: BlockNumber, directory: Path) -> tuple[ArchivedFile, ...]: ...  # type: ignore[empty-body]
    def prune(self, to: BlockNumber, receipt: bytes) -> None: ...
    def prune_records(self) -> tuple[PruneRecord, ...]: ...  # type: ignore[empty-body]
    def pin(self, number: BlockNumber, owner: str, timeout_s: float) -> int: ...  # type: ignore[empty-body]
    def unpin(self, pin_id: int) -> None: ...
    def pins(self) -> tuple[Pin, ...]: ...  # type: ignore[empty-body]

    def close(self) -> None:
        """Close files and database; open views fail from then on."""
