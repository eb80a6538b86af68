"""What does committing one block mean?  The values that judging hands to the store, complete and in one piece."""

from dataclasses import dataclass

from ledger.core.block import Block
from ledger.core.errors import Fault
from ledger.core.names import Digest, TxId, TxIndex
from ledger.core.state import StateKey, Updates


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that follows from one block in the state before it."""

    block: Block
    """The block as received."""

    block_hash: Digest
    """Its header hash."""

    verdicts: bytes
    """One validation code per transaction, in order: the final metadata slot 2."""

    faults: tuple[tuple[TxIndex, Fault], ...]
    """The rule that decided, for every invalid transaction, ascending."""

    tx_ids: tuple[TxId, ...]
    """Claimed id of every transaction as indexed; "" where none could be decoded."""

    updates: Updates
    """Net batch of the block, as it enters the commit hash."""

    expired: tuple[StateKey, ...]
    """Entries that expire in this batch and are not written by it; not in the commit hash."""

    history: tuple[tuple[TxIndex, str, str], ...]
    """(index, namespace, key) of each public write by a valid transaction, in order."""

    commit_hash: bytes
    """Commit hash of the block; empty for block 0."""

    is_config: bool
    """Whether this is a config block; its ConfigEnvelope is then in `updates`, and governs from the next block on."""

    config_history: tuple[tuple[str, bytes], ...] = ()
    """(chaincode, CollectionConfigPackage) for each commit in this block that sets collections."""
