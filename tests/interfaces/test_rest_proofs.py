"""Proofs over REST: files that hold, from a ledger on disk; and what can't be proved, with the height from which on."""

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from ledger.core.names import BlockNumber
from ledger.core.proofs import Verified
from ledger.interfaces.rest import proof_models as models
from ledger.interfaces.rest.app import create_app
from ledger.wire.proofs import verify_file
from tests.kit.auditor import auditor
from tests.kit.proven import CHECKPOINTS, HEIGHT, PRUNE_POINT, ProvenLedger, life
from tests.kit.rest_node import CHANNEL, make_node

BASE = f"/v1/channels/{CHANNEL}/proofs"
MODELS: dict[str, type[models.ProofFile]] = {
    "inclusion": models.InclusionProof,
    "rejection": models.RejectionProof,
    "presence": models.PresenceProof,
    "absence": models.AbsenceProof,
    "consistency": models.ConsistencyProof,
    "checkpoint": models.CheckpointProofFile,
}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProvenLedger]:
    """A ledger that is pruned below its latest checkpoint."""
    made = ProvenLedger(tmp_path_factory.mktemp("proven"))
    made.prune()
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(ledger: ProvenLedger) -> Iterator[TestClient]:
    with serving(ledger) as client:
        yield client


def serving(ledger: ProvenLedger) -> TestClient:
    """The interface over a ledger's proofs; the rest of the node is another's."""
    node = make_node()
    node.channel_view.proofs = ledger.source
    return TestClient(create_app(node), raise_server_exceptions=False)


def proved(client: TestClient, path: str) -> Verified:
    """Ask for a proof, compare it with its documented form, and check it, by both."""
    answer = client.get(BASE + path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), answer.text
    MODELS[answer.json()["kind"]].model_validate(answer.json())
    found = verify_file(answer.content, life().genesis)
    assert auditor().verify(answer.content, life().genesis)["facts"] == dict(found.facts)
    return found


def refused(client: TestClient, path: str) -> tuple[int, str]:
    answer = client.get(BASE + path)
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    return answer.status_code, str(problem["detail"])


def test_valid_transaction_is_proved_whole_by_the_first_checkpoint_above_it(client: TestClient) -> None:
    tx_id = life().id_of(7, 0)
    facts = proved(client, f"/transactions/{tx_id}").facts
    assert (facts["kind"], facts["checkpoint"], facts["block"], facts["index"]) == ("inclusion", 8, 7, 0)
    assert facts["tx_id"] == tx_id
    assert proved(client, f"/transactions/{tx_id}?checkpoint=12").facts["checkpoint"] == 12


@pytest.mark.parametrize("verdict", [4, 10, 11])
def test_rejection_is_proved_after_the_body_was_pruned(verdict: int, client: TestClient, ledger: ProvenLedger) -> None:
    assert PRUNE_POINT > 5
    assert ledger.store.stored_block(BlockNumber(5)).envelopes[1] is None, "the bodies of block 5 are gone"
    tx_id = life().id_of(5, verdict)
    facts = proved(client, f"/transactions/{tx_id}").facts
    assert (facts["kind"], facts["verdict"], facts["tx_id"], facts["block"]) == ("rejection", verdict, tx_id, 5)


def test_proof_of_a_place_that_is_not_there_is_not_found(client: TestClient) -> None:
    tx_id = life().id_of(7, 0)
    assert refused(client, f"/transactions/{tx_id}?place=1") == (
        404,
        f"transaction {tx_id} has 1 places, none numbered 1",
    )
    assert refused(client, "/transactions/nobodys") == (404, "no block of this channel holds transaction nobodys")


def test_what_no_checkpoint_covers_yet_names_the_height_from_which_it_can_be_proved(client: TestClient) -> None:
    tx_id = life().id_of(HEIGHT - 1, 0)
    status, detail = refused(client, f"/transactions/{tx_id}")
    assert status == 404
    assert detail == (
        f"transaction {tx_id} is in block 14, which no valid checkpoint covers yet (the latest valid one is 12); "
        "it can be proved once one at block 16 or above is valid"
    )
    status, detail = refused(client, f"/transactions/{tx_id}?checkpoint=12")
    assert (status, detail.endswith("above checkpoint 12: ask for one at or above it")) == (404, True)


def test_before_the_first_checkpoint_nothing_is_proved(tmp_path: Path) -> None:
    early = ProvenLedger(tmp_path, height=3)
    with serving(early) as client:
        status, detail = refused(client, "/state/asset/last")
        assert (status, "the first is due at block 4" in detail) == (404, True)
        status, detail = refused(client, f"/transactions/{life().id_of(2, 0)}")
        assert (status, "no checkpoint is valid yet" in detail, "block 4 or above" in detail) == (404, True, True)
    early.close()


def test_key_is_proved_present_or_absent_at_the_latest_checkpoint(client: TestClient) -> None:
    found = proved(client, "/state/asset/last").facts
    assert (found["kind"], found["value"], found["checkpoint"]) == ("presence", b"12".hex(), CHECKPOINTS[-1])
    assert proved(client, "/state/asset/forged").facts["kind"] == "absence"
    odd = urlsafe_b64encode(b"\x00/odd/\xff").decode()
    assert proved(client, f"/state/asset?key={odd}").facts["key"] == b"\x00/odd/\xff".hex()
    assert proved(client, f"/state/asset/{quote('a/b c', safe='')}").facts["key"] == b"a/b c".hex()


def test_private_data_is_proved_by_its_hashes(client: TestClient) -> None:
    found = proved(client, "/state/asset/some%20key?collection=secret").facts
    assert (found["kind"], found["collection"], len(str(found["key"]))) == ("absence", "secret", 64)


def test_state_of_an_older_checkpoint_is_not_kept_and_the_answer_names_the_one_that_is(client: TestClient) -> None:
    assert refused(client, "/state/asset/last?checkpoint=8") == (
        404,
        "the state at checkpoint 8 is not kept here any more; ask for that at 12, the latest",
    )
    assert refused(client, "/state/asset/last?checkpoint=9") == (
        404,
        "no checkpoint at block 9 is valid here; the latest valid one is at block 12",
    )


def test_consistency_of_any_two_checkpoints_is_proved_in_their_order(client: TestClient) -> None:
    for older, newer in ((4, 8), (4, 12), (8, 12)):
        facts = proved(client, f"/consistency?from={older}&to={newer}").facts
        assert (facts["kind"], facts["older"], facts["checkpoint"]) == ("consistency", older, newer)
    status, detail = refused(client, "/consistency?from=12&to=12")
    assert (status, "order of checkpoints" in detail) == (400, True)
    assert refused(client, "/consistency?from=4")[0] == 400
    assert refused(client, "/consistency?from=4&to=10")[0] == 404


@pytest.mark.parametrize("number", CHECKPOINTS)
def test_checkpoint_is_proved_with_its_trail(number: int, client: TestClient) -> None:
    found = proved(client, f"/checkpoints/{number}")
    assert found.facts["checkpoint"] == number
    assert found.signers == tuple(f"{one.msp_id} peer0" for one in life().signers[number])
    assert found.config_blocks == tuple(block for block in (3, 6, 9) if block <= number)


def test_checkpoint_that_is_not_valid_is_not_found(client: TestClient) -> None:
    assert refused(client, "/checkpoints/7")[0] == 404
