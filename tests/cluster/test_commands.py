"""Do the commands work against a running network, as a user types them?  One network, every command."""

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import LocalNetwork, peerledger, peerledger_json, running, wait_until

pytestmark = pytest.mark.cluster

INTERVAL_BLOCKS = 4
FIRST, SECOND = "peer0.org1.example.com", "peer0.org2.example.com"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    """A network with a defined contract, some transactions and a valid checkpoint."""
    directory = tmp_path_factory.mktemp("commands") / "net"
    before = os.environ.get("PEERLEDGER_NETWORK")
    os.environ["PEERLEDGER_NETWORK"] = str(directory)
    try:
        with running(directory, "--checkpoint-interval-blocks", str(INTERVAL_BLOCKS)) as started:
            ready = lambda: all(started.ask(peer, "/readyz").get("ready") for peer in started.peers)  # noqa: E731
            wait_until(ready, what="peers to be ready")
            peerledger("chaincode", "commit", "assets")
            for number in range(INTERVAL_BLOCKS):
                peerledger("tx", "submit", "assets", "create", f"asset-{number}", "Anna", "5")
            valid = lambda: started.channel_info(FIRST)["checkpoints"]["latest_valid"] == INTERVAL_BLOCKS  # noqa: E731
            wait_until(valid, what="a valid checkpoint", timeout_s=20)
            yield started
    finally:
        os.environ.pop("PEERLEDGER_NETWORK")
        if before is not None:
            os.environ["PEERLEDGER_NETWORK"] = before


def test_submit_says_what_became_of_the_transaction(network: LocalNetwork) -> None:
    answer = peerledger_json("tx", "submit", "assets", "create", "submitted", "Bob", "7")
    assert answer["verdict"] == "VALID"
    assert answer["result"] == '{"id": "submitted", "owner": "Bob", "value": 7}'
    status = peerledger_json("tx", "status", answer["transaction_id"], "--peer", SECOND)
    assert (status["verdict"], status["block"]) == ("VALID", answer["block"])
    assert (
        peerledger_json("tx", "evaluate", "assets", "read", "submitted", "--peer", SECOND)["result"]["owner"] == "Bob"
    )


def test_a_contract_s_refusal_comes_back_with_the_peer_that_gave_it(network: LocalNetwork) -> None:
    done = peerledger("tx", "submit", "assets", "read", "nowhere", check=False)
    assert done.returncode == 3
    assert "Org1MSP" in done.stderr
    assert "asset nowhere does not exist" in done.stderr


def test_a_transaction_endorsed_by_one_organisation_alone_is_invalid_under_the_majority_policy(
    network: LocalNetwork,
) -> None:
    done = peerledger(
        "tx", "submit", "assets", "create", "alone", "Bob", "7", "--endorser", "Org1MSP", "--json", check=False
    )
    assert done.returncode == 1
    assert '"verdict": "ENDORSEMENT_POLICY_FAILURE"' in done.stdout


def test_definitions_are_listed(network: LocalNetwork) -> None:
    assert peerledger_json("chaincode", "list") == [{"name": "assets", "version": "1.0", "sequence": 1}]


def test_channel_blocks_and_vblocks_are_shown(network: LocalNetwork) -> None:
    info = peerledger_json("channel", "info")
    assert info["height"] > INTERVAL_BLOCKS
    assert peerledger_json("block", "show", "1")["number"] == 1
    vblock = peerledger_json("vblock", "show", "1")
    assert vblock["header"]["valid_count"] == 1
    for command in (("channel", "info"), ("block", "show", "1"), ("vblock", "show", "1")):
        assert "vblock" in peerledger(*command).stdout or "block" in peerledger(*command).stdout


def test_checkpoints_name_their_signers(network: LocalNetwork) -> None:
    shown = peerledger_json("checkpoint", "show", str(INTERVAL_BLOCKS))
    assert shown["status"] == "valid"
    assert {signer["name"] for signer in shown["signers"]} == {FIRST, SECOND}
    assert shown["missing"] == []
    listed = peerledger("checkpoint", "list").stdout
    assert "valid" in listed
    assert FIRST in listed


def prune_url(network: LocalNetwork) -> str:
    return f"http://{network.settings(FIRST)['rest_listen']}/v1/channels/demo/prune"


def ask_with_token(url: str, token: str | None) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_an_admin_s_token_opens_what_it_is_for_and_nothing_else(network: LocalNetwork) -> None:
    token = peerledger("admin", "token", "prune").stdout.strip()
    assert ask_with_token(prune_url(network), token)[0] == 200
    assert ask_with_token(prune_url(network), None)[0] == 401
    user = peerledger("admin", "token", "prune", "--user", "User1").stdout.strip()
    status, text = ask_with_token(prune_url(network), user)
    assert (status, "admin" in text) == (403, True)
    other_peer = peerledger("admin", "token", "prune", "--peer", SECOND).stdout.strip()
    assert ask_with_token(prune_url(network), other_peer)[0] == 403


def test_prune_above_the_checkpoint_is_refused_with_the_largest_height_allowed(network: LocalNetwork) -> None:
    done = peerledger("prune", "--to", "999", check=False)
    assert done.returncode == 2
    assert "expected" in done.stderr


def test_plan_then_prune_then_verify(network: LocalNetwork) -> None:
    plan = peerledger_json("prune", "--plan")
    assert plan["checkpoint"] >= INTERVAL_BLOCKS
    receipt: dict[str, Any] = peerledger_json("prune")["receipt"]
    assert receipt["to_block"] == plan["to_block"]
    assert peerledger_json("channel", "info")["pruning"]["prune_point"] == plan["to_block"]
    gone = peerledger("block", "show", "1", check=False)
    assert gone.returncode == 1
    assert "pruned" in gone.stderr
    assert "nothing was left to prune" in peerledger("prune").stdout


def test_a_running_peer_s_directory_is_not_verified(network: LocalNetwork) -> None:
    data = network.directory / "nodes" / FIRST / "data"
    done = peerledger("verify", str(data), "--genesis", str(network.directory / "channels/demo.block"), check=False)
    assert done.returncode != 0
    assert "another process" in done.stderr


def test_an_unknown_setting_stops_the_start_and_is_named(network: LocalNetwork, tmp_path: Path) -> None:
    text = (network.directory / "nodes" / FIRST / "peer.yaml").read_text()
    (tmp_path / "peer.yaml").write_text(text.replace("data_dir:", "data_dri:"))
    done = peerledger("peer", "start", "--config", str(tmp_path / "peer.yaml"), check=False)
    assert done.returncode == 2
    assert "data_dri" in done.stderr
    assert "did you mean data_dir?" in done.stderr
