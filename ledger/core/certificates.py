"""What does a certificate say, and who issued it?  X.509 as Fabric's MSP reads it (Go's crypto/x509).

A certificate that an ECDSA key signed with a high s is *sanitised* (fabric: msp/cert.go): s := n - s with the order of
the issuer's curve, so that two spellings of one certificate are one identity.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from ledger.core.der import (
    BIT_STRING,
    BOOLEAN,
    GENERALIZED_TIME,
    INTEGER,
    OCTET_STRING,
    OID,
    SEQUENCE,
    SET,
    UTC_TIME,
    Cursor,
    Element,
    malformed,
)
from ledger.core.encoding import der_length
from ledger.core.errors import InvalidIdentity, MalformedMessage
from ledger.core.pem import first_block
from ledger.core.signatures import GROUP_ORDERS, half_order, read_der_signature

KEY_USAGE, BASIC_CONSTRAINTS, SUBJECT_KEY_ID, AUTHORITY_KEY_ID, EXTENDED_USAGE = (
    "2.5.29.15", "2.5.29.19", "2.5.29.14", "2.5.29.35", "2.5.29.37",
)  # fmt: skip

ALTERNATIVE_NAMES, NAME_CONSTRAINTS, AUTHORITY_INFORMATION = "2.5.29.17", "2.5.29.30", "1.3.6.1.5.5.7.1.1"

SEQUENCES = frozenset({"2.5.29.31", "2.5.29.32", "2.5.29.33", "2.5.29.36", AUTHORITY_INFORMATION})
"""Extensions that Go understands besides those above and below; here they only have to be sequences: distribution
points, policies, policy mappings, policy constraints, authority information."""

INHIBIT_ANY_POLICY = "2.5.29.54"

KNOWN = SEQUENCES | {
    KEY_USAGE, BASIC_CONSTRAINTS, SUBJECT_KEY_ID, AUTHORITY_KEY_ID, EXTENDED_USAGE, ALTERNATIVE_NAMES,
    NAME_CONSTRAINTS, INHIBIT_ANY_POLICY,
}  # fmt: skip
"""Every extension that Go understands."""

NEVER_CRITICAL = (SUBJECT_KEY_ID, AUTHORITY_KEY_ID, AUTHORITY_INFORMATION)
"""Extensions that make a certificate unreadable to Go where they are marked critical."""

NAME_TAGS = (0x81, 0x82, 0x86, 0x87)
"""The kinds of general names that Go reads: mail address, host, URI, IP address."""

COMMON_NAME, UNIT = "2.5.4.3", "2.5.4.11"

EC_KEY, RSA_KEY, ED25519_KEY = "1.2.840.10045.2.1", "1.2.840.113549.1.1.1", "1.3.101.112"

PSS = "1.2.840.113549.1.1.10"

SIGNATURE_HASHES: dict[str, hashes.HashAlgorithm] = {
    "1.2.840.10045.4.3.2": hashes.SHA256(),
    "1.2.840.10045.4.3.3": hashes.SHA384(),
    "1.2.840.10045.4.3.4": hashes.SHA512(),
    "1.2.840.113549.1.1.11": hashes.SHA256(),
    "1.2.840.113549.1.1.12": hashes.SHA384(),
    "1.2.840.113549.1.1.13": hashes.SHA512(),
}
"""Hash of each signature algorithm with ECDSA or RSA that Go verifies in certificates (SHA-1 and MD5 it refuses)."""

SHA1_HASHES: dict[str, hashes.HashAlgorithm] = {
    "1.2.840.10045.4.1": hashes.SHA1(),
    "1.2.840.113549.1.1.5": hashes.SHA1(),
}
"""Signature algorithms that Go still verifies in revocation lists."""

PSS_HASHES: tuple[tuple[bytes, hashes.HashAlgorithm], ...] = (
    (bytes.fromhex("0609608648016503040201"), hashes.SHA256()),
    (bytes.fromhex("0609608648016503040202"), hashes.SHA384()),
    (bytes.fromhex("0609608648016503040203"), hashes.SHA512()),
)
"""Hash of RSA-PSS by the object identifier that stands in its parameters."""

_UTC_TIME = re.compile(rb"(\d{10})(\d\d)?(Z|[+-]\d{4})")
_GENERALIZED_TIME = re.compile(rb"(\d{14})(Z|[+-]\d{4})")
_PRINTABLE = re.compile(rb"[A-Za-z0-9 '()+,\-./:=?*&]*")


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """A parsed certificate; two are the same if their DER is."""

    der: bytes
    signed: bytes
    """The part that the issuer signed."""

    algorithm: bytes
    """DER of the signature's algorithm."""

    algorithm_id: str
    """Object identifier of that algorithm."""

    signature: bytes
    """The issuer's signature."""

    version: int
    """1, 2 or 3."""

    serial_number: int
    subject: bytes
    """DER of the subject name."""

    issuer: bytes
    """DER of the issuer name."""

    common_name: str
    units: tuple[str, ...]
    """Organisational units of the subject, in order, repeated ones repeated."""

    key_info: bytes
    """DER of SubjectPublicKeyInfo."""

    public_key: object
    """The key; None for an algorithm that is not known (such a certificate identifies nobody)."""

    not_before: datetime
    not_after: datetime
    subject_key_id: bytes
    authority_key_id: bytes
    has_constraints: bool
    """Whether there is a BasicConstraints extension."""

    is_ca: bool
    path_length_max: int | None
    usages: frozenset[str]
    """ExtendedKeyUsage; empty where everything is allowed."""

    may_sign_certificates: bool
    """False if KeyUsage is there, names something and lacks keyCertSign."""

    unhandled: tuple[str, ...]
    """Critical extensions that nobody understands."""

    alternative_names: bytes | None
    """Value of the extension; None without it."""

    is_name_constrained: bool
    """Whether it constrains the names in certificates below it."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the DER."""
        return sha256(self.der).digest()


