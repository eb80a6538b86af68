"""Organisations for tests: real CAs and certificates, made once a process."""

import datetime
from dataclasses import dataclass, field
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from ledger.core.identity import MspConfig, UnitIdentifier
from ledger.core.policy.ast import Role
from ledger.core.signatures import sign
from ledger.storage.msp_folder import serialize_identity

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
END = START + datetime.timedelta(days=3650)

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
ROLE_UNITS = {
    Role.CLIENT: UnitIdentifier("client"),
    Role.PEER: UnitIdentifier("peer"),
    Role.ADMIN: UnitIdentifier("admin"),
    Role.ORDERER: UnitIdentifier("orderer"),
}


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True)
class Signer:
    """An identity with its key, shaped as the node's own."""

    msp_id: str
    certificate: bytes
    serialized: bytes
    private_key: Key

    def sign(self, message: bytes) -> bytes:
        assert not isinstance(self.private_key, rsa.RSAPrivateKey)
        return sign(self.private_key, message)


@dataclass(frozen=True)
class Authority:
    """A certificate authority."""

    certificate: x509.Certificate
    key: Key
    parent: "Authority | None" = None

    def intermediate(self, name: str = "intermediate") -> "Authority":
        return make_authority(name, parent=self)

    def certify(
        self,
        common_name: str,
        key: Key,
        units: tuple[str, ...] = (),
        *,
        not_before: datetime.datetime = START,
        not_after: datetime.datetime = END,
        ca: bool = False,
        usages: tuple[x509.ObjectIdentifier, ...] | None = None,
    ) -> x509.Certificate:
        names = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit) for unit in units]
        names.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(names))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(not_before)
            .not_valid_after(not_after)
            .add_extension(x509.BasicConstraints(ca, None), True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False)
        )
        if usages is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage(list(usages)), False)
        return builder.sign(self.key, None if isinstance(self.key, ed25519.Ed25519PrivateKey) else hashes.SHA256())

    def revocation_list(self, *certificates: bytes) -> bytes:
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(START)
            .next_update(END)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False)
        )
        for one in certificates:
            serial = x509.load_pem_x509_certificate(one).serial_number
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(START).build()
            )
        assert not isinstance(self.key, ed25519.Ed25519PrivateKey)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def make_authority(name: str, parent: Authority | None = None, key: Key | None = None) -> Authority:
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = (parent.certificate.subject, parent.key) if parent else (subject, key)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(START)
        .not_valid_after(END)
        .add_extension(x509.BasicConstraints(True, None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    return Authority(certificate, key, parent)


@dataclass
class Organisation:
    """An organisation with a root CA (and perhaps an intermediate one) that issues its identities."""

    msp_id: str
    root: Authority
    issuer: Authority
    tls: Authority
    revoked: list[bytes] = field(default_factory=list)
    _issued: dict[tuple[str, str], Signer] = field(default_factory=dict)

    def issue(self, common_name: str, role: str = "client", **certificate_options: object) -> Signer:
        """Issue an identity with the unit of a role; the same name and role gives the same identity."""
        if not certificate_options and (common_name, role) in self._issued:
            return self._issued[common_name, role]
        signer = self.issue_odd(common_name, (role,), **certificate_options)  # type: ignore[arg-type]
        if not certificate_options:
            self._issued[common_name, role] = signer
        return signer

    def issue_odd(
        self,
        common_name: str,
        units: tuple[str, ...],
        *,
        key: Key | None = None,
        issuer: Authority | None = None,
        **certificate_options: object,
    ) -> Signer:
        """Issue an identity with any units, key, issuer and certificate options."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        certificate = pem((issuer or self.issuer).certify(common_name, key, units, **certificate_options))  # type: ignore[arg-type]
        return Signer(self.msp_id, certificate, serialize_identity(self.msp_id, certificate), key)

    @property
    def peer(self) -> Signer:
        return self.issue("peer0", "peer")

    @property
    def admin(self) -> Signer:
        return self.issue("admin", "admin")

    @property
    def client(self) -> Signer:
        return self.issue("user1", "client")

    def msp_config(self, **changes: object) -> MspConfig:
        """The organisation as it stands in a channel configuration."""
        has_intermediate = self.issuer is not self.root
        values: dict[str, object] = {
            "msp_id": self.msp_id,
            "root_certs": (pem(self.root.certificate),),
            "intermediate_certs": (pem(self.issuer.certificate),) if has_intermediate else (),
            "revocation_lists": (self.issuer.revocation_list(*self.revoked),) if self.revoked else (),
            "role_units": ROLE_UNITS,
            "tls_root_certs": (pem(self.tls.certificate),),
        }
        return MspConfig(**(values | changes))  # type: ignore[arg-type]


def make_organisation(msp_id: str, *, intermediate: bool = False) -> Organisation:
    """Make a new organisation."""
    root = make_authority(f"ca.{msp_id}")
    issuer = root.intermediate(f"ica.{msp_id}") if intermediate else root
    return Organisation(msp_id, root, issuer, make_authority(f"tlsca.{msp_id}"))


@lru_cache
def shared_organisation(msp_id: str) -> Organisation:
    """Give the organisation of this name that all tests of a process share; don't change it."""
    return make_organisation(msp_id)
