"""How does a checkpoint get to outside witnesses?  As one of a transparency log, once its proof was checked."""

import json
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ledger.cli.connection import Target
from ledger.cli.output import err, print_json
from ledger.core.block import block_hash
from ledger.core.errors import InvalidSetting
from ledger.core.tlog_note import default_origin, note_text, signature_line, verifier_key
from ledger.node.files import read
from ledger.wire.block import decode_block
from ledger.wire.proofs import decode_proof, verify_file

NOBODY = Target()


def checkpoint_export(
    number: int,
    /,
    *,
    genesis: Path,
    note: bool = False,
    origin: str | None = None,
    key: Path | None = None,
    target: Target = NOBODY,
) -> None:
    """Check a valid checkpoint's proof and print it, as the proof's file or as a C2SP note for witnesses.

    The note is not signed by the peers, whose signatures are over more than a note says.

    Args:
        number: The block that it is at.
        genesis: The channel's genesis block: the trust root.
        note: Print a tlog-checkpoint instead of the proof.
        origin: Name of the log, such as example.com/demo; made from channel and genesis block by default.
        key: Ed25519 key in PEM, used for nothing else, that signs the note in the name of the log.
        target: The peer to ask.
    """
    document = target.channel_get(f"/proofs/checkpoints/{number}")
    data, trusted = json.dumps(document).encode(), read(genesis)
    verify_file(data, trusted)  # What is passed on in our name, or signed, is checked before.
    if not note:
        return print_json(document)
    proof = decode_proof(data)
    name = origin or default_origin(proof.channel, block_hash(decode_block(trusted)))
    text = note_text(name, proof.checkpoint.proof.statement)
    if key is None:
        err.print("the note is not signed: add a line with --key, or let witnesses sign its text")
    else:
        private = log_key(key)
        text += "\n" + signature_line(name, text, private)
        err.print(f"witnesses verify it with {verifier_key(name, private.public_key())}", markup=False)
    sys.stdout.write(text)
    sys.stdout.flush()
    return None


def log_key(path: Path) -> ed25519.Ed25519PrivateKey:
    """Read the key of a log.

    Raises:
        InvalidSetting: It is no Ed25519 key in PEM, without a password.
    """
    try:
        found = load_pem_private_key(read(path), None)
    except (ValueError, TypeError) as error:
        raise InvalidSetting(str(path), rule="note key", expected="an Ed25519 key in PEM", found=error) from error
    if not isinstance(found, ed25519.Ed25519PrivateKey):
        kind = type(found).__name__
        raise InvalidSetting(str(path), rule="note key", expected="an Ed25519 key in PEM", found=kind)
    return found
