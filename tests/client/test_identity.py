"""Which keys can sign for an application, and what do they give away of themselves?"""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ledger.client.identity import load_signer
from ledger.core.errors import InvalidIdentity
from tests.kit.organisations import Key
from tests.kit.peers import key_pem, wallet
from tests.kit.proposals import ORG1


def test_signer_of_files_is_the_identity_that_was_issued() -> None:
    signer = wallet(ORG1.client)
    assert signer.serialized == ORG1.client.serialized
    assert ORG1.client.private_key.public_key() == signer.private_key.public_key()


@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate()])
def test_other_keys_that_fabric_takes_sign_too(key: Key) -> None:
    assert load_signer("Org1MSP", ORG1.client.certificate, key_pem(key)).sign(b"message")


def test_signer_shows_nothing_of_its_key() -> None:
    assert repr(wallet(ORG1.client)) == "KeySigner()"


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        (b"", "PEM"),
        (b"no PEM", "PEM"),
        (ORG1.client.certificate, "PEM"),
        (key_pem(ec.generate_private_key(ec.SECP256R1()), b"secret"), "PEM"),
        (key_pem(rsa.generate_private_key(65537, 2048)), "key algorithm"),
    ],
    ids=["nothing", "no PEM", "a certificate", "encrypted", "RSA"],
)
def test_key_that_cannot_sign_is_refused_by_rule(key: bytes, rule: str) -> None:
    with pytest.raises(InvalidIdentity) as found:
        load_signer("Org1MSP", ORG1.client.certificate, key)
    assert (found.value.subject, found.value.rule) == ("private key", rule)
