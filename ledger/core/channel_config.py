"""Which configuration is in force, and is it one that this node can work under?

The configuration of a channel is a tree of groups, values and policies (facts: common/configtx.proto). `wire.config`
decodes it; this module checks it by Fabric's rules (common/channelconfig) and answers from it: who belongs to the
channel, which policy holds at a path, how blocks are cut. One `Bundle` is one configuration; it never changes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledger.core.errors import InvalidConfig, PolicyNotSatisfied
from ledger.core.identity import Identity, Msp, MspConfig, MspManager
from ledger.core.policy.ast import ImplicitMetaPolicy, MetaRule, SignaturePolicy
from ledger.core.policy.evaluate import Members, SignedData, Signer, is_well_formed, satisfies, valid_identities

CHANNEL_ID = re.compile(r"[a-z][a-z0-9.-]{0,248}")
"""Form of a channel's name."""

CHANNEL_CAPABILITIES = frozenset({"V1_1", "V1_3", "V1_4_2", "V1_4_3", "V2_0", "V3_0"})
ORDERER_CAPABILITIES = frozenset({"V1_1", "V1_4_2", "V2_0"})
APPLICATION_CAPABILITIES = frozenset({"V1_1", "V1_2", "V1_3", "V1_4_2", "V2_0", "V2_5"})

ORGANISATION_VALUES = {
    "Orderer": frozenset({"MSP", "Endpoints"}),
    "Application": frozenset({"MSP", "AnchorPeers"}),
}
"""Values that an organisation's group may hold."""

VALUES = {
    "Orderer": frozenset(
        {
            "ConsensusType", "BatchSize", "BatchTimeout", "KafkaBrokers", "ChannelRestrictions", "Capabilities",
            "Orderers",
        }
    ),
    "Application": frozenset({"ACLs", "Capabilities"}),
}  # fmt: skip
"""Values that the two groups of a channel may hold."""

CHANNEL_VALUES = frozenset(
    {
        "HashingAlgorithm", "BlockDataHashingStructure", "OrdererAddresses", "Orderers", "Consortium", "Capabilities",
    }
)  # fmt: skip
"""Values that the channel's own group may hold."""

BLOCK_WIDTH = 2**32 - 1
"""The only width of BlockDataHashingStructure that is accepted."""

MSP_IDS_PATH = "/Channel"


@dataclass(frozen=True, slots=True)
class ConfigPolicy:
    """A policy element of the tree."""

    version: int
    mod_policy: str
    kind: int | None
    """`Policy.type`; None if the element holds no policy."""

    value: bytes


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value element of the tree."""

    version: int
    mod_policy: str
    value: bytes


@dataclass(frozen=True, slots=True)
class ConfigGroup:
    """A group element of the tree with what it holds."""

    version: int = 0
    mod_policy: str = ""
    groups: "Mapping[str, ConfigGroup]" = field(default_factory=dict)
    values: Mapping[str, ConfigValue] = field(default_factory=dict)
    policies: Mapping[str, ConfigPolicy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostPort:
    """A network address."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Organisation:
    """An organisation of the application or of the orderers."""

    name: str
    """Key of its group: a display name."""

    msp: MspConfig
    anchor_peers: tuple[HostPort, ...] = ()
    endpoints: tuple[str, ...] = ()
    """Addresses of its orderers, `host:port`."""

    @property
    def msp_id(self) -> str:
        """Name of its MSP, which is what identities carry."""
        return self.msp.msp_id

    @property
    def tls_roots(self) -> tuple[bytes, ...]:
        """Root certificates of its TLS certificates, PEM."""
        return self.msp.tls_root_certs


@dataclass(frozen=True, slots=True)
class BatchSize:
    """When the orderer cuts a block by size."""

    max_message_count: int
    absolute_max_bytes: int
    preferred_max_bytes: int


@dataclass(frozen=True, slots=True)
class Consenter:
    """One orderer of a byzantine fault tolerant ordering service."""

    id: int
    msp_id: str
    identity: bytes
    """Its certificate, PEM."""


@dataclass(frozen=True, slots=True)
class OrdererConfig:
    """The Orderer group."""

    consensus_type: str
    consensus_state: int
    batch_size: BatchSize
    batch_timeout_ms: int
    capabilities: frozenset[str]
    organisations: tuple[Organisation, ...]
    consenters: tuple[Consenter, ...] = ()


