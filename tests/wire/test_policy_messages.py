"""Policies on the wire: nesting to Go's limit, fields that come twice, and principals in principals."""

import time

import pytest
from fabric_protos.common import policies_pb2
from fabric_protos.msp import msp_principal_pb2
from fabric_protos.peer import policy_pb2

from ledger.core.encoding import uvarint
from ledger.core.errors import MalformedMessage
from ledger.core.policy.ast import (
    AnonymityPrincipal,
    CombinedPrincipal,
    IdentityPrincipal,
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
from ledger.core.policy.evaluate import satisfies
from ledger.wire.policy import decode_application_policy, decode_signature_policy


def field(number: int, content: bytes) -> bytes:
    return uvarint(number << 3 | 2) + uvarint(len(content)) + content


def number(field_number: int, value: int) -> bytes:
    return uvarint(field_number << 3) + uvarint(value)


LEAF = number(1, 0)
GATE_WITHOUT_RULES = field(2, b"")


def nested(levels: int, innermost: bytes = LEAF) -> bytes:
    """A rule of so many gates in each other, "one of one" each, around the innermost rule."""
    rule = innermost
    for _ in range(levels):
        rule = field(2, number(1, 1) + field(2, rule))
    return rule


class Everyone:
    def satisfies(self, identity: str, principal: Principal, /) -> bool:
        return True


PRINCIPAL = field(3, b"")


@pytest.mark.parametrize(
    ("rule", "messages"),
    [
        (nested(4999), 10_000),
        (nested(4998, GATE_WITHOUT_RULES), 9_999),
        (nested(4999, GATE_WITHOUT_RULES), 10_001),
        (nested(5000), 10_002),
    ],
    ids=["10,000", "9,999", "10,001", "10,002"],
)
def test_policies_nest_ten_thousand_messages_deep_the_outermost_counted(rule: bytes, messages: int) -> None:
    data = field(2, rule) + PRINCIPAL
    if messages > 10_000:
        with pytest.raises(MalformedMessage) as refusal:
            decode_signature_policy(data)
        assert refusal.value.rule == "nesting depth"
        return
    policy = decode_signature_policy(data)
    assert satisfies(policy, ["anyone"], Everyone())
    assert satisfies(policy, [], Everyone()) is rule.endswith(GATE_WITHOUT_RULES)  # Zero of no rules always holds.


def test_in_an_application_policy_one_message_less_may_nest() -> None:
    assert isinstance(decode_application_policy(field(1, field(2, nested(4998)) + PRINCIPAL)), SignaturePolicy)
    deepest = field(2, nested(4998, GATE_WITHOUT_RULES))
    assert isinstance(decode_application_policy(field(1, deepest)), SignaturePolicy)
    with pytest.raises(MalformedMessage) as refusal:
        decode_application_policy(field(1, field(2, nested(4999)) + PRINCIPAL))
    assert refusal.value.rule == "nesting depth"


def test_a_long_policy_takes_time_by_its_length_only() -> None:
    """Goal: no work grows faster than the bytes.  Method: many rules side by side, and one of many merged parts."""
    wide = field(2, field(2, number(1, 0) + field(2, LEAF) * 20_000)) + PRINCIPAL
    merged = field(2, field(2, b"")) * 10_000 + PRINCIPAL
    started = time.process_time()
    assert len(decode_signature_policy(wide).rule) == 20_001
    assert decode_signature_policy(merged).rule == (OutOf(0, 0),)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", (NoRule(),)),
        (field(2, b""), (NoRule(),)),
        (field(2, LEAF), (SignedBy(0),)),
        (field(2, number(1, 2**64 - 1)), (SignedBy(-1),)),
        (field(2, number(1, 2**32 + 3)), (SignedBy(3),)),
        (field(2, GATE_WITHOUT_RULES), (OutOf(0, 0),)),
        (field(2, field(2, number(1, 2**64 - 2))), (OutOf(-2, 0),)),
        (field(2, LEAF + GATE_WITHOUT_RULES), (OutOf(0, 0),)),
        (field(2, GATE_WITHOUT_RULES + LEAF), (SignedBy(0),)),
        (
            field(2, field(2, number(1, 1) + field(2, LEAF)) + field(2, field(2, LEAF))),
            (OutOf(1, 2), SignedBy(0), SignedBy(0)),
        ),
        (field(2, field(2, field(2, LEAF))) + field(2, field(2, number(1, 1))), (OutOf(1, 1), SignedBy(0))),
        (field(2, field(2, field(2, LEAF)) + LEAF + field(2, number(1, 1))), (OutOf(1, 0),)),
        (field(2, number(1, 1) + number(1, 2)), (SignedBy(2),)),
        (field(2, field(1, b"text") + LEAF), (SignedBy(0),)),
        (field(9, b"unknown") + b"\x4b\x08\x01\x4c" + field(2, LEAF), (SignedBy(0),)),
    ],
)
def test_fields_that_come_twice_or_as_another_type_mean_what_they_mean_to_go(
    data: bytes, rule: tuple[object, ...]
) -> None:
    assert decode_signature_policy(data).rule == rule


