"""Which configuration do these bytes hold?  ConfigEnvelope, ConfigUpdate and the values of a channel's tree.

Decodes to the values of `core.channel_config` and `core.config_update`; what is compared later is compared decoded,
since maps have no order on the wire.
"""

import re
from dataclasses import dataclass
from typing import Any

from fabric_protos.common import common_pb2, configtx_pb2, configuration_pb2, policies_pb2
from fabric_protos.orderer import configuration_pb2 as orderer_pb2
from fabric_protos.peer import configuration_pb2 as peer_pb2

from ledger.core.block import Block
from ledger.core.channel_config import (
    ApplicationConfig,
    BatchSize,
    Bundle,
    ChannelConfig,
    ConfigGroup,
    ConfigPolicy,
    ConfigValue,
    Consenter,
    HostPort,
    OrdererConfig,
    Organisation,
    build_bundle,
    check_successor,
)
from ledger.core.config_update import ConfigUpdate, apply_update
from ledger.core.errors import InvalidConfig, MalformedMessage
from ledger.core.identity import Msp, MspManager
from ledger.core.policy.ast import ImplicitMetaPolicy, SignaturePolicy
from ledger.core.policy.evaluate import SignedData
from ledger.core.ports import Codec
from ledger.wire.messages import parse
from ledger.wire.msp import decode_msp_config
from ledger.wire.policy import decode_signature_policy

SIGNATURE, IMPLICIT_META = 1, 3
"""Policy.type; 2 was never built."""

GO_DURATION = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
GO_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1, "s": 1e3, "m": 6e4, "h": 3.6e6}


@dataclass(frozen=True, slots=True)
class DecodedConfig:
    """A ConfigEnvelope taken apart."""

    sequence: int
    tree: ConfigGroup
    last_update: bytes | None
    """The envelope that led to it, None for a genesis configuration."""

    raw: bytes


def decode_config_envelope(data: bytes) -> DecodedConfig:
    """Decode a ConfigEnvelope.

    Raises:
        InvalidConfig: It does not decode or holds no configuration.
    """
    message = _parse(configtx_pb2.ConfigEnvelope, data, "ConfigEnvelope")
    if not message.HasField("config") or not message.config.HasField("channel_group"):
        raise InvalidConfig("ConfigEnvelope", rule="config", expected="a configuration", found="none")
    update = message.last_update.SerializeToString() if message.HasField("last_update") else None
    return DecodedConfig(message.config.sequence, decode_group(message.config.channel_group), update, data)


def decode_group(message: Any) -> ConfigGroup:
    """Take a ConfigGroup message; the parser has bounded its depth."""
    return ConfigGroup(
        version=message.version,
        mod_policy=message.mod_policy,
        groups={key: decode_group(group) for key, group in message.groups.items()},
        values={
            key: ConfigValue(value.version, value.mod_policy, value.value) for key, value in message.values.items()
        },
        policies={
            key: ConfigPolicy(
                policy.version,
                policy.mod_policy,
                policy.policy.type if policy.HasField("policy") else None,
                policy.policy.value,
            )
            for key, policy in message.policies.items()
        },
    )


def config_payload(envelope: bytes) -> tuple[str, bytes]:
    """Give channel id and ConfigEnvelope bytes of a CONFIG envelope.

    Raises:
        InvalidConfig: It does not decode.
    """
    payload = _parse(common_pb2.Payload, _parse(common_pb2.Envelope, envelope, "Envelope").payload, "Payload")
    header = _parse(common_pb2.ChannelHeader, payload.header.channel_header, "ChannelHeader")
    if header.type != common_pb2.CONFIG:
        raise InvalidConfig("config block", rule="header type", expected="CONFIG", found=header.type)
    return header.channel_id, payload.data


def bundle_from_block(block: Block, codec: Codec) -> Bundle:
    """Make the bundle of a config block, a genesis block for instance.

    Raises:
        InvalidConfig: It is no config block, or its configuration breaks a rule.
    """
    if len(block.envelopes) != 1:
        raise InvalidConfig(
            f"block {block.number}", rule="config block", expected="one envelope", found=len(block.envelopes)
        )
    channel_id, data = config_payload(block.envelopes[0])
    return make_bundle(channel_id, decode_config_envelope(data), codec)


def bundle_from_envelope(config_envelope: bytes, codec: Codec, channel_id: str = "") -> Bundle:
    """Make the bundle of ConfigEnvelope bytes, such as stand in the state.

    Args:
        config_envelope: The bytes.
        codec: Decodes what stands in them.
        channel_id: Name of the channel; where it is empty it is taken from the last update.

    Raises:
        InvalidConfig: The configuration breaks a rule.
    """
    decoded = decode_config_envelope(config_envelope)
    if not channel_id and decoded.last_update is not None:
        channel_id = decode_config_update(decoded.last_update).channel_id
    return make_bundle(channel_id, decoded, codec)


