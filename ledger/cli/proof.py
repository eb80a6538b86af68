"""How are proofs made and checked?  A peer makes them; to check one takes the file, the genesis block, and nobody."""

import sys
import urllib.parse
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from ledger.cli.connection import Target
from ledger.cli.output import STATUS_FAILED, out, print_json
from ledger.core.errors import InvalidSetting, Refused
from ledger.core.proofs import Verified, in_words
from ledger.node.files import read
from ledger.wire.proofs import verify_file

NOBODY = Target()


def proof_transaction(tx_id: str, /, *, place: int = 0, checkpoint: int | None = None, target: Target = NOBODY) -> None:
    """Print a proof of what became of a transaction: inclusion if it is valid, rejection if it is not.

    Args:
        tx_id: Its claimed id.
        place: Which of the id's places, counted from 0.
        checkpoint: The checkpoint that it rests on; the first at or above its block by default.
        target: The peer to ask.
    """
    print_proof(
        target, f"transactions/{urllib.parse.quote(tx_id, safe='')}", place=place or None, checkpoint=checkpoint
    )


def proof_key(
    namespace: str,
    key: str,
    /,
    *,
    collection: str | None = None,
    hex_key: bool = False,
    checkpoint: int | None = None,
    target: Target = NOBODY,
) -> None:
    """Print a proof of a key's entry at a checkpoint, or of its absence.

    Args:
        namespace: Chaincode whose state it is.
        key: The key.
        collection: Collection of private data; what is proved then are hashes.
        hex_key: The key is given as hex.
        checkpoint: The checkpoint, by default the latest valid one.
        target: The peer to ask.
    """
    try:
        raw = bytes.fromhex(key) if hex_key else key.encode()
    except ValueError as error:
        raise InvalidSetting("key", rule="hex", expected="an even number of hex digits", found=key) from error
    encoded = urlsafe_b64encode(raw).decode().rstrip("=")
    path = f"state/{urllib.parse.quote(namespace, safe='')}"
    print_proof(target, path, key=encoded, collection=collection, checkpoint=checkpoint)


def proof_consistency(older: int, newer: int, /, *, target: Target = NOBODY) -> None:
    """Print a proof that the ledger at one checkpoint is the beginning of that at another.

    Args:
        older: Block of the older checkpoint.
        newer: Block of the newer one.
        target: The peer to ask.
    """
    query = urllib.parse.urlencode({"from": older, "to": newer})
    print_json(target.channel_get(f"/proofs/consistency?{query}"))


def proof_checkpoint(number: int, /, *, target: Target = NOBODY) -> None:
    """Print a proof that a checkpoint is valid, with the trail that says who was entitled to sign it.

    Args:
        number: The block that it is at.
        target: The peer to ask.
    """
    print_proof(target, f"checkpoints/{number}")


def print_proof(target: Target, path: str, **query: Any) -> None:
    """Ask a peer for a proof and print its file."""
    asked = urllib.parse.urlencode({name: value for name, value in query.items() if value is not None})
    print_json(target.channel_get(f"/proofs/{path}" + (f"?{asked}" if asked else "")))


def verify(file: Path, /, *, genesis: Path, json: bool = False) -> None:
    """Check a proof, with no node and no network, and say what it proves and what not.

    The exit status is 0 if the proof holds and 1 if it is refused; the reason names the rule.

    Args:
        file: The proof.
        genesis: The channel's genesis block: the trust root.
        json: Print the result as JSON.
    """
    data, trusted = read(file), read(genesis)
    try:
        verified = verify_file(data, trusted)
    except Refused as error:
        if json:
            print_json({"holds": False, "rule": error.rule, "reason": str(error)})
        else:
            out.print("[red]The proof is refused.[/red]")
            out.print(f"  {error}", markup=False)
        sys.exit(STATUS_FAILED)
    if json:
        print_json({"holds": True, **members(verified)})
    else:
        show(verified)


def members(verified: Verified) -> dict[str, object]:
    """Write what was proved as data."""
    return {
        "facts": dict(verified.facts),
        "signers": list(verified.signers),
        "policy": verified.policy,
        "config_blocks": list(verified.config_blocks),
    }


def show(verified: Verified) -> None:
    """Say in words what was proved and what not."""
    proved, not_proved = in_words(verified)
    out.print("[green]The proof holds.[/green] Proved:")
    for sentence in proved:
        out.print(f"  + {sentence}", markup=False)
    out.print("Not proved:")
    for sentence in not_proved:
        out.print(f"  - {sentence}", markup=False)
