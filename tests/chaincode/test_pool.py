"""Do contracts run in their processes as they should, and does trouble stay where it is?  Real workers throughout."""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fabric_protos.msp import identities_pb2

from ledger.chaincode.pool import ContractPool
from ledger.chaincode.simulator import Simulator
from ledger.chaincode.values import ChaincodeEvent, ChaincodeResponse, TransactionContext
from ledger.core.errors import Busy, ChaincodeUndefined, ExecutionFailed, InvalidSetting, StorageFailed
from ledger.core.rwset import ReadWriteSet, Write
from ledger.core.state import Entry, StateKey
from tests.kit.paths import ROOT
from tests.kit.recorded import RecordedState
from tests.kit.simulations import TX_ID, make_proposal, make_state

TROUBLE = "tests.chaincode.contracts.trouble:TroubleContract"
ASSETS = "ledger.chaincode.contracts.assets:AssetContract"
TIMEOUT_MS = 1_500
PREFIX = f"error in simulation: failed to execute transaction {TX_ID}: "


@pytest.fixture(scope="module")
def pool() -> Iterator[ContractPool]:
    pool = ContractPool(
        {"trouble": TROUBLE, "other": TROUBLE, "assets": ASSETS},
        workers=2,
        execute_timeout_ms=TIMEOUT_MS,
        memory_bytes_max=512 << 20,
        search_path=(str(ROOT),),
    )
    pool.start()
    yield pool
    pool.close()


def allow(_: str) -> None:
    """Admit every contract."""


def run(
    pool: ContractPool, proposal: TransactionContext, state: RecordedState | None = None
) -> tuple[ChaincodeResponse, ReadWriteSet]:
    """Run the trouble contract, by default over an empty state."""
    simulator = Simulator(state or make_state("trouble", {}))
    return pool.execute("trouble", proposal, simulator, allow), simulator.finish()


def answer(pool: ContractPool, *args: str, state: RecordedState | None = None) -> Any:
    """Run a function that succeeds and decode what it returned."""
    response, _ = run(pool, make_proposal(*args), state)
    assert response.status == 200, response.message
    return json.loads(response.payload)


def assert_usable(pool: ContractPool) -> None:
    """Check that every worker answers again."""
    with ThreadPoolExecutor(2) as threads:
        pids = set(threads.map(lambda _: answer(pool, "sleep", "200"), range(2)))
    assert len(pids) == 2


@pytest.mark.parametrize("function", ["hang", "hang_in_requests"])
def test_a_hanging_contract_fails_its_own_proposal_only(pool: ContractPool, function: str) -> None:
    with ThreadPoolExecutor(2) as threads:
        hanging = threads.submit(run, pool, make_proposal(function))
        while not hanging.done():
            assert answer(pool, "sleep", "1") > 0
        with pytest.raises(ExecutionFailed) as failed:
            hanging.result()
    assert str(failed.value) == PREFIX + "timeout expired while executing transaction"
    assert_usable(pool)


@pytest.mark.parametrize("function", ["crash", "exit"])
def test_a_crashing_contract_fails_its_own_proposal_only(pool: ContractPool, function: str) -> None:
    with pytest.raises(ExecutionFailed) as failed:
        run(pool, make_proposal(function))
    assert str(failed.value) == PREFIX + "chaincode stream terminated"
    assert_usable(pool)


def test_a_contract_that_eats_memory_is_stopped_at_the_limit(pool: ContractPool) -> None:
    assert answer(pool, "eat", "20") == 20 << 20
    response, _ = run(pool, make_proposal("eat", "600"))
    assert response.status == 500
    assert_usable(pool)


def test_an_exception_becomes_a_failing_response_with_its_text(pool: ContractPool) -> None:
    response, _ = run(pool, make_proposal("fail"))
    assert response == ChaincodeResponse(500, "no luck today")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nosuch",), "Function nosuch not found in contract trouble"),
        (("sleep", "soon"), "cannot convert passed value 'soon' to int"),
        (("sleep",), "incorrect number of params. Expected 1, received 0"),
        ((b"\xff",), "Blank function name passed"),
        ((), "Blank function name passed"),
        (("private",), "get_private_data is not available"),
    ],
)
def test_an_impossible_call_becomes_a_failing_response_that_says_why(
    pool: ContractPool, args: tuple[str | bytes, ...], message: str
) -> None:
    response, _ = run(pool, make_proposal(*args))
    assert response.status == 500
    assert message in response.message


