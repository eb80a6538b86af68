"""Who is this node, and what does a folder say of an organisation?  MSP folders in Fabric's layout.

`cacerts/`, `intermediatecerts/`, `admincerts/`, `tlscacerts/`, `tlsintermediatecerts/`, `crls/`, `config.yaml`; a
local MSP also has `signcerts/` (first file: its own certificate) and `keystore/` (the private key is found by its
public key).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from ledger.core.certificates import parse_pem
from ledger.core.encoding import uvarint
from ledger.core.errors import InvalidIdentity, InvalidSetting, StorageFailed
from ledger.core.identity import MspConfig, UnitIdentifier
from ledger.core.pem import to_pem
from ledger.core.policy.ast import Role
from ledger.core.signatures import PrivateKey, sign

ROLE_KEYS = {
    "ClientOUIdentifier": Role.CLIENT,
    "PeerOUIdentifier": Role.PEER,
    "AdminOUIdentifier": Role.ADMIN,
    "OrdererOUIdentifier": Role.ORDERER,
}


@dataclass(frozen=True, slots=True)
class SigningIdentity:
    """An identity with its private key, which appears in no log and no message."""

    msp_id: str
    certificate: bytes
    """PEM."""

    serialized: bytes
    """SerializedIdentity, as it stands in signatures."""

    private_key: PrivateKey

    def __repr__(self) -> str:
        """Show who it is, without the key."""
        return f"SigningIdentity({self.msp_id})"

    def sign(self, message: bytes) -> bytes:
        """Sign a message by Fabric's rules."""
        return sign(self.private_key, message)


def load_signing_identity(folder: Path, msp_id: str) -> SigningIdentity:
    """Load the identity of a local MSP folder.

    Raises:
        InvalidSetting: Certificate or key is missing, or no key belongs to the certificate.
        StorageFailed: A file can't be read.
    """
    certificates = pem_files(folder / "signcerts")
    if not certificates:
        raise InvalidSetting(f"MSP folder {folder}", rule="signcerts", expected="a certificate", found="none")
    try:
        certificate = parse_pem(certificates[0], f"{folder}/signcerts")
    except InvalidIdentity as error:
        raise InvalidSetting(f"MSP folder {folder}", rule="signcerts", expected=error.expected, found=error) from error
    for data in pem_files(folder / "keystore"):
        key = read_key(data)
        if key is None:
            continue
        if key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) == certificate.key_info:
            pem = to_pem(certificate.der)
            return SigningIdentity(msp_id, pem, serialize_identity(msp_id, pem), key)
    raise InvalidSetting(
        f"MSP folder {folder}", rule="keystore", expected="the private key of the certificate", found="no such key"
    )


def read_key(data: bytes) -> PrivateKey | None:
    """Read a private key; None if the text holds none that can sign."""
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) else None


def serialize_identity(msp_id: str, pem: bytes) -> bytes:
    """Write SerializedIdentity{mspid = 1, id_bytes = 2}: two byte strings with their lengths."""
    return _field(1, msp_id.encode()) + _field(2, pem)


def _field(number: int, value: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + uvarint(len(value)) + value if value else b""


def msp_config_from_folder(folder: Path, msp_id: str) -> MspConfig:
    """Read what a folder says of an organisation.

    Raises:
        InvalidSetting: `cacerts` is empty or `config.yaml` is not understood.
    """
    roots = pem_files(folder / "cacerts")
    if not roots:
        raise InvalidSetting(f"MSP folder {folder}", rule="cacerts", expected="at least one certificate", found=0)
    units, role_units = read_units(folder)
    return MspConfig(
        msp_id=msp_id,
        root_certs=roots,
        intermediate_certs=pem_files(folder / "intermediatecerts"),
        admins=pem_files(folder / "admincerts"),
        revocation_lists=pem_files(folder / "crls"),
        units=units,
        role_units=role_units,
        tls_root_certs=pem_files(folder / "tlscacerts"),
        tls_intermediate_certs=pem_files(folder / "tlsintermediatecerts"),
    )


def read_units(folder: Path) -> tuple[tuple[UnitIdentifier, ...], dict[Role, UnitIdentifier] | None]:
    """Read `config.yaml`: the units that are listed, and the unit of each role."""
    path = folder / "config.yaml"
    if not path.exists():
        return (), None
    try:
        content: Any = yaml.safe_load(path.read_text()) or {}
    except (yaml.YAMLError, OSError) as error:
        raise InvalidSetting(str(path), rule="YAML", expected="a mapping", found=error) from error
    listed = tuple(_unit(folder, one) for one in content.get("OrganizationalUnitIdentifiers") or ())
    roles = content.get("NodeOUs") or {}
    if not roles.get("Enable"):
        return listed, None
    return listed, {role: _unit(folder, roles[key]) for key, role in ROLE_KEYS.items() if key in roles}


def _unit(folder: Path, one: Any) -> UnitIdentifier:
    certificate = one.get("Certificate")
    return UnitIdentifier(
        one["OrganizationalUnitIdentifier"], (folder / certificate).read_bytes() if certificate else b""
    )


def pem_files(folder: Path) -> tuple[bytes, ...]:
    """Read the PEM files of a folder in the order of their names; other files are passed over."""
    if not folder.is_dir():
        return ()
    try:
        contents = [path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()]
    except OSError as error:
        raise StorageFailed(f"{folder}: {error}") from error
    return tuple(data for data in contents if b"-----BEGIN" in data)
