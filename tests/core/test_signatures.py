"""Which signatures are good: the DER that Fabric's decoder takes, low s on every curve, and answers known from RFCs."""

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.hashing import digest
from ledger.core.signatures import GROUP_ORDERS, PrivateKey, half_order, low_s, read_der_signature, sign, verify
from tests.kit.certificates import der, integer, sequence, with_s

MESSAGE = b"what was signed"
KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC = KEY.public_key()
GOOD = sign(KEY, MESSAGE)
R, S = decode_dss_signature(GOOD)
ORDER = GROUP_ORDERS["secp256r1"]


@pytest.mark.parametrize("curve", [ec.SECP224R1(), ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_of_the_two_spellings_only_the_one_with_low_s_is_good(curve: ec.EllipticCurve) -> None:
    key = ec.generate_private_key(curve)
    for _ in range(4):
        signature = sign(key, MESSAGE)
        assert decode_dss_signature(signature)[1] <= half_order(curve.name)
        assert verify(key.public_key(), MESSAGE, signature)
        high = with_s(signature, curve.name, high=True)
        key.public_key().verify(high, MESSAGE, ec.ECDSA(hashes.SHA256()))  # Good by itself.
        assert not verify(key.public_key(), MESSAGE, high)
        assert low_s(high, curve.name) == signature


@pytest.mark.parametrize(("above", "is_good"), [(0, True), (1, False)])
def test_half_of_the_order_is_the_largest_s(above: int, is_good: bool) -> None:
    """Goal: the border itself.  Method: choose nonce and s, and compute the key that makes the signature so."""
    s, nonce = (ORDER >> 1) + above, 12345
    r = ec.derive_private_key(nonce, ec.SECP256R1()).public_key().public_numbers().x % ORDER
    hashed = int.from_bytes(digest(MESSAGE), "big")
    key = ec.derive_private_key((s * nonce - hashed) * pow(r, -1, ORDER) % ORDER, ec.SECP256R1())
    signature = encode_dss_signature(r, s)
    key.public_key().verify(signature, MESSAGE, ec.ECDSA(hashes.SHA256()))
    assert verify(key.public_key(), MESSAGE, signature) is is_good


@pytest.mark.parametrize(
    "signature",
    [
        GOOD,
        GOOD + b"\x00",
        GOOD + b"anything at all behind the sequence",
        GOOD + GOOD,
        sequence(integer(R), integer(S), integer(0)),
        sequence(integer(R), integer(S), b"\xff"),
    ],
    ids=lambda _: "behind",  # The bytes differ from run to run.
)
def test_what_stands_behind_s_does_not_count(signature: bytes) -> None:
    assert verify(PUBLIC, MESSAGE, signature)
    assert not verify(PUBLIC, MESSAGE + b".", signature)


def long_length(content: bytes, size: int) -> bytes:
    """A SEQUENCE whose length is written with more bytes than needed."""
    return b"\x30" + bytes((0x80 | size,)) + len(content).to_bytes(size, "big") + content


INSIDE = integer(R) + integer(S)


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        b"\x30",
        b"\x30\x00",
        GOOD[:-1],
        GOOD[1:],
        b"\x31" + GOOD[1:],
        b"\x30\x80" + INSIDE + b"\x00\x00",
        long_length(INSIDE, 1),
        long_length(INSIDE, 2),
        b"\x30\x85\x00\x00\x00\x00" + GOOD[1:],
        sequence(integer(R)),
        sequence(integer(S)),
        sequence(der(0x02, b"\x00" + R.to_bytes(33, "big")), integer(S)),
        sequence(integer(R), der(0x02, b"\x00" + S.to_bytes(33, "big"))),
        sequence(der(0x02, b""), integer(S)),
        sequence(integer(R), der(0x04, S.to_bytes(32, "big"))),
        sequence(integer(R), b"\x02\x7f\x01"),
        sequence(integer(-R), integer(S)),
        sequence(integer(R), integer(-S)),
        sequence(integer(0), integer(S)),
        sequence(integer(R), integer(0)),
        sequence(integer(0), integer(0)),
        sequence(integer(R + ORDER), integer(S)),
        sequence(integer(R), integer(S + ORDER)),
        sequence(integer(S), integer(R)),
        sequence(integer(R), integer(ORDER - S)),
        R.to_bytes(32, "big") + S.to_bytes(32, "big"),
    ],
    ids=lambda _: "form",
)
def test_a_signature_in_another_form_is_bad(signature: bytes) -> None:
    assert not verify(PUBLIC, MESSAGE, signature)


@given(r=st.integers(-(2**300), 2**300), s=st.integers(-(2**300), 2**300), behind=st.binary(max_size=4))
def test_numbers_are_read_as_they_were_written(r: int, s: int, behind: bytes) -> None:
    assert read_der_signature(sequence(integer(r), integer(s)) + behind) == (r, s, not behind)


@given(st.binary(max_size=80))
def test_no_bytes_make_the_reader_fall_over(data: bytes) -> None:
    found = read_der_signature(data)
    assert found is None or sequence(integer(found[0]), integer(found[1])) == data or not found[2]


def test_another_curve_is_never_good() -> None:
    key = ec.generate_private_key(ec.SECP256K1())
    signature = key.sign(MESSAGE, ec.ECDSA(hashes.SHA256()))
    assert not verify(key.public_key(), MESSAGE, signature)


@pytest.mark.parametrize(
    ("curve", "secret", "r", "s", "is_low"),
    [
        (
            ec.SECP256R1(),
            "C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721",
            "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716",
            "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8",
            False,
        ),
        (
            ec.SECP384R1(),
            "6B9D3DAD2E1B8C1C05B19875B6659F4DE23C3B667BF297BA9AA47740787137D896D5724E4C70A825F872C9EA60D2EDF5",
            "21B13D1E013C7FA1392D03C5F99AF8B30C570C6F98D4EA8E354B63A21D3DAA33BDE1E888E63355D92FA2B3C36D8FB2CD",
            "F3AA443FB107745BF4BD77CB3891674632068A10CA67E3D45DB2266FA7D1FEEBEFDC63ECCD1AC42EC0CB8668A4FA0AB0",
            False,
        ),
    ],
    ids=["P-256", "P-384"],
)
def test_the_signatures_of_rfc_6979_over_sha_256(
    curve: ec.EllipticCurve, secret: str, r: str, s: str, is_low: bool
) -> None:
    """Both curves sign SHA-256 of "sample"; the RFC's s is high, so that its other spelling is the good one."""
    public = ec.derive_private_key(int(secret, 16), curve).public_key()
    signature = encode_dss_signature(int(r, 16), int(s, 16))
    assert verify(public, b"sample", signature) is is_low
    assert verify(public, b"sample", low_s(signature, curve.name))
    assert not verify(public, b"sample", low_s(signature, curve.name), "SHA3")


def test_the_signature_of_rfc_8032_is_over_the_message_itself() -> None:
    secret = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    expected = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    key: PrivateKey = ed25519.Ed25519PrivateKey.from_private_bytes(secret)
    public = key.public_key()
    assert sign(key, b"\x72") == expected
    assert verify(public, b"\x72", expected)
    for other in (b"", expected[:-1], expected + b"\x00", expected[:32] + bytes(32)):
        assert not verify(public, b"\x72", other)
    assert not verify(public, digest(b"\x72"), expected)
