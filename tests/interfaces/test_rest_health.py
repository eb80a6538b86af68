"""Alive is not useful: what `/healthz`, `/readyz` and `/metrics` say."""

import threading
import time
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from ledger.interfaces.rest import health
from ledger.interfaces.rest.app import create_app
from ledger.interfaces.rest.ports import ComponentHealth
from ledger.telemetry.metrics import Metrics
from tests.kit.rest_node import CHANNEL, MemoryNode, make_node


@pytest.fixture
def node() -> MemoryNode:
    return make_node()


@pytest.fixture
def client(node: MemoryNode) -> Iterator[TestClient]:
    with TestClient(create_app(node)) as client:
        yield client


def test_a_node_with_all_parts_working_is_alive_and_ready(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "alive"}
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)


def test_a_part_that_fails_is_named_with_its_reason_while_the_node_stays_alive(
    client: TestClient, node: MemoryNode
) -> None:
    node.health.append(ComponentHealth("orderer/mychannel", ready=False, reason="no orderer answers since 12 s"))
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (503, False)
    assert {"name": "orderer/mychannel", "ready": False, "reason": "no orderer answers since 12 s"} in ready.json()[
        "components"
    ]
    assert client.get("/healthz").status_code == 200


def hold(release: threading.Event) -> None:
    assert release.wait(20), "the test never let go"


def test_a_node_that_can_not_say_how_it_is_is_not_ready(
    client: TestClient, node: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "READY_TIMEOUT_MS", 100)
    release = threading.Event()
    node.before_health = lambda: hold(release)
    try:
        started = time.monotonic()
        ready = client.get("/readyz")
        assert time.monotonic() - started < 5
        assert (ready.status_code, ready.json()["components"][0]["name"]) == (503, "node")
    finally:
        release.set()


def test_requests_are_counted_by_path_template_and_status(node: MemoryNode) -> None:
    metrics = Metrics()
    metrics.height.labels(channel=CHANNEL).set(106)
    with TestClient(create_app(node, metrics=metrics)) as client:
        client.get(f"/v1/channels/{CHANNEL}/blocks/3")
        client.get(f"/v1/channels/{CHANNEL}/blocks/4")
        client.get(f"/v1/channels/{CHANNEL}/blocks/9999")
        client.get("/nothing/here")
        text = client.get("/metrics").text
    path = "/v1/channels/{channel}/blocks/{number}"
    assert f'peerledger_rest_requests_total{{path="{path}",status="200"}} 2.0' in text
    assert f'peerledger_rest_requests_total{{path="{path}",status="404"}} 1.0' in text
    assert 'peerledger_rest_requests_total{path="other",status="404"} 1.0' in text
    assert f'peerledger_height_blocks{{channel="{CHANNEL}"}} 106.0' in text


def test_two_nodes_in_one_process_keep_their_metrics_apart() -> None:
    first, second = Metrics(), Metrics()
    first.height.labels(channel=CHANNEL).set(7)
    assert first.registry.get_sample_value("peerledger_height_blocks", {"channel": CHANNEL}) == 7
    assert second.registry.get_sample_value("peerledger_height_blocks", {"channel": CHANNEL}) is None