@dataclass(frozen=True, slots=True)
class ApplicationConfig:
    """The Application group."""

    capabilities: frozenset[str]
    organisations: tuple[Organisation, ...]
    acls: Mapping[str, str] = field(default_factory=dict)
    """Policy reference by resource."""


@dataclass(frozen=True, slots=True)
class ChannelConfig:
    """A configuration with its values decoded."""

    channel_id: str
    sequence: int
    tree: ConfigGroup
    capabilities: frozenset[str]
    orderer: OrdererConfig
    application: ApplicationConfig
    policies: Mapping[str, SignaturePolicy | ImplicitMetaPolicy]
    """Every policy by its absolute path, `/Channel/Application/Admins`."""

    hashing_algorithm: str
    block_width: int
    orderer_addresses: tuple[str, ...] | None = None
    """Global addresses; None without the value."""

    raw: bytes = b""
    """ConfigEnvelope as received."""


class Bundle:
    """One configuration in force.

    Args:
        config: The decoded configuration.
        msps: Its MSPs.

    Attributes:
        config: As given.
        msps: As given.
        cache: For whoever judges under this configuration: answers that hold as long as it does.
    """

    def __init__(self, config: ChannelConfig, msps: MspManager) -> None:
        """Check the policies and take the values.

        Raises:
            InvalidConfig: A policy can't be evaluated.
        """
        self.config = config
        self.msps = msps
        self.cache: dict[object, object] = {}
        for path, policy in config.policies.items():
            check_policy(path, policy)

    @property
    def channel_id(self) -> str:
        """Name of the channel."""
        return self.config.channel_id

    @property
    def sequence(self) -> int:
        """Sequence number of the configuration."""
        return self.config.sequence

    @property
    def raw(self) -> bytes:
        """The ConfigEnvelope as received."""
        return self.config.raw

    @property
    def application_capabilities(self) -> frozenset[str]:
        """Capabilities of the Application group."""
        return self.config.application.capabilities

    @property
    def channel_capabilities(self) -> frozenset[str]:
        """Capabilities of the channel."""
        return self.config.capabilities

    @property
    def orderer(self) -> OrdererConfig:
        """The Orderer group."""
        return self.config.orderer

    @property
    def application(self) -> ApplicationConfig:
        """The Application group."""
        return self.config.application

    def organisation_of(self, msp_id: str) -> Organisation | None:
        """Give the application organisation with an MSP ID."""
        return next((org for org in self.application.organisations if org.msp_id == msp_id), None)

    def has_policy(self, path: str) -> bool:
        """Tell whether there is a policy at an absolute path."""
        return path in self.config.policies

    def policy(self, path: str) -> SignaturePolicy | ImplicitMetaPolicy | None:
        """Give the policy at an absolute path."""
        return self.config.policies.get(path)

    def acl_path(self, resource: str, default: str) -> str:
        """Give the absolute path of the policy that guards a resource."""
        reference = self.application.acls.get(resource, default)
        return reference if reference.startswith("/") else f"/Channel/Application/{reference}"

    def evaluate(self, path: str, identities: Sequence[Identity]) -> bool:
        """Evaluate the policy at a path over ordered identities; a path without policy is satisfied by nobody."""
        return evaluate(self.config, path, identities, self.msps)

    def check(self, path: str, signed: Sequence[SignedData]) -> None:
        """Check that a set of signatures satisfies the policy at a path.

        Raises:
            PolicyNotSatisfied: It does not; the rule is the path.
        """
        identities = valid_identities(signed, self.msps)
        if not self.evaluate(path, identities):
            found = [f"{one.msp_id}:{one.certificate.common_name}" for one in identities]
            policy = self.config.policies.get(path)
            raise PolicyNotSatisfied(
                f"policy {path}",
                rule=path,
                expected=describe(policy) if policy else "a policy at this path",
                found=found,
            )


def evaluate(config: ChannelConfig, path: str, signers: Sequence[Signer], members: Members[Signer]) -> bool:
    """Evaluate the policy at a path over ordered signers; a path without policy is satisfied by nobody."""
    policy = config.policies.get(path)
    if policy is None:
        return False
    if isinstance(policy, SignaturePolicy):
        return satisfies(policy, signers, members)
    group = path.rpartition("/")[0]
    children = group_at(config.tree, group).groups
    satisfied = sum(evaluate(config, f"{group}/{child}/{policy.sub_policy}", signers, members) for child in children)
    if policy.rule not in tuple(MetaRule):
        return satisfied == 0  # Fabric counts down from 0 to exactly 0 for a rule that it does not know.
    return satisfied >= threshold(policy.rule, len(children))


