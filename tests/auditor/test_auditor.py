"""The auditor's file against the node's own check: the same proofs, the same verdicts, changed proofs included."""

import ast
import functools
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ledger.core.errors import Refused
from ledger.core.signatures import GROUP_ORDERS
from ledger.core.state import StateKey
from ledger.wire import proofs
from ledger.wire.proofs import encode_proof, verify_file
from tests.kit.auditor import FILE, auditor
from tests.kit.mutants import mutant
from tests.kit.proven import examples, life, small_examples

MUTANTS = 2_000
NAMES = sorted(examples())
GENESIS = life().genesis


def by_the_auditor(data: bytes) -> dict[str, Any] | str:
    """What the auditor's file finds: facts and signers, or the rule that is broken."""
    try:
        found = auditor().verify(data, GENESIS)
    except auditor().Refused as refusal:
        return str(refusal.rule)
    return {**found["facts"], "signers": sorted(found["signers"]), "trail": found["config_blocks"]}


def by_the_node(data: bytes) -> dict[str, Any] | str:
    """What the node's check finds."""
    try:
        found = verify_file(data, GENESIS)
    except Refused as refusal:
        return refusal.rule
    return {**found.facts, "signers": sorted(found.signers), "trail": list(found.config_blocks)}


@pytest.mark.parametrize("name", NAMES)
def test_both_find_the_same_in_a_proof_that_holds(name: str) -> None:
    data = encode_proof(examples()[name])
    found = by_the_auditor(data)
    assert isinstance(found, dict), found
    assert found == by_the_node(data)


def test_changed_proofs_are_refused_by_both_or_still_say_what_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no change makes a proof say something false.  Method: 2,000 proofs with one thing changed, at random.

    Who accepts one must find the same facts (the signatures may stand in an order that also satisfies the policy), or
    that another key is absent, which is true. Trails that were judged are remembered: the same blocks, the same answer.
    """
    monkeypatch.setattr(proofs, "follow_trail", functools.cache(proofs.follow_trail))
    trail = functools.cache(auditor().Trail)
    monkeypatch.setattr(auditor(), "Trail", lambda genesis, blocks: trail(genesis, tuple(blocks)))
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    source, files = random.Random(seed), [encode_proof(proof) for _, proof in sorted(small_examples().items())]
    honest = {file: by_the_node(file) for file in files}
    present = {found["key"] for found in honest.values() if isinstance(found, dict) and found["kind"] == "presence"}
    accepted = 0
    for _ in range(MUTANTS):
        file = source.choice(files)
        changed, what = mutant(file, source)
        ours, theirs = by_the_node(changed), by_the_auditor(changed)
        assert isinstance(ours, str) == isinstance(theirs, str), f"seed {seed}, {what}: {ours}, {theirs}"
        if isinstance(ours, str):
            continue
        accepted += 1
        assert ours == theirs, f"seed {seed}, {what}"
        expected = honest[file]
        assert isinstance(expected, dict)
        if ours["kind"] == "absence" and ours != expected:
            assert is_absent(ours), f"seed {seed}, {what}: {ours} is in the state"
            ours = {**ours, **{name: expected[name] for name in ("namespace", "collection", "key")}}
        assert ours == expected, f"seed {seed}, {what}"
    assert present and accepted < MUTANTS // 20


def is_absent(found: dict[str, Any]) -> bool:
    """Tell whether a key was not in the state after block 4."""
    key = StateKey(
        1 if found["collection"] else 0, found["namespace"], found["collection"], bytes.fromhex(found["key"])
    )
    last = [outcome.updates[key] for outcome in life().outcomes[:5] if key in outcome.updates]
    return not last or last[-1] is None


def test_the_file_needs_nothing_of_the_node() -> None:
    """Goal: an independent judgement.  Method: its imports, and a run where the package can't be found."""
    tree = ast.parse(FILE.read_text())
    found = {
        (node.module or "" if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert found - {"cryptography"} <= sys.stdlib_module_names


@pytest.mark.parametrize("name", ["rejection", "presence"])
def test_it_runs_alone_and_says_in_words_what_it_found(name: str, tmp_path: Path) -> None:
    proof, genesis, file = tmp_path / "proof.json", tmp_path / "genesis.block", tmp_path / "verify_proof.py"
    proof.write_bytes(encode_proof(examples()[name]))
    genesis.write_bytes(GENESIS)
    file.write_bytes(FILE.read_bytes())
    command = [sys.executable, "-I", str(file), str(proof), "--genesis", str(genesis)]
    started = time.monotonic()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert time.monotonic() - started < 5, "a second, on a machine with nothing else to do"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("The proof holds.\n")
    if name == "rejection":
        assert "judged invalid (MVCC_READ_CONFLICT)" in done.stdout
        assert "Not proved: who sent the envelope." in done.stdout
    as_json = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=30)
    assert json.loads(as_json.stdout)["facts"]["kind"] == name
    proof.write_bytes(proof.read_bytes().replace(b'"index": ', b'"index": 1'))
    refused = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert refused.returncode == 1
    assert refused.stdout.startswith("REFUSED: ")


def test_it_knows_the_same_curves() -> None:
    assert auditor().ORDERS == GROUP_ORDERS