def parse_pem(data: bytes, subject: str = "certificate") -> Certificate:
    """Parse the first PEM block as a certificate.

    Raises:
        InvalidIdentity: There is no PEM block, or it holds no certificate.
    """
    block = first_block(data)
    if block is None:
        raise InvalidIdentity(subject, rule="PEM", expected="a PEM block", found=data)
    return parse_der(block.content, subject)


def parse_der(der: bytes, subject: str = "certificate") -> Certificate:
    """Parse a certificate.

    Raises:
        InvalidIdentity: The bytes are no certificate that Go's parser takes.
    """
    try:
        return _read(der)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidIdentity(subject, rule="X.509", expected="a certificate", found=f"{error}") from error
    except MalformedMessage as error:
        raise InvalidIdentity(subject, rule="X.509", expected="a certificate", found=error) from error


def _read(der: bytes) -> Certificate:
    """Read Certificate as Go's parser does: what follows the last known field inside a sequence is passed over."""
    outer = Cursor(der).read(SEQUENCE)
    if outer.end != len(der):
        raise malformed("trailing data", len(der) - outer.end)
    parts = outer.inside()
    signed, algorithm, signature = parts.read(SEQUENCE), parts.read(SEQUENCE), parts.read(BIT_STRING)
    fields = signed.inside()
    version = fields.optional(0xA0)
    number = 1 + (version.inside().read(INTEGER).integer() if version else 0)
    if not 1 <= number <= 3:
        raise malformed("version", number)
    serial = fields.read(INTEGER).integer()
    if serial < 0:
        raise malformed("serial number", serial)
    if fields.read(SEQUENCE).raw != algorithm.raw:
        raise malformed("signature algorithm", "another one inside than outside")
    issuer = fields.read(SEQUENCE)
    read_name(issuer)
    validity = fields.read(SEQUENCE).inside()
    not_before, not_after = read_time(validity.read()), read_time(validity.read())
    subject = fields.read(SEQUENCE)
    name = read_name(subject)
    key_info = fields.read(SEQUENCE)
    extensions = _read_extensions(fields) if number == 3 else {}
    constraints = _value(extensions, BASIC_CONSTRAINTS, SEQUENCE)
    is_ca, path_length_max = _read_constraints(constraints) if constraints else (False, None)
    usage = _value(extensions, KEY_USAGE, BIT_STRING)
    usage_bits = usage.bits() if usage else b""
    extended = _value(extensions, EXTENDED_USAGE, SEQUENCE)
    key_id = _value(extensions, SUBJECT_KEY_ID, OCTET_STRING)
    authority = _value(extensions, AUTHORITY_KEY_ID, SEQUENCE)
    authority_id = authority.inside().optional(0x80) if authority else None
    for understood in SEQUENCES:
        _value(extensions, understood, SEQUENCE)
    for kind in NEVER_CRITICAL:
        if kind in extensions and extensions[kind][0]:
            raise malformed("extension that may not be critical", kind)
    names = _value(extensions, ALTERNATIVE_NAMES, SEQUENCE)
    constrained = _value(extensions, NAME_CONSTRAINTS, SEQUENCE)
    unread = {
        kind
        for kind, is_read in (
            (ALTERNATIVE_NAMES, names is None or _read_alternative_names(names)),
            (NAME_CONSTRAINTS, constrained is None or _read_name_constraints(constrained)),
        )
        if not is_read
    }
    return Certificate(
        der=der,
        signed=signed.raw,
        algorithm=algorithm.raw,
        algorithm_id=algorithm.inside().read(OID).oid(),
        signature=signature.bits(),
        version=number,
        serial_number=serial,
        subject=subject.raw,
        issuer=issuer.raw,
        common_name=next((value for kind, value in reversed(name) if kind == COMMON_NAME), ""),
        units=tuple(value for kind, value in name if kind == UNIT),
        key_info=key_info.raw,
        public_key=_public_key(key_info),
        not_before=not_before,
        not_after=not_after,
        subject_key_id=key_id.content if key_id else b"",
        authority_key_id=authority_id.content if authority_id else b"",
        has_constraints=constraints is not None,
        is_ca=is_ca,
        path_length_max=path_length_max,
        usages=frozenset(_oids(extended)) if extended else frozenset(),
        may_sign_certificates=not any(usage_bits) or bool(usage_bits[0] & 0x04),
        unhandled=tuple(
            kind for kind, (critical, _) in extensions.items() if critical and (kind not in KNOWN or kind in unread)
        ),
        alternative_names=names.raw if names else None,
        is_name_constrained=constrained is not None,
    )


