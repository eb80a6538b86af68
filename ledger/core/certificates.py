"""What does a certificate say, and who issued it?  X.509 as Fabric's MSP reads it (Go's crypto/x509 and encoding/pem).

PEM is taken as Go's decoder takes it: text before and behind, CRLF, any block type, only the first block counts. A
certificate that an ECDSA key signed with a high s is *sanitised* (fabric: msp/cert.go): s := n - s with the order of
the issuer's curve, so that two spellings of one certificate are one identity.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from ledger.core.encoding import der_length
from ledger.core.errors import InvalidIdentity
from ledger.core.signatures import GROUP_ORDERS, half_order, read_der_signature

_PEM = re.compile(
    rb"(?:^|\n)-----BEGIN ([^\n]*?)-----[ \t\r]*\n(.*?)(?:^|\n)-----END ([^\n]*?)-----[ \t\r]*(?=\n|$)", re.DOTALL
)

Ext = TypeVar("Ext", bound=x509.ExtensionType)

ACCEPTED_USAGES = frozenset({ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE, ExtendedKeyUsageOID.SERVER_AUTH})
"""What Go's verifier asks an ExtendedKeyUsage extension to allow when its caller names nothing."""

KNOWN_CRITICAL = frozenset({
    ExtensionOID.KEY_USAGE,
    ExtensionOID.BASIC_CONSTRAINTS,
    ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
    ExtensionOID.NAME_CONSTRAINTS,
    ExtensionOID.CRL_DISTRIBUTION_POINTS,
    ExtensionOID.AUTHORITY_KEY_IDENTIFIER,
    ExtensionOID.EXTENDED_KEY_USAGE,
    ExtensionOID.SUBJECT_KEY_IDENTIFIER,
    ExtensionOID.CERTIFICATE_POLICIES,
    ExtensionOID.AUTHORITY_INFORMATION_ACCESS,
    ExtensionOID.ISSUER_ALTERNATIVE_NAME,
})  # fmt: skip


def pem_block(data: bytes) -> bytes | None:
    """Give the content of the first PEM block in some text, None if there is none."""
    for match in _PEM.finditer(data.replace(b"\r\n", b"\n")):
        opening, body, closing = match.groups()
        if opening != closing:
            continue
        lines = body.split(b"\n")
        if any(b":" in line for line in lines):  # Headers end at the first empty line.
            lines = lines[lines.index(b"") + 1 :] if b"" in lines else []
        try:
            return base64.b64decode(b"".join(b"".join(line.split()) for line in lines), validate=True)
        except binascii.Error:
            continue
    return None


def to_pem(der: bytes) -> bytes:
    """Write a certificate as PEM the way Fabric's nodes do: 64 columns, a newline at the end."""
    text = base64.b64encode(der)
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return b"-----BEGIN CERTIFICATE-----\n" + b"\n".join(lines) + b"\n-----END CERTIFICATE-----\n"


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """A parsed certificate; two are the same if their DER is."""

    der: bytes
    parsed: x509.Certificate
    subject: bytes
    """DER of the subject name."""

    issuer: bytes
    """DER of the issuer name."""

    common_name: str
    units: tuple[str, ...]
    """Organisational units of the subject, in order, repeated ones repeated."""

    public_key: object
    not_before: datetime
    not_after: datetime
    subject_key_id: bytes
    authority_key_id: bytes
    has_constraints: bool
    """Whether there is a BasicConstraints extension."""

    is_ca: bool
    path_length_max: int | None
    usages: frozenset[x509.ObjectIdentifier] | None
    """ExtendedKeyUsage, None without the extension."""

    may_sign_certificates: bool
    """False if KeyUsage is there and lacks keyCertSign."""

    unhandled: tuple[str, ...]
    """Critical extensions that nobody understands."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the DER."""
        return sha256(self.der).digest()


def parse_pem(data: bytes, subject: str = "certificate") -> Certificate:
    """Parse the first PEM block as a certificate.

    Raises:
        InvalidIdentity: There is no PEM block, or it holds no certificate.
    """
    der = pem_block(data)
    if der is None:
        raise InvalidIdentity(subject, rule="PEM", expected="a PEM block", found=data)
    return parse_der(der, subject)


def parse_der(der: bytes, subject: str = "certificate") -> Certificate:
    """Parse a certificate.

    Raises:
        InvalidIdentity: The bytes are no certificate that Go's parser takes.
    """
    try:
        return _read(der)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension) as error:
        raise InvalidIdentity(subject, rule="X.509", expected="a certificate", found=f"{error}") from error


