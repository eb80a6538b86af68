"""What does a block do to the ledger?  Prepare it, judge it, and say everything that follows.

*Preparing* needs no state and may run ahead on other threads: decode every envelope and check every signature, under
the configuration in force. *Judging* happens in order, in the state before the block:

1. the genesis block is as it is: trust comes from whoever joined the peer;
2. a block with a single CONFIG transaction: if its creator is in order, the configuration must follow from the one in
   force; one that does not stops the channel before the block is committed, as in Fabric;
3. otherwise the first pass over all transactions (`validation`), then ids that stand twice in the block;
4. the second pass, in order: reads (`conflicts`), then the writes of a valid transaction join the batch (`merge`);
5. private entries whose time has come and that the block does not write expire;
6. the commit hash, chained to the one before.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from ledger.core.batch import Batch
from ledger.core.block import Block, block_hash
from ledger.core.channel_config import Bundle
from ledger.core.commit_hash import commit_hash
from ledger.core.conflicts import check_reads
from ledger.core.definitions import Definition, Definitions, committed_names
from ledger.core.endorsement import Policies
from ledger.core.errors import ChannelStopped, Fault, Refused
from ledger.core.names import TxIndex
from ledger.core.outcome import Outcome
from ledger.core.ports import Codec
from ledger.core.rwset import ReadWriteSet
from ledger.core.state import CONFIG_KEY, Entry, LedgerView, Version, public_key
from ledger.core.transaction import CONFIG, Transaction
from ledger.core.validation import NOBODY, FirstPass, PreparedTransaction, check_signatures, duplicates

CHUNKS_PER_BLOCK = 8
"""Pieces that a block's signature checks are cut into for a pool."""


@dataclass(frozen=True, slots=True)
class Decoders:
    """What the rules need read from bytes; `wire` has them."""

    transaction: Callable[[bytes], Transaction]
    """Takes an envelope apart; never raises."""

    definition: Callable[[bytes, Mapping[str, bytes]], Definition]
    """Decodes a chaincode definition; raises `MalformedMessage`."""

    parameter: Callable[[bytes], bytes]
    """Takes the key-level parameter out of stored metadata; empty for none."""

    policies: Codec
    """Decodes policies."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A block of which everything is known that needs no state."""

    block: Block

    sequence: int
    """Sequence of the configuration that signatures were checked under."""

    transactions: tuple[PreparedTransaction, ...]