def read_name(name: Element) -> list[tuple[str, str]]:
    """Read a Name to its attributes in order."""
    found = []
    for group in name.inside():
        if group.tag != SET:
            raise malformed("name", group.raw)
        for attribute in group.inside():
            if attribute.tag != SEQUENCE:
                raise malformed("name attribute", attribute.raw)
            parts = attribute.inside()
            found.append((parts.read(OID).oid(), _read_text(parts.read())))
    return found


def _read_text(element: Element) -> str:
    """Read one of the string types that Go knows in names."""
    raw = element.content
    match element.tag:
        case 0x0C:
            return raw.decode("utf-8")
        case 0x13 if _PRINTABLE.fullmatch(raw):
            return raw.decode("ascii")
        case 0x14:
            return raw.decode("latin-1")
        case 0x16:
            return raw.decode("ascii")
        case 0x12 if all(byte in b"0123456789 " for byte in raw):
            return raw.decode("ascii")
        case 0x1E if len(raw) % 2 == 0:
            return raw.removesuffix(b"\x00\x00").decode("utf-16-be", "replace")
        case _:
            raise malformed("string in a name", element.raw)


def read_time(element: Element) -> datetime:
    """Read UTCTime (seconds may be missing) or GeneralizedTime, with Z or an offset."""
    if element.tag == UTC_TIME:
        match = _UTC_TIME.fullmatch(element.content)
        if match is None:
            raise malformed("time", element.content)
        digits, zone = match[1] + (match[2] or b"00"), match[3]
        digits = (b"20" if digits[:2] < b"50" else b"19") + digits
    elif element.tag == GENERALIZED_TIME:
        match = _GENERALIZED_TIME.fullmatch(element.content)
        if match is None:
            raise malformed("time", element.content)
        digits, zone = match[1], match[2]
    else:
        raise malformed("time", element.raw)
    offset = UTC
    if zone != b"Z":
        minutes = int(zone[1:3]) * 60 + int(zone[3:5])
        if minutes == 0 or int(zone[3:5]) > 59:
            raise malformed("time", element.content)
        offset = timezone(timedelta(minutes=minutes if zone[:1] == b"+" else -minutes))
    year, rest = int(digits[:4]), [int(digits[at : at + 2]) for at in range(4, 14, 2)]
    month, day, hour, minute, second = rest
    return datetime(year, month, day, hour, minute, second, tzinfo=offset)


