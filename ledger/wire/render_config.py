"""How does a channel configuration look to people?  Its tree of groups, values and policies as plain JSON values.

Values are decoded by the names that Fabric gives them (configtxgen, protolator); others are shown as bytes. The depth
of the tree is bounded by the decoder, which follows messages a hundred levels deep.
"""

from base64 import b64encode
from typing import Any

from fabric_protos.common import configtx_pb2, configuration_pb2, policies_pb2
from fabric_protos.msp import msp_config_pb2
from fabric_protos.orderer import configuration_pb2 as orderer_pb2
from fabric_protos.peer import configuration_pb2 as peer_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

Json = dict[str, Any]
"""A JSON object."""

VALUE_CLASSES: dict[str, Any] = {
    "HashingAlgorithm": configuration_pb2.HashingAlgorithm,
    "BlockDataHashingStructure": configuration_pb2.BlockDataHashingStructure,
    "OrdererAddresses": configuration_pb2.OrdererAddresses,
    "Endpoints": configuration_pb2.OrdererAddresses,
    "Consortium": configuration_pb2.Consortium,
    "Capabilities": configuration_pb2.Capabilities,
    "ConsensusType": orderer_pb2.ConsensusType,
    "BatchSize": orderer_pb2.BatchSize,
    "BatchTimeout": orderer_pb2.BatchTimeout,
    "ChannelRestrictions": orderer_pb2.ChannelRestrictions,
    "ACLs": peer_pb2.ACLs,
    "AnchorPeers": peer_pb2.AnchorPeers,
}
"""Message class of each configuration value that is shown field by field."""

MSP_CERTIFICATES = (
    "root_certs",
    "intermediate_certs",
    "admins",
    "revocation_list",
    "tls_root_certs",
    "tls_intermediate_certs",
)
"""Fields of FabricMSPConfig that hold PEM."""


def render_config_envelope(data: bytes) -> Json:
    """Show a ConfigEnvelope: its sequence and the tree of the whole channel."""
    envelope = configtx_pb2.ConfigEnvelope()
    try:
        envelope.ParseFromString(data)
    except DecodeError as error:
        return {"undecodable": f"ConfigEnvelope: {error}"}
    return {
        "sequence": envelope.config.sequence,
        "channel_group": _group(envelope.config.channel_group),
        "has_last_update": bool(envelope.last_update.payload),
    }


def _group(group: Any) -> Json:
    """Show a group with its parts in order of their names: maps have none of their own."""
    return {
        "version": group.version,
        "mod_policy": group.mod_policy,
        "values": {name: _value(name, group.values[name]) for name in sorted(group.values)},
        "policies": {name: _policy(group.policies[name]) for name in sorted(group.policies)},
        "groups": {name: _group(group.groups[name]) for name in sorted(group.groups)},
    }


def _value(name: str, value: Any) -> Json:
    return {"version": value.version, "mod_policy": value.mod_policy, "value": _content(name, value.value)}


def _content(name: str, data: bytes) -> Json:
    try:
        if name == "MSP":
            return _msp(data)
        if name in VALUE_CLASSES:
            return _fields(VALUE_CLASSES[name](), data)
    except DecodeError:
        pass  # Shown as bytes, like a value of an unknown name.
    return {"base64": b64encode(data).decode()}


def _fields(message: Any, data: bytes) -> Json:
    message.ParseFromString(data)
    fields: Json = MessageToDict(message, preserving_proto_field_name=True)
    return fields


def _msp(data: bytes) -> Json:
    """Show an MSP by what it says about certificates; those are PEM, thus text."""
    config = msp_config_pb2.MSPConfig()
    config.ParseFromString(data)
    if config.type != 0:
        return {"type": config.type, "base64": b64encode(config.config).decode()}
    msp = msp_config_pb2.FabricMSPConfig()
    msp.ParseFromString(config.config)
    shown: Json = {"msp_id": msp.name}
    shown |= {field: [_pem(value) for value in getattr(msp, field)] for field in MSP_CERTIFICATES}
    shown["node_ous_enabled"] = msp.fabric_node_ous.enable
    return shown


def _pem(data: bytes) -> str:
    return data.decode("ascii", errors="backslashreplace")


def _policy(policy: Any) -> Json:
    shown: Json = {"version": policy.version, "mod_policy": policy.mod_policy}
    content = policies_pb2.ImplicitMetaPolicy if policy.policy.type == policies_pb2.Policy.IMPLICIT_META else None
    if policy.policy.type == policies_pb2.Policy.SIGNATURE:
        content = policies_pb2.SignaturePolicyEnvelope
    try:
        if content is not None:
            return shown | {"type": content.DESCRIPTOR.name, "policy": _fields(content(), policy.policy.value)}
    except DecodeError:
        pass  # A policy nested deeper than the decoder follows is shown as bytes.
    return shown | {"type": str(policy.policy.type), "policy": {"base64": b64encode(policy.policy.value).decode()}}
