"""Do our simulations come to the results that real peers recorded, byte for byte?

The channel `rich` holds 363 transactions that real peers simulated: 295 runs and 2 initialisations of a chaincode whose
arguments name its operations, 44 approvals and 22 commits of `_lifecycle`. (Its other endorser transactions are forged:
their sets were written by hand.) Here the same operations run on our simulator, over the state before the transaction's
block, and the encoded sets are compared. Covered are reads, writes, deletes, ranges of 0 to 120 and 2,650 results, read
to the end or left early, Merkle summaries of one and two levels, pages, composite keys, unusual keys, key-level
parameters, hashed private reads, writes, deletes and purges, initialisation, and chaincodes that call others.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from ledger.chaincode.definition_records import committed_definition, read_sequence
from ledger.chaincode.lifecycle import Lifecycle
from ledger.chaincode.pool import ContractPool
from ledger.chaincode.runtime import Runtime, check_initialization
from ledger.chaincode.simulator import Simulator
from ledger.chaincode.values import Timestamp, TransactionContext
from ledger.core.errors import SimulationFailed
from ledger.core.names import TxId
from ledger.core.state import CONFIG_KEY, public_key
from ledger.wire.lifecycle_calls import encode_commit_arguments
from ledger.wire.rwset import decode_rwset, encode_rwset
from ledger.wire.system_calls import application_msp_ids
from tests.kit.operations import Operation, operations_in, run, uses_private_data
from tests.kit.paths import ROOT
from tests.kit.recorded import RecordedTransaction, msp_id_of, recorded_states, recorded_transactions
from tests.kit.recorded_ledger import RecordedLedger

CHANNEL = "rich"
FORGED = b"f"
"""Function name in the proposals that were never simulated."""

ENDORSED_EARLIER = {
    (17, 0): 16,
    (47, 0): 46,
    (60, 0): 59,
    (107, 0): 106,
    (107, 1): 106,
    (109, 0): 106,
    (120, 0): 119,
    (124, 0): 123,
    (256, 1): 255,
    (257, 1): 256,
    (257, 2): 256,
    (277, 0): 276,
    (292, 0): 291,
}
"""Transactions that were endorsed before blocks that came in between: place, and block before which they were."""

SIMULATED = [each for each in recorded_transactions(CHANNEL) if each.args and each.args[0] != FORGED]
OPERATIONS = [each for each in SIMULATED if each.args[0] in (b"run", b"init")]
DEFINITIONS = [each for each in SIMULATED if each.chaincode == "_lifecycle"]


def name_of(transaction: RecordedTransaction) -> str:
    return f"{transaction.block}-{transaction.index} {transaction.label}"


def height_of(transaction: RecordedTransaction) -> int:
    """Number of the block before which a transaction was endorsed."""
    return ENDORSED_EARLIER.get((transaction.block, transaction.index), transaction.block)


def test_every_recorded_simulation_is_compared() -> None:
    assert Counter(each.args[0] for each in SIMULATED) == {
        b"run": 295,
        b"init": 2,
        b"ApproveChaincodeDefinitionForMyOrg": 44,
        b"CommitChaincodeDefinition": 22,
    }
    assert len(OPERATIONS) + len(DEFINITIONS) == len(SIMULATED) == 363


@pytest.mark.parametrize("transaction", OPERATIONS, ids=name_of)
def test_operations_give_the_recorded_results(transaction: RecordedTransaction) -> None:
    view = recorded_states(CHANNEL)[height_of(transaction)]
    simulator = Simulator(view)

    def invoke(chaincode: str, operations: list[Operation]) -> None:
        if uses_private_data(operations):
            committed_definition(simulator, chaincode)
        assert read_sequence(simulator, chaincode) is not None
        definition = committed_definition(Simulator(view), chaincode)
        assert definition is not None
        check_initialization(
            simulator,
            chaincode,
            definition.version,
            init_required=definition.init_required,
            is_init=transaction.is_init,
        )
        run(simulator, chaincode, with_values(operations, transaction), invoke)

    invoke(transaction.chaincode, operations_in(transaction.args))
    assert encode_rwset(simulator.finish()) == transaction.results, decode_rwset(transaction.results)


def with_values(operations: list[Operation], transaction: RecordedTransaction) -> list[Operation]:
    """Put in the values of n bytes that the recorded chaincode made up (4 of the transactions), from its write."""
    written = {write.key: write.value for ns in decode_rwset(transaction.results).namespaces for write in ns.writes}
    return [
        each | {"v": written[each["k"]].decode(), "n": 1} if each["o"] == "put" and "n" in each else each
        for each in operations
    ]


@pytest.mark.parametrize("transaction", DEFINITIONS, ids=name_of)
def test_lifecycle_gives_the_recorded_results(transaction: RecordedTransaction) -> None:
    view = recorded_states(CHANNEL)[height_of(transaction)]
    simulator = Simulator(view)
    config = view.get(public_key("", CONFIG_KEY))
    assert config is not None
    lifecycle = Lifecycle(simulator, msp_id_of(transaction.endorsers[0]), application_msp_ids(config.value))
    response = lifecycle.invoke(transaction.args)
    assert (response.status, response.message, response.payload) == transaction.response
    assert encode_rwset(simulator.finish()) == transaction.results, decode_rwset(transaction.results)


CONTRACT = "tests.chaincode.contracts.operations:OperationsContract"


@pytest.fixture(scope="module")
def pool() -> Iterator[ContractPool]:
    names = sorted({each.chaincode for each in OPERATIONS} | {"callee"})
    pool = ContractPool(dict.fromkeys(names, CONTRACT), workers=1, search_path=(str(ROOT),))
    pool.start()
    yield pool
    pool.close()


def reachable(operations: list[Operation]) -> bool:
    """Tell whether a contract of the pool can do these: no private data, no values made up."""
    return not uses_private_data(operations) and all(
        reachable(each.get("ops", [])) and not (each["o"] == "put" and "n" in each) for each in operations
    )


IN_THE_POOL = [each for each in OPERATIONS if reachable(operations_in(each.args))]


def test_most_recorded_simulations_run_in_the_pool_too() -> None:
    assert len(IN_THE_POOL) == 239


@pytest.mark.parametrize("transaction", IN_THE_POOL, ids=name_of)
def test_a_contract_of_the_pool_gives_the_recorded_results(
    transaction: RecordedTransaction, pool: ContractPool
) -> None:
    """Goal: what crosses the process border changes nothing.  Method: the operations as a contract, by the runtime."""
    ledger = RecordedLedger(CHANNEL, height_of(transaction))
    context = TransactionContext(
        TxId("0" * 64), "richchannel", transaction.creator, Timestamp(0), transaction.args, is_init=transaction.is_init
    )
    found = Runtime(pool, "Org1MSP", {}).simulate(transaction.chaincode, context, ledger)
    assert found.response.status == 200, found.response.message
    assert found.results == transaction.results, decode_rwset(transaction.results)
    assert found.version == definition_version(transaction)
    assert (found.event is not None) == bool(transaction.event)


def definition_version(transaction: RecordedTransaction) -> str:
    definition = committed_definition(
        Simulator(recorded_states(CHANNEL)[height_of(transaction)]), transaction.chaincode
    )
    assert definition is not None
    return definition.version


def test_a_second_commit_of_a_sequence_is_refused_with_the_sequence_expected() -> None:
    """The recorded double commit passed only because both were endorsed before the first was ordered."""
    view = recorded_states(CHANNEL)[16]
    lifecycle = Lifecycle(Simulator(view), "Org1MSP", ("Org1MSP", "Org2MSP"))
    definition = committed_definition(Simulator(view), "spare")
    assert definition is not None
    response = lifecycle.invoke((b"CommitChaincodeDefinition", encode_commit_arguments(definition)))
    assert response.status == 500
    assert "next sequence; expected 2; found 1" in response.message


def test_a_contract_that_was_never_defined_is_refused(pool: ContractPool) -> None:
    context = TransactionContext(TxId("0" * 64), "richchannel", b"", Timestamp(0), (b"run", b"[]"))
    with pytest.raises(SimulationFailed) as refused:
        Runtime(pool, "Org1MSP", {}).simulate("plain", context, RecordedLedger(CHANNEL, 1))
    assert str(refused.value) == (
        "make sure the chaincode plain has been successfully defined on channel richchannel and try again: "
        "chaincode plain not found"
    )