class Transition:
    """The rules of one channel, with what they need from outside.  `judge` is called by one thread at a time.

    Args:
        decoders: How bytes are read.
        apply_config: Checks that a ConfigEnvelope follows from a configuration and can be used as the next one; raises
            `Refused` if it does not.
    """

    def __init__(self, decoders: Decoders, apply_config: Callable[[Bundle, bytes], object]) -> None:
        """Hold the functions; there is no other state than what is remembered of policies."""
        self._decoders = decoders
        self._apply_config = apply_config
        self._policies: Policies | None = None

    def prepare(self, block: Block, bundle: Bundle, workers: Executor | None = None) -> Prepared:
        """Decode the transactions of a block and check their signatures.  Thread-safe.

        Args:
            block: A block that is well formed and follows the last one.
            bundle: The configuration in force at this block.
            workers: Where to check signatures in parallel; None does it here. Never the pool that this call runs on.
        """
        if block.number == 0:
            genesis = tuple(
                PreparedTransaction(self._decoders.transaction(each), None, NOBODY) for each in block.envelopes
            )
            return Prepared(block, bundle.sequence, genesis)
        if workers is None:
            return Prepared(block, bundle.sequence, self._prepare_some(block.envelopes, bundle))
        size = -(-len(block.envelopes) // CHUNKS_PER_BLOCK)
        pieces = [block.envelopes[start : start + size] for start in range(0, len(block.envelopes), size)]
        done = workers.map(self._prepare_some, pieces, [bundle] * len(pieces))
        return Prepared(block, bundle.sequence, tuple([each for piece in done for each in piece]))

    def _prepare_some(self, envelopes: Sequence[bytes], bundle: Bundle) -> tuple[PreparedTransaction, ...]:
        """Decode all, then check all: interleaved, each would push the other out of the processor's caches."""
        transactions = [self._decoders.transaction(envelope) for envelope in envelopes]
        return tuple([check_signatures(transaction, bundle) for transaction in transactions])

    def judge(self, prepared: Prepared, view: LedgerView, bundle: Bundle) -> Outcome:
        """Judge a prepared block in the state before it (steps above).

        Args:
            prepared: What `prepare` made of the block, under the same configuration.
            view: The ledger as of the block before.
            bundle: The configuration in force at this block.

        Raises:
            ChannelStopped: The block is a configuration that can't be applied; nothing may be committed.
            StorageFailed: The view could not be read; never a verdict.
        """
        assert prepared.sequence == bundle.sequence, "prepared and judged under one configuration"
        number = prepared.block.number
        transactions = prepared.transactions
        batch = Batch(view, number)
        definitions = Definitions(batch.committed, self._decoders.definition)
        config = self._config_of(prepared, bundle)
        if config is not None:
            batch.put(
                public_key("", CONFIG_KEY), Entry(config, Version(number, TxIndex(0))), Version(number, TxIndex(0))
            )
            faults: list[Fault | None] = [None]
        elif is_config(prepared):
            faults = [transactions[0].fault or transactions[0].transaction.fault]
        else:
            faults = self._first_pass(prepared, view, batch, definitions, bundle)
            second_pass(transactions, faults, batch, definitions)
        return self._outcome(prepared, faults, batch, view, is_applied=config is not None)

    def reapply(self, prepared: Prepared, view: LedgerView) -> Outcome:
        """Say what a block did that was judged before: of steps 1 to 6 all that is no judgement.

        Verdicts that were changed, or taken in another state, show in the commit hash.

        Args:
            prepared: The block; what is wrong with a transaction is its `fault`, and one without is applied.
            view: The ledger as of the block before.

        Raises:
            StorageFailed: The view could not be read.
        """
        number, transactions = prepared.block.number, prepared.transactions
        batch = Batch(view, number)
        definitions = Definitions(batch.committed, self._decoders.definition)
        faults = [each.fault for each in transactions]
        is_applied = is_config(prepared) and faults[0] is None
        if is_applied:
            version = Version(number, TxIndex(0))
            batch.put(public_key("", CONFIG_KEY), Entry(transactions[0].transaction.config, version), version)
        else:
            for index, each in enumerate(transactions):
                if each.fault is None:
                    batch.apply(rwset_of(each), TxIndex(index), definitions)
        return self._outcome(prepared, faults, batch, view, is_applied=is_applied)

    def _config_of(self, prepared: Prepared, bundle: Bundle) -> bytes | None:
        """Give the ConfigEnvelope of a config block that is in order (steps 1 and 2), None for other blocks."""
        if not is_config(prepared):
            return None
        first = prepared.transactions[0]
        config = first.transaction.config
        if prepared.block.number == 0:
            return config
        if first.fault is not None:
            return None
        try:
            self._apply_config(bundle, config)
        except Refused as error:
            raise ChannelStopped(f"block {prepared.block.number}: configuration can't be applied: {error}") from error
        return config

    def _first_pass(
        self, prepared: Prepared, view: LedgerView, batch: Batch, definitions: Definitions, bundle: Bundle
    ) -> list[Fault | None]:
        """Judge all transactions in themselves (step 3)."""
        if self._policies is None or self._policies.bundle is not bundle:
            self._policies = Policies(bundle, self._decoders.policies)
        first_pass = FirstPass(view, batch, definitions, self._policies, self._decoders.parameter)
        faults = [first_pass.check(each) for each in prepared.transactions]
        for index, fault in list(duplicates([each.transaction for each in prepared.transactions], faults)):
            faults[index] = fault
        return faults

    def _outcome(
        self, prepared: Prepared, faults: list[Fault | None], batch: Batch, view: LedgerView, *, is_applied: bool
    ) -> Outcome:
        """Put together everything that follows (steps 5 and 6)."""
        block = prepared.block
        verdicts = bytes([0 if fault is None else fault.verdict for fault in faults])
        updates = {key: batch.updates[key] for key in sorted(batch.updates)}
        previous = view.commit_hash
        return Outcome(
            block=block,
            block_hash=block_hash(block),
            verdicts=verdicts,
            faults=tuple((TxIndex(index), fault) for index, fault in enumerate(faults) if fault is not None),
            tx_ids=tuple(each.transaction.tx_id for each in prepared.transactions),
            updates=updates,
            expired=tuple(sorted(key for key in view.expiring(block.number) if key not in updates)),
            history=tuple(history(prepared.transactions, faults)),
            commit_hash=commit_hash(verdicts, updates, batch.deleted_by, previous) if block.number > 0 else b"",
            is_config=is_applied,
            config_history=self._config_history(batch),
        )

    def _config_history(self, batch: Batch) -> tuple[tuple[str, bytes], ...]:
        """Find the definitions committed by this block that have collections, as they are after it."""
        names = committed_names(batch.updates)
        if not names:
            return ()
        after = Definitions(batch.latest, self._decoders.definition)
        found = [(name, after.find(name)) for name in names]
        return tuple((name, each.package) for name, each in found if isinstance(each, Definition) and each.collections)


def is_config(prepared: Prepared) -> bool:
    """Tell whether a block is a config block: a single transaction, of type CONFIG."""
    return len(prepared.transactions) == 1 and prepared.transactions[0].transaction.kind == CONFIG


def second_pass(
    transactions: Sequence[PreparedTransaction], faults: list[Fault | None], batch: Batch, definitions: Definitions
) -> None:
    """Check reads in order and let the writes of valid transactions join the batch (step 4); fills in `faults`."""
    for index, each in enumerate(transactions):
        if faults[index] is not None:
            continue
        rwset = rwset_of(each)
        faults[index] = check_reads(rwset, batch)
        if faults[index] is None:
            batch.apply(rwset, TxIndex(index), definitions)


def rwset_of(prepared: PreparedTransaction) -> ReadWriteSet:
    """Give the read-write set of a transaction that passed the first pass."""
    action = prepared.transaction.action
    assert action is not None, "the first pass lets only endorser transactions through"
    return action.rwset


def history(
    transactions: Sequence[PreparedTransaction], faults: Sequence[Fault | None]
) -> "list[tuple[TxIndex, str, str]]":
    """List the public keys written by each valid transaction, each once, in the order of its set."""
    found: list[tuple[TxIndex, str, str]] = []
    for index, (each, fault) in enumerate(zip(transactions, faults, strict=True)):
        if fault is not None or each.transaction.action is None:
            continue
        for namespace in each.transaction.action.rwset.namespaces:
            keys = dict.fromkeys(write.key for write in namespace.writes)
            found.extend((TxIndex(index), namespace.namespace, key) for key in keys)
    return found


__all__ = ["Decoders", "Prepared", "Transition"]
