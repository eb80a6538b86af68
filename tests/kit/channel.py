"""A channel for tests: a genesis block, blocks signed by its orderer, and a ledger in memory that judges them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fabric_protos.common import common_pb2, configtx_pb2, configuration_pb2
from fabric_protos.orderer import configuration_pb2 as orderer_pb2
from fabric_protos.peer import collection_pb2
from fabric_protos.peer import configuration_pb2 as peer_pb2
from fabric_protos.peer.lifecycle import chaincode_definition_pb2, db_pb2

from ledger.core.block import Block, Header
from ledger.core.channel_config import Bundle, ConfigGroup, ConfigPolicy, ConfigValue
from ledger.core.errors import Fault
from ledger.core.hashing import data_hash, header_der
from ledger.core.names import BlockNumber, Verdict
from ledger.core.outcome import Outcome
from ledger.core.policy.ast import (
    ApplicationPolicy,
    ImplicitMetaPolicy,
    MetaRule,
    OutOf,
    PolicyReference,
    Role,
    RolePrincipal,
    SignaturePolicy,
    SignedBy,
)
from ledger.core.rwset import NamespaceSet, ReadWriteSet, Write
from ledger.wire.block import check_well_formed, envelope_type
from ledger.wire.codec import CODEC
from ledger.wire.config import bundle_from_block, bundle_from_envelope, encode_group, next_bundle
from ledger.wire.judging import make_transition
from ledger.wire.msp import encode_msp_config
from ledger.wire.policy import encode_application_policy, encode_config_policy, signature_policy_message
from tests.kit.memory_view import MemoryLedger
from tests.kit.organisations import Organisation, Signer, shared_organisation
from tests.kit.transactions import Draft, config_envelope

CHANNEL = "testchannel"
NOTHING = ReadWriteSet()
CHANNEL_DEFAULT = PolicyReference("/Channel/Application/Endorsement")


def out_of(n: int, *principals: tuple[str, Role]) -> SignaturePolicy:
    """The policy "n of these"."""
    leaves = tuple(SignedBy(index) for index in range(len(principals)))
    return SignaturePolicy(
        0, (OutOf(n, len(leaves)), *leaves), tuple(RolePrincipal(msp_id, role) for msp_id, role in principals)
    )


def any_peer(*msp_ids: str) -> SignaturePolicy:
    return out_of(1, *((each, Role.PEER) for each in msp_ids))


def all_peers(*msp_ids: str) -> SignaturePolicy:
    return out_of(len(msp_ids), *((each, Role.PEER) for each in msp_ids))


def config_policy(policy: SignaturePolicy | ImplicitMetaPolicy) -> ConfigPolicy:
    message = encode_config_policy(policy)
    return ConfigPolicy(0, "Admins", message.type, message.value)


def config_value(message: Any) -> ConfigValue:
    return ConfigValue(0, "Admins", message.SerializeToString(deterministic=True))


def meta(rule: MetaRule, name: str) -> ConfigPolicy:
    return config_policy(ImplicitMetaPolicy(name, rule))


def capabilities(*names: str) -> ConfigValue:
    message = configuration_pb2.Capabilities()
    for name in names:
        message.capabilities[name].SetInParent()
    return config_value(message)


def organisation_group(organisation: Organisation, *, is_orderer: bool = False, **changes: object) -> ConfigGroup:
    """An organisation's group, for either side."""
    msp_id = organisation.msp_id
    config = organisation.msp_config(**changes)
    member = out_of(1, (msp_id, Role.MEMBER))
    values = {"MSP": ConfigValue(0, "Admins", encode_msp_config(config))}
    if is_orderer:
        values["Endpoints"] = config_value(configuration_pb2.OrdererAddresses(addresses=["127.0.0.1:7050"]))
    return ConfigGroup(
        0,
        "Admins",
        {},
        values,
        {
            "Readers": config_policy(member),
            "Writers": config_policy(member),
            "Admins": config_policy(out_of(1, (msp_id, Role.ADMIN))),
            "Endorsement": config_policy(any_peer(msp_id)),
        },
    )


