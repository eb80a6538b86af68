"""What is in a genesis block?  The smallest configuration that Fabric's own tools accept and ours works under.

Facts: fabric internal/configtxgen/encoder, sampleconfig and test-network/configtx.yaml (default policies), section
"minimal config". Consensus is named `etcdraft` with valid metadata whatever runs behind it: Fabric's tools know no
other, and refuse names of values that they do not know.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from fabric_protos.common import common_pb2, configtx_pb2, configuration_pb2, policies_pb2
from fabric_protos.orderer import configuration_pb2 as orderer_pb2
from fabric_protos.orderer.etcdraft import configuration_pb2 as raft_pb2
from fabric_protos.peer import configuration_pb2 as peer_pb2

from ledger.core.block import Block, Header
from ledger.core.channel_config import BLOCK_WIDTH
from ledger.core.hashing import data_hash
from ledger.core.identity import MspConfig
from ledger.core.names import BlockNumber
from ledger.core.policy.ast import ImplicitMetaPolicy, MetaRule
from ledger.core.policy.parse import parse_policy
from ledger.wire.block import encode_block
from ledger.wire.msp import encode_msp_config
from ledger.wire.policy import encode_config_policy

ADMINS = "Admins"
SNAPSHOT_INTERVAL_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class PeerOrganisation:
    """An application organisation."""

    name: str
    msp: MspConfig
    anchor_peers: tuple[tuple[str, int], ...] = ()
    policies: Mapping[str, str] = field(default_factory=dict)
    """Policy texts that replace the defaults."""


@dataclass(frozen=True, slots=True)
class OrdererOrganisation:
    """An organisation that runs orderers."""

    name: str
    msp: MspConfig
    endpoints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConsenterSpec:
    """One orderer process as Raft metadata names it."""

    host: str
    port: int
    tls_certificate: bytes
    """PEM; of its server and its client side."""


@dataclass(frozen=True, slots=True)
class GenesisSpec:
    """A channel to be created."""

    channel_id: str
    peers: tuple[PeerOrganisation, ...]
    orderers: tuple[OrdererOrganisation, ...]
    consenters: tuple[ConsenterSpec, ...]
    nonce: bytes
    """24 random bytes."""

    timestamp_s: int
    """Seconds since 1970."""

    max_message_count: int = 100
    absolute_max_bytes: int = 10 * 2**20
    preferred_max_bytes: int = 2 * 2**20
    batch_timeout_ms: int = 200
    channel_capability: str = "V2_0"
    application_capability: str = "V2_5"
    application_policies: Mapping[str, str] = field(default_factory=dict)
    """Further policies of `/Channel/Application`, as texts: `Checkpoint` for instance."""


def genesis_block(spec: GenesisSpec) -> bytes:
    """Make the genesis block of a channel.

    Args:
        spec: What is to be in it.

    Returns:
        The serialized `common.Block`; the same for the same spec, apart from the order of maps.
    """
    config = configtx_pb2.ConfigEnvelope(config=configtx_pb2.Config(channel_group=channel_group(spec)))
    nonce_hash = sha256(spec.nonce).hexdigest()
    channel_header = common_pb2.ChannelHeader(
        type=common_pb2.CONFIG, version=1, channel_id=spec.channel_id, tx_id=nonce_hash
    )
    channel_header.timestamp.seconds = spec.timestamp_s
    header = common_pb2.Header(
        channel_header=channel_header.SerializeToString(),
        signature_header=common_pb2.SignatureHeader(nonce=spec.nonce).SerializeToString(),
    )
    payload = common_pb2.Payload(header=header, data=config.SerializeToString(deterministic=True))
    envelope = bytes(common_pb2.Envelope(payload=payload.SerializeToString()).SerializeToString())
    last_config = common_pb2.LastConfig(index=0)
    slot_0 = common_pb2.Metadata(
        value=common_pb2.OrdererBlockMetadata(last_config=last_config).SerializeToString()
    ).SerializeToString()
    slot_1 = common_pb2.Metadata(value=last_config.SerializeToString()).SerializeToString()
    block = Block(Header(BlockNumber(0), b"", data_hash([envelope])), (envelope,), (slot_0, slot_1, b"", b"", b""))
    return encode_block(block)


def channel_group(spec: GenesisSpec) -> configtx_pb2.ConfigGroup:
    """Make the root group."""
    group = _group(
        {
            "HashingAlgorithm": configuration_pb2.HashingAlgorithm(name="SHA256"),
            "BlockDataHashingStructure": configuration_pb2.BlockDataHashingStructure(width=BLOCK_WIDTH),
            "Capabilities": _capabilities(spec.channel_capability),
        },
        _meta_policies(),
    )
    group.groups["Orderer"].CopyFrom(orderer_group(spec))
    group.groups["Application"].CopyFrom(application_group(spec))
    return group


def orderer_group(spec: GenesisSpec) -> configtx_pb2.ConfigGroup:
    """Make the Orderer group."""
    raft = raft_pb2.ConfigMetadata(
        consenters=[
            raft_pb2.Consenter(
                host=one.host, port=one.port, client_tls_cert=one.tls_certificate, server_tls_cert=one.tls_certificate
            )
            for one in spec.consenters
        ],
        options=raft_pb2.Options(
            tick_interval="500ms", election_tick=10, heartbeat_tick=1, max_inflight_blocks=5,
            snapshot_interval_size=SNAPSHOT_INTERVAL_BYTES,
        ),
    )  # fmt: skip
    group = _group(
        {
            "ConsensusType": orderer_pb2.ConsensusType(type="etcdraft", metadata=raft.SerializeToString()),
            "BatchSize": orderer_pb2.BatchSize(
                max_message_count=spec.max_message_count,
                absolute_max_bytes=spec.absolute_max_bytes,
                preferred_max_bytes=spec.preferred_max_bytes,
            ),
            "BatchTimeout": orderer_pb2.BatchTimeout(timeout=f"{spec.batch_timeout_ms}ms"),
            "ChannelRestrictions": orderer_pb2.ChannelRestrictions(),
            "Capabilities": _capabilities("V2_0"),
        },
        _meta_policies() | {"BlockValidation": _meta(MetaRule.ANY, "Writers")},
    )
    for org in spec.orderers:
        name = org.msp.msp_id
        texts = {"Readers": f"OR('{name}.member')", "Writers": f"OR('{name}.member')", ADMINS: f"OR('{name}.admin')"}
        values = {"Endpoints": configuration_pb2.OrdererAddresses(addresses=org.endpoints)}
        group.groups[org.name].CopyFrom(_organisation(org.msp, values, texts))
    return group


def application_group(spec: GenesisSpec) -> configtx_pb2.ConfigGroup:
    """Make the Application group."""
    group = _group(
        {"Capabilities": _capabilities(spec.application_capability)},
        _meta_policies()
        | {
            "Endorsement": _meta(MetaRule.MAJORITY, "Endorsement"),
            "LifecycleEndorsement": _meta(MetaRule.MAJORITY, "Endorsement"),
        }
        | {name: _text_policy(text) for name, text in spec.application_policies.items()},
    )
    for org in spec.peers:
        name = org.msp.msp_id
        texts = {
            "Readers": f"OR('{name}.admin', '{name}.peer', '{name}.client')",
            "Writers": f"OR('{name}.admin', '{name}.client')",
            ADMINS: f"OR('{name}.admin')",
            "Endorsement": f"OR('{name}.peer')",
        } | dict(org.policies)
        values = {}
        if org.anchor_peers:
            anchors = [peer_pb2.AnchorPeer(host=host, port=port) for host, port in org.anchor_peers]
            values["AnchorPeers"] = peer_pb2.AnchorPeers(anchor_peers=anchors)
        group.groups[org.name].CopyFrom(_organisation(org.msp, values, texts))
    return group


def _organisation(msp: MspConfig, values: Mapping[str, object], texts: Mapping[str, str]) -> configtx_pb2.ConfigGroup:
    group = _group(values, {name: _text_policy(text) for name, text in texts.items()})
    group.values["MSP"].CopyFrom(configtx_pb2.ConfigValue(value=encode_msp_config(msp), mod_policy=ADMINS))
    return group


def _group(values: Mapping[str, object], policies: Mapping[str, policies_pb2.Policy]) -> configtx_pb2.ConfigGroup:
    group = configtx_pb2.ConfigGroup(mod_policy=ADMINS)
    for name, value in values.items():
        data = value.SerializeToString(deterministic=True)  # type: ignore[attr-defined]  # A protobuf message.
        group.values[name].CopyFrom(configtx_pb2.ConfigValue(value=data, mod_policy=ADMINS))
    for name, policy in policies.items():
        group.policies[name].CopyFrom(configtx_pb2.ConfigPolicy(policy=policy, mod_policy=ADMINS))
    return group


def _capabilities(*names: str) -> configuration_pb2.Capabilities:
    return configuration_pb2.Capabilities(capabilities={name: configuration_pb2.Capability() for name in names})


def _meta(rule: MetaRule, sub_policy: str) -> policies_pb2.Policy:
    return encode_config_policy(ImplicitMetaPolicy(sub_policy, rule))


def _text_policy(text: str) -> policies_pb2.Policy:
    """Make a policy of its text: implicit ("MAJORITY Endorsement") or over principals."""
    rule, _, sub_policy = text.partition(" ")
    if rule in MetaRule.__members__ and sub_policy.isidentifier():
        return _meta(MetaRule[rule], sub_policy)
    return encode_config_policy(parse_policy(text))


def _meta_policies() -> dict[str, policies_pb2.Policy]:
    rules: Iterable[tuple[str, MetaRule]] = (
        ("Readers", MetaRule.ANY), ("Writers", MetaRule.ANY), (ADMINS, MetaRule.MAJORITY)
    )  # fmt: skip
    return {name: _meta(rule, name) for name, rule in rules}
