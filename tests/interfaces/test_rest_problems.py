"""Each error leaves by the REST door with its own status and type, and says what to do next."""

import threading
import time
from collections.abc import Iterator
from html import escape

import pytest
from starlette.testclient import TestClient

from ledger.core import errors
from ledger.core.errors import LedgerError
from ledger.interfaces.rest import models
from ledger.interfaces.rest.app import create_app
from ledger.interfaces.rest.door import BODY_BYTES_MAX
from ledger.interfaces.rest.problems import ALL_KINDS, KINDS, OutcomeUnknown, Unauthenticated, problem_of
from tests.kit.rest_node import CHANNEL, GOOD_TOKEN, MemoryNode, make_node

BASE = f"/v1/channels/{CHANNEL}"


@pytest.fixture
def node() -> MemoryNode:
    return make_node()


@pytest.fixture
def client(node: MemoryNode) -> Iterator[TestClient]:
    with TestClient(create_app(node, read_timeout_ms=200), raise_server_exceptions=False) as client:
        yield client


def refused(kind: type[errors.Refused]) -> errors.Refused:
    return kind("the subject", rule="the rule", expected="one thing", found=b"\x01\x02")


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (refused(Unauthenticated), 401, "unauthenticated"),
        (refused(errors.Forbidden), 403, "forbidden"),
        (errors.NotFound("nothing here"), 404, "not-found"),
        (errors.Pruned(block=7, first_block=20), 410, "pruned"),
        (errors.Pruned(block=7, first_block=20, index=3, verdict=11), 410, "pruned"),
        (refused(errors.PruneRefused), 409, "prune-refused"),
        (errors.Conflict("it is there already"), 409, "conflict"),
        (refused(errors.MalformedMessage), 400, "refused"),
        (refused(errors.InvalidPolicy), 400, "refused"),
        (refused(errors.InvalidIdentity), 400, "refused"),
        (errors.ChaincodeUndefined("cc9"), 422, "simulation-failed"),
        (OutcomeUnknown("ab", height=7, waited_ms=100), 504, "outcome-unknown"),
        (errors.Diverged("checkpoint 60 differs"), 503, "diverged"),
        (errors.ChannelStopped("config block 8 does not apply"), 503, "channel-stopped"),
        (errors.Busy("too many"), 503, "busy"),
        (errors.StorageDamaged("segment 1, record 7"), 503, "storage-damaged"),
        (errors.StorageFailed("input/output error"), 503, "storage-failed"),
        (errors.PeerUnreachable("orderer"), 503, "unavailable"),
        (errors.WorldFailed("something"), 503, "unavailable"),
    ],
)
def test_each_error_behind_a_path_has_its_status_and_type(
    client: TestClient, node: MemoryNode, error: LedgerError, status: int, slug: str
) -> None:
    node.channel_view.ledger.fault = error
    answer = client.get(f"{BASE}/vblocks/3")
    assert answer.headers["content-type"] == "application/problem+json"
    problem = models.ProblemDocument.model_validate_json(answer.content)
    assert (answer.status_code, problem.status, problem.type) == (status, status, f"/problems/{slug}")
    assert problem.detail == str(error)
    assert problem.instance == f"{BASE}/vblocks/3"
    assert problem.hint
    if isinstance(error, errors.Refused):
        assert (problem.rule, problem.expected, problem.found) == ("the rule", "one thing", "0102")


def leaves_of(kind: type[LedgerError]) -> list[type[LedgerError]]:
    return [kind, *(leaf for sub in kind.__subclasses__() for leaf in leaves_of(sub))]


NODE_S_OWN = [one for one in leaves_of(LedgerError) if not one.__module__.startswith("ledger.client.")]
"""Errors that a node can answer with: not those of applications, which are here if another test imported them."""


@pytest.mark.parametrize("kind", [one for one in NODE_S_OWN if one is not LedgerError])
def test_no_error_of_the_tree_is_left_without_a_kind(kind: type[LedgerError]) -> None:
    assert any(issubclass(kind, known) for known, _ in KINDS), f"{kind.__name__} would be an internal error"


def test_every_kind_has_a_page_at_its_type(client: TestClient) -> None:
    for kind in ALL_KINDS:
        page = client.get(kind.type)
        assert page.status_code == 200
        assert escape(kind.title) in page.text
    assert client.get("/problems/unheard-of").status_code == 404


def test_special_errors_come_before_general_ones() -> None:
    for position, (kind, _) in enumerate(KINDS):
        earlier = [known for known, _ in KINDS[:position]]
        assert not any(issubclass(kind, known) for known in earlier), f"{kind.__name__} is never reached"


def test_what_refused_is_cut_to_a_readable_length() -> None:
    error = errors.MalformedMessage("block", rule="protobuf", found=b"\x00" * 1_000_000)
    assert len(str(problem_of(error).document("/"))) < 2_000


