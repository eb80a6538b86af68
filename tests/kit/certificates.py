"""Certificates byte by byte: any part of one can be forged, and what is not is as an enrolment certificate has it."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ledger.core.encoding import der_length
from ledger.core.signatures import GROUP_ORDERS
from ledger.storage.msp_folder import serialize_identity
from tests.kit.organisations import Signer

ECDSA_SHA256 = "1.2.840.10045.4.3.2"
COMMON_NAME, UNIT = "2.5.4.3", "2.5.4.11"
CONSTRAINTS, KEY_USAGE, SUBJECT_KEY, AUTHORITY_KEY, USAGES, NAMES, NAME_CONSTRAINTS = (
    "2.5.29.19", "2.5.29.15", "2.5.29.14", "2.5.29.35", "2.5.29.37", "2.5.29.17", "2.5.29.30",
)  # fmt: skip
UTF8, PRINTABLE, T61, IA5, BMP = 0x0C, 0x13, 0x14, 0x16, 0x1E

Extension = tuple[str, bool, bytes]
"""Object identifier, critical, and the value inside the OCTET STRING."""


def der(tag: int, *parts: bytes) -> bytes:
    """Write one element."""
    content = b"".join(parts)
    return bytes((tag,)) + der_length(len(content)) + content


def sequence(*parts: bytes) -> bytes:
    return der(0x30, *parts)


def oid(dotted: str) -> bytes:
    first, second, *rest = (int(part) for part in dotted.split("."))
    out = bytearray()
    for number in (first * 40 + second, *rest):
        group = [number & 0x7F]
        while number := number >> 7:
            group.append(number & 0x7F | 0x80)
        out += bytes(reversed(group))
    return der(0x06, bytes(out))


def integer(value: int) -> bytes:
    return der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def name(common_name: str, *units: str, tag: int = UTF8, encoding: str = "utf-8") -> bytes:
    """A Name with units and a common name, as strings of one type."""
    pairs = [*((UNIT, unit) for unit in units), (COMMON_NAME, common_name)]
    return sequence(*(der(0x31, sequence(oid(kind), der(tag, text.encode(encoding)))) for kind, text in pairs))


def key_info(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def constraints(*, ca: bool, path_length: int | None = None) -> Extension:
    flag = der(0x01, b"\xff") if ca else b""
    length = b"" if path_length is None else integer(path_length)
    return CONSTRAINTS, True, sequence(flag, length)


def subject_key(value: bytes = b"subject", *, critical: bool = False) -> Extension:
    return SUBJECT_KEY, critical, der(0x04, value)


def usages(*oids: str) -> Extension:
    return USAGES, False, sequence(*(oid(each) for each in oids))


def hosts(*names: str) -> Extension:
    return NAMES, False, sequence(*(der(0x82, each.encode()) for each in names))


@dataclass(frozen=True)
class Issuer:
    """An authority made by hand."""

    name: bytes
    key: ec.EllipticCurvePrivateKey
    certificate: bytes
    """DER."""


def certificate(
    *,
    issuer: bytes,
    issuer_key: ec.EllipticCurvePrivateKey,
    subject: bytes,
    public: bytes,
    extensions: Sequence[Extension] = (),
    serial: bytes = integer(77),
    version: bytes = der(0xA0, integer(2)),
    times: tuple[bytes, bytes] = (der(0x17, b"260101000000Z"), der(0x17, b"351231235959Z")),
    algorithm: bytes = sequence(oid(ECDSA_SHA256)),
    outer_algorithm: bytes | None = None,
    high_s: bool = False,
) -> bytes:
    """Write and sign a certificate; its signature has a low s unless `high_s`."""
    wrapped = b""
    if extensions:
        each = [
            sequence(oid(kind), der(0x01, b"\xff") if critical else b"", der(0x04, value))
            for kind, critical, value in extensions
        ]
        wrapped = der(0xA3, sequence(*each))
    signed = sequence(version, serial, algorithm, issuer, sequence(*times), subject, public, wrapped)
    signature = with_s(issuer_key.sign(signed, ec.ECDSA(hashes.SHA256())), issuer_key.curve.name, high=high_s)
    return sequence(signed, outer_algorithm or algorithm, der(0x03, b"\x00", signature))


def with_s(signature: bytes, curve: str, *, high: bool) -> bytes:
    """Spell an ECDSA signature with the high or the low one of its two s."""
    r, s = decode_dss_signature(signature)
    order = GROUP_ORDERS[curve]
    return encode_dss_signature(r, s if (s > order >> 1) == high else order - s)


def root(label: str = "root", *, key: ec.EllipticCurvePrivateKey | None = None, **parts: Any) -> Issuer:
    """A root that signed itself."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    parts.setdefault("extensions", [constraints(ca=True), subject_key(label.encode())])
    own = name(label)
    return Issuer(own, key, certificate(issuer=own, issuer_key=key, subject=own, public=key_info(key), **parts))


def below(issuer: Issuer, label: str, *, key: ec.EllipticCurvePrivateKey | None = None, **parts: Any) -> Issuer:
    """An authority that another one certified."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    parts.setdefault("extensions", [constraints(ca=True), subject_key(label.encode())])
    return Issuer(
        name(label),
        key,
        certificate(issuer=issuer.name, issuer_key=issuer.key, subject=name(label), public=key_info(key), **parts),
    )


def member(issuer: Issuer, msp_id: str = "HandMSP", *units: str, **parts: Any) -> Signer:
    """A member whose certificate is made by hand."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts.setdefault("subject", name("member", *(units or ("peer",))))
    parts.setdefault("public", key_info(key))
    pem = as_pem(certificate(issuer=issuer.name, issuer_key=issuer.key, **parts))
    return Signer(msp_id, pem, serialize_identity(msp_id, pem), key)


def as_pem(data: bytes, kind: str = "CERTIFICATE") -> bytes:
    return f"-----BEGIN {kind}-----\n".encode() + base64.encodebytes(data) + f"-----END {kind}-----\n".encode()
