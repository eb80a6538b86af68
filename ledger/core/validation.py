"""Is a transaction valid in itself, and is it endorsed as the state before its block asks for?  The first pass.

What needs no state, and can run ahead (`check_signatures`):

1. faults of the bytes up to the header (2, 3, 255);
2. the creator is a valid member of the channel and signed the payload (4);
3. the endorsers with valid signatures, in order, each once.

What needs the state before the block, in the order of the block (`FirstPass.check`):

4. faults of the transaction's body (5, 7, 8); CONFIG beside other transactions (6);
5. the id is in no block before (9);
6. faults of the chaincode action (19, 21, 22, 23, 25, 255);
7. for the chaincode invoked and each namespace written, ascending: it is defined (25), and the endorsers satisfy the
   policy of every key written (10). That of a key is its key-level parameter in the state before the block, else that
   of its collection, else that of the chaincode; each is evaluated once, and that of the chaincode at least if there
   was no other. A key whose parameter an earlier transaction of the block set, endorsed as its namespace asks for,
   can't be written any more (10).

Where a real peer crashes, hangs or answers at random, the verdicts are those of `unrecordable`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ledger.core.batch import Batch
from ledger.core.channel_config import Bundle
from ledger.core.conflicts import named
from ledger.core.definitions import IMPLICIT_PREFIX, Definition, Definitions, Unusable
from ledger.core.endorsement import Endorsers, KeyPolicy, Policies, Rule
from ledger.core.errors import Fault, InvalidIdentity, shown
from ledger.core.names import Verdict
from ledger.core.policy.ast import PolicyReference
from ledger.core.policy.evaluate import SignedData, valid_identities
from ledger.core.rwset import NamespaceSet
from ledger.core.state import HASHED, PUBLIC, LedgerView, StateKey
from ledger.core.transaction import CONFIG, Action, Stage, Transaction
from ledger.core.unrecordable import (
    CONFIG_BESIDE_OTHERS,
    NO_CHANNEL,
    UNDEFINED_COLLECTION,
    UNUSABLE_DEFINITION,
    namespaces_in_order,
)

NOBODY = Endorsers((), ())
"""The endorsers of a transaction whose endorsements are of no account."""


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction whose signatures were checked."""

    transaction: Transaction

    fault: Fault | None
    """Fault of the header or of the creator: steps 1 and 2."""

    endorsers: Endorsers


def check_signatures(transaction: Transaction, bundle: Bundle) -> PreparedTransaction:
    """Check creator and endorsers of a transaction (steps 1 to 3); needs no state and is thread-safe."""
    fault = transaction.fault
    if fault is not None and transaction.stage is Stage.HEADER:
        return PreparedTransaction(transaction, fault, NOBODY)
    creator_fault = check_creator(transaction, bundle)
    action = transaction.action
    if creator_fault is not None or action is None:
        return PreparedTransaction(transaction, creator_fault, NOBODY)
    signed = [
        SignedData(action.response_payload + each.endorser, each.endorser, each.signature)
        for each in action.endorsements
    ]
    return PreparedTransaction(transaction, None, Endorsers.of(valid_identities(signed, bundle.msps)))


def check_creator(transaction: Transaction, bundle: Bundle) -> Fault | None:
    """Check that the creator is a valid member of the channel and signed (step 2)."""
    if transaction.channel_id != bundle.channel_id:
        detail = f"expected {bundle.channel_id}, found {shown(transaction.channel_id)}"
        return Fault(int(NO_CHANNEL), "channel of the creator", detail)
    try:
        creator = bundle.msps.deserialize(transaction.creator)
        bundle.msps.validate(creator)
    except InvalidIdentity as error:
        return Fault(int(Verdict.BAD_CREATOR_SIGNATURE), "creator", str(error))
    if not creator.verify(transaction.payload, transaction.signature):
        return Fault(int(Verdict.BAD_CREATOR_SIGNATURE), "creator signature", f"by {creator.msp_id}")
    return None


class Failed(Exception):
    """Carries the fault of one namespace out of its checks."""

    def __init__(self, verdict: Verdict, rule: str, detail: str) -> None:
        """Say which rule was broken and how."""
        super().__init__(rule)
        self.fault = Fault(int(verdict), rule, detail)


