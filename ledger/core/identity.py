"""Who is a valid member of which organisation?  Membership service providers, as Fabric's (msp/mspimpl*.go) judge.

Certificates are judged by what they say and by the channel's configuration, never by today's date: a chain is verified
as of one second after the leaf's NotBefore. Steps, for an identity of an MSP:

Deserialising (fails: the identity does not exist for a policy)
  1. the MSP ID names an MSP of the channel;
  2. the id bytes hold a PEM block with a certificate;
  3. a certificate that an ECDSA key signed has exactly one chain to the roots; it is sanitised by its issuer's curve.
Validating
  4. the key is ECDSA (or Ed25519 where the MSP has version 3.0), the certificate no CA;
  5. exactly one chain, of at least two certificates, whose issuer is a leaf of the tree of CAs;
  6. the certificate is not on a revocation list that its issuer signed;
  7. where units are listed it carries one of them; where role units are on it carries exactly one of those.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from ledger.core.certificates import Certificate, is_ecdsa_signed, is_signed_by, parse_pem, sanitised
from ledger.core.chains import Authorities, Chain
from ledger.core.errors import InvalidConfig, InvalidIdentity, MalformedMessage, shown
from ledger.core.policy.ast import (
    AnonymityPrincipal,
    CombinedPrincipal,
    IdentityPrincipal,
    Principal,
    Role,
    RolePrincipal,
    UnitPrincipal,
    UnknownPrincipal,
)
from ledger.core.revocation import RevocationList, check_revocation, parse_revocation_list
from ledger.core.signatures import verify

K = TypeVar("K")
V = TypeVar("V")

DecodeIdentity = Callable[[bytes], tuple[str, bytes]]
"""Decodes SerializedIdentity to (MSP ID, id bytes); raises `MalformedMessage`."""

IDENTITY_HASHES = {"SHA256": "sha256", "SHA384": "sha384", "SHA3_256": "sha3_256", "SHA3_384": "sha3_384"}
"""Hash functions that an MSP may name for certifier ids, and what they are called here."""


@dataclass(frozen=True, slots=True)
class UnitIdentifier:
    """An organisational unit, and the CA that must have certified it (empty PEM: any)."""

    unit: str
    certificate: bytes = b""


@dataclass(frozen=True, slots=True)
class MspConfig:
    """FabricMSPConfig: what the channel says of one organisation. All certificates are PEM."""

    msp_id: str
    root_certs: tuple[bytes, ...]
    intermediate_certs: tuple[bytes, ...] = ()
    admins: tuple[bytes, ...] = ()
    revocation_lists: tuple[bytes, ...] = ()
    units: tuple[UnitIdentifier, ...] = ()
    role_units: "Mapping[Role, UnitIdentifier] | None" = None
    """Unit of each role where NodeOUs are enabled, None where they are not."""

    hash_family: str = "SHA2"
    identity_hash: str = "SHA256"
    tls_root_certs: tuple[bytes, ...] = ()
    tls_intermediate_certs: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """A member's certificate, deserialised; not yet known to be valid."""

    msp_id: str
    certificate: Certificate
    """Sanitised."""

    digest: bytes
    """SHA-256 of the sanitised DER; with the MSP ID the identity's name."""

    serialized: bytes
    """The bytes that it came as."""

    hash_family: str = "SHA2"
    """Which hash the MSP signs over: SHA-256 or, for SHA3, SHA3-256; no signature is good under another name."""

    @property
    def key(self) -> tuple[str, bytes]:
        """What makes it distinct."""
        return self.msp_id, self.digest

    @property
    def public_key(self) -> object:
        """The key of the certificate."""
        return self.certificate.public_key

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Check a signature of this identity."""
        key = self.certificate.public_key
        if not isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey):
            return False
        return verify(key, message, signature, self.hash_family)


@dataclass(frozen=True, slots=True)
class _RoleUnit:
    unit: str
    certifiers: bytes


@dataclass(slots=True)
class Msp:
    """One organisation's membership rules, built once from its configuration.

    Raises:
        InvalidConfig: The configuration breaks a rule of set-up (fabric: msp/mspimplsetup.go).
    """

    config: MspConfig
    version: tuple[int, int, int] = (1, 4, 3)
    """MSP version by the channel's capabilities; (3, 0, 0) allows Ed25519."""

    _authorities: Authorities = field(init=False)
    _admins: frozenset[bytes] = field(init=False)
    _inner_cas: frozenset[bytes] = field(init=False)
    _revocations: tuple[RevocationList, ...] = field(init=False)
    _units: dict[str, tuple[bytes, ...]] = field(init=False)
    _roles: dict[Role, _RoleUnit] | None = field(init=False)

    def __post_init__(self) -> None:
        """Build the tree of CAs and everything derived from it, in Fabric's order."""
        config, subject = self.config, f"MSP {self.config.msp_id}"
        if not config.msp_id:
            raise InvalidConfig("MSP", rule="MSP name", expected="a name", found="none")
        if not config.root_certs:
            raise InvalidConfig(subject, rule="MSP root certificates", expected="at least one", found=0)
        if config.identity_hash not in IDENTITY_HASHES:
            raise InvalidConfig(
                subject, rule="MSP identity hash", expected=sorted(IDENTITY_HASHES), found=config.identity_hash
            )
        try:
            self._set_up_authorities(subject)
            self._set_up_tls_authorities(subject)
            self._set_up_units()
            self._set_up_admins(subject)
        except InvalidIdentity as error:
            raise InvalidConfig(error.subject, rule=error.rule, expected=error.expected, found=error.found) from error

    @property
    def msp_id(self) -> str:
        """Name of the MSP."""
        return self.config.msp_id

    @property
    def has_roles(self) -> bool:
        """Whether role units (NodeOUs) are on."""
        return self._roles is not None

    def identity(self, id_bytes: bytes, serialized: bytes) -> Identity:
        """Make an identity of this MSP from its PEM (steps 2 and 3).

        Raises:
            InvalidIdentity: There is no certificate, or it has no single chain.
        """
        certificate = self._sanitise(parse_pem(id_bytes, f"identity of {self.msp_id}"))
        return Identity(self.msp_id, certificate, certificate.digest, serialized, self.config.hash_family)

    def validate(self, identity: Identity) -> None:
        """Check that an identity is a valid member (steps 4 to 7).

        Raises:
            InvalidIdentity: It is not; the rule names the step.
        """
        certificate = identity.certificate
        subject = f"identity {certificate.common_name!r} of {self.msp_id}"
        key = certificate.public_key
        if isinstance(key, ed25519.Ed25519PublicKey):
            if self.version < (3, 0, 0):
                raise InvalidIdentity(subject, rule="key algorithm", expected="ECDSA", found="Ed25519 before V3_0")
        elif not isinstance(key, ec.EllipticCurvePublicKey):
            raise InvalidIdentity(subject, rule="key algorithm", expected="ECDSA", found=type(key).__name__)
        chain = self._member_chain(certificate, subject)
        check_revocation(self._revocations, certificate, chain[1], subject)
        self._check_units(certificate, self._certifiers_id(chain[1:]), subject)

    def _member_chain(self, certificate: Certificate, subject: str) -> Chain:
        """Give the chain of an end-entity certificate, which a leaf of the tree of CAs must have issued."""
        if certificate.is_ca:
            raise InvalidIdentity(subject, rule="certificate authority", expected="an end-entity certificate")
        chain = self._authorities.only_chain(certificate)
        if len(chain) < 2:
            raise InvalidIdentity(subject, rule="chain length", expected="an issuer", found=len(chain))
        if chain[1].der in self._inner_cas:
            raise InvalidIdentity(
                subject, rule="issuer is a leaf CA", expected="a CA with none below it", found=chain[1].common_name
            )
        return chain

    def has_role(self, identity: Identity, role: Role) -> bool:
        """Tell whether an identity carries the unit of a role (it need not be valid)."""
        unit = self._roles.get(role) if self._roles is not None else None
        return unit is not None and unit.unit in identity.certificate.units

    def is_listed_admin(self, identity: Identity) -> bool:
        """Tell whether the configuration lists exactly this certificate as admin."""
        return identity.certificate.der in self._admins

    def certifiers(self, identity: Identity) -> bytes:
        """Give the certifier id of an identity: a hash over the chain above it."""
        return self._certifiers_id(self._authorities.only_chain(identity.certificate)[1:])

    # -- set-up

    def _set_up_authorities(self, subject: str) -> None:
        """Take roots, intermediates and revocation lists; each CA must have one chain, and be sanitised by it."""
        config = self.config
        self._inner_cas = frozenset()
        roots = [self._ca(pem, "root") for pem in config.root_certs]
        intermediates = [self._ca(pem, "intermediate") for pem in config.intermediate_certs]
        self._authorities = Authorities(subject, roots, intermediates)  # What they are sanitised by.
        self._authorities = Authorities(
            subject, [self._sanitise(each) for each in roots], [self._sanitise(each) for each in intermediates]
        )
        self._revocations = tuple(parse_revocation_list(data, subject) for data in config.revocation_lists)
        for root in self._authorities.roots:
            self._authorities.only_chain(root)
        inner: set[bytes] = set()
        for certificate in self._authorities.intermediates:
            chain = self._authorities.only_chain(certificate)
            inner.update(parent.der for parent in chain[1:])
            if len(chain) > 1:
                check_revocation(self._revocations, certificate, chain[1], f"intermediate certificate of {subject}")
        self._inner_cas = frozenset(inner)

    def _set_up_tls_authorities(self, subject: str) -> None:
        """Check the CAs of TLS certificates, whose chains are their own."""
        roots = [self._ca(pem, "TLS root") for pem in self.config.tls_root_certs]
        intermediates = [self._ca(pem, "TLS intermediate") for pem in self.config.tls_intermediate_certs]
        authorities = Authorities(f"TLS of {subject}", roots, intermediates)
        for certificate in (*roots, *intermediates):
            chain = authorities.only_chain(certificate)
            if len(chain) > 1:
                check_revocation(self._revocations, certificate, chain[1], f"TLS certificate of {subject}")

    def _set_up_units(self) -> None:
        """Take the listed units, and the role units where they are on."""
        config = self.config
        units: dict[str, tuple[bytes, ...]] = {}
        for listed in config.units:
            units[listed.unit] = (*units.get(listed.unit, ()), self._certifiers_of(listed.certificate))
        self._units = units
        self._roles = None
        if config.role_units and self.version >= (1, 1, 0):
            self._roles = {
                role: _RoleUnit(unit.unit, self._certifiers_of(unit.certificate) if unit.certificate else b"")
                for role, unit in config.role_units.items()
                if self.version >= (1, 4, 3) or role in (Role.CLIENT, Role.PEER)
            }

    def _ca(self, pem: bytes, kind: str) -> Certificate:
        subject = f"{kind} certificate of MSP {self.config.msp_id}"
        certificate = parse_pem(pem, subject)
        if not certificate.is_ca:
            raise InvalidConfig(
                subject, rule="certificate authority", expected="CA=true", found="an end-entity certificate"
            )
        if not certificate.subject_key_id:
            raise InvalidConfig(subject, rule="subject key identifier", expected="one", found="none")
        return certificate

    def _certifiers_of(self, pem: bytes) -> bytes:
        """Give the certifier id that a unit's certificate stands for."""
        subject = f"unit certificate of MSP {self.config.msp_id}"
        certificate = self._sanitise(self._ca(pem, "unit"))
        if any(root.der == certificate.der for root in self._authorities.roots):
            return self._certifiers_id((certificate,))
        if not any(known.der == certificate.der for known in self._authorities.intermediates):
            found = certificate.common_name
            raise InvalidConfig(subject, rule="unit certificate", expected="a CA of the MSP", found=found)
        if certificate.der in self._inner_cas:
            raise InvalidConfig(
                subject, rule="unit certificate", expected="a CA with none below it", found=certificate.common_name
            )
        return self._certifiers_id(self._authorities.only_chain(certificate))

    def _set_up_admins(self, subject: str) -> None:
        admins: set[bytes] = set()
        for pem in self.config.admins:
            identity = self.identity(pem, b"")
            if self._roles is None:
                self.validate(identity)
            else:
                self._member_chain(identity.certificate, f"admin of {subject}")
                if not (self.has_role(identity, Role.CLIENT) or self.has_role(identity, Role.ADMIN)):
                    raise InvalidIdentity(
                        f"admin of {subject}", rule="admin role", expected="client or admin unit",
                        found=list(identity.certificate.units),
                    )  # fmt: skip
            admins.add(identity.certificate.der)
        self._admins = frozenset(admins)
        has_admin_unit = self._roles is not None and Role.ADMIN in self._roles
        if not admins and not has_admin_unit and self.version >= (1, 4, 3):
            raise InvalidConfig(
                subject, rule="MSP admins", expected="admins, or role units with an admin unit", found="none"
            )

    # -- chains

    def _sanitise(self, certificate: Certificate) -> Certificate:
        """Rewrite a high-S certificate by its issuer's curve (step 3).

        A CA that signed itself is rewritten by its own; any other certificate that an ECDSA key signed needs an issuer
        with one chain.
        """
        if not is_ecdsa_signed(certificate):
            return certificate
        if certificate.is_ca and is_signed_by(certificate, certificate):
            own = sanitised(certificate, certificate)
            Authorities(self._authorities.owner, (own,)).only_chain(own)
            return own
        chain = self._authorities.only_chain(certificate)
        if len(chain) == 1:
            raise InvalidIdentity(
                f"certificate {certificate.common_name!r} of {self.msp_id}",
                rule="chain length", expected="an issuer, or a CA that signed itself", found=1,
            )  # fmt: skip
        return sanitised(certificate, chain[1])

    def _certifiers_id(self, chain: Sequence[Certificate]) -> bytes:
        """Hash a chain of CAs, issuer first."""
        hasher = hashlib.new(IDENTITY_HASHES[self.config.identity_hash])
        for certificate in chain:
            hasher.update(certificate.der)
        return hasher.digest()

    # -- checks

    def _check_units(self, certificate: Certificate, certifiers: bytes, subject: str) -> None:
        """Ask for a listed unit and for exactly one role unit (step 7)."""
        if self._units and not any(certifiers in self._units.get(unit, ()) for unit in certificate.units):
            raise InvalidIdentity(
                subject, rule="organizational units", expected=sorted(self._units), found=list(certificate.units)
            )
        if self._roles is None:
            return
        count = 0
        by_unit = {role.unit: role for role in self._roles.values()}
        for unit in certificate.units:
            role = by_unit.get(unit)
            if role is None:
                continue
            if role.certifiers and role.certifiers != certifiers:
                raise InvalidIdentity(subject, rule="role unit certifier", expected=role.certifiers, found=certifiers)
            count += 1
        if count != 1:
            raise InvalidIdentity(
                subject, rule="exactly one role unit", expected=sorted(by_unit), found=list(certificate.units)
            )