def test_proposals_run_at_once_in_different_workers(pool: ContractPool) -> None:
    with ThreadPoolExecutor(4) as threads:
        started = time.monotonic()
        pids = list(threads.map(lambda _: answer(pool, "sleep", "400"), range(4)))
    assert len(set(pids)) == 2
    assert 0.8 <= time.monotonic() - started < 1.5


def test_a_pool_that_is_busy_for_too_long_says_so() -> None:
    pool = ContractPool({"trouble": TROUBLE}, workers=1, execute_timeout_ms=400, search_path=(str(ROOT),))
    pool.start()
    try:
        with ThreadPoolExecutor(3) as threads:
            calls = [threads.submit(answer, pool, "sleep", "350") for _ in range(3)]
            errors = [call.exception() for call in calls]
        assert [type(error) for error in errors if error is not None] == [Busy]
    finally:
        pool.close()


def test_a_contract_does_not_see_its_own_writes(pool: ContractPool) -> None:
    state = make_state("trouble", {"k": b"before"})
    response, rwset = run(pool, make_proposal("write_and_read", "k", "after"), state)
    assert response.payload == b"before"
    assert rwset.namespaces[0].writes == (Write("k", b"after"),)


def test_events_transient_data_and_the_client_reach_where_they_should(pool: ContractPool) -> None:
    creator = identities_pb2.SerializedIdentity(mspid="Org1MSP", id_bytes=b"certificate").SerializeToString()
    response, _ = run(pool, make_proposal("who", creator=creator, transient={"secret": b"42"}))
    assert json.loads(response.payload) == {
        "creator": "Org1MSP",
        "channel": "channel",
        "tx_id": TX_ID,
        "time": "2023-11-14T22:13:20.005Z",
        "transient": {"secret": "42"},
    }
    response, _ = run(pool, make_proposal("announce", "made", "payload"))
    assert response.event == ChaincodeEvent("made", b"payload")


def test_contracts_that_wait_on_their_loop_are_waited_for(pool: ContractPool) -> None:
    assert run(pool, make_proposal("wait"))[0].payload == b"waited"


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 200, 201, 250])
def test_ranges_travel_whole_whatever_their_length(pool: ContractPool, count: int) -> None:
    state = make_state("trouble", {f"k{number:04d}": b"v" for number in range(count)})
    assert answer(pool, "keys", "", "", state=state) == [f"k{number:04d}" for number in range(count)]


def test_an_abandoned_range_is_recorded_up_to_what_was_fetched(pool: ContractPool) -> None:
    state = make_state("trouble", {f"k{number:04d}": b"v" for number in range(250)})
    response, rwset = run(pool, make_proposal("first_key", "k", "l"), state)
    assert response.payload == b"k0000"
    (query,) = rwset.namespaces[0].range_queries
    assert (query.start, query.end, query.exhausted) == ("k", "k0100", False)


@pytest.mark.parametrize("function", ["page_then_write", "write_then_page"])
def test_pages_and_writes_exclude_each_other(pool: ContractPool, function: str) -> None:
    response, _ = run(pool, make_proposal(function))
    assert response.status == 500
    assert "their borders are not protected" in response.message


def test_a_page_in_an_invoked_contract_sees_the_writes_of_its_caller(pool: ContractPool) -> None:
    response, _ = run(pool, make_proposal("page_in_another", "assets"))
    inner = json.loads(response.payload)
    assert inner["status"] == 500
    assert "a transaction that writes can't make paged queries" in inner["message"]


def test_composite_keys_are_made_found_and_taken_apart(pool: ContractPool) -> None:
    state = make_state("trouble", {"\x00color\x00red\x00a\x00": b"1", "\x00color\x00red\x00b\x00": b"1", "red": b"1"})
    response, rwset = run(pool, make_proposal("composite", "red", "c"), state)
    assert json.loads(response.payload) == [["red", "a"], ["red", "b"]]
    assert rwset.namespaces[0].writes == (Write("\x00color\x00red\x00c\x00", b"\x01"),)
    page = answer(pool, "composite_page", "1", "", state=state)
    assert page == {"keys": ["\x00color\x00red\x00a\x00"], "bookmark": "\x00color\x00red\x00b\x00"}


