"""Which policy do these bytes hold?  SignaturePolicyEnvelope and ApplicationPolicy, to any depth Go decodes.

The rule tree may nest 10,000 messages deep (the outermost counted), so it is decoded with a stack of its own and comes
out flat, in preorder. As in every protobuf decoder a field that comes twice is the last one, a message that comes twice
is merged, a field of another wire type is unknown, unknown fields are passed over.
"""

from dataclasses import dataclass, field

from fabric_protos.common import policies_pb2
from fabric_protos.msp import msp_principal_pb2
from fabric_protos.peer import policy_pb2

from ledger.core.errors import MalformedMessage
from ledger.core.policy.ast import (
    AnonymityPrincipal,
    ApplicationPolicy,
    CombinedPrincipal,
    IdentityPrincipal,
    ImplicitMetaPolicy,
    Node,
    NoRule,
    OutOf,
    PolicyReference,
    Principal,
    RolePrincipal,
    SignaturePolicy,
    SignedBy,
    UnitPrincipal,
    UnknownPrincipal,
)
from ledger.wire.messages import parse
from ledger.wire.protowire import BYTES, DEPTH_MAX, VARINT, fields, int32, malformed, text

SUBJECT = "SignaturePolicyEnvelope"

ROLE, ORGANIZATION_UNIT, IDENTITY, ANONYMITY, COMBINED = range(5)
"""MSPPrincipal.Classification."""


@dataclass(slots=True)
class _Rule:
    """A SignaturePolicy message under construction."""

    signed_by: int | None = None
    out_of: bool = False
    n: int = 0
    rules: "list[_Rule]" = field(default_factory=list)


def decode_signature_policy(data: bytes) -> SignaturePolicy:
    """Decode SignaturePolicyEnvelope.

    Raises:
        MalformedMessage: Go would not decode it either.
    """
    return _envelope(data, [(0, len(data))], 1)


def decode_application_policy(data: bytes) -> ApplicationPolicy:
    """Decode ApplicationPolicy.

    Raises:
        MalformedMessage: It does not decode, or names no policy.
    """
    subject = "ApplicationPolicy"
    envelopes: list[tuple[int, int]] = []
    reference: str | None = None
    for found in fields(data, 0, len(data), subject):
        if found.wire_type != BYTES:
            continue
        if found.number == 1:
            envelopes.append((found.value, found.end))
            reference = None
        elif found.number == 2:
            reference = text(data, found, subject)
            _envelope(data, envelopes, 2)  # It does not count any more, but has to decode.
            envelopes.clear()
    if reference is not None:
        return PolicyReference(reference)
    if not envelopes:
        raise malformed(subject, "no policy")
    return _envelope(data, envelopes, 2)


def _envelope(data: bytes, parts: list[tuple[int, int]], depth: int) -> SignaturePolicy:
    """Decode one SignaturePolicyEnvelope that came in one or several parts, `depth` messages down."""
    version = 0
    root: _Rule | None = None
    principals: list[Principal] = []
    for start, end in parts:
        for found in fields(data, start, end, SUBJECT):
            if found.number == 1 and found.wire_type == VARINT:
                version = int32(found.value)
            elif found.number == 2 and found.wire_type == BYTES:
                root = root or _Rule()
                _decode_rule(data, found.value, found.end, root, depth + 1)
            elif found.number == 3 and found.wire_type == BYTES:
                principals.append(_principal_at(data, found.value, found.end))
    return SignaturePolicy(version, flatten(root), tuple(principals))


def _decode_rule(data: bytes, start: int, end: int, root: _Rule, depth: int) -> None:
    """Decode a SignaturePolicy message into `root`, depth first with a stack of iterators."""
    stack = [(fields(data, start, end, SUBJECT), root, True, depth)]
    if depth > DEPTH_MAX:
        raise malformed(SUBJECT, "nesting depth", depth)
    while stack:
        iterator, rule, is_rule, level = stack[-1]
        found = next(iterator, None)
        if found is None:
            stack.pop()
            continue
        if is_rule and found.number == 1 and found.wire_type == VARINT:
            rule.signed_by, rule.out_of, rule.n, rule.rules = int32(found.value), False, 0, []
        elif is_rule and found.number == 2 and found.wire_type == BYTES:
            rule.signed_by, rule.out_of = None, True
            stack.append((fields(data, found.value, found.end, SUBJECT), rule, False, level + 1))
        elif not is_rule and found.number == 1 and found.wire_type == VARINT:
            rule.n = int32(found.value)
        elif not is_rule and found.number == 2 and found.wire_type == BYTES:
            child = _Rule()
            rule.rules.append(child)
            stack.append((fields(data, found.value, found.end, SUBJECT), child, True, level + 1))
        if stack[-1][3] > DEPTH_MAX:
            raise malformed(SUBJECT, "nesting depth", stack[-1][3])


def flatten(root: _Rule | None) -> tuple[Node, ...]:
    """Write a rule tree in preorder, and take it apart on the way so that no deep chain of objects is left."""
    if root is None:
        return (NoRule(),)
    nodes: list[Node] = []
    stack = [root]
    while stack:
        rule = stack.pop()
        if rule.out_of:
            nodes.append(OutOf(rule.n, len(rule.rules)))
            stack.extend(reversed(rule.rules))
            rule.rules = []
        elif rule.signed_by is not None:
            nodes.append(SignedBy(rule.signed_by))
        else:
            nodes.append(NoRule())
    return tuple(nodes)