def make_bundle(channel_id: str, decoded: DecodedConfig, codec: Codec) -> Bundle:
    """Check a decoded configuration and make its bundle."""
    config = decode_channel_config(channel_id, decoded)
    version = (3, 0, 0) if "V3_0" in config.capabilities else (1, 4, 3)
    msps = {
        org.msp_id: Msp(org.msp, version) for org in (*config.orderer.organisations, *config.application.organisations)
    }
    return build_bundle(config, tuple(msps.values()), MspManager(tuple(msps.values()), codec.serialized_identity))


def decode_channel_config(channel_id: str, decoded: DecodedConfig) -> ChannelConfig:
    """Decode the values of a tree."""
    tree = decoded.tree
    for name in ("Orderer", "Application"):
        if name not in tree.groups:
            raise InvalidConfig("channel config", rule="channel groups", expected=name, found=sorted(tree.groups))
    hashing = _value(tree, "HashingAlgorithm", configuration_pb2.HashingAlgorithm)
    width = _value(tree, "BlockDataHashingStructure", configuration_pb2.BlockDataHashingStructure)
    addresses = _value(tree, "OrdererAddresses", configuration_pb2.OrdererAddresses)
    return ChannelConfig(
        channel_id=channel_id,
        sequence=decoded.sequence,
        tree=tree,
        capabilities=_capabilities(tree),
        orderer=_orderer(tree.groups["Orderer"]),
        application=_application(tree.groups["Application"]),
        policies=_policies(tree),
        hashing_algorithm=hashing.name if hashing is not None else "",
        block_width=width.width if width is not None else 0,
        orderer_addresses=tuple(addresses.addresses) if addresses is not None else None,
        raw=decoded.raw,
    )


def _orderer(group: ConfigGroup) -> OrdererConfig:
    consensus = _value(group, "ConsensusType", orderer_pb2.ConsensusType)
    size = _value(group, "BatchSize", orderer_pb2.BatchSize)
    timeout = _value(group, "BatchTimeout", orderer_pb2.BatchTimeout)
    mapping = _value(group, "Orderers", configuration_pb2.Orderers)
    return OrdererConfig(
        consensus_type=consensus.type if consensus is not None else "",
        consensus_state=consensus.state if consensus is not None else 0,
        batch_size=BatchSize(size.max_message_count, size.absolute_max_bytes, size.preferred_max_bytes)
        if size is not None
        else BatchSize(0, 0, 0),
        batch_timeout_ms=go_duration_ms(timeout.timeout) if timeout is not None else 0,
        capabilities=_capabilities(group),
        organisations=_organisations(group),
        consenters=tuple(Consenter(one.id, one.msp_id, one.identity) for one in mapping.consenter_mapping)
        if mapping is not None
        else (),
    )


def _application(group: ConfigGroup) -> ApplicationConfig:
    acls = _value(group, "ACLs", peer_pb2.ACLs)
    return ApplicationConfig(
        capabilities=_capabilities(group),
        organisations=_organisations(group),
        acls={name: acl.policy_ref for name, acl in acls.acls.items()} if acls is not None else {},
    )


def _organisations(group: ConfigGroup) -> tuple[Organisation, ...]:
    """Decode the organisations of a group, by name."""
    found = []
    for name, org in sorted(group.groups.items()):
        if "MSP" not in org.values:
            raise InvalidConfig(f"organisation {name}", rule="MSP", expected="an MSP value", found=sorted(org.values))
        anchors = _value(org, "AnchorPeers", peer_pb2.AnchorPeers)
        endpoints = _value(org, "Endpoints", configuration_pb2.OrdererAddresses)
        found.append(
            Organisation(
                name=name,
                msp=decode_msp_config(org.values["MSP"].value),
                anchor_peers=tuple(HostPort(peer.host, peer.port) for peer in anchors.anchor_peers) if anchors else (),
                endpoints=tuple(endpoints.addresses) if endpoints else (),
            )
        )
    return tuple(found)


def _policies(tree: ConfigGroup) -> dict[str, SignaturePolicy | ImplicitMetaPolicy]:
    """Decode every policy of a tree, by its absolute path."""
    found: dict[str, SignaturePolicy | ImplicitMetaPolicy] = {}
    waiting = [("/Channel", tree)]
    while waiting:
        path, group = waiting.pop()
        for name, policy in group.policies.items():
            found[f"{path}/{name}"] = _policy(f"{path}/{name}", policy)
        waiting += [(f"{path}/{name}", child) for name, child in group.groups.items()]
    return found


def _policy(path: str, policy: ConfigPolicy) -> SignaturePolicy | ImplicitMetaPolicy:
    try:
        if policy.kind == SIGNATURE:
            return decode_signature_policy(policy.value)
        if policy.kind == IMPLICIT_META:
            meta = parse(policies_pb2.ImplicitMetaPolicy, policy.value, "ImplicitMetaPolicy")
            return ImplicitMetaPolicy(meta.sub_policy, meta.rule)
    except MalformedMessage as error:
        raise InvalidConfig(f"policy {path}", rule="policy message", expected="a policy", found=error) from error
    raise InvalidConfig(f"policy {path}", rule="policy type", expected="1 or 3", found=policy.kind)


def _capabilities(group: ConfigGroup) -> frozenset[str]:
    message = _value(group, "Capabilities", configuration_pb2.Capabilities)
    return frozenset(message.capabilities) if message is not None else frozenset()