def test_a_key_gets_its_own_policy(pool: ContractPool) -> None:
    state = make_state("trouble", {"k": b"v"})
    response, rwset = run(pool, make_proposal("parameter", "k", "policy"), state)
    assert response.payload == b""
    (written,) = rwset.namespaces[0].metadata_writes
    assert (written.key, written.entries) == ("k", (("VALIDATION_PARAMETER", b"policy"),))
    assert [read.key for read in rwset.namespaces[0].reads] == ["k"]


def test_invoked_contracts_write_in_their_own_namespace_and_their_events_are_dropped(pool: ContractPool) -> None:
    simulator = Simulator(make_state("trouble", {}))
    proposal = make_proposal("call", "other", json.dumps(["announce", "inner", "x"]))
    response = pool.execute("trouble", proposal, simulator, allow)
    assert response.event == ChaincodeEvent("called", b"other")
    simulator = Simulator(make_state("trouble", {}))
    proposal = make_proposal("call", "assets", json.dumps(["create", "a1", "bob", "3"]))
    response = pool.execute("trouble", proposal, simulator, allow)
    assert json.loads(response.payload)["status"] == 200
    written = {ns.namespace: [write.key for write in ns.writes] for ns in simulator.finish().namespaces}
    assert written == {"assets": ["a1"], "trouble": ["caller"]}


def test_the_failure_of_an_invoked_contract_is_the_callers_to_judge(pool: ContractPool) -> None:
    found = answer(pool, "call", "other", json.dumps(["fail"]))
    assert found == {"status": 500, "message": "no luck today", "payload": ""}


def test_a_contract_can_not_invoke_itself(pool: ContractPool) -> None:
    response, _ = run(pool, make_proposal("call", "trouble", json.dumps(["who"])))
    assert response.status == 500
    assert "contract trouble is running already" in response.message


def test_a_contract_that_is_not_admitted_is_not_invoked(pool: ContractPool) -> None:
    def refuse(name: str) -> None:
        raise ChaincodeUndefined(f"chaincode {name} not found")

    simulator = Simulator(make_state("trouble", {}))
    response = pool.execute("trouble", make_proposal("call", "other", "[]"), simulator, refuse)
    assert (response.status, response.message) == (500, "chaincode other not found")


def test_a_worker_gets_nothing_of_the_peer(pool: ContractPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no key, address or open file of the peer.  Method: open and set some, start a worker, let it look."""
    monkeypatch.setenv("PEERLEDGER_SECRET", "s3cret")
    descriptor = os.open("/dev/zero", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    own = ContractPool({"trouble": TROUBLE}, workers=1, search_path=(str(ROOT),))
    own.start()
    try:
        found = answer(own, "surroundings")
    finally:
        own.close()
        os.close(descriptor)
    assert set(found["environment"]) <= {
        "PATH", "LANG", "LC_CTYPE", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE",
    }  # fmt: skip
    assert "s3cret" not in json.dumps(found)
    assert "/dev/zero" not in found["descriptors"].values()
    # Its connection, and the pair by which its own event loop wakes itself.
    assert len([target for target in found["descriptors"].values() if target.startswith("socket:")]) == 3
    assert found["folder"] == "/"
    assert answer(pool, "surroundings")["order"] == found["order"], "sets iterate alike in all workers"


class FailingState(RecordedState):
    """A state on a disk that does not answer."""

    def get(self, key: StateKey) -> Entry | None:
        raise StorageFailed(f"can't read {key}")


def test_a_failing_disk_is_no_failure_of_the_contract(pool: ContractPool) -> None:
    with pytest.raises(StorageFailed):
        run(pool, make_proposal("write_and_read", "k", "v"), FailingState({}))
    assert_usable(pool)


@pytest.mark.parametrize(
    "path", ["no.such.module:Contract", "tests.chaincode.contracts.trouble:NoSuch", "tests.kit.paths:ROOT"]
)
def test_a_contract_that_can_not_be_loaded_stops_the_start_and_is_named(path: str) -> None:
    pool = ContractPool({"broken": path}, workers=1, search_path=(str(ROOT),))
    with pytest.raises(InvalidSetting) as refused:
        pool.start()
    assert refused.value.rule == "loads"
    assert path in str(refused.value)


def test_a_closed_pool_takes_no_proposal_and_leaves_no_process() -> None:
    pool = ContractPool({"trouble": TROUBLE}, workers=1, search_path=(str(ROOT),))
    pool.start()
    pid = answer(pool, "sleep", "1")
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(Busy):
        answer(pool, "sleep", "1")