def channel_tree(
    organisations: Sequence[Organisation], orderer: Organisation, *, channel: str, application: str
) -> ConfigGroup:
    """The configuration of a channel."""
    standard = {
        "Readers": meta(MetaRule.ANY, "Readers"),
        "Writers": meta(MetaRule.ANY, "Writers"),
        "Admins": meta(MetaRule.MAJORITY, "Admins"),
    }
    orderer_values = {
        "ConsensusType": config_value(orderer_pb2.ConsensusType(type="etcdraft")),
        "BatchSize": config_value(
            orderer_pb2.BatchSize(max_message_count=10, absolute_max_bytes=10**8, preferred_max_bytes=2**19)
        ),
        "BatchTimeout": config_value(orderer_pb2.BatchTimeout(timeout="2s")),
        "Capabilities": capabilities("V2_0"),
    }
    orderers = ConfigGroup(
        0,
        "Admins",
        {"OrdererOrg": organisation_group(orderer, is_orderer=True)},
        orderer_values,
        {**standard, "BlockValidation": meta(MetaRule.ANY, "Writers")},
    )
    endorsement = meta(MetaRule.MAJORITY, "Endorsement")
    applications = ConfigGroup(
        0,
        "Admins",
        {each.msp_id.removesuffix("MSP"): organisation_group(each) for each in organisations},
        {"Capabilities": capabilities(application), "ACLs": config_value(peer_pb2.ACLs())},
        {**standard, "Endorsement": endorsement, "LifecycleEndorsement": endorsement},
    )
    return ConfigGroup(
        0,
        "Admins",
        {"Orderer": orderers, "Application": applications},
        {
            "HashingAlgorithm": config_value(configuration_pb2.HashingAlgorithm(name="SHA256")),
            "BlockDataHashingStructure": config_value(configuration_pb2.BlockDataHashingStructure(width=2**32 - 1)),
            "Capabilities": capabilities(channel),
        },
        standard,
    )


def genesis_of(tree: ConfigGroup, channel_id: str = CHANNEL) -> Block:
    """A genesis block as configtxgen makes it."""
    config = configtx_pb2.ConfigEnvelope(config=configtx_pb2.Config(channel_group=encode_group(tree)))
    header = common_pb2.Header(
        channel_header=common_pb2.ChannelHeader(type=1, version=1, channel_id=channel_id).SerializeToString(),
        signature_header=common_pb2.SignatureHeader(nonce=bytes(24)).SerializeToString(),
    )
    payload = common_pb2.Payload(header=header, data=config.SerializeToString(deterministic=True))
    envelope = common_pb2.Envelope(payload=payload.SerializeToString()).SerializeToString()
    slot = common_pb2.Metadata(
        value=common_pb2.OrdererBlockMetadata(last_config=common_pb2.LastConfig()).SerializeToString()
    )
    return Block(
        Header(BlockNumber(0), b"", data_hash([envelope])), (envelope,), (slot.SerializeToString(), b"", b"", b"", b"")
    )


@dataclass(frozen=True)
class TestCollection:
    """A collection for a definition."""

    __test__ = False

    name: str
    block_to_live: int = 0
    policy: ApplicationPolicy | None = None
    members: tuple[str, ...] = ("Org1MSP", "Org2MSP")

    def message(self) -> Any:
        static = collection_pb2.StaticCollectionConfig(
            name=self.name,
            block_to_live=self.block_to_live,
            member_orgs_policy=collection_pb2.CollectionPolicyConfig(
                signature_policy=signature_policy_message(out_of(1, *((each, Role.MEMBER) for each in self.members)))
            ),
        )
        if self.policy is not None:
            static.endorsement_policy.ParseFromString(encode_application_policy(self.policy))
        return collection_pb2.CollectionConfig(static_collection_config=static)


def state_data(**content: Any) -> bytes:
    return bytes(db_pb2.StateData(**content).SerializeToString())


def definition_fields(
    *,
    sequence: int = 1,
    policy: ApplicationPolicy | bytes = CHANNEL_DEFAULT,
    collections: Sequence[TestCollection] = (),
    plugin: str = "vscc",
) -> dict[str, bytes]:
    """The entries of a definition by the end of their key, as `_lifecycle` stores them."""
    parameter = policy if isinstance(policy, bytes) else encode_application_policy(policy)
    validation = chaincode_definition_pb2.ChaincodeValidationInfo(
        validation_plugin=plugin, validation_parameter=parameter
    )
    endorsement = chaincode_definition_pb2.ChaincodeEndorsementInfo(version="1.0", endorsement_plugin="escc")
    package = collection_pb2.CollectionConfigPackage(config=[each.message() for each in collections])
    names = ["Sequence", "EndorsementInfo", "ValidationInfo", "Collections"]
    return {
        "Sequence": state_data(Int64=sequence),
        "EndorsementInfo": state_data(Bytes=endorsement.SerializeToString()),
        "ValidationInfo": state_data(Bytes=validation.SerializeToString()),
        "Collections": state_data(Bytes=package.SerializeToString()),
        "metadata": db_pb2.StateMetadata(datatype="ChaincodeDefinition", fields=names).SerializeToString(),
    }


def definition_writes(name: str, fields: Mapping[str, bytes]) -> ReadWriteSet:
    """The set that commits a definition, as forged by two peers."""
    keys = {
        f"namespaces/metadata/{name}" if field == "metadata" else f"namespaces/fields/{name}/{field}": value
        for field, value in fields.items()
    }
    return ReadWriteSet((NamespaceSet("_lifecycle", writes=tuple(Write(key, keys[key]) for key in sorted(keys))),))


