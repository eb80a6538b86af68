"""Certificates and PEM texts that only some parsers take: ours takes those that Go's takes, and says why it refuses."""

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.core.certificates import parse_der, parse_pem, sanitised
from ledger.core.errors import InvalidIdentity
from ledger.core.pem import first_block, to_pem
from tests.kit.certificates import (
    AUTHORITY_KEY,
    BMP,
    IA5,
    NAME_CONSTRAINTS,
    NAMES,
    PRINTABLE,
    T61,
    as_pem,
    certificate,
    constraints,
    der,
    hosts,
    integer,
    key_info,
    name,
    oid,
    root,
    sequence,
    subject_key,
    usages,
)

ROOT = root()
KEY = ec.generate_private_key(ec.SECP256R1())
PLAIN: dict[str, Any] = {
    "issuer": ROOT.name, "issuer_key": ROOT.key, "subject": name("member", "peer"), "public": key_info(KEY)
}  # fmt: skip
UNKNOWN = "1.3.6.1.4.1.99999.1"


def refused(data: bytes) -> str:
    """Why the parser refuses some DER."""
    with pytest.raises(InvalidIdentity) as refusal:
        parse_der(data)
    assert refusal.value.rule == "X.509"
    return str(refusal.value.found)


def spki(algorithm: bytes, point: bytes) -> bytes:
    return sequence(algorithm, der(0x03, b"\x00", point))


EC_ALGORITHM = sequence(oid("1.2.840.10045.2.1"), oid("1.2.840.10045.3.1.7"))
POINT = KEY.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
COMPRESSED = KEY.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"serial": integer(-5)}, "serial number"),
        ({"serial": der(0x02, b"\x00\x05")}, "integer"),
        ({"version": der(0xA0, integer(3))}, "version"),
        ({"outer_algorithm": sequence(oid("1.2.840.10045.4.3.3"))}, "signature algorithm"),
        ({"times": (der(0x17, b"260101000000"), der(0x17, b"351231235959Z"))}, "time"),
        ({"times": (der(0x18, b"20260101000000.5Z"), der(0x17, b"351231235959Z"))}, "time"),
        ({"subject": name("a@b", tag=PRINTABLE)}, "string in a name"),
        ({"subject": name("é", tag=IA5)}, "codec can't decode"),
        ({"subject": name("x", tag=0x1A)}, "string in a name"),
        ({"public": spki(EC_ALGORITHM, COMPRESSED)}, "public key"),
        ({"public": spki(sequence(oid("1.2.840.10045.2.1"), oid("1.3.132.0.10")), POINT)}, ""),
        ({"extensions": [constraints(ca=True), constraints(ca=True)]}, "extension that comes twice"),
        ({"extensions": [subject_key(critical=True)]}, "may not be critical"),
        ({"extensions": [(AUTHORITY_KEY, True, sequence(der(0x80, b"k")))]}, "may not be critical"),
        ({"extensions": [constraints(ca=True, path_length=-1)]}, "path length"),
        ({"extensions": [(NAMES, False, sequence(der(0x87, b"12345")))]}, "alternative name"),
        ({"extensions": [(NAMES, False, sequence(der(0x82, b"caf\xe9.org")))]}, "alternative name"),
        ({"extensions": [(NAME_CONSTRAINTS, False, sequence())]}, "name constraints"),
        ({"extensions": [(NAMES, False, b"\x04\x00")]}, "tag"),
    ],
)
def test_a_certificate_that_go_does_not_parse_is_none(parts: dict[str, Any], reason: str) -> None:
    assert reason in refused(certificate(**PLAIN | parts))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"serial": integer(0)},
        {"serial": integer(2**300)},
        {"times": (der(0x17, b"2601010000Z"), der(0x18, b"20351231235959+0100"))},
        {"version": b"", "extensions": [(UNKNOWN, True, b"not read in version 1")]},
        {"extensions": [(UNKNOWN, True, b"anything")]},
        {"extensions": [(NAME_CONSTRAINTS, True, sequence(der(0xA0, sequence(der(0xA4, name("x"))))))]},
        {"subject": name("Ünit", tag=T61, encoding="latin-1")},
        {"subject": name("a*b&c", tag=PRINTABLE)},
        {"extensions": [hosts("peer0.org1.example.com", "")]},
    ],
)
def test_odd_certificates_that_go_parses_are_parsed(parts: dict[str, Any]) -> None:
    data = certificate(**PLAIN | parts)
    assert parse_der(data).der == data


def test_bytes_behind_a_certificate_are_refused_and_fields_behind_the_last_known_one_are_not() -> None:
    data = certificate(**PLAIN)
    assert "trailing data" in refused(data + b"\x00")
    assert "length" in refused(data[:-1])
    assert refused(b"")
    assert refused(b"\x30\x80" + data[4:] + b"\x00\x00")  # Indefinite length.


def test_critical_extensions_that_nobody_understands_are_remembered() -> None:
    unreadable_names = (NAMES, True, sequence(der(0x88, b"\x2a")))
    directory = (NAME_CONSTRAINTS, True, sequence(der(0xA1, sequence(der(0xA4, name("x"))))))
    found = parse_der(certificate(**PLAIN, extensions=[(UNKNOWN, True, b""), unreadable_names, directory]))
    assert found.unhandled == (UNKNOWN, NAMES, NAME_CONSTRAINTS)
    harmless = [(UNKNOWN, False, b""), ("2.5.29.54", True, integer(1)), usages("1.2.3"), hosts("a.b")]
    assert parse_der(certificate(**PLAIN, extensions=harmless)).unhandled == ()