def threshold(rule: int, count: int) -> int:
    """Give how many of `count` sub-policies an implicit-meta rule asks for."""
    if count == 0:
        return 0
    if rule == MetaRule.ANY:
        return 1
    return count if rule == MetaRule.ALL else count // 2 + 1


def describe(policy: SignaturePolicy | ImplicitMetaPolicy) -> str:
    """Name a policy in a message."""
    if isinstance(policy, ImplicitMetaPolicy):
        rule = MetaRule(policy.rule).name if policy.rule in tuple(MetaRule) else f"rule {policy.rule} over"
        return f"{rule} {policy.sub_policy}"
    return f"a signature policy over {len(policy.principals)} principals"


def group_at(tree: ConfigGroup, path: str) -> ConfigGroup:
    """Give the group at an absolute path that is known to exist."""
    group = tree
    for name in path.split("/")[2:]:
        group = group.groups[name]
    return group


def check_policy(path: str, policy: SignaturePolicy | ImplicitMetaPolicy) -> None:
    """Check that a policy of the configuration can be evaluated.

    Raises:
        InvalidConfig: It can't.
    """
    if isinstance(policy, ImplicitMetaPolicy):
        return
    if policy.version != 0:
        raise InvalidConfig(f"policy {path}", rule="policy version", expected=0, found=policy.version)
    if not is_well_formed(policy):
        raise InvalidConfig(
            f"policy {path}", rule="signature policy", expected="rules with content and known principals"
        )


def build_bundle(config: ChannelConfig, msps: Sequence[Msp], manager: MspManager) -> Bundle:
    """Check a decoded configuration as a peer does and make its bundle.

    Checks, in order: 1. name, groups and names of values; 2. capabilities; 3. values of the channel; 4. values of the
    orderer; 5. organisations.

    Raises:
        InvalidConfig: A rule is broken; it is named.
    """
    if not CHANNEL_ID.fullmatch(config.channel_id):
        raise InvalidConfig("channel config", rule="channel id", expected=CHANNEL_ID.pattern, found=config.channel_id)
    check_groups(config.tree)
    check_value_names(config.tree)
    check_capabilities(config)
    check_channel_values(config)
    check_orderer_values(config.orderer)
    check_organisations(config)
    return Bundle(config, manager)


def check_capabilities(config: ChannelConfig) -> None:
    """Check that this node knows every capability, and that they ask for rules as new as those it has (step 2)."""
    for part, found, known in (
        ("Channel", config.capabilities, CHANNEL_CAPABILITIES),
        ("Orderer", config.orderer.capabilities, ORDERER_CAPABILITIES),
        ("Application", config.application.capabilities, APPLICATION_CAPABILITIES),
    ):
        if unknown := found - known:
            raise InvalidConfig(
                f"{part} capabilities", rule="known capability", expected=sorted(known), found=sorted(unknown)
            )
    if "Capabilities" not in config.tree.groups["Orderer"].values:
        raise InvalidConfig(
            "Orderer capabilities", rule="orderer capabilities first", expected="a Capabilities value", found="none"
        )
    if not config.capabilities & {"V1_4_3", "V2_0", "V3_0"}:
        raise InvalidConfig(
            "Channel capabilities", rule="channel capability", expected="V1_4_3, V2_0 or V3_0",
            found=sorted(config.capabilities),
        )  # fmt: skip
    if not config.application.capabilities & {"V2_0", "V2_5"}:
        raise InvalidConfig(
            "Application capabilities", rule="application capability", expected="V2_0 or V2_5",
            found=sorted(config.application.capabilities),
        )  # fmt: skip


def check_groups(tree: ConfigGroup) -> None:
    """Check which groups there are (step 1)."""
    if extra := set(tree.groups) - {"Application", "Orderer", "Consortiums"}:
        raise InvalidConfig(
            "channel config", rule="channel groups", expected="Application, Orderer", found=sorted(extra)
        )
    if "Consortiums" in tree.groups:
        raise InvalidConfig("channel config", rule="channel groups", expected="no Consortiums", found="Consortiums")
    for name in ("Orderer", "Application"):
        if name not in tree.groups:
            raise InvalidConfig("channel config", rule="channel groups", expected=name, found=sorted(tree.groups))
        for org, group in tree.groups[name].groups.items():
            if group.groups:
                raise InvalidConfig(
                    f"organisation {org}", rule="sub-groups", expected="none", found=sorted(group.groups)
                )


