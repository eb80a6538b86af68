"""Who is an application?  A certificate and its private key, as a member's wallet holds them."""

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ledger.core.errors import InvalidIdentity
from ledger.core.signatures import PrivateKey, sign
from ledger.wire.codec import encode_identity


@dataclass(frozen=True, slots=True)
class KeySigner:
    """An identity whose private key is at hand."""

    serialized: bytes
    """SerializedIdentity."""

    private_key: PrivateKey

    def __repr__(self) -> str:
        """Show nothing of the key."""
        return "KeySigner()"

    def sign(self, message: bytes) -> bytes:
        """Sign a message by Fabric's rules."""
        return sign(self.private_key, message)


def load_signer(msp_id: str, certificate: bytes, key: bytes) -> KeySigner:
    """Make a signer of a certificate and its private key, both PEM.

    Raises:
        InvalidIdentity: The key is none that can sign.
    """
    try:
        private_key = load_pem_private_key(key, None)
    except (ValueError, TypeError) as error:
        raise InvalidIdentity("private key", rule="PEM", expected="an unencrypted private key", found=error) from error
    if not isinstance(private_key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        raise InvalidIdentity(
            "private key", rule="key algorithm", expected="ECDSA or Ed25519", found=type(private_key).__name__
        )
    return KeySigner(encode_identity(msp_id, certificate), private_key)
