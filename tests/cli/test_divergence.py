"""`peerledger checkpoint divergence` and `checkpoint compare`: what an operator sees whose peers disagree."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from starlette.testclient import TestClient

from ledger.core.divergence import key_facts, summary
from ledger.core.names import BlockNumber, TxIndex
from ledger.core.state import Entry, StateKey, Version, hashed_key, public_key
from ledger.interfaces.rest import models
from ledger.interfaces.rest.app import create_app
from ledger.node.compare import differing
from ledger.storage.keys import entry_of, entry_value, state_key
from tests.cli.running import Runner
from tests.kit.checkpointing import statement_at
from tests.kit.peer_folder import PeerFolder, life
from tests.kit.rest_node import CHANNEL, MemoryNode, make_node

LAST = public_key("asset", "last")


def entry(value: bytes, block: int = 1) -> Entry:
    return Entry(value, Version(BlockNumber(block), TxIndex(0)))


@contextmanager
def serving(node: MemoryNode) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(create_app(node), host="127.0.0.1", port=0, log_level="critical"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def patch(folder: PeerFolder, key: StateKey, value: bytes) -> None:
    store = folder.open()
    raw = store._engine.get(state_key(key))
    assert raw is not None
    batch = store._engine.batch()
    batch.put(state_key(key), entry_value(entry_of(raw)._replace(value=value)))
    batch.write()
    store.close()


def found_facts() -> dict[str, Any]:
    keys = [key_facts(LAST, entry(b"1"), entry(b"2")), key_facts(hashed_key("a", "c", bytes(32)), None, entry(b"3"))]
    found = {"checkpoint": 10, "compared_with": "peer0.org2", "vblock": None, "questions": 4, "refused": {"x": "y"}}
    found |= {"state": {"ours_at": 10, "theirs_at": 10, "keys": keys, "more": False}, "state_reason": ""}
    return {**found, "summary": summary(found)}


def diverged_node(found: dict[str, Any] | None) -> MemoryNode:
    node = make_node()
    node.channel_view.diverged = {
        "checkpoint": 10,
        "reason": "diverged: a valid checkpoint at block 10 differs from what this peer computed",
        "computed": statement_at(10, "ours"),
        "agreed": statement_at(10),
        "found": found,
        "summary": found["summary"] if found else "where it begins is being looked for",
    }
    return node


def test_divergence_is_shown_over_rest_with_both_statements_and_what_was_found() -> None:
    with TestClient(create_app(diverged_node(found_facts()))) as client:
        answer = client.get(f"/v1/channels/{CHANNEL}/divergence")
    assert answer.status_code == 200
    shown = models.DivergenceAnswer.model_validate(answer.json())
    assert shown.computed.state_hash != shown.agreed.state_hash
    assert shown.found is not None and shown.found.state is not None
    assert [one.differs for one in shown.found.state.keys] == [["value"], ["presence"]]


def test_a_peer_that_did_not_diverge_answers_not_found() -> None:
    with TestClient(create_app(make_node())) as client:
        assert client.get(f"/v1/channels/{CHANNEL}/divergence").status_code == 404


def test_divergence_is_told_by_the_command(peerledger: Runner) -> None:
    with serving(diverged_node(found_facts())) as url:
        done = peerledger("checkpoint", "divergence", "--rest", url, "--channel", CHANNEL)
        as_json = peerledger("checkpoint", "divergence", "--rest", url, "--channel", CHANNEL, "--json").json
    assert done.status == 0
    assert "no vBlock differs; 2 differing keys: 'last' of asset (value)" in done.stdout
    assert as_json["found"]["compared_with"] == "peer0.org2"


def test_divergence_that_is_still_looked_for_is_told_so(peerledger: Runner) -> None:
    with serving(diverged_node(None)) as url:
        done = peerledger("checkpoint", "divergence", "--rest", url, "--channel", CHANNEL)
    assert done.status == 0 and "is being looked for" in done.stdout


# -- comparing two ledgers


def test_two_equal_directories_do_not_differ(tmp_path: Path, peerledger: Runner) -> None:
    first, second = PeerFolder(tmp_path / "a"), PeerFolder(tmp_path / "b")
    done = peerledger("checkpoint", "compare", first.data, second.data, "--json")
    assert (done.status, done.json["differs"]) == (0, False)
    assert done.json["vblocks_compared"] <= 4, "of 15"


def test_a_patched_value_is_named_by_comparing_directories(tmp_path: Path, peerledger: Runner) -> None:
    first, second = PeerFolder(tmp_path / "a"), PeerFolder(tmp_path / "b")
    patch(second, LAST, b"patched")
    done = peerledger("checkpoint", "compare", first.data, second.data)
    assert done.status == 1
    assert "no vBlock differs; 1 differing key: 'last' of asset (value)" in done.stdout


def test_the_first_differing_vblock_is_found_between_directories_of_different_heights(
    tmp_path: Path, peerledger: Runner
) -> None:
    outcomes = list(life().outcomes[:12])
    outcomes[9] = replace(outcomes[9], verdicts=b"\x0b" + outcomes[9].verdicts[1:])
    first, second = PeerFolder(tmp_path / "a").agree(), PeerFolder(tmp_path / "b", outcomes).agree()
    done = peerledger("checkpoint", "compare", first.data, second.data, "--json")
    assert done.status == 1
    assert (done.json["vblock"]["number"], done.json["heights"]) == (9, [15, 12])
    (transaction,) = done.json["vblock"]["transactions"]
    assert (transaction["ours"]["verdict"], transaction["theirs"]["verdict"]) == ("VALID", "MVCC_READ_CONFLICT")
    assert done.json["state"] == {"ours_at": 8, "theirs_at": 8, "keys": [], "more": False}, (
        "at checkpoint 8 all is well"
    )


def test_a_directory_without_the_channel_is_named(tmp_path: Path, peerledger: Runner) -> None:
    first = PeerFolder(tmp_path / "a")
    done = peerledger("checkpoint", "compare", first.data, tmp_path)
    assert done.status == 1 and "holds no channel" in done.stderr


def test_a_directory_and_a_url_are_not_compared(tmp_path: Path, peerledger: Runner) -> None:
    done = peerledger("checkpoint", "compare", tmp_path, "http://127.0.0.1:1")
    assert done.status == 2 and "two directories or two URLs" in done.stderr


def test_two_running_peers_are_compared_by_their_vblocks_and_checkpoints(peerledger: Runner) -> None:
    one, other = make_node(), make_node()
    changed = list(other.channel_view.ledger.vblocks)
    for number in range(40, len(changed)):  # A chain that differs from 40 on.
        header = replace(changed[number].header, commit_hash=b"else")
        changed[number] = replace(changed[number], header=header, vblock_hash=statement_at(number).state_hash)
    other.channel_view.ledger.vblocks = changed
    other.channel_view.ledger.height = 90
    with serving(one) as first, serving(other) as second:
        same = peerledger("checkpoint", "compare", first, first, "--channel", CHANNEL, "--json")
        done = peerledger("checkpoint", "compare", first, second, "--channel", CHANNEL, "--json")
    assert (same.status, same.json["state_reason"]) == (0, "at checkpoint 80 all is the same")
    assert done.status == 1
    assert (done.json["vblock"]["number"], done.json["vblock"]["differs"]) == (40, ["commit_hash"])
    assert done.json["vblocks_compared"] <= 7


def test_states_are_compared_key_by_key() -> None:
    """Against a dictionary: entries of one side, of the other, of both and differing."""
    one = {public_key("a", f"k{number}"): entry(b"1") for number in (1, 2, 3, 5)}
    other = {public_key("a", f"k{number}"): entry(b"1") for number in (2, 3, 4, 6)}
    other[public_key("a", "k3")] = entry(b"2")
    ordered = [sorted(side.items(), key=lambda pair: state_key(pair[0])) for side in (one, other)]
    expected = [
        (key, one.get(key), other.get(key))
        for key in sorted({*one, *other}, key=state_key)
        if one.get(key) != other.get(key)
    ]
    assert list(differing(*ordered)) == expected
    assert list(differing([], [])) == []