Extensions = dict[str, tuple[bool, Element]]


def _read_extensions(fields: Cursor) -> Extensions:
    """Read the extensions of a version 3 certificate: (critical, OCTET STRING) by object identifier."""
    fields.optional(0x81)
    fields.optional(0x82)
    wrapped = fields.optional(0xA3)
    found: Extensions = {}
    if wrapped is None:
        return found
    for extension in wrapped.inside().read(SEQUENCE).inside():
        if extension.tag != SEQUENCE:
            raise malformed("extension", extension.raw)
        parts = extension.inside()
        kind = parts.read(OID).oid()
        critical = parts.optional(BOOLEAN)
        if kind in found:
            raise malformed("extension that comes twice", kind)
        found[kind] = (critical.boolean() if critical else False, parts.read(OCTET_STRING))
    return found


def _value(extensions: Extensions, kind: str, tag: int) -> Element | None:
    """Give the value of one extension, None without it."""
    found = extensions.get(kind)
    return found[1].inside().read(tag) if found is not None else None


def _read_constraints(element: Element) -> tuple[bool, int | None]:
    """Read BasicConstraints: whether it is a CA, and how many CAs may follow it."""
    parts = element.inside()
    is_ca, length = parts.optional(BOOLEAN), parts.optional(INTEGER)
    path_length_max = length.integer() if length else None
    if path_length_max is not None and path_length_max < 0:
        raise malformed("path length", path_length_max)
    return is_ca.boolean() if is_ca else False, path_length_max


def _oids(element: Element) -> Iterator[str]:
    """Read a SEQUENCE of object identifiers."""
    inside = element.inside()
    while inside.peek() is not None:
        yield inside.read(OID).oid()


def _read_alternative_names(element: Element) -> bool:
    """Read alternative names; tell whether there is one of a kind that Go knows."""
    known = [each for each in element.inside() if each.tag in NAME_TAGS]
    for each in known:
        is_fine = len(each.content) in (4, 16) if each.tag == 0x87 else each.content.isascii()
        if not is_fine:
            raise malformed("alternative name", each.raw)
    return bool(known)


def _read_name_constraints(element: Element) -> bool:
    """Read name constraints; tell whether all are of kinds that Go knows."""
    parts = element.inside()
    subtrees = [each for tag in (0xA0, 0xA1) if (group := parts.optional(tag)) for each in group.inside()]
    if not subtrees or parts.peek() is not None:
        raise malformed("name constraints", element.raw)
    return all(each.inside().read().tag in NAME_TAGS for each in subtrees)


