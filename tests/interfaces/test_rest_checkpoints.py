"""Checkpoints, pruning and who may prune, over REST."""

from base64 import b64decode
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from ledger.core.checkpoint import Statement
from ledger.core.pruning import decode_receipt
from ledger.interfaces.rest import models
from ledger.interfaces.rest.app import create_app
from tests.kit.rest_node import CHANNEL, CHECKPOINT, FORGED_TOKEN, GOOD_TOKEN, MEMBER_TOKEN, MemoryNode, make_node

BASE = f"/v1/channels/{CHANNEL}"
BEARER = {"Authorization": f"Bearer {GOOD_TOKEN}"}


@pytest.fixture
def node() -> MemoryNode:
    return make_node()


@pytest.fixture
def client(node: MemoryNode) -> Iterator[TestClient]:
    with TestClient(create_app(node)) as client:
        yield client


def test_checkpoints_are_listed_with_who_signed_and_what_is_missing(client: TestClient) -> None:
    answer = client.get(f"{BASE}/checkpoints").json()
    assert answer["latest_valid"] == CHECKPOINT
    assert [(one["number"], one["status"], one["missing"]) for one in answer["checkpoints"]] == [
        (80, "pending", ["1 signature of Org2MSP"]),
        (60, "valid", []),
    ]
    assert answer["checkpoints"][0]["signers"][0]["msp_id"] == "OrdererMSP"


def test_a_checkpoint_gives_all_that_an_outsider_needs(client: TestClient, node: MemoryNode) -> None:
    answer = models.CheckpointAnswer.model_validate(client.get(f"{BASE}/checkpoints/60").json())
    report = node.channel_view.reports[1]
    assert b64decode(answer.statement.encoded) == report.statement.encoded
    assert Statement.decode(b64decode(answer.statement.encoded)).vblock_hash.hex() == answer.statement.vblock_hash
    shown = [(b64decode(one.identity or ""), b64decode(one.signature or "")) for one in answer.signers]
    assert shown == [(one.identity, one.signature) for one in report.signatures]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("headers", "status", "slug", "rule"),
    [
        ({}, 401, "unauthenticated", "admin token"),
        ({"Authorization": "Basic dXNlcjpwdw=="}, 401, "unauthenticated", "admin token"),
        ({"Authorization": "Bearer"}, 401, "unauthenticated", "admin token"),
        ({"Authorization": f"Bearer {FORGED_TOKEN}"}, 401, "unauthenticated", "signature"),
        ({"Authorization": f"Bearer {MEMBER_TOKEN}"}, 403, "forbidden", "admin"),
    ],
)
def test_pruning_is_for_admins_only(
    client: TestClient, node: MemoryNode, method: str, headers: dict[str, str], status: int, slug: str, rule: str
) -> None:
    answer = client.request(method, f"{BASE}/prune", headers=headers, json={} if method == "POST" else None)
    problem = answer.json()
    assert (answer.status_code, problem["type"], problem["rule"]) == (status, f"/problems/{slug}", rule)
    assert ("www-authenticate" in answer.headers) == (status == 401)
    assert node.channel_view.done == []


def test_a_token_is_checked_for_this_channel_and_action(client: TestClient, node: MemoryNode) -> None:
    client.get(f"{BASE}/prune", headers=BEARER)
    assert node.asked_of == [(GOOD_TOKEN, CHANNEL, "prune")]


def test_a_plan_says_what_would_go_and_changes_nothing(client: TestClient, node: MemoryNode) -> None:
    plan = client.get(f"{BASE}/prune", headers=BEARER).json()
    ledger = node.channel_view.ledger
    gone = [verdict for number in range(60) for verdict in ledger.verdicts(number) if verdict]
    assert (plan["first_block"], plan["to_block"], plan["blocks"], plan["checkpoint"]) == (0, 59, 60, CHECKPOINT)
    assert sum(plan["transactions"].values()) == len(gone)
    assert plan["transactions"]["MVCC_READ_CONFLICT"] == gone.count(11)
    assert plan["still_provable"]
    assert ledger.prune_point == -1


def test_a_plan_can_be_asked_up_to_a_height(client: TestClient) -> None:
    assert client.get(f"{BASE}/prune?to=45", headers=BEARER).json()["to_block"] == 39


def test_pruning_above_the_latest_valid_checkpoint_is_refused_with_the_largest_height(
    client: TestClient, node: MemoryNode
) -> None:
    for answer in (
        client.get(f"{BASE}/prune?to=60", headers=BEARER),
        client.post(f"{BASE}/prune", json={"to": 60}, headers=BEARER),
    ):
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (409, "/problems/prune-refused")
        assert (problem["rule"], problem["expected"]) == ("latest valid checkpoint", "at most 59")
    assert node.channel_view.ledger.prune_point == -1


def test_pruning_leaves_a_signed_receipt(client: TestClient, node: MemoryNode) -> None:
    answer = client.post(f"{BASE}/prune", json={"to": 39}, headers=BEARER).json()
    assert answer["pruned"]
    assert (answer["receipt"]["first_block"], answer["receipt"]["to_block"]) == (0, 39)
    assert client.get(BASE).json()["first_block"] == 40
    assert client.get(f"{BASE}/receipts").json()["receipts"] == [answer["receipt"]]
    assert decode_receipt(b64decode(answer["receipt"]["encoded"])) == node.channel_view.done[0]


def test_pruning_again_does_nothing_and_says_so(client: TestClient, node: MemoryNode) -> None:
    first = client.post(f"{BASE}/prune", json={}, headers=BEARER).json()
    again = client.post(f"{BASE}/prune", json={"to": None}, headers=BEARER).json()
    assert (first["pruned"], again) == (True, {"pruned": False, "receipt": None})
    assert len(node.channel_view.done) == 1


def test_a_channel_of_others_is_not_found_even_with_a_token(client: TestClient) -> None:
    assert client.get("/v1/channels/elsewhere/prune", headers=BEARER).status_code == 404


def test_an_admin_gives_a_pending_checkpoint_up(client: TestClient, node: MemoryNode) -> None:
    answer = client.post(f"{BASE}/checkpoints/80/abandon", headers=BEARER)
    assert (answer.status_code, answer.json()["status"]) == (200, "abandoned")
    assert node.asked_of == [(GOOD_TOKEN, CHANNEL, "abandon")]


def test_a_valid_checkpoint_is_not_given_up_and_the_answer_says_why(client: TestClient) -> None:
    answer = client.post(f"{BASE}/checkpoints/60/abandon", headers=BEARER)
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("abandon-refused")
    assert (answer.json()["rule"], answer.json()["found"]) == ("pending", "valid")
    assert client.post(f"{BASE}/checkpoints/61/abandon", headers=BEARER).status_code == 404


@pytest.mark.parametrize(("token", "status"), [(None, 401), (FORGED_TOKEN, 401), (MEMBER_TOKEN, 403)])
def test_only_an_admin_gives_a_checkpoint_up(client: TestClient, token: str | None, status: int) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    assert client.post(f"{BASE}/checkpoints/80/abandon", headers=headers).status_code == status