class MspManager:
    """The MSPs of one configuration.  Answers are cached by the bytes asked about; safe to use from several threads.

    Args:
        msps: The organisations' MSPs; the same MSP ID may come twice with the same content.
        decode: Decodes SerializedIdentity.
    """

    def __init__(self, msps: Sequence[Msp], decode: DecodeIdentity) -> None:
        """Take the MSPs."""
        self._msps = {msp.msp_id: msp for msp in msps}
        self._decode = decode
        self._identities: dict[bytes, Identity | InvalidIdentity] = {}
        self._valid: dict[tuple[str, bytes], InvalidIdentity | None] = {}
        self._satisfied: dict[tuple[str, bytes, Principal], bool] = {}

    @property
    def msp_ids(self) -> tuple[str, ...]:
        """Names of all MSPs, ascending."""
        return tuple(sorted(self._msps))

    def msp(self, msp_id: str) -> Msp | None:
        """Give an MSP by name."""
        return self._msps.get(msp_id)

    def deserialize(self, serialized: bytes) -> Identity:
        """Make an identity of SerializedIdentity bytes.

        Raises:
            InvalidIdentity: The bytes do not decode, the MSP is unknown, or there is no certificate with one chain.
        """
        found = self._identities.get(serialized)
        if found is None:
            try:
                found = self._deserialize(serialized)
            except InvalidIdentity as error:
                found = error
            _remember(self._identities, serialized, found)
        if isinstance(found, InvalidIdentity):
            raise found.with_traceback(None)
        return found

    def _deserialize(self, serialized: bytes) -> Identity:
        try:
            msp_id, id_bytes = self._decode(serialized)
        except MalformedMessage as error:
            raise InvalidIdentity("identity", rule="serialized identity", found=serialized) from error
        msp = self._msps.get(msp_id)
        if msp is None:
            raise InvalidIdentity("identity", rule="MSP of the channel", expected=self.msp_ids, found=shown(msp_id))
        return msp.identity(id_bytes, serialized)

    def validate(self, identity: Identity) -> None:
        """Check that an identity is a valid member of its organisation.

        Raises:
            InvalidIdentity: It is not; the rule says why.
        """
        error = self._validity(identity)
        if error is not None:
            raise error.with_traceback(None)

    def is_valid(self, identity: Identity) -> bool:
        """Tell whether an identity is a valid member of its organisation."""
        return self._validity(identity) is None

    def _validity(self, identity: Identity) -> InvalidIdentity | None:
        if identity.key in self._valid:
            return self._valid[identity.key]
        error: InvalidIdentity | None = None
        try:
            self._msps[identity.msp_id].validate(identity)
        except InvalidIdentity as found:
            error = found
        _remember(self._valid, identity.key, error)
        return error

    def satisfies(self, identity: Identity, principal: Principal) -> bool:
        """Tell whether an identity is what a principal asks for (fabric: msp/mspimpl.go, satisfiesPrincipal)."""
        key = (*identity.key, principal)
        found = self._satisfied.get(key)
        if found is None:
            found = self._satisfies(identity, principal)
            _remember(self._satisfied, key, found)
        return found

    def _satisfies(self, identity: Identity, principal: Principal) -> bool:
        msp = self._msps[identity.msp_id]
        match principal:
            case RolePrincipal(msp_id, role):
                return msp_id == identity.msp_id and self._has_role(msp, identity, role)
            case UnitPrincipal(msp_id, unit, certifiers):
                if msp_id != identity.msp_id or not self.is_valid(identity):
                    return False
                return unit in identity.certificate.units and certifiers == msp.certifiers(identity)
            case IdentityPrincipal(serialized):
                try:
                    named = self.deserialize(serialized)
                except InvalidIdentity:
                    return False
                return named.key == identity.key and self.is_valid(identity)
            case AnonymityPrincipal() | CombinedPrincipal() if msp.version < (1, 3, 0):
                return False
            case AnonymityPrincipal(anonymity):
                return anonymity == 0
            case CombinedPrincipal(principals):
                return bool(principals) and all(self.satisfies(identity, inner) for inner in principals)
            case UnknownPrincipal():
                return False

    def _has_role(self, msp: Msp, identity: Identity, role: int) -> bool:
        if role == Role.ADMIN and msp.is_listed_admin(identity):
            return True
        if role not in tuple(Role) or not self.is_valid(identity):
            return False
        return role == Role.MEMBER or msp.has_role(identity, Role(role))


CACHE_SIZE_MAX = 10_000
"""Entries of each cache; a full one is emptied: what is asked again is found again."""


def _remember(cache: dict[K, V], key: K, value: V) -> None:
    if len(cache) >= CACHE_SIZE_MAX:
        cache.clear()
    cache[key] = value
