"""Blocks, vBlocks, transactions, state and history over REST, on a channel recorded from a real peer."""

import csv
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from ledger.core.names import Verdict, verdict_name
from ledger.interfaces.rest import models
from ledger.interfaces.rest.app import create_app
from tests.kit.paths import VECTORS
from tests.kit.rest_node import CHANNEL, MemoryNode, make_node

BASE = f"/v1/channels/{CHANNEL}"


@pytest.fixture
def node() -> MemoryNode:
    return make_node()


@pytest.fixture
def client(node: MemoryNode) -> Iterator[TestClient]:
    with TestClient(create_app(node)) as client:
        yield client


def recorded_rows() -> list[dict[str, str]]:
    with (VECTORS / "mini" / "transactions.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def an_invalid_id(node: MemoryNode, verdict: Verdict = Verdict.MVCC_READ_CONFLICT) -> tuple[str, int, int]:
    """An id whose first place has this verdict, with its block and index."""
    row = next(
        row
        for row in recorded_rows()
        if int(row["code"]) == verdict and node.channel_view.ledger.places(row["txid"])[0].verdict == verdict  # type: ignore[arg-type]
    )
    return row["txid"], int(row["block"]), int(row["index"])


def test_the_channel_list_names_also_what_did_not_open(client: TestClient) -> None:
    channels = client.get("/v1/channels").json()["channels"]
    assert [(one["channel"], one["state"]) for one in channels] == [("broken", "failed"), (CHANNEL, "following")]
    assert "record 7" in channels[0]["reason"]


def test_channel_information_is_of_one_block_and_tells_the_pruning_policy_in_effect(
    client: TestClient, node: MemoryNode
) -> None:
    info = client.get(BASE).json()
    ledger = node.channel_view.ledger
    last = ledger.vblocks[-1]
    assert info["height"] == ledger.height == last.header.number + 1
    assert info["block_hash"] == last.header.block_hash.hex()
    assert info["vblock_hash"] == last.vblock_hash.hex()
    assert info["commit_hash"] == last.header.commit_hash.hex()
    assert info["pruning"] == {
        "mode": "manual",
        "keep_blocks": 0,
        "prune_point": None,
        "reason": "waiting for 1 more signature from Org2MSP",
    }
    assert info["checkpoints"]["latest_valid"] == 60
    assert info["checkpoints"]["intervals_of_others"] == {"peer0.org2.example.com": 25}


def test_pruning_changes_neither_height_nor_hashes(client: TestClient, node: MemoryNode) -> None:
    before = client.get(BASE).json()
    node.channel_view.ledger.prune_point = 59
    after = client.get(BASE).json()
    assert after["first_block"] == 60
    assert after["pruning"]["prune_point"] == 59
    same = ("height", "block_hash", "vblock_hash", "commit_hash")
    assert {name: before[name] for name in same} == {name: after[name] for name in same}


def test_every_recorded_block_is_shown_with_its_verdicts_and_reasons(client: TestClient, node: MemoryNode) -> None:
    rows = recorded_rows()
    for number in range(node.channel_view.ledger.height):
        answer = client.get(f"{BASE}/blocks/{number}")
        assert answer.status_code == 200
        models.BlockAnswer.model_validate_json(answer.content)
        shown = [(one["index"], one["verdict_code"]) for one in answer.json()["transactions"]]
        assert shown == [(int(row["index"]), int(row["code"])) for row in rows if int(row["block"]) == number]
        for one in answer.json()["transactions"]:
            assert ("rule" in one) == (one["verdict"] != "VALID")


@pytest.mark.parametrize(
    ("params", "headers"),
    [
        ({"format": "protobuf"}, {}),
        ({}, {"Accept": "application/octet-stream"}),
        ({}, {"Accept": "text/html, application/x-protobuf;q=0.9"}),
        ({"format": "protobuf"}, {"Accept": "application/json"}),
    ],
)
def test_a_block_is_given_byte_for_byte_where_bytes_are_asked_for(
    client: TestClient, node: MemoryNode, params: dict[str, str], headers: dict[str, str]
) -> None:
    answer = client.get(f"{BASE}/blocks/7", params=params, headers=headers)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.content == node.channel_view.ledger.raw[7]


def test_the_parameter_outweighs_the_accept_header(client: TestClient) -> None:
    answer = client.get(f"{BASE}/blocks/7?format=json", headers={"Accept": "application/octet-stream"})
    assert answer.json()["number"] == 7


def test_a_vblock_holds_valid_transactions_whole_and_stubs_of_the_others(client: TestClient, node: MemoryNode) -> None:
    for number in range(node.channel_view.ledger.height):
        answer = client.get(f"{BASE}/vblocks/{number}")
        vblock = models.VBlockAnswer.model_validate_json(answer.content)
        stored = node.channel_view.ledger.vblocks[number]
        assert vblock.vblock_hash == stored.vblock_hash.hex()
        assert [leaf.index for leaf in vblock.leaves] == list(range(stored.header.transaction_count))
        valid = [leaf.index for leaf in vblock.leaves if leaf.verdict == "VALID"]
        assert [one.index for one in vblock.transactions] == valid
        assert all(leaf.rule for leaf in vblock.leaves if leaf.verdict != "VALID")


def test_a_vblock_below_the_prune_point_is_the_same_as_before(client: TestClient, node: MemoryNode) -> None:
    before = client.get(f"{BASE}/vblocks/3").json()
    node.channel_view.ledger.prune_point = 59
    assert client.get(f"{BASE}/vblocks/3").json() == before


def test_a_vblock_can_be_had_without_transactions(client: TestClient) -> None:
    vblock = client.get(f"{BASE}/vblocks/1?transactions=false").json()
    assert vblock["transactions"] == []
    assert vblock["leaves"]


def test_every_recorded_id_is_answered_with_its_first_place(client: TestClient, node: MemoryNode) -> None:
    for row in recorded_rows():
        if not row["txid"]:
            continue
        answer = client.get(f"{BASE}/transactions/{row['txid']}").json()
        places = [(one["block"], one["index"], one["verdict"]) for one in answer["places"]]
        assert (int(row["block"]), int(row["index"]), verdict_name(int(row["code"]))) in places
        assert (answer["block"], answer["index"], answer["verdict"]) == places[0] == min(places)
        assert answer["valid"] == (answer["verdict_code"] == 0)


def test_an_id_used_again_shows_all_its_places(client: TestClient) -> None:
    duplicate = next(row for row in recorded_rows() if int(row["code"]) == Verdict.DUPLICATE_TXID)
    places = client.get(f"{BASE}/transactions/{duplicate['txid']}").json()["places"]
    assert len(places) > 1
    assert places[-1]["verdict"] == "DUPLICATE_TXID"


def test_a_pruned_invalid_transaction_is_answered_at_once_with_code_and_reason(
    client: TestClient, node: MemoryNode
) -> None:
    tx_id, block, index = an_invalid_id(node)
    whole = client.get(f"{BASE}/transactions/{tx_id}").json()
    node.channel_view.ledger.prune_point = block
    started = time.monotonic()
    pruned = client.get(f"{BASE}/transactions/{tx_id}", params={"wait_ms": 10_000}).json()
    assert time.monotonic() - started < 2
    assert (pruned["block"], pruned["index"], pruned["verdict"]) == (block, index, "MVCC_READ_CONFLICT")
    assert pruned["rule"] == whole["rule"] == "recorded rule"
    assert (whole["envelope"], pruned["envelope"]) == ("whole", "pruned")


def test_the_envelope_of_a_pruned_invalid_transaction_is_gone_and_says_where_blocks_begin(
    client: TestClient, node: MemoryNode
) -> None:
    tx_id, block, index = an_invalid_id(node)
    node.channel_view.ledger.prune_point = block
    answer = client.get(f"{BASE}/transactions/{tx_id}/envelope")
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (410, "/problems/pruned")
    assert (problem["block"], problem["index"], problem["first_block"]) == (block, index, block + 1)
    assert (problem["verdict"], problem["verdict_code"]) == ("MVCC_READ_CONFLICT", 11)


def test_the_envelope_of_a_valid_transaction_outlives_pruning(client: TestClient, node: MemoryNode) -> None:
    row = next(row for row in recorded_rows() if row["code"] == "0" and row["block"] == "2")
    node.channel_view.ledger.prune_point = 59
    assert client.get(f"{BASE}/blocks/2").status_code == 410
    raw = client.get(f"{BASE}/transactions/{row['txid']}/envelope?format=protobuf")
    assert raw.content == node.channel_view.ledger.blocks[2].envelopes[0]
    shown = client.get(f"{BASE}/transactions/{row['txid']}/envelope").json()
    assert shown["tx_id"] == row["txid"]
    assert shown["type"] == "ENDORSER_TRANSACTION"


def test_the_envelope_of_a_later_place_can_be_asked_for(client: TestClient, node: MemoryNode) -> None:
    duplicate = next(row for row in recorded_rows() if int(row["code"]) == Verdict.DUPLICATE_TXID)
    place = node.channel_view.ledger.places(duplicate["txid"])[1]  # type: ignore[arg-type]
    path = f"{BASE}/transactions/{duplicate['txid']}/envelope"
    raw = client.get(path, params={"place": 1, "format": "protobuf"})
    assert raw.content == node.channel_view.ledger.envelope(place)
    assert client.get(path, params={"place": 9}).status_code == 404


def test_an_unknown_id_is_not_found_without_waiting(client: TestClient) -> None:
    answer = client.get(f"{BASE}/transactions/{'0' * 64}")
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")


def test_a_wait_that_ends_first_says_that_the_outcome_is_unknown(client: TestClient) -> None:
    started = time.monotonic()
    answer = client.get(f"{BASE}/transactions/{'0' * 64}", params={"wait_ms": 150})
    assert 0.1 < time.monotonic() - started < 5
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (504, "/problems/outcome-unknown")
    assert (problem["tx_id"], problem["waited_ms"]) == ("0" * 64, 150)


def test_a_wait_ends_as_soon_as_the_transaction_is_committed(client: TestClient, node: MemoryNode) -> None:
    ledger, channel = node.channel_view.ledger, node.channel_view
    full_height, tx_id = ledger.height, ledger.ids[ledger.height - 1][0]
    ledger.height = full_height - 2

    def commit_one_block() -> None:
        ledger.height += 1
        channel.committed.set()

    assert client.portal is not None
    timers = [threading.Timer(delay, client.portal.call, [commit_one_block]) for delay in (0.1, 0.2)]
    for timer in timers:
        timer.start()
    answer = client.get(f"{BASE}/transactions/{tx_id}", params={"wait_ms": 20_000})
    assert answer.status_code == 200
    assert answer.json()["block"] == full_height - 1
    for timer in timers:
        timer.join()


def test_keys_that_no_path_can_carry_are_found_by_their_base64url_form() -> None:
    node = make_node("rich")
    odd = {key: entry for key, entry in node.channel_view.ledger.state.items() if key.kind == 0 and is_odd(key.key)}
    assert len(odd) > 5
    with TestClient(create_app(node)) as client:
        for key, entry in odd.items():
            form = urlsafe_b64encode(key.key).decode().rstrip("=")
            answer = client.get(f"{BASE}/state/{key.namespace}", params={"key": form}).json()
            assert b64decode(answer["value"]["base64"]) == entry.value
            assert answer["version"] == {"block": entry.version.block, "index": entry.version.index}
            assert (answer["key"], answer["key_base64url"]) == (key.key.decode(), form)


def is_odd(key: bytes) -> bool:
    return b"\x00" in key or not key.isascii()


def test_a_key_with_slashes_stands_in_the_path(client: TestClient, node: MemoryNode) -> None:
    key = next(key for key in node.channel_view.ledger.state if b"/" in key.key and key.kind == 0)
    answer = client.get(f"{BASE}/state/{key.namespace}/{key.key.decode()}").json()
    assert answer["key"] == key.key.decode()
    assert answer["key"].count("/") >= 1


def test_a_key_that_is_not_there_is_not_found(client: TestClient) -> None:
    answer = client.get(f"{BASE}/state/cc1/never-written")
    assert answer.status_code == 404
    assert "never-written" in answer.json()["detail"]


def test_text_is_shown_only_of_readable_bytes(client: TestClient, node: MemoryNode) -> None:
    state = node.channel_view.ledger.state
    for key, entry in state.items():
        if key.kind == 0 and key.namespace:
            form = urlsafe_b64encode(key.key).decode()
            value = client.get(f"{BASE}/state/{key.namespace}", params={"key": form}).json()["value"]
            if value["text"] is not None:
                assert value["text"].encode() == entry.value


def test_the_history_of_every_key_is_all_its_writes_newest_first(client: TestClient, node: MemoryNode) -> None:
    ledger = node.channel_view.ledger
    for (namespace, key), changes in ledger.changes.items():
        params = {"key": urlsafe_b64encode(key.encode()).decode()}
        answer = client.get(f"{BASE}/history/{namespace}", params=params).json()
        places = [(one["block"], one["index"]) for one in answer["changes"]]
        assert places == [(one.block, one.index) for one in reversed(changes)]
        for one in answer["changes"]:
            assert one["tx_id"] == ledger.ids[one["block"]][one["index"]]
            assert one["delete"] == (one["value"] is None)


def test_the_newest_change_is_the_live_value(client: TestClient, node: MemoryNode) -> None:
    for key, entry in node.channel_view.ledger.state.items():
        if key.kind != 0 or not key.namespace:
            continue
        params = {"key": urlsafe_b64encode(key.key).decode(), "limit": "1"}
        newest = client.get(f"{BASE}/history/{key.namespace}", params=params).json()["changes"][0]
        assert b64decode(newest["value"]["base64"]) == entry.value


def test_a_long_history_comes_in_pages_without_gap_or_repetition() -> None:
    node = make_node("rich")
    (namespace, key), changes = max(node.channel_view.ledger.changes.items(), key=lambda item: len(item[1]))
    params = {"key": urlsafe_b64encode(key.encode()).decode(), "limit": "3"}
    seen = []
    with TestClient(create_app(node)) as client:
        while True:
            page = client.get(f"{BASE}/history/{namespace}", params=params).json()
            seen += [(one["block"], one["index"]) for one in page["changes"]]
            if page["next"] is None:
                break
            params["before"] = page["next"]
    assert len(changes) > 6
    assert seen == [(one.block, one.index) for one in reversed(changes)]


def test_a_key_that_was_never_written_has_an_empty_history(client: TestClient) -> None:
    assert client.get(f"{BASE}/history/cc1/never-written").json()["changes"] == []