def _read(der: bytes) -> Certificate:
    parsed = x509.load_der_x509_certificate(der)
    extensions = {extension.oid: extension for extension in parsed.extensions}
    constraints = _value(extensions, x509.BasicConstraints)
    usage = _value(extensions, x509.KeyUsage)
    extended = _value(extensions, x509.ExtendedKeyUsage)
    ski = _value(extensions, x509.SubjectKeyIdentifier)
    aki = _value(extensions, x509.AuthorityKeyIdentifier)
    names = parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    units = parsed.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    return Certificate(
        der=der,
        parsed=parsed,
        subject=parsed.subject.public_bytes(),
        issuer=parsed.issuer.public_bytes(),
        common_name=_text(names[-1].value) if names else "",
        units=tuple(_text(unit.value) for unit in units),
        public_key=_public_key(parsed),
        not_before=parsed.not_valid_before_utc,
        not_after=parsed.not_valid_after_utc,
        subject_key_id=ski.digest if ski else b"",
        authority_key_id=(aki.key_identifier or b"") if aki else b"",
        has_constraints=constraints is not None,
        is_ca=constraints is not None and constraints.ca,
        path_length_max=constraints.path_length if constraints else None,
        usages=frozenset(extended) if extended is not None else None,
        may_sign_certificates=usage is None or usage.key_cert_sign,
        unhandled=tuple(
            oid.dotted_string
            for oid, extension in extensions.items()
            if extension.critical and oid not in KNOWN_CRITICAL
        ),
    )


def _value(extensions: dict[x509.ObjectIdentifier, x509.Extension[x509.ExtensionType]], kind: type[Ext]) -> Ext | None:
    """Give the value of one extension, None without it."""
    extension = extensions.get(kind.oid)
    return extension.value if extension is not None and isinstance(extension.value, kind) else None


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _public_key(parsed: x509.Certificate) -> object:
    """Give the key, None for an algorithm that is not known (such a certificate parses, but identifies nobody)."""
    try:
        return parsed.public_key()
    except (UnsupportedAlgorithm, ValueError):
        return None


def is_signed_by(certificate: Certificate, issuer: Certificate) -> bool:
    """Check a certificate's signature, as Go's CheckSignatureFrom does.

    The issuer must be allowed to sign certificates. Here a high s passes: sanitising is the next step.
    """
    if issuer.parsed.version is x509.Version.v3 and not issuer.has_constraints:
        return False
    if (issuer.has_constraints and not issuer.is_ca) or not issuer.may_sign_certificates:
        return False
    return check_signature(
        issuer, certificate.parsed.tbs_certificate_bytes, certificate.parsed.signature,
        certificate.parsed.signature_hash_algorithm,
    )  # fmt: skip


def check_signature(
    issuer: Certificate, message: bytes, signature: bytes, algorithm: hashes.HashAlgorithm | None
) -> bool:
    """Check a certificate authority's signature over certificate or revocation list."""
    key = issuer.public_key
    try:
        if isinstance(key, ec.EllipticCurvePublicKey) and algorithm is not None:
            key.verify(signature, message, ec.ECDSA(algorithm))
        elif isinstance(key, rsa.RSAPublicKey) and algorithm is not None:
            key.verify(signature, message, padding.PKCS1v15(), algorithm)
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, message)
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True


def is_ecdsa_signed(certificate: Certificate) -> bool:
    """Tell whether an ECDSA key signed it."""
    return certificate.parsed.signature_algorithm_oid.dotted_string.startswith("1.2.840.10045.4.")


def sanitised(certificate: Certificate, issuer: Certificate) -> Certificate:
    """Give a certificate with the issuer's ECDSA signature in low-S form; itself where it is already."""
    key = issuer.public_key
    if not is_ecdsa_signed(certificate) or not isinstance(key, ec.EllipticCurvePublicKey):
        return certificate
    numbers = read_der_signature(certificate.parsed.signature)
    if numbers is None or key.curve.name not in GROUP_ORDERS:
        return certificate
    r, s, _ = numbers
    if s <= half_order(key.curve.name):
        return certificate
    signature = encode_dss_signature(r, GROUP_ORDERS[key.curve.name] - s)
    tbs = certificate.parsed.tbs_certificate_bytes
    start = certificate.der.index(tbs) + len(tbs)
    algorithm = certificate.der[start : start + 2 + certificate.der[start + 1]]
    bits = b"\x03" + der_length(len(signature) + 1) + b"\x00" + signature
    content = tbs + algorithm + bits
    return parse_der(b"\x30" + der_length(len(content)) + content)
