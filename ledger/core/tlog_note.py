"""How does a checkpoint look to witnesses of transparency logs?  C2SP `tlog-checkpoint` and `signed-note`.

The vLedger is a log of RFC 6962: its size is the number of blocks, its root the statement's vLedger root. The text has
three lines: origin, size, root. A signature line is made only with an Ed25519 key that is for nothing else: the peers'
signatures are over the statement, not over this text, so none of them can stand here.
"""

from base64 import b64encode
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ledger.core.checkpoint import Statement
from ledger.core.errors import InvalidSetting

ED25519 = b"\x01"
"""Signature type of a plain Ed25519 key."""


def default_origin(channel: str, genesis_hash: bytes) -> str:
    """Name a channel's log so that no other network's has the same name."""
    return f"peerledger/{channel}/{genesis_hash.hex()[:32]}"


def note_text(origin: str, statement: Statement) -> str:
    """Write the text that witnesses sign.

    Raises:
        InvalidSetting: The origin is no name of a key: empty, or with white space, control characters or a plus sign.
    """
    if not origin or not origin.isprintable() or "+" in origin or any(letter.isspace() for letter in origin):
        raise InvalidSetting("origin", rule="key name", expected="a name such as example.com/demo", found=origin)
    return f"{origin}\n{statement.number + 1}\n{b64encode(statement.vledger_root).decode()}\n"


def signature_line(name: str, text: str, key: ed25519.Ed25519PrivateKey) -> str:
    """Sign a note's text with an Ed25519 key of this name."""
    signed = key_id(name, key.public_key()) + key.sign(text.encode())
    return f"— {name} {b64encode(signed).decode()}\n"


def verifier_key(name: str, key: ed25519.Ed25519PublicKey) -> str:
    """Write a public key as witnesses are given it: `NAME+KEYID+BASE64`."""
    public = ED25519 + key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return f"{name}+{key_id(name, key).hex()}+{b64encode(public).decode()}"


def key_id(name: str, key: ed25519.Ed25519PublicKey) -> bytes:
    """Compute the four bytes by which verifiers find a key."""
    public = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return sha256(name.encode() + b"\n" + ED25519 + public).digest()[:4]


__all__ = ["default_origin", "note_text", "signature_line", "verifier_key"]