def _value(group: ConfigGroup, name: str, kind: Any) -> Any:
    """Decode a value of a group, None where it is not there."""
    value = group.values.get(name)
    return None if value is None else _parse(kind, value.value, name)


def _parse(kind: Any, data: bytes, subject: str) -> Any:
    try:
        return parse(kind, data, subject)
    except MalformedMessage as error:
        raise InvalidConfig(subject, rule="config message", expected=subject, found=error) from error


def go_duration_ms(text: str) -> int:
    """Read a duration as Go writes it ("2s", "1m30s", "500ms"), in milliseconds.

    Raises:
        InvalidConfig: It is none.
    """
    rest, total = text.removeprefix("+"), 0.0
    while rest:
        match = GO_DURATION.match(rest)
        if match is None:
            break
        total += float(match[1]) * GO_UNITS_MS[match[2]]
        rest = rest[match.end() :]
    if rest or not text:
        raise InvalidConfig("duration", rule="Go duration", expected="such as 2s or 500ms", found=text)
    return max(round(total), 1) if total > 0 else 0


# -- updates


def decode_config_update(envelope: bytes) -> ConfigUpdate:
    """Decode an envelope of type CONFIG_UPDATE.

    Raises:
        InvalidConfig: It does not decode.
    """
    payload = _parse(common_pb2.Payload, _parse(common_pb2.Envelope, envelope, "Envelope").payload, "Payload")
    header = _parse(common_pb2.ChannelHeader, payload.header.channel_header, "ChannelHeader")
    if header.type != common_pb2.CONFIG_UPDATE:
        raise InvalidConfig("config update", rule="header type", expected="CONFIG_UPDATE", found=header.type)
    message = _parse(configtx_pb2.ConfigUpdateEnvelope, payload.data, "ConfigUpdateEnvelope")
    update = _parse(configtx_pb2.ConfigUpdate, message.config_update, "ConfigUpdate")
    signed = []
    for one in message.signatures:
        signer = _parse(common_pb2.SignatureHeader, one.signature_header, "SignatureHeader")
        signed.append(SignedData(one.signature_header + message.config_update, signer.creator, one.signature))
    read_set, write_set = (
        decode_group(getattr(update, name)) if update.HasField(name) else None for name in ("read_set", "write_set")
    )
    return ConfigUpdate(update.channel_id, read_set, write_set, tuple(signed))


def next_bundle(bundle: Bundle, config_envelope: bytes, codec: Codec) -> Bundle:
    """Check that a ConfigEnvelope follows from the configuration in force, and make its bundle.

    Steps: 1. its sequence is one more; 2. its last update, applied with its admins' signatures, gives exactly its tree;
    3. the result is a configuration that this node can work under, and changes nothing that may not change.

    Raises:
        InvalidConfig: A step fails; the channel can't go on.
    """
    decoded = decode_config_envelope(config_envelope)
    if decoded.sequence != bundle.sequence + 1:
        raise InvalidConfig("config block", rule="sequence", expected=bundle.sequence + 1, found=decoded.sequence)
    if decoded.last_update is None:
        raise InvalidConfig("config block", rule="last update", expected="the update that led to it", found="none")
    if apply_update(bundle, decode_config_update(decoded.last_update)) != decoded.tree:
        raise InvalidConfig("config block", rule="last update", expected="the configuration in it", found="another")
    following = make_bundle(bundle.channel_id, decoded, codec)
    check_successor(bundle.config, following.config)
    return following


def config_from_update(bundle: Bundle, envelope: bytes, codec: Codec) -> bytes:
    """Apply a CONFIG_UPDATE envelope, as an orderer does, and give the ConfigEnvelope to be ordered.

    Raises:
        InvalidConfig: It does not apply, or leads to a configuration that breaks a rule.
    """
    tree = apply_update(bundle, decode_config_update(envelope))
    config = configtx_pb2.Config(sequence=bundle.sequence + 1, channel_group=encode_group(tree))
    last_update = _parse(common_pb2.Envelope, envelope, "Envelope")
    data = bytes(configtx_pb2.ConfigEnvelope(config=config, last_update=last_update).SerializeToString())
    next_bundle(bundle, data, codec)
    return data


def encode_group(group: ConfigGroup) -> configtx_pb2.ConfigGroup:
    """Make the message of a tree."""
    message = configtx_pb2.ConfigGroup(version=group.version, mod_policy=group.mod_policy)
    for key, value in sorted(group.values.items()):
        message.values[key].CopyFrom(
            configtx_pb2.ConfigValue(version=value.version, value=value.value, mod_policy=value.mod_policy)
        )
    for key, policy in sorted(group.policies.items()):
        made = configtx_pb2.ConfigPolicy(version=policy.version, mod_policy=policy.mod_policy)
        if policy.kind is not None:
            made.policy.CopyFrom(policies_pb2.Policy(type=policy.kind, value=policy.value))
        message.policies[key].CopyFrom(made)
    for key, child in sorted(group.groups.items()):
        message.groups[key].CopyFrom(encode_group(child))
    return message