def test_shallow_policies_are_read_as_the_library_reads_them() -> None:
    """Goal: our own decoder is no dialect.  Method: compare with the library where that can follow."""
    leaf = policies_pb2.SignaturePolicy(signed_by=1)
    gate = policies_pb2.SignaturePolicy(n_out_of=policies_pb2.SignaturePolicy.NOutOf(n=2, rules=[leaf, leaf]))
    outer = policies_pb2.SignaturePolicy(n_out_of=policies_pb2.SignaturePolicy.NOutOf(n=1, rules=[gate, leaf]))
    data = policies_pb2.SignaturePolicyEnvelope(version=3, rule=outer).SerializeToString()
    expected = (OutOf(1, 2), OutOf(2, 2), SignedBy(1), SignedBy(1), SignedBy(1))
    assert decode_signature_policy(data) == SignaturePolicy(3, expected, ())


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"\x12", "truncated varint"),
        (field(2, LEAF)[:-1], "truncated field"),
        (field(2, b"\x08" + b"\x80" * 9 + b"\x02"), "varint of more than 64 bits"),
        (b"\x00\x00", "field number"),
        (b"\x0f", "wire type"),
        (b"\x0c", "wire type"),
        (b"\x0b\x14", "group end"),
        (field(3, b"\xff"), "truncated varint"),
    ],
)
def test_bytes_that_are_no_policy_are_refused(data: bytes, rule: str) -> None:
    with pytest.raises(MalformedMessage) as refusal:
        decode_signature_policy(data)
    assert refusal.value.rule == rule


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (field(2, b"/Channel/x"), PolicyReference("/Channel/x")),
        (field(2, b""), PolicyReference("")),
        (field(1, field(2, LEAF)) + field(2, b"ref"), PolicyReference("ref")),
        (field(2, b"ref") + field(1, field(2, LEAF)), SignaturePolicy(0, (SignedBy(0),), ())),
        (field(1, number(1, 5)) + field(1, field(2, LEAF)), SignaturePolicy(5, (SignedBy(0),), ())),
        (
            field(1, number(1, 5)) + field(2, b"ref") + field(1, field(2, LEAF)),
            SignaturePolicy(0, (SignedBy(0),), ()),
        ),
    ],
)
def test_the_last_kind_of_application_policy_counts_and_equal_kinds_are_merged(data: bytes, expected: object) -> None:
    assert decode_application_policy(data) == expected
    found = policy_pb2.ApplicationPolicy.FromString(data).WhichOneof("Type")
    assert (found == "signature_policy") is isinstance(expected, SignaturePolicy)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        field(2, b"\xff"),
        field(1, b"\xff"),
        field(1, b"\xff") + field(2, b"ref"),
        field(2, b"\xff") + field(2, b"r"),
    ],
)
def test_an_application_policy_decodes_whole_or_not_at_all(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_application_policy(data)


# -- principals


def principal(classification: int, content: bytes) -> bytes:
    return bytes(
        msp_principal_pb2.MSPPrincipal(principal_classification=classification, principal=content).SerializeToString()
    )


ROLE = msp_principal_pb2.MSPRole(msp_identifier="A", role=3).SerializeToString()
UNIT = msp_principal_pb2.OrganizationUnit(
    msp_identifier="A", organizational_unit_identifier="u", certifiers_identifier=b"c"
).SerializeToString()
NOMINAL = principal(3, b"")


def combined(*inner: bytes) -> bytes:
    return b"".join(field(1, each) for each in inner)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (principal(0, ROLE), RolePrincipal("A", 3)),
        (principal(0, b""), RolePrincipal("", 0)),
        (principal(1, UNIT), UnitPrincipal("A", "u", b"c")),
        (principal(2, b"anything"), IdentityPrincipal(b"anything")),
        (NOMINAL, AnonymityPrincipal(0)),
        (
            principal(4, combined(principal(0, ROLE), NOMINAL)),
            CombinedPrincipal((RolePrincipal("A", 3), AnonymityPrincipal(0))),
        ),
        (principal(4, combined(principal(4, combined(NOMINAL)))), CombinedPrincipal((AnonymityPrincipal(0),))),
        (principal(4, combined(b"")), CombinedPrincipal((RolePrincipal("", 0),))),
    ],
)
def test_principals_are_read_to_what_they_name(data: bytes, expected: Principal) -> None:
    assert decode_signature_policy(field(3, data)).principals == (expected,)


@pytest.mark.parametrize(
    "data",
    [
        principal(0, b"\xff"),
        principal(0, field(1, b"\xff")),
        principal(9, b""),
        principal(4, b""),
        principal(4, combined(principal(4, b""))),
        principal(4, combined(NOMINAL, principal(9, b""))),
        principal(4, b"\xff"),
    ],
)
def test_a_principal_that_is_not_understood_stays_in_its_place_and_satisfies_nobody(data: bytes) -> None:
    first, second = decode_signature_policy(field(3, data) + field(3, NOMINAL)).principals
    unknown = first.principals if isinstance(first, CombinedPrincipal) else (first,)
    assert any(isinstance(each, UnknownPrincipal) for each in unknown)
    assert second == AnonymityPrincipal(0)


def test_principals_nest_as_deep_as_there_are_bytes() -> None:
    """Goal: no stack and no time to break.  Method: ten thousand combined principals in each other."""
    inner = NOMINAL
    for _ in range(10_000):
        inner = b"\x08\x04" + field(2, field(1, inner))
    started = time.process_time()
    assert decode_signature_policy(field(3, inner)).principals == (CombinedPrincipal((AnonymityPrincipal(0),)),)
    assert time.process_time() - started < 5
