"""Which certificates did their issuer take back?  Certificate revocation lists, as Go's ParseCRL and Fabric read them.

Dates of lists and entries are not looked at: who is on a list of its issuer is revoked from the moment that the list is
in the configuration (fabric: msp/mspimplvalidate.go, msp/mspimplsetup.go).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from ledger.core.certificates import (
    AUTHORITY_KEY_ID,
    Certificate,
    check_signature,
    is_ecdsa_algorithm,
    read_name,
    read_time,
)
from ledger.core.der import (
    BIT_STRING,
    BOOLEAN,
    GENERALIZED_TIME,
    INTEGER,
    OCTET_STRING,
    OID,
    SEQUENCE,
    UTC_TIME,
    Cursor,
    malformed,
)
from ledger.core.errors import InvalidIdentity, MalformedMessage
from ledger.core.pem import first_block
from ledger.core.signatures import read_der_signature

PEM_KIND = b"X509 CRL"


@dataclass(frozen=True, slots=True, eq=False)
class RevocationList:
    """A parsed certificate revocation list."""

    signed: bytes
    algorithm: bytes
    signature: bytes
    authority_key_id: bytes | None
    """Key identifier of who signed it; None without the extension."""

    serial_numbers: frozenset[int]


def parse_revocation_list(data: bytes, subject: str = "revocation list") -> RevocationList:
    """Parse a revocation list, PEM (without anything before it) or DER.

    Raises:
        InvalidIdentity: The bytes are none.
    """
    block = first_block(data) if data.startswith(b"-----BEGIN " + PEM_KIND) else None
    try:
        return _read(block.content if block is not None and block.kind == PEM_KIND else data)
    except (MalformedMessage, ValueError) as error:
        raise InvalidIdentity(subject, rule="revocation list", expected="a CRL", found=error) from error


def _read(der: bytes) -> RevocationList:
    outer = Cursor(der).read(SEQUENCE)
    if outer.end != len(der):
        raise malformed("trailing data", len(der) - outer.end)
    parts = outer.inside()
    signed, algorithm, signature = parts.read(SEQUENCE), parts.read(SEQUENCE), parts.read(BIT_STRING)
    fields = signed.inside()
    fields.optional(INTEGER)
    fields.read(SEQUENCE)
    read_name(fields.read(SEQUENCE))
    read_time(fields.read())
    if fields.peek() in (UTC_TIME, GENERALIZED_TIME):
        read_time(fields.read())
    revoked = fields.optional(SEQUENCE)
    serials = frozenset(each.inside().read(INTEGER).integer() for each in revoked.inside()) if revoked else frozenset()
    wrapped = fields.optional(0xA0)
    authority: bytes | None = None
    for extension in wrapped.inside().read(SEQUENCE).inside() if wrapped else ():
        inner = extension.inside()
        kind = inner.read(OID).oid()
        inner.optional(BOOLEAN)
        value = inner.read(OCTET_STRING)
        if kind == AUTHORITY_KEY_ID and authority is None:
            found = value.inside().read(SEQUENCE).inside().optional(0x80)
            authority = found.content if found else b""
    return RevocationList(
        signed.raw, algorithm.raw, _plain_signature(signature.bits(), algorithm.raw), authority, serials
    )


def _plain_signature(signature: bytes, algorithm: bytes) -> bytes:
    """Rewrite an ECDSA signature without what may stand behind it, as Fabric does when it sets up an MSP."""
    if not is_ecdsa_algorithm(Cursor(algorithm).read(SEQUENCE).inside().read(OID).oid()):
        return signature
    numbers = read_der_signature(signature)
    if numbers is None or numbers[0] <= 0 or numbers[1] <= 0:
        raise malformed("ECDSA signature", signature)
    return encode_dss_signature(numbers[0], numbers[1])


def check_revocation(
    lists: Sequence[RevocationList], certificate: Certificate, issuer: Certificate, subject: str
) -> None:
    """Refuse a certificate on a list that its issuer signed.

    Raises:
        InvalidIdentity: It is revoked, or a list does not say whose it is: then Fabric lets nobody pass.
    """
    for revocations in lists:
        if revocations.authority_key_id is None:
            raise InvalidIdentity(
                subject, rule="revocation list", expected="lists with an authority key identifier", found="none"
            )
        if revocations.authority_key_id != issuer.subject_key_id:
            continue
        if certificate.serial_number not in revocations.serial_numbers:
            continue
        if check_signature(issuer, revocations.signed, revocations.signature, revocations.algorithm, allows_sha1=True):
            raise InvalidIdentity(subject, rule="revocation", expected="not revoked", found="on the issuer's list")


__all__ = ["RevocationList", "check_revocation", "parse_revocation_list"]