class FirstPass:
    """Judges the transactions of one block in themselves, in order.

    Args:
        view: The ledger as of the block before.
        batch: Reads the state before the block.
        definitions: Chaincode definitions in that state.
        policies: Evaluates policies under the configuration in force.
        parameter_of: Takes the key-level parameter out of a key's stored metadata; empty for none.
    """

    def __init__(
        self,
        view: LedgerView,
        batch: Batch,
        definitions: Definitions,
        policies: Policies,
        parameter_of: Callable[[bytes], bytes],
    ) -> None:
        """Stand before the first transaction."""
        self._view = view
        self._batch = batch
        self._definitions = definitions
        self._policies = policies
        self._parameter_of = parameter_of
        self._parameters_set: set[StateKey] = set()

    def check(self, prepared: PreparedTransaction) -> Fault | None:
        """Judge the next transaction (steps 4 to 7); return the first fault."""
        transaction = prepared.transaction
        if prepared.fault is not None:
            return prepared.fault
        if transaction.fault is not None and transaction.stage is Stage.BODY:
            return transaction.fault
        if transaction.kind == CONFIG:
            return Fault(int(CONFIG_BESIDE_OTHERS), "config transaction alone", "it is not alone in its block")
        if self._view.has_transaction(transaction.tx_id):
            return Fault(int(Verdict.DUPLICATE_TXID), "transaction id in ledger", transaction.tx_id)
        if transaction.fault is not None:
            return transaction.fault
        assert transaction.action is not None, "an endorser transaction without fault has an action"
        return self._check_action(transaction.action, prepared.endorsers)

    def _check_action(self, action: Action, endorsers: Endorsers) -> Fault | None:
        """Check the policies of all namespaces concerned (step 7)."""
        written = {each.namespace: each for each in action.rwset.namespaces if writes(each)}
        set_here: set[StateKey] = set()
        fault = None
        for name in namespaces_in_order({action.chaincode, *written}):
            namespace = written.get(name, NOTHING_WRITTEN)
            try:
                self._check_namespace(name, namespace, endorsers)
            except Failed as failed:
                fault = failed.fault
                break
            if namespace.metadata_writes or namespace.collections:
                set_here.update(keys_described(namespace))
        self._parameters_set |= set_here
        return fault

    def _check_namespace(self, name: str, namespace: NamespaceSet, endorsers: Endorsers) -> None:
        """Check the policies of one namespace; raise the first failure."""
        definition = self._definitions.usable(name)
        if isinstance(definition, Unusable):
            raise Failed(UNUSABLE_DEFINITION, definition.rule, definition.detail)
        chaincode_rule = self._policies.of_chaincode(name, definition)
        checked: set[Rule] = set()
        for key in keys_written(name, namespace):
            rule = self._rule_of(key, definition) or chaincode_rule
            if rule not in checked:
                self._require(rule, endorsers, key)
                checked.add(rule)
        if not checked:
            self._require(chaincode_rule, endorsers, StateKey(PUBLIC, name, "", b""))

    def _rule_of(self, key: StateKey, definition: Definition) -> Rule | None:
        """Give the policy that a key is written by; None for that of the chaincode."""
        if key in self._parameters_set:
            raise Failed(
                Verdict.ENDORSEMENT_POLICY_FAILURE,
                "parameter set in block",
                f"{named(key)}: an earlier transaction of the block set its parameter",
            )
        collection_rule = self._collection_rule(key, definition) if key.kind == HASHED else None
        entry = self._batch.committed(key)
        if entry is not None and entry.metadata:
            parameter = self._parameter_of(entry.metadata)
            if parameter:
                return KeyPolicy(parameter)
        return collection_rule

    def _collection_rule(self, key: StateKey, definition: Definition) -> Rule | None:
        """Give the policy of a key's collection; None where it has none of its own."""
        name = key.collection
        if name.startswith(IMPLICIT_PREFIX):
            rule = self._policies.of_implicit(name)
            if rule is not None:
                return rule
        else:
            collection = definition.collection(name) if name else None
            if collection is not None:
                return collection.policy or None
        raise Failed(
            UNDEFINED_COLLECTION, "collection definition", f"{shown(key.namespace)} has no collection {shown(name)}"
        )

    def _require(self, rule: Rule, endorsers: Endorsers, key: StateKey) -> None:
        """Require that the endorsers satisfy a policy."""
        if self._policies.satisfied(rule, endorsers):
            return
        match rule:
            case KeyPolicy():
                what = "key-level policy"
            case PolicyReference():
                what = rule.path
            case _:
                what = "collection or chaincode policy" if key.kind == HASHED else "chaincode policy"
        detail = f"{named(key)}: {what} is not satisfied by {endorsers}"
        raise Failed(Verdict.ENDORSEMENT_POLICY_FAILURE, "endorsement policy", detail)


NOTHING_WRITTEN = NamespaceSet("")
"""What the invoked chaincode writes if it is not in the set."""


def writes(namespace: NamespaceSet) -> bool:
    """Tell whether a transaction writes to a namespace, values or metadata."""
    return bool(
        namespace.writes
        or namespace.metadata_writes
        or any(each.writes or each.metadata_writes for each in namespace.collections)
    )


def keys_written(name: str, namespace: NamespaceSet) -> Iterator[StateKey]:
    """Yield the keys that a transaction writes in a namespace, in the order in which their policies are asked for."""
    for write in namespace.writes:
        yield StateKey(PUBLIC, name, "", write.key.encode())
    for metadata in namespace.metadata_writes:
        yield StateKey(PUBLIC, name, "", metadata.key.encode())
    for collection in namespace.collections:
        for hashed in collection.writes:
            yield StateKey(HASHED, name, collection.collection, hashed.key_hash)
        for described in collection.metadata_writes:
            yield StateKey(HASHED, name, collection.collection, described.key_hash)


def keys_described(namespace: NamespaceSet) -> Iterator[StateKey]:
    """Yield the keys whose metadata a transaction writes in a namespace."""
    for metadata in namespace.metadata_writes:
        yield StateKey(PUBLIC, namespace.namespace, "", metadata.key.encode())
    for collection in namespace.collections:
        for described in collection.metadata_writes:
            yield StateKey(HASHED, namespace.namespace, collection.collection, described.key_hash)


def duplicates(transactions: Sequence[Transaction], faults: Sequence[Fault | None]) -> Iterator[tuple[int, Fault]]:
    """Find the transactions that passed the first pass though an earlier one that passed it has their id (9).

    One that failed the first pass does not use up its id inside the block; one that fails the second pass does.
    """
    first: dict[str, int] = {}
    for index, (transaction, fault) in enumerate(zip(transactions, faults, strict=True)):
        if fault is not None:
            continue
        earlier = first.setdefault(transaction.tx_id, index)
        if earlier != index:
            detail = f"{transaction.tx_id} is that of transaction {earlier}"
            yield index, Fault(int(Verdict.DUPLICATE_TXID), "transaction id in block", detail)


__all__ = ["NOBODY", "FirstPass", "PreparedTransaction", "check_signatures", "duplicates"]