def _public_key(key_info: Element) -> object:
    """Give the key, None for an algorithm that Go does not know.

    A key has one spelling: an elliptic curve must be one that Go knows, named and not spelt out, and its point
    uncompressed; Ed25519 has no parameters.
    """
    kind = key_info.inside().read(SEQUENCE).inside().read(OID).oid()
    if kind not in (EC_KEY, RSA_KEY, ED25519_KEY):
        return None
    key = load_der_public_key(key_info.raw)
    if isinstance(key, rsa.RSAPublicKey):
        algorithm = key_info.inside().read(SEQUENCE).inside()
        algorithm.read(OID)
        if algorithm.data[algorithm.position : algorithm.end] != b"\x05\x00":
            raise malformed("parameters of an RSA key", key_info.raw)
        return key
    is_known = not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name in GROUP_ORDERS
    if not is_known or key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) != key_info.raw:
        raise malformed("public key", key_info.raw)
    return key


def is_signed_by(certificate: Certificate, issuer: Certificate) -> bool:
    """Check a certificate's signature, as Go's CheckSignatureFrom does.

    The issuer must be allowed to sign certificates. Here a high s passes: sanitising is the next step.
    """
    if issuer.version == 3 and not issuer.has_constraints:
        return False
    if (issuer.has_constraints and not issuer.is_ca) or not issuer.may_sign_certificates:
        return False
    return check_signature(issuer, certificate.signed, certificate.signature, certificate.algorithm)


def check_signature(
    issuer: Certificate, message: bytes, signature: bytes, algorithm: bytes, *, allows_sha1: bool = False
) -> bool:
    """Check a certificate authority's signature over certificate or revocation list.

    Args:
        issuer: The authority.
        message: What it signed.
        signature: The signature.
        algorithm: DER of AlgorithmIdentifier.
        allows_sha1: Whether a signature over SHA-1 counts.
    """
    key = issuer.public_key
    kind = Cursor(algorithm).read(SEQUENCE).inside().read(OID).oid()
    chosen = SIGNATURE_HASHES.get(kind) or (SHA1_HASHES.get(kind) if allows_sha1 else None)
    if kind == PSS:
        chosen = next((found for oid, found in PSS_HASHES if oid in algorithm), None)
    try:
        if isinstance(key, ec.EllipticCurvePublicKey) and is_ecdsa_algorithm(kind) and chosen:
            key.verify(signature, message, ec.ECDSA(chosen))
        elif isinstance(key, rsa.RSAPublicKey) and kind == PSS and chosen:
            key.verify(signature, message, padding.PSS(padding.MGF1(chosen), chosen.digest_size), chosen)
        elif isinstance(key, rsa.RSAPublicKey) and kind.startswith("1.2.840.113549.1.1.") and chosen:
            key.verify(signature, message, padding.PKCS1v15(), chosen)
        elif isinstance(key, ed25519.Ed25519PublicKey) and kind == ED25519_KEY:
            key.verify(signature, message)
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True


def is_ecdsa_algorithm(oid: str) -> bool:
    """Tell whether an object identifier names ECDSA with some hash."""
    return oid.startswith("1.2.840.10045.4.")


def is_ecdsa_signed(certificate: Certificate) -> bool:
    """Tell whether an ECDSA key signed it."""
    return is_ecdsa_algorithm(certificate.algorithm_id)


def sanitised(certificate: Certificate, issuer: Certificate) -> Certificate:
    """Give a certificate with the issuer's ECDSA signature in low-S form; itself where it is already."""
    key = issuer.public_key
    if not is_ecdsa_signed(certificate) or not isinstance(key, ec.EllipticCurvePublicKey):
        return certificate
    numbers = read_der_signature(certificate.signature)
    if numbers is None or key.curve.name not in GROUP_ORDERS:
        return certificate
    r, s, _ = numbers
    if s <= half_order(key.curve.name):
        return certificate
    signature = encode_dss_signature(r, GROUP_ORDERS[key.curve.name] - s)
    bits = b"\x03" + der_length(len(signature) + 1) + b"\x00" + signature
    content = certificate.signed + certificate.algorithm + bits
    return parse_der(b"\x30" + der_length(len(content)) + content)
