"""Does the official gateway client for Node work unchanged?  Each of its calls against a network of real processes."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.harness import LocalNetwork, peerledger, running, wait_until
from tests.interop.node_packages import NODE_FOLDER, node, with_packages

pytestmark = pytest.mark.cluster

Steps = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    with_packages()
    with running(tmp_path_factory.mktemp("interop") / "net") as started:
        ready = lambda: all(started.ask(peer, "/readyz").get("ready") for peer in started.peers)  # noqa: E731
        wait_until(ready, what="peers to be ready")
        peerledger("chaincode", "commit", "assets", "--network", str(started.directory))
        yield started


@pytest.fixture(scope="module")
def steps(network: LocalNetwork, tmp_path_factory: pytest.TempPathFactory) -> Steps:
    """Run the client once; what came of each step, by name."""
    organisation = network.directory / "organizations/peerOrganizations/org1.example.com"
    user = organisation / "users/User1@org1.example.com/msp"
    (certificate,) = (user / "signcerts").iterdir()
    (key,) = (user / "keystore").iterdir()
    config = tmp_path_factory.mktemp("client") / "config.json"
    config.write_text(
        json.dumps(
            {
                "address": network.settings(network.peers[0])["grpc_listen"],
                "tlsRoot": str(organisation / "msp/tlscacerts/tlsca.pem"),
                "serverName": None,
                "mspId": "Org1MSP",
                "certificate": str(certificate),
                "key": str(key),
                "channel": "demo",
                "contract": "assets",
                "otherMspId": "Org2MSP",
            }
        )
    )
    done = subprocess.run(
        [node(), "client.mjs", str(config)], cwd=NODE_FOLDER, capture_output=True, text=True, timeout=180,
        env=os.environ | {"NODE_NO_WARNINGS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["name"]: one for one in found}


VALUES: dict[str, Any] = {
    "submit async, then status": {"successful": True, "code": 0},
    "status of a transaction that is long committed": 0,
    "sign offline": 0,
    "endorsing organisations": 0,
    "one organisation is too few": 10,
    "transient data": 303,
    "a conflict": [0, 11],
    "a conflict is a commit error": {"successful": False, "code": 11},
    "chaincode events behind a transaction": [True],
    "block events": [0, 1, 2],
    "block and private data events": [1],
}


@pytest.mark.parametrize("name", VALUES)
def test_a_call_gives_what_fabric_gives(steps: Steps, name: str) -> None:
    found = steps[name]
    assert "error" not in found, found
    expected = VALUES[name]
    if isinstance(expected, dict):
        assert {key: found["value"][key] for key in expected} == expected
    else:
        assert found["value"] == expected


def test_submit_and_evaluate_give_the_contract_s_results(steps: Steps) -> None:
    asset = json.loads(steps["submit"]["value"])
    assert (asset["owner"], asset["value"]) == ("Anna", 300)
    assert steps["evaluate"]["value"] == asset


def test_events_carry_payload_and_block(steps: Steps) -> None:
    (event,) = steps["chaincode events from a block on"]["value"]
    assert (event["name"], event["same"]) == ("transferred", True)
    assert event["payload"]["to"] == "Bob"
    assert event["block"] == steps["submit async, then status"]["value"]["block"]
    (block,) = steps["filtered block events"]["value"]
    assert (block["channel"], block["number"], block["seen"]) == ("demo", event["block"], True)


ERRORS = {
    "evaluate fails in the chaincode": ("GatewayError", "UNKNOWN", "asset nowhere does not exist"),
    "submit fails in the chaincode": ("EndorseError", "ABORTED", "exists already"),
    "an organisation that has no peer": ("EndorseError", "UNAVAILABLE", "NobodyMSP"),
    "deadline exceeded": ("GatewayError", "DEADLINE_EXCEEDED", ""),
    "a channel that is not there": ("EndorseError", "NOT_FOUND", "nowhere"),
    "a chaincode that is not there": ("GatewayError", "UNKNOWN", "nothing"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_names_the_failing_node_and_the_reason(steps: Steps, name: str) -> None:
    found, (kind, code, reason) = steps[name], ERRORS[name]
    assert (found["error"], found["code"]) == (kind, code), found
    told = found["message"] + " ".join(detail["message"] for detail in found["details"])
    assert reason in told
    for detail in found["details"]:
        assert detail["mspId"] in ("Org1MSP", "Org2MSP")
        assert detail["address"].startswith("127.0.0.1:")
