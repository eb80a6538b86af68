"""`peerledger proof` and `peerledger checkpoint export`: asked of a peer over HTTP, checked with no peer at all."""

import asyncio
import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from ledger.interfaces.rest.app import create_app
from ledger.wire.block import encode_block
from ledger.wire.proofs import encode_proof
from tests.cli.running import Runner
from tests.kit.channel import Channel
from tests.kit.paths import ROOT
from tests.kit.proven import ProvenLedger, examples, life
from tests.kit.rest_node import CHANNEL, make_node


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a peer that serves the proofs of a ledger."""
    ledger = ProvenLedger(tmp_path_factory.mktemp("proven"))
    node = make_node()
    node.channel_view.proofs = ledger.source
    server = uvicorn.Server(uvicorn.Config(create_app(node), host="127.0.0.1", port=0, log_level="critical"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    ledger.close()


@pytest.fixture
def genesis(tmp_path: Path) -> Path:
    path = tmp_path / "genesis.block"
    path.write_bytes(life().genesis)
    return path


def asked(peerledger: Runner, peer: str, *arguments: str | Path) -> str:
    done = peerledger(*arguments, "--rest", peer, "--channel", CHANNEL)
    assert done.status == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (("transaction", life().id_of(7, 0)), "inclusion"),
        (("transaction", life().id_of(7, 0), "--checkpoint", "12"), "inclusion"),
        (("transaction", life().id_of(5, 11), "--place", "0"), "rejection"),
        (("key", "asset", "last"), "presence"),
        (("key", "asset", b"last".hex(), "--hex-key"), "presence"),
        (("key", "asset", "a/b?c"), "absence"),
        (("key", "asset", "x", "--collection", "secret"), "absence"),
        (("consistency", "4", "12"), "consistency"),
        (("checkpoint", "8"), "checkpoint"),
    ],
)
def test_what_a_peer_proves_holds_without_it(
    command: tuple[str, ...], kind: str, peer: str, peerledger: Runner, genesis: Path, tmp_path: Path
) -> None:
    file = tmp_path / "proof.json"
    file.write_text(asked(peerledger, peer, "proof", *command))
    done = peerledger("proof", "verify", file, "--genesis", genesis, "--json")
    assert (done.status, done.json["holds"], done.json["facts"]["kind"]) == (0, True, kind)


def test_verify_says_in_words_what_is_proved_and_what_not(peerledger: Runner, genesis: Path, tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    file.write_bytes(encode_proof(examples()["rejection"]))
    done = peerledger("proof", "verify", file, "--genesis", genesis)
    assert done.status == 0
    proved, not_proved = done.stdout.split("Not proved:")
    assert proved.startswith("The proof holds. Proved:")
    assert "was judged invalid: MVCC_READ_CONFLICT" in proved
    assert "Org1MSP peer0, Org2MSP peer0 signed it, which satisfies MAJORITY Endorsement" in proved
    assert "a claimed id proves nothing about the sender" in not_proved


def test_refused_proof_gives_status_1_and_names_the_rule(peerledger: Runner, genesis: Path, tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    document = json.loads(encode_proof(examples()["presence"]))
    document["entry"]["value"] = b"1000000".hex()
    file.write_text(json.dumps(document))
    done = peerledger("proof", "verify", file, "--genesis", genesis)
    assert done.status == 1
    assert done.stdout.startswith("The proof is refused.\n  state proof: state root;")
    done = peerledger("proof", "verify", file, "--genesis", genesis, "--json")
    assert (done.status, done.json["holds"], done.json["rule"]) == (1, False, "state root")
    assert peerledger("proof", "verify", tmp_path / "nowhere", "--genesis", genesis).status == 1


def test_verify_takes_less_than_a_second(genesis: Path, tmp_path: Path) -> None:
    """Goal: no node, no network, under a second.  Method: a process of its own, its time on the processor."""
    file = tmp_path / "proof.json"
    file.write_bytes(encode_proof(examples()["consistency"]))
    code = (
        "import sys, time; from ledger.cli.main import build; "
        "build()(['proof', 'verify', sys.argv[1], '--genesis', sys.argv[2]], result_action='return_value'); "
        "assert not {'grpc', 'plyvel', 'fastapi'} & set(sys.modules); print(time.process_time())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file), str(genesis)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) < 2, "1, and something for a machine under load"


# Notes for witnesses.


def exported(peerledger: Runner, peer: str, genesis: Path, *more: str | Path) -> str:
    return asked(peerledger, peer, "checkpoint", "export", "8", "--note", "--genesis", genesis, *more)


def test_note_without_a_key_is_the_text_that_witnesses_sign(peerledger: Runner, peer: str, genesis: Path) -> None:
    note = exported(peerledger, peer, genesis, "--origin", "example.com/demo")
    root = base64.b64encode(examples()["checkpoint"].checkpoint.proof.statement.vledger_root).decode()
    assert note == f"example.com/demo\n9\n{root}\n"


def test_origin_tells_networks_apart_by_their_genesis_block(peerledger: Runner, peer: str, genesis: Path) -> None:
    origin, size, _ = exported(peerledger, peer, genesis).splitlines()
    assert (origin.startswith("peerledger/testchannel/"), len(origin.split("/")[2]), size) == (True, 32, "9")


def test_note_is_signed_with_a_key_of_the_logs_own(
    peerledger: Runner, peer: str, genesis: Path, tmp_path: Path
) -> None:
    """Goal: a signed note as the specification has it.  Method: read it as a witness does."""
    key, path = ed25519.Ed25519PrivateKey.generate(), tmp_path / "log.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    note = exported(peerledger, peer, genesis, "--origin", "example.com/demo", "--key", path)
    text, _, lines = note.rpartition("\n\n")
    dash, name, signature = lines.removesuffix("\n").split(" ")
    assert (dash, name) == ("\u2014", "example.com/demo")
    raw, public = base64.b64decode(signature), key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    assert raw[:4] == sha256(name.encode() + b"\n\x01" + public).digest()[:4]
    key.public_key().verify(raw[4:], f"{text}\n".encode())


@pytest.mark.parametrize("origin", ["with space", "with+plus", "with\nline", "tab\there"])
def test_origin_that_no_key_can_be_named_by_is_refused(
    origin: str, peerledger: Runner, peer: str, genesis: Path
) -> None:
    done = peerledger(
        "checkpoint", "export", "8", "--note", "--genesis", genesis, "--origin", origin,
        "--rest", peer, "--channel", CHANNEL,
    )  # fmt: skip
    assert done.status == 2
    assert "origin: key name" in done.stderr


def test_key_of_a_peer_signs_no_note(peerledger: Runner, peer: str, genesis: Path, tmp_path: Path) -> None:
    key, path = ec.generate_private_key(ec.SECP256R1()), tmp_path / "peer.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    done = peerledger(
        "checkpoint", "export", "8", "--note", "--genesis", genesis, "--key", path, "--rest", peer, "--channel", CHANNEL
    )
    assert (done.status, "expected an Ed25519 key in PEM" in done.stderr, done.stdout) == (2, True, "")


def test_checkpoint_is_exported_only_after_its_proof_was_checked(
    peerledger: Runner, peer: str, genesis: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.block"
    other.write_bytes(encode_block(Channel().genesis))
    done = peerledger("checkpoint", "export", "8", "--genesis", other, "--rest", peer, "--channel", CHANNEL)
    assert (done.status, done.stdout) == (2, "")
    assert (
        json.loads(asked(peerledger, peer, "checkpoint", "export", "8", "--genesis", genesis))["kind"] == "checkpoint"
    )