class Channel:
    """A channel of two organisations and an orderer, with its ledger in memory."""

    def __init__(
        self,
        organisations: Sequence[Organisation] = (),
        *,
        application: str = "V2_0",
        channel: str = "V2_0",
        tree: ConfigGroup | None = None,
    ) -> None:
        self.organisations = tuple(organisations) or (shared_organisation("Org1MSP"), shared_organisation("Org2MSP"))
        self.orderer_organisation = shared_organisation("OrdererMSP")
        self.orderer = self.orderer_organisation.issue("orderer0", "orderer")
        self.tree = tree or channel_tree(
            self.organisations, self.orderer_organisation, channel=channel, application=application
        )
        self.genesis = genesis_of(self.tree)
        self.bundle: Bundle = bundle_from_block(self.genesis, CODEC)
        self.transition = make_transition(CODEC, lambda bundle, config: next_bundle(bundle, config, CODEC))
        self.ledger = MemoryLedger()
        self.last_config = 0
        self.commit_block(self.genesis)

    @property
    def peers(self) -> tuple[Signer, ...]:
        return tuple(each.peer for each in self.organisations)

    @property
    def client(self) -> Signer:
        return self.organisations[0].client

    def draft(self, results: ReadWriteSet | bytes = NOTHING, chaincode: str = "asset", **parts: Any) -> Draft:
        """A transaction endorsed by all organisations' peers."""
        base = Draft(CHANNEL, self.client, self.peers, results, chaincode)
        return replace(base, **parts)

    def block(self, *envelopes: bytes) -> Block:
        """The next block, signed by the orderer."""
        number, previous = BlockNumber(self.ledger.height), self.ledger.block_hash
        digest = data_hash(envelopes)
        is_config = len(envelopes) == 1 and envelope_type(envelopes[0]) == common_pb2.CONFIG
        last_config = common_pb2.LastConfig(index=number if is_config else self.last_config)
        value = common_pb2.OrdererBlockMetadata(last_config=last_config).SerializeToString()
        header = common_pb2.SignatureHeader(creator=self.orderer.serialized, nonce=b"nonce").SerializeToString()
        signature = self.orderer.sign(value + header + header_der(number, previous, digest))
        slot = common_pb2.Metadata(
            value=value, signatures=[common_pb2.MetadataSignature(signature_header=header, signature=signature)]
        )
        return Block(Header(number, previous, digest), envelopes, (slot.SerializeToString(), b"", b"", b"", b""))

    def judge(self, block: Block) -> Outcome:
        """Judge a block without committing it."""
        return self.transition.judge(self.transition.prepare(block, self.bundle), self.ledger, self.bundle)

    def commit_block(self, block: Block) -> Outcome:
        """Judge and commit a block."""
        check_well_formed(block)
        outcome = self.judge(block)
        self.ledger.apply(outcome)
        if outcome.is_config:
            (config,) = [entry.value for entry in outcome.updates.values() if entry is not None]
            self.bundle = bundle_from_envelope(config, CODEC, CHANNEL)
            self.last_config = block.number
        return outcome

    def commit(self, *drafts: Draft | bytes) -> Outcome:
        """Judge and commit a block of transactions."""
        envelopes = [each if isinstance(each, bytes) else each.envelope() for each in drafts]
        return self.commit_block(self.block(*envelopes))

    def verdicts(self, *drafts: Draft | bytes) -> list[Verdict]:
        """Commit a block and give its verdicts."""
        return [Verdict(each) for each in self.commit(*drafts).verdicts]

    def fault(self, draft: Draft | bytes) -> Fault | None:
        """Commit a block of one transaction and give its fault."""
        return dict(self.commit(draft).faults).get(0)  # type: ignore[call-overload, no-any-return]

    def define(self, name: str = "asset", **definition: Any) -> "Channel":
        """Commit a chaincode definition."""
        results = definition_writes(name, definition_fields(**definition))
        assert self.verdicts(self.draft(results, "_lifecycle")) == [Verdict.VALID]
        return self

    def config_block(self, tree: ConfigGroup) -> Block:
        """The next block with a configuration whose tree is given, without the update that leads to it."""
        config = configtx_pb2.ConfigEnvelope(
            config=configtx_pb2.Config(sequence=self.bundle.sequence + 1, channel_group=encode_group(tree))
        )
        return self.block(config_envelope(CHANNEL, self.orderer, config.SerializeToString(deterministic=True)))


__all__ = [
    "CHANNEL",
    "Channel",
    "TestCollection",
    "all_peers",
    "any_peer",
    "definition_fields",
    "definition_writes",
    "out_of",
]