def check_value_names(tree: ConfigGroup) -> None:
    """Check that no group holds a value that Fabric does not know there (step 1)."""
    check_known("Channel", tree, CHANNEL_VALUES)
    for part, known in VALUES.items():
        check_known(part, tree.groups[part], known)
        for name, group in tree.groups[part].groups.items():
            check_known(f"{part} organisation {name}", group, ORGANISATION_VALUES[part])


def check_known(subject: str, group: ConfigGroup, known: frozenset[str]) -> None:
    """Check the names of one group's values."""
    if unknown := set(group.values) - known:
        raise InvalidConfig(subject, rule="config value", expected=sorted(known), found=sorted(unknown))


def check_channel_values(config: ChannelConfig) -> None:
    """Check the values of the channel group (step 3)."""
    if config.hashing_algorithm not in ("SHA256", "SHA3_256"):
        raise InvalidConfig(
            "channel config", rule="HashingAlgorithm", expected="SHA256", found=config.hashing_algorithm
        )
    if config.block_width != BLOCK_WIDTH:
        raise InvalidConfig(
            "channel config", rule="BlockDataHashingStructure", expected=BLOCK_WIDTH, found=config.block_width
        )
    if "V3_0" in config.capabilities and config.orderer_addresses:
        raise InvalidConfig(
            "channel config", rule="OrdererAddresses", expected="none under V3_0", found="global addresses"
        )


def check_orderer_values(orderer: OrdererConfig) -> None:
    """Check the values of the orderer group (step 4)."""
    size = orderer.batch_size
    for name, value in (
        ("max_message_count", size.max_message_count),
        ("absolute_max_bytes", size.absolute_max_bytes),
        ("preferred_max_bytes", size.preferred_max_bytes),
    ):
        if value <= 0:
            raise InvalidConfig("orderer config", rule=f"BatchSize.{name}", expected="more than 0", found=value)
    if size.preferred_max_bytes > size.absolute_max_bytes:
        raise InvalidConfig(
            "orderer config", rule="BatchSize.preferred_max_bytes", expected=f"at most {size.absolute_max_bytes}",
            found=size.preferred_max_bytes,
        )  # fmt: skip
    if orderer.batch_timeout_ms <= 0:
        raise InvalidConfig(
            "orderer config", rule="BatchTimeout", expected="more than 0", found=orderer.batch_timeout_ms
        )


def check_organisations(config: ChannelConfig) -> None:
    """Check that one MSP ID means one MSP (step 5)."""
    seen: dict[str, MspConfig] = {}
    for org in (*config.orderer.organisations, *config.application.organisations):
        if seen.setdefault(org.msp_id, org.msp) != org.msp:
            raise InvalidConfig(
                f"organisation {org.name}", rule="MSP ID", expected="one MSP for an id", found=org.msp_id
            )
        if "V3_0" in config.capabilities and org in config.orderer.organisations and not org.endpoints:
            raise InvalidConfig(
                f"organisation {org.name}", rule="Endpoints", expected="at least one under V3_0", found=0
            )


def check_successor(current: ChannelConfig, following: ChannelConfig) -> None:
    """Check what may not change from one configuration to the next (fabric: channelconfig/bundle.go, ValidateNew).

    Raises:
        InvalidConfig: It did.
    """
    for part, before, after in (
        ("orderer", current.orderer.organisations, following.orderer.organisations),
        ("application", current.application.organisations, following.application.organisations),
    ):
        ids = {org.name: org.msp_id for org in before}
        for org in after:
            if ids.get(org.name, org.msp_id) != org.msp_id:
                raise InvalidConfig(
                    f"{part} organisation {org.name}", rule="MSP ID change", expected=ids[org.name], found=org.msp_id
                )
    old, new = current.orderer, following.orderer
    if old.consensus_type != new.consensus_type and not (old.consensus_state == new.consensus_state == 1):
        raise InvalidConfig(
            "orderer config", rule="consensus type change", expected=f"{old.consensus_type}, or maintenance state",
            found=new.consensus_type,
        )  # fmt: skip