def test_a_mistake_of_ours_says_nothing_about_its_inside(
    client: TestClient, node: MemoryNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.channel_view.ledger.fault = RuntimeError("secret detail")
    answer = client.get(f"{BASE}/vblocks/3")
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal")
    assert "secret" not in answer.text
    assert any("secret detail" in str(record.exc_info) for record in caplog.records)


@pytest.mark.parametrize(
    ("path", "status", "slug", "where"),
    [
        ("/v1/channels/unknown", 404, "not-found", None),
        ("/v1/nothing", 404, "no-such-path", None),
        (f"{BASE}/blocks/seven", 400, "invalid-request", "path.number"),
        (f"{BASE}/blocks/-1", 400, "invalid-request", "path.number"),
        (f"{BASE}/blocks/{2**64}", 400, "invalid-request", "path.number"),
        (f"{BASE}/blocks/{2**64 - 1}", 404, "not-found", None),
        (f"{BASE}/blocks/3?format=xml", 400, "invalid-request", "query.format"),
        (f"{BASE}/transactions/ab?wait_ms=60001", 400, "invalid-request", "query.wait_ms"),
        (f"{BASE}/transactions/ab?wait_ms=-1", 400, "invalid-request", "query.wait_ms"),
        (f"{BASE}/state/cc1", 400, "invalid-request", "query.key"),
        (f"{BASE}/state/cc1?key=a*b", 400, "refused", None),
        (f"{BASE}/state/cc1?key=a", 400, "refused", None),
        (f"{BASE}/history/cc1/k?limit=0", 400, "invalid-request", "query.limit"),
        (f"{BASE}/history/cc1/k?before=7", 400, "invalid-request", "query.before"),
        (f"{BASE}/checkpoints/61", 404, "not-found", None),
    ],
)
def test_each_wrong_request_is_told_what_is_wrong(
    client: TestClient, path: str, status: int, slug: str, where: str | None
) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{slug}")
    if where is not None:
        assert [one["where"] for one in answer.json()["errors"]] == [where]


def test_a_wrong_method_names_the_right_ones(client: TestClient) -> None:
    answer = client.delete(f"{BASE}/blocks/3")
    assert (answer.status_code, answer.json()["type"]) == (405, "/problems/method-not-allowed")
    assert answer.headers["allow"] == "GET"


BEARER = {"Authorization": f"Bearer {GOOD_TOKEN}"}


@pytest.mark.parametrize(
    ("body", "media", "rule"),
    [
        (b'{"to": 7', "application/json", "json_invalid"),
        (b'{"to": "seven"}', "application/json", "int_parsing"),
        (b'{"until": 7}', "application/json", "extra_forbidden"),
        (b'{"to": -1}', "application/json", "greater_than_equal"),
        (b"[]", "application/json", "model_attributes_type"),
        (b'{"to": 7}', "application/x-www-form-urlencoded", "content type"),
        (b"\xff\xfe", "application/json", None),
        (b"", "application/json", "missing"),
    ],
)
def test_a_wrong_body_is_refused_at_once_and_prunes_nothing(
    client: TestClient, node: MemoryNode, body: bytes, media: str, rule: str | None
) -> None:
    started = time.monotonic()
    answer = client.post(f"{BASE}/prune", content=body, headers=BEARER | {"Content-Type": media})
    assert time.monotonic() - started < 0.5
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-request")
    if rule is not None:
        assert answer.json()["rule"] == rule
    assert node.channel_view.done == []


def test_a_body_that_is_too_large_is_not_read(client: TestClient, node: MemoryNode) -> None:
    body = b" " * BODY_BYTES_MAX + b'{"to": 7}'
    answer = client.post(f"{BASE}/prune", content=body, headers=BEARER | {"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["rule"]) == (400, "size")
    assert node.channel_view.done == []


def test_deeply_nested_json_is_refused(client: TestClient, node: MemoryNode) -> None:
    body = b"[" * 60_000
    answer = client.post(f"{BASE}/prune", content=body, headers=BEARER | {"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert node.channel_view.done == []


def hold(release: threading.Event) -> None:
    assert release.wait(20), "the test never let go"


def test_a_read_that_hangs_is_answered_and_does_not_stop_the_others(client: TestClient, node: MemoryNode) -> None:
    """Goal: no request hangs past its deadline.  Method: `status` waits for an event while other paths are asked."""
    release = threading.Event()
    node.channel_view.before_read = lambda: hold(release)
    try:
        started = time.monotonic()
        answer = client.get(BASE)
        assert time.monotonic() - started < 5
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/busy")
        assert answer.headers["retry-after"] == "1"
        assert client.get(f"{BASE}/vblocks/3").status_code == 200
        assert client.get("/healthz").status_code == 200
    finally:
        release.set()


def test_a_wait_over_a_ledger_that_hangs_ends_in_time(client: TestClient, node: MemoryNode) -> None:
    release = threading.Event()

    node.channel_view.ledger.before_read = lambda: hold(release)
    try:
        started = time.monotonic()
        answer = client.get(f"{BASE}/transactions/ab", params={"wait_ms": 20_000})
        assert time.monotonic() - started < 5
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/busy")
    finally:
        release.set()


def test_a_channel_that_did_not_open_says_why(client: TestClient, node: MemoryNode) -> None:
    node.failed = errors.ChannelStopped("channel broken: segments/000001, record 7 is damaged")
    answer = client.get("/v1/channels/broken")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/channel-stopped")
    assert "record 7" in answer.json()["detail"]
