"""How is a backup asked for over REST?  By an admin, who then asks how far it has come."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from ledger.interfaces.rest.app import create_app
from ledger.interfaces.rest.ports import BackupState, BackupStatus
from ledger.storage.backup import FORMAT, BackupFile, Manifest
from tests.kit.rest_node import CHANNEL, GOOD_TOKEN, MEMBER_TOKEN, MemoryNode, make_node

BEARER = {"Authorization": f"Bearer {GOOD_TOKEN}"}
PATH = f"/v1/channels/{CHANNEL}/backup"
MADE = Manifest(
    FORMAT,
    "0.1.0",
    1,
    CHANNEL,
    81,
    "aa" * 32,
    "bb" * 32,
    "",
    "cc" * 32,
    None,
    20,
    (BackupFile("kept/0.kept", 7, "dd"),),
)


@pytest.fixture
def node() -> MemoryNode:
    return make_node()


@pytest.fixture
def client(node: MemoryNode) -> Iterator[TestClient]:
    with TestClient(create_app(node)) as client:
        yield client


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("headers", "status", "rule"),
    [({}, 401, "admin token"), ({"Authorization": f"Bearer {MEMBER_TOKEN}"}, 403, "admin")],
    ids=["nobody", "member"],
)
def test_backups_are_for_admins_only(
    client: TestClient, node: MemoryNode, method: str, headers: dict[str, str], status: int, rule: str
) -> None:
    answer = client.request(method, PATH, headers=headers, json={"to": "monday"} if method == "POST" else None)
    assert (answer.status_code, answer.json()["rule"]) == (status, rule)
    assert node.channel_view.backup is None


def test_a_backup_begins_and_says_how_far_it_has_come(client: TestClient, node: MemoryNode) -> None:
    begun = client.post(PATH, headers=BEARER, json={"to": "monday"})
    assert begun.status_code == 202
    assert begun.json() | {"state": "running", "path": "/backups/monday", "bytes_total": 2} == begun.json()
    assert node.asked_of == [(GOOD_TOKEN, CHANNEL, "backup")]
    assert client.get(PATH, headers=BEARER).json() == begun.json()
    node.channel_view.backup = BackupStatus(BackupState.DONE, "/backups/monday", 7, 7, MADE)
    done = client.get(PATH, headers=BEARER).json()
    assert (done["state"], done["height"], done["files"], done["state_hash"]) == ("done", 81, 1, "cc" * 32)
    node.channel_view.backup = BackupStatus(BackupState.FAILED, "/backups/monday", reason="the disk is full")
    assert client.get(PATH, headers=BEARER).json()["reason"] == "the disk is full"


def test_a_second_backup_at_once_and_one_elsewhere_are_refused(client: TestClient) -> None:
    elsewhere = client.post(PATH, headers=BEARER, json={"to": "../etc"})
    assert (elsewhere.status_code, elsewhere.json()["rule"]) == (400, "backup directory")
    assert client.get(PATH, headers=BEARER).status_code == 404
    client.post(PATH, headers=BEARER, json={"to": "monday"})
    assert client.post(PATH, headers=BEARER, json={"to": "tuesday"}).status_code == 503
