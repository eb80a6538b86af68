"""What is a policy?  Values of common/policies.proto, msp/msp_principal.proto and peer/policy.proto."""

from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """MSPRole.MSPRoleType."""

    MEMBER = 0
    ADMIN = 1
    CLIENT = 2
    PEER = 3
    ORDERER = 4


@dataclass(frozen=True, slots=True)
class RolePrincipal:
    """Anyone of an MSP with a role."""

    msp_id: str
    role: int
    """A `Role`; other numbers satisfy nobody."""


@dataclass(frozen=True, slots=True)
class UnitPrincipal:
    """Anyone of an MSP with an organisational unit certified by one CA."""

    msp_id: str
    unit: str
    certifiers: bytes
    """SHA-256 over the certifying chain, see `identity`; an empty one never matches."""


@dataclass(frozen=True, slots=True)
class IdentityPrincipal:
    """Exactly one certificate."""

    serialized: bytes
    """SerializedIdentity bytes."""


@dataclass(frozen=True, slots=True)
class AnonymityPrincipal:
    """Anyone whose anonymity is nominal (0) or anonymous (1)."""

    anonymity: int


@dataclass(frozen=True, slots=True)
class CombinedPrincipal:
    """All of several principals."""

    principals: "tuple[Principal, ...]"


@dataclass(frozen=True, slots=True)
class UnknownPrincipal:
    """A principal whose class or content is not understood; satisfied by nobody."""

    reason: str


Principal = (
    RolePrincipal | UnitPrincipal | IdentityPrincipal | AnonymityPrincipal | CombinedPrincipal | UnknownPrincipal
)


@dataclass(frozen=True, slots=True)
class SignedBy:
    """A leaf: a signature by the principal at `index` of the policy's list; outside it, nobody satisfies the policy."""

    index: int


@dataclass(frozen=True, slots=True)
class OutOf:
    """At least `n` of the `count` rules that follow in the sequence."""

    n: int
    count: int


@dataclass(frozen=True, slots=True)
class NoRule:
    """A rule message without content: never satisfied."""


Node = SignedBy | OutOf | NoRule


@dataclass(frozen=True, slots=True)
class SignaturePolicy:
    """SignaturePolicyEnvelope."""

    version: int

    rule: tuple[Node, ...]
    """The rule tree in preorder: flat, since Fabric allows thousands of levels and Python's stack does not."""

    principals: tuple[Principal, ...]


class MetaRule(IntEnum):
    """ImplicitMetaPolicy.Rule."""

    ANY = 0
    ALL = 1
    MAJORITY = 2


@dataclass(frozen=True, slots=True)
class ImplicitMetaPolicy:
    """A rule over the policies of one name in the direct child groups."""

    sub_policy: str
    rule: int


@dataclass(frozen=True, slots=True)
class PolicyReference:
    """An ApplicationPolicy that refers to a policy of the channel configuration."""

    path: str


ApplicationPolicy = SignaturePolicy | PolicyReference
"""What a chaincode or collection definition may name as its endorsement policy."""