def test_units_and_the_last_common_name_are_read_from_any_string_type() -> None:
    two_names = sequence(*(der(0x31, sequence(oid("2.5.4.3"), der(0x0C, each))) for each in (b"first", b"last")))
    assert parse_der(certificate(**PLAIN | {"subject": two_names})).common_name == "last"
    subject = name("peer0", "peer", "peer", tag=BMP, encoding="utf-16-be")
    found = parse_der(certificate(**PLAIN | {"subject": subject}))
    assert (found.common_name, found.units) == ("peer0", ("peer", "peer"))


def test_years_from_50_on_are_of_the_last_century() -> None:
    times = (der(0x17, b"500101000000Z"), der(0x17, b"491231235959Z"))
    found = parse_der(certificate(**PLAIN | {"times": times}))
    assert (found.not_before.year, found.not_after.year) == (1950, 2049)


def test_a_high_s_is_rewritten_and_nothing_else() -> None:
    issuer = parse_der(ROOT.certificate)
    high = parse_der(certificate(**PLAIN, high_s=True))
    low = sanitised(high, issuer)
    assert low.der != high.der
    assert (low.signed, low.algorithm) == (high.signed, high.algorithm)
    assert sanitised(low, issuer) is low


# -- PEM

GOOD = certificate(**PLAIN)
TEXT = as_pem(GOOD)
LINES = TEXT.split(b"\n")
CRLF = TEXT.replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.rstrip(),
        CRLF,
        b"Subject: peer0\nAnything\n" + TEXT + b"behind",
        TEXT + as_pem(b"garbage"),
        as_pem(GOOD, "X"),
        as_pem(GOOD, "TRUSTED CERTIFICATE"),
        as_pem(GOOD, ""),
        TEXT.replace(b"CERTIFICATE-----\n", b"CERTIFICATE----- \t\n", 1),
        TEXT.replace(b"-----\n", b"-----\nProc-Type: 4\nComment: none\n\n", 1),
        TEXT.replace(b"-----\n", b"-----\nComment: no empty line follows\n", 1),
        b"\n".join((LINES[0], b"".join(LINES[1:-2]), *LINES[-2:])),
        b"\n".join((LINES[0], *(b" ".join((line, b"\t")) for line in LINES[1:-2]), *LINES[-2:])),
        b"-----BEGIN CERTIFICATE-----\nno end\n" + TEXT,
        as_pem(b"x").replace(b"eA==", b"!!!!") + TEXT,
        b"-----BEGIN A-----\neA==\n-----END B-----\n" + TEXT,
    ],
)
def test_the_block_is_found_where_go_finds_it(text: bytes) -> None:
    assert parse_pem(text).der == GOOD


@pytest.mark.parametrize(
    "text",
    [
        b"",
        GOOD,
        b" " + TEXT,
        b"x" + TEXT,
        TEXT.replace(b"-----END CERTIFICATE-----", b"-----END CERTIFICATE----- x"),
        TEXT.replace(b"-----END CERTIFICATE-----", b"-----END CERT-----"),
        TEXT.replace(b"-----END", b"----END"),
        TEXT.replace(b"-----\n", b"----\n", 1),
        TEXT.replace(LINES[1], LINES[1][:-1] + b"\x0b"),
        TEXT.replace(LINES[1], LINES[1][:-1]),
        TEXT.replace(LINES[1], LINES[1].replace(LINES[1][:1], b"-", 1)),
        TEXT.replace(b"-----BEGIN CERTIFICATE-----\n", b"-----BEGIN CERTIFICATE-----\n-----BEGIN X-----\n"),
    ],
)
def test_what_go_takes_for_no_block_is_none(text: bytes) -> None:
    with pytest.raises(InvalidIdentity) as refusal:
        parse_pem(text)
    assert refusal.value.rule == "PEM"


def test_an_empty_block_is_a_block_without_a_certificate() -> None:
    text = b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
    assert first_block(text + TEXT) == (b"CERTIFICATE", b"")
    with pytest.raises(InvalidIdentity) as refusal:
        parse_pem(text + TEXT)
    assert refusal.value.rule == "X.509"


@pytest.mark.parametrize("body", [b"AAAA=", b"AAAA==", b"A===", b"AA=", b"AA", b"AA==AAAA", b"AAA_"])
def test_base64_has_exactly_its_padding(body: bytes) -> None:
    assert first_block(b"-----BEGIN X-----\n" + body + b"\n-----END X-----\n") is None


@given(st.binary(max_size=300))
def test_what_is_written_as_pem_is_read_again(data: bytes) -> None:
    text = to_pem(data)
    assert text == as_pem_by_hand(data)
    assert first_block(text) == (b"CERTIFICATE", data)


def as_pem_by_hand(data: bytes) -> bytes:
    body = base64.b64encode(data).decode()
    lines = [body[at : at + 64] for at in range(0, len(body), 64)] or [""]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""]).encode()


@settings(max_examples=200)
@given(at=st.integers(0, len(GOOD) - 1), value=st.integers(0, 255), cut=st.booleans())
def test_no_byte_can_make_the_parser_fall_over(at: int, value: int, cut: bool) -> None:
    """Goal: hostile bytes end in a refusal or in a certificate.  Method: change one byte anywhere, or cut there."""
    changed = GOOD[:at] if cut else GOOD[:at] + bytes((value,)) + GOOD[at + 1 :]
    try:
        assert parse_der(changed).der == changed
    except InvalidIdentity as error:
        assert error.rule == "X.509"