def _principal_at(data: bytes, start: int, end: int) -> Principal:
    classification, low, high = _principal_fields(data, start, end)
    return decode_principal(classification, data[low:high])


def _principal_fields(data: bytes, start: int, end: int) -> tuple[int, int, int]:
    """Read an MSPPrincipal: its class, and where its content begins and ends."""
    classification, low, high = 0, start, start
    for found in fields(data, start, end, "MSPPrincipal"):
        if found.number == 1 and found.wire_type == VARINT:
            classification = int32(found.value)
        elif found.number == 2 and found.wire_type == BYTES:
            low, high = found.value, found.end
    return classification, low, high


def decode_principal(classification: int, content: bytes) -> Principal:
    """Decode the content of an MSPPrincipal; what is not understood becomes a principal that nobody satisfies."""
    try:
        if classification == COMBINED:
            return _combined(content)
        return _plain_principal(classification, content)
    except MalformedMessage as error:
        return UnknownPrincipal(str(error))


def _plain_principal(classification: int, content: bytes) -> Principal:
    if classification == ROLE:
        role = parse(msp_principal_pb2.MSPRole, content, "MSPRole")
        return RolePrincipal(role.msp_identifier, role.role)
    if classification == ORGANIZATION_UNIT:
        unit = parse(msp_principal_pb2.OrganizationUnit, content, "OrganizationUnit")
        return UnitPrincipal(unit.msp_identifier, unit.organizational_unit_identifier, unit.certifiers_identifier)
    if classification == IDENTITY:
        return IdentityPrincipal(content)
    if classification == ANONYMITY:
        anonymity = parse(msp_principal_pb2.MSPIdentityAnonymity, content, "MSPIdentityAnonymity")
        return AnonymityPrincipal(anonymity.anonymity_type)
    return UnknownPrincipal(f"principal class {classification}")


def _combined(content: bytes) -> Principal:
    """Decode CombinedPrincipal with those inside it, flat: all of all of them have to hold.

    They may nest as deep as there are bytes, so that copying each one's content would take for ever.
    """
    flat: list[Principal] = []
    waiting = [(0, len(content))]
    while waiting:
        start, end = waiting.pop()
        inside = [
            each
            for each in fields(content, start, end, "CombinedPrincipal")
            if (each.number, each.wire_type) == (1, BYTES)
        ]
        if not inside:
            return UnknownPrincipal("no principals in a combined one")
        for each in inside:
            classification, low, high = _principal_fields(content, each.value, each.end)
            if classification == COMBINED:
                waiting.append((low, high))
            else:
                flat.append(_plain_principal(classification, content[low:high]))
    return CombinedPrincipal(tuple(flat))


# -- writing


def encode_principal(principal: Principal) -> msp_principal_pb2.MSPPrincipal:
    """Make the message of a role principal (the only one that policy texts can name)."""
    assert isinstance(principal, RolePrincipal), "policy texts name roles only"
    role = msp_principal_pb2.MSPRole(msp_identifier=principal.msp_id, role=principal.role)
    return msp_principal_pb2.MSPPrincipal(principal_classification=ROLE, principal=role.SerializeToString())


def encode_signature_policy(policy: SignaturePolicy) -> bytes:
    """Encode a policy as SignaturePolicyEnvelope."""
    return bytes(signature_policy_message(policy).SerializeToString())


def signature_policy_message(policy: SignaturePolicy) -> policies_pb2.SignaturePolicyEnvelope:
    """Make the message of a policy."""
    waiting: list[tuple[int, int, list[policies_pb2.SignaturePolicy]]] = []
    done: policies_pb2.SignaturePolicy | None = None
    for node in policy.rule:
        assert not isinstance(node, NoRule), "an empty rule is not written"
        if isinstance(node, OutOf) and node.count:
            waiting.append((node.n, node.count, []))
            continue
        done = (
            policies_pb2.SignaturePolicy(signed_by=node.index)
            if isinstance(node, SignedBy)
            else policies_pb2.SignaturePolicy(n_out_of=policies_pb2.SignaturePolicy.NOutOf(n=node.n))
        )
        while waiting:
            n, count, rules = waiting[-1]
            rules.append(done)
            if len(rules) < count:
                break
            waiting.pop()
            done = policies_pb2.SignaturePolicy(n_out_of=policies_pb2.SignaturePolicy.NOutOf(n=n, rules=rules))
    return policies_pb2.SignaturePolicyEnvelope(
        version=policy.version, rule=done, identities=[encode_principal(principal) for principal in policy.principals]
    )


def encode_application_policy(policy: ApplicationPolicy) -> bytes:
    """Encode a policy or reference as ApplicationPolicy."""
    if isinstance(policy, PolicyReference):
        return bytes(policy_pb2.ApplicationPolicy(channel_config_policy_reference=policy.path).SerializeToString())
    return bytes(policy_pb2.ApplicationPolicy(signature_policy=signature_policy_message(policy)).SerializeToString())


def encode_config_policy(policy: SignaturePolicy | ImplicitMetaPolicy) -> policies_pb2.Policy:
    """Make the `common.Policy` message that stands in a channel configuration."""
    if isinstance(policy, SignaturePolicy):
        return policies_pb2.Policy(type=1, value=encode_signature_policy(policy))
    meta = policies_pb2.ImplicitMetaPolicy(sub_policy=policy.sub_policy, rule=policy.rule)
    return policies_pb2.Policy(type=3, value=meta.SerializeToString())
