"""Which MSP do these bytes describe?  MSPConfig and FabricMSPConfig to `core.identity.MspConfig`, and back."""

from typing import Any

from fabric_protos.msp import msp_config_pb2

from ledger.core.errors import InvalidConfig, MalformedMessage
from ledger.core.identity import MspConfig, UnitIdentifier
from ledger.core.policy.ast import Role
from ledger.wire.messages import parse

FABRIC = 0
"""MSPConfig.type of X.509 MSPs; 1 is idemix, which this node does not judge."""

ROLE_FIELDS = (
    (Role.CLIENT, "client_ou_identifier"),
    (Role.PEER, "peer_ou_identifier"),
    (Role.ADMIN, "admin_ou_identifier"),
    (Role.ORDERER, "orderer_ou_identifier"),
)


def decode_msp_config(data: bytes) -> MspConfig:
    """Decode MSPConfig with a FabricMSPConfig inside.

    Raises:
        InvalidConfig: It does not decode, or is of another type.
    """
    try:
        outer = parse(msp_config_pb2.MSPConfig, data, "MSPConfig")
        if outer.type != FABRIC:
            raise InvalidConfig("MSP", rule="MSP type", expected="X.509 (0)", found=outer.type)
        config = parse(msp_config_pb2.FabricMSPConfig, outer.config, "FabricMSPConfig")
    except MalformedMessage as error:
        raise InvalidConfig("MSP", rule="MSP message", expected="an MSPConfig", found=error) from error
    crypto = config.crypto_config
    return MspConfig(
        msp_id=config.name,
        root_certs=tuple(config.root_certs),
        intermediate_certs=tuple(config.intermediate_certs),
        admins=tuple(config.admins),
        revocation_lists=tuple(config.revocation_list),
        units=tuple(_unit(unit) for unit in config.organizational_unit_identifiers),
        role_units=_role_units(config),
        hash_family=crypto.signature_hash_family or "SHA2",
        identity_hash=crypto.identity_identifier_hash_function or "SHA256",
        tls_root_certs=tuple(config.tls_root_certs),
        tls_intermediate_certs=tuple(config.tls_intermediate_certs),
    )


def _unit(message: Any) -> UnitIdentifier:
    return UnitIdentifier(message.organizational_unit_identifier, message.certificate)


def _role_units(config: Any) -> dict[Role, UnitIdentifier] | None:
    """Give the unit of each role, None where role units are off."""
    if not config.HasField("fabric_node_ous") or not config.fabric_node_ous.enable:
        return None
    ous = config.fabric_node_ous
    return {role: _unit(getattr(ous, name)) for role, name in ROLE_FIELDS if ous.HasField(name)}


def encode_msp_config(config: MspConfig) -> bytes:
    """Encode an MSP as MSPConfig, as it stands in a channel configuration."""
    inner = msp_config_pb2.FabricMSPConfig(
        name=config.msp_id,
        root_certs=config.root_certs,
        intermediate_certs=config.intermediate_certs,
        admins=config.admins,
        revocation_list=config.revocation_lists,
        tls_root_certs=config.tls_root_certs,
        tls_intermediate_certs=config.tls_intermediate_certs,
        organizational_unit_identifiers=[_unit_message(unit) for unit in config.units],
        crypto_config=msp_config_pb2.FabricCryptoConfig(
            signature_hash_family=config.hash_family, identity_identifier_hash_function=config.identity_hash
        ),
    )
    if config.role_units is not None:
        units = {
            name: _unit_message(config.role_units[role]) for role, name in ROLE_FIELDS if role in config.role_units
        }
        inner.fabric_node_ous.CopyFrom(msp_config_pb2.FabricNodeOUs(enable=True, **units))
    return bytes(msp_config_pb2.MSPConfig(type=FABRIC, config=inner.SerializeToString()).SerializeToString())


def _unit_message(unit: UnitIdentifier) -> Any:
    return msp_config_pb2.FabricOUIdentifier(certificate=unit.certificate, organizational_unit_identifier=unit.unit)
