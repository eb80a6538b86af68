"""How does a local network get its certificates?  Certificate authorities for organisations, made on the spot.

ECDSA P-256 throughout, subject and authority key ids as Fabric's MSP asks for, the role as organisational unit. Node
certificates for TLS name `localhost` and 127.0.0.1 beside the node's own name and serve both ends of a connection.
"""

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3652
"""Validity of a certificate authority."""

LEAF_DAYS = 3651
"""Validity of what it issues; never beyond its own."""

BACKDATED = datetime.timedelta(minutes=5)
"""How long before its making a certificate begins to be valid, for clocks that are behind."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate with its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """A root certificate authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def credential(self) -> Credential:
        """Certificate and key as PEM."""
        return Credential(certificate_pem(self.certificate), key_pem(self.key))

    def issue(self, common_name: str, unit: str | None, hosts: tuple[str, ...] = ()) -> Credential:
        """Issue a certificate.

        Args:
            common_name: Name of the holder.
            unit: Role as organisational unit, None for a TLS certificate.
            hosts: Names and addresses that a TLS certificate is good for; none for an enrolment certificate.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if unit is not None:
            names.insert(0, x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
        start = self.certificate.not_valid_before_utc
        builder = (
            _builder(x509.Name(names), self.certificate.subject, key.public_key(), start, LEAF_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(for_ca=False, for_tls=bool(hosts)), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if hosts:
            both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
            builder = builder.add_extension(both, critical=False)
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
            )
        return Credential(certificate_pem(builder.sign(self.key, hashes.SHA256())), key_pem(key))


def make_authority(common_name: str, organisation: str, now: datetime.datetime) -> Authority:
    """Make a root certificate authority that is valid from shortly before `now` on."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
    certificate = (
        _builder(name, name, key.public_key(), now.replace(microsecond=0) - BACKDATED, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(for_ca=True, for_tls=False), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, start: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, for_ca: bool, for_tls: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=for_tls,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=for_ca,
        crl_sign=for_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Write a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Write a private key as PEM (PKCS #8)."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
