"""Who is a member of which organisation: chains, roles, revocation and set-up of MSPs, each with its rule."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha3_256, sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from ledger.core.certificates import parse_pem, sanitised
from ledger.core.der import SEQUENCE, Cursor
from ledger.core.errors import InvalidConfig, InvalidIdentity
from ledger.core.identity import Identity, Msp, MspConfig, MspManager, UnitIdentifier
from ledger.core.pem import first_block
from ledger.core.policy.ast import (
    AnonymityPrincipal,
    CombinedPrincipal,
    IdentityPrincipal,
    Principal,
    Role,
    RolePrincipal,
    UnitPrincipal,
    UnknownPrincipal,
)
from ledger.core.signatures import low_s
from ledger.storage.msp_folder import serialize_identity
from ledger.wire.codec import CODEC
from tests.kit.certificates import (
    AUTHORITY_KEY,
    ECDSA_SHA256,
    NAME_CONSTRAINTS,
    Issuer,
    as_pem,
    below,
    certificate,
    constraints,
    der,
    hosts,
    integer,
    key_info,
    member,
    name,
    oid,
    root,
    sequence,
    subject_key,
    usages,
    with_s,
)
from tests.kit.organisations import (
    END,
    ROLE_UNITS,
    START,
    Organisation,
    Signer,
    make_authority,
    make_organisation,
    pem,
    shared_organisation,
)

ORG = shared_organisation("Org1MSP")
NESTED = make_organisation("NestedMSP", intermediate=True)
ROOT = parse_pem(pem(ORG.root.certificate))
ROOT_DER = sanitised(ROOT, ROOT).der
RSA_KEY = rsa.generate_private_key(65537, 2048)


def members(*configs: MspConfig, version: tuple[int, int, int] = (1, 4, 3)) -> MspManager:
    return MspManager([Msp(config, version) for config in configs], CODEC.serialized_identity)


def rule_against(manager: MspManager, signer: Signer) -> str | None:
    """The rule that refuses an identity; None if it is valid."""
    try:
        manager.validate(manager.deserialize(signer.serialized))
    except InvalidIdentity as refusal:
        return refusal.rule
    return None


def set_up_rule(config: MspConfig, version: tuple[int, int, int] = (1, 4, 3)) -> str:
    """The rule that refuses an MSP."""
    with pytest.raises(InvalidConfig) as refusal:
        Msp(config, version)
    return refusal.value.rule


def by_hand(*roots: Issuer, intermediates: tuple[Issuer, ...] = (), **changes: Any) -> MspConfig:
    """An MSP of authorities made by hand."""
    return MspConfig(
        "HandMSP",
        tuple(as_pem(each.certificate) for each in roots),
        tuple(as_pem(each.certificate) for each in intermediates),
        **{"role_units": ROLE_UNITS} | changes,
    )


# -- chains


def test_members_of_a_root_or_of_the_lowest_intermediate_are_valid() -> None:
    assert rule_against(members(ORG.msp_config()), ORG.peer) is None
    assert rule_against(members(NESTED.msp_config()), NESTED.peer) is None


def test_a_root_with_an_intermediate_below_it_issues_no_members() -> None:
    signer = NESTED.issue_odd("peer9", ("peer",), issuer=NESTED.root)
    assert rule_against(members(NESTED.msp_config()), signer) == "issuer is a leaf CA"


def test_an_intermediate_that_the_configuration_does_not_list_leads_nowhere() -> None:
    config = NESTED.msp_config(intermediate_certs=())
    assert rule_against(members(config), NESTED.peer) == "certificate chain"


@pytest.mark.parametrize(
    ("not_before", "not_after", "rule"),
    [
        (START, START + timedelta(days=1), None),
        (END - timedelta(days=1), END + timedelta(days=9999), None),
        (datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC), None),
        (START - timedelta(days=1), END, "certificate chain"),
        (END, END + timedelta(days=1), "certificate chain"),
        (START, START, "certificate chain"),
    ],
)
def test_only_the_dates_in_the_certificates_decide_never_the_day(
    not_before: datetime, not_after: datetime, rule: str | None
) -> None:
    signer = ORG.issue_odd("dated", ("peer",), not_before=not_before, not_after=not_after)
    assert rule_against(members(ORG.msp_config()), signer) == rule


def test_another_authority_of_the_same_name_proves_nothing() -> None:
    impostor = make_authority(f"ca.{ORG.msp_id}")
    signer = ORG.issue_odd("peer0", ("peer",), issuer=impostor)
    assert rule_against(members(ORG.msp_config()), signer) == "certificate chain"


def test_a_certificate_of_another_organisation_is_no_member_under_this_name() -> None:
    other = shared_organisation("Org2MSP")
    borrowed = replace(other.peer, serialized=serialize_identity("Org1MSP", other.peer.certificate))
    assert rule_against(members(ORG.msp_config(), other.msp_config()), borrowed) == "certificate chain"


@pytest.mark.parametrize(
    ("serialized", "rule"),
    [
        (b"\xff\xff", "serialized identity"),
        (b"", "MSP of the channel"),
        (serialize_identity("NobodyMSP", ORG.peer.certificate), "MSP of the channel"),
        (serialize_identity("Org1MSP", b"no certificate"), "PEM"),
        (serialize_identity("Org1MSP", as_pem(b"\x30\x03\x02\x01\x01")), "X.509"),
    ],
)
def test_bytes_that_name_nobody_are_refused_by_name(serialized: bytes, rule: str) -> None:
    manager = members(ORG.msp_config())
    for _ in range(2):  # The second answer comes from the cache.
        with pytest.raises(InvalidIdentity) as refusal:
            manager.deserialize(serialized)
        assert refusal.value.rule == rule


def test_a_root_that_is_listed_twice_counts_once() -> None:
    config = ORG.msp_config(root_certs=(pem(ORG.root.certificate),) * 2)
    assert rule_against(members(config), ORG.peer) is None
    twice = NESTED.msp_config(intermediate_certs=(pem(NESTED.issuer.certificate),) * 2)
    assert rule_against(members(twice), NESTED.peer) is None


def test_a_renewed_root_makes_a_second_chain_unless_the_old_one_is_only_an_intermediate() -> None:
    first = root("renewed")
    second = root("renewed", key=first.key, serial=der(0x02, b"\x05"))
    signer = member(first)
    assert rule_against(members(by_hand(first)), signer) is None
    assert rule_against(members(by_hand(second)), signer) is None
    assert rule_against(members(by_hand(first, second)), signer) == "certificate chain"
    manager = members(by_hand(first, intermediates=(below(first, "lower"),)))
    assert rule_against(manager, member(first)) == "issuer is a leaf CA"


def test_a_cross_certificate_of_the_same_key_is_no_way_around() -> None:
    """Goal: chains don't loop.  Method: two roots certify each other's keys, and all four certificates are listed."""
    a, b = root("a"), root("b")
    a_by_b, b_by_a = below(b, "a", key=a.key), below(a, "b", key=b.key)
    manager = MspManager([Msp(by_hand(a, intermediates=(b_by_a,)))], CODEC.serialized_identity)
    assert rule_against(manager, member(b)) is None
    looped = members(by_hand(a, b, intermediates=(a_by_b, b_by_a)))
    assert rule_against(looped, member(b)) == "certificate chain"  # By b itself, and by a.


@pytest.mark.parametrize(
    ("path_length", "rule"), [(None, None), (1, None), (0, "certificate chain")], ids=["any", "one", "none"]
)
def test_a_path_length_bounds_the_authorities_below(path_length: int | None, rule: str | None) -> None:
    top = root(extensions=[constraints(ca=True, path_length=path_length), subject_key()])
    middle = below(top, "middle")
    assert rule_against(members(by_hand(top, intermediates=(middle,))), member(middle)) == rule


@pytest.mark.parametrize(
    ("extensions", "rule"),
    [
        ([], None),
        ([constraints(ca=False)], None),
        ([constraints(ca=True), subject_key()], "certificate authority"),
        ([usages("1.3.6.1.5.5.7.3.1")], None),
        ([usages("1.3.6.1.5.5.7.3.2")], "certificate chain"),
        ([usages("1.3.6.1.5.5.7.3.2", "2.5.29.37.0")], None),
        ([usages("1.2.3.4")], "certificate chain"),
        ([("1.3.6.1.4.1.99999.1", True, b"x")], "certificate chain"),
        ([("1.3.6.1.4.1.99999.1", False, b"x")], None),
        ([("2.5.29.15", True, der(0x03, b"\x07\x00"))], None),
        ([("2.5.29.14", True, der(0x04, b"key"))], "X.509"),
    ],
)
def test_extensions_of_a_member_are_judged_as_go_judges_them(extensions: list[Any], rule: str | None) -> None:
    top = root()
    assert rule_against(members(by_hand(top)), member(top, extensions=extensions)) == rule


def test_names_that_an_authority_constrains_have_to_be_alternative_names() -> None:
    host = sequence(der(0xA0, sequence(der(0x82, b"example.com"))))
    top = root(extensions=[constraints(ca=True), subject_key(), (NAME_CONSTRAINTS, True, host)])
    manager = members(by_hand(top))
    assert rule_against(manager, member(top, subject=name("peer0.example.com", "peer"))) == "name constraints"
    assert rule_against(manager, member(top, subject=name("no host!", "peer"))) is None
    named = member(top, subject=name("peer0.example.com", "peer"), extensions=[hosts("peer0.example.com")])
    assert rule_against(manager, named) is None


@pytest.mark.parametrize(
    ("key", "version", "rule"),
    [
        (ec.generate_private_key(ec.SECP384R1()), (1, 4, 3), None),
        (ec.generate_private_key(ec.SECP521R1()), (1, 4, 3), None),
        (ed25519.Ed25519PrivateKey.generate(), (1, 4, 3), "key algorithm"),
        (ed25519.Ed25519PrivateKey.generate(), (3, 0, 0), None),
        (RSA_KEY, (1, 4, 3), "key algorithm"),
        (RSA_KEY, (3, 0, 0), "key algorithm"),
    ],
    ids=["P-384", "P-521", "Ed25519 before 3.0", "Ed25519", "RSA", "RSA under 3.0"],
)
def test_the_algorithm_of_a_member_is_ecdsa_or_from_version_3_ed25519(
    key: Any, version: tuple[int, int, int], rule: str | None
) -> None:
    signer = ORG.issue_odd("odd key", ("peer",), key=key)
    manager = members(ORG.msp_config(), version=version)
    assert rule_against(manager, signer) == rule
    if rule is None:
        assert manager.deserialize(signer.serialized).verify(b"message", signer.sign(b"message"))


def test_an_rsa_authority_may_issue_members() -> None:
    authority = make_authority("rsa", key=RSA_KEY)
    organisation = Organisation("RsaMSP", authority, authority, ORG.tls)
    assert rule_against(members(organisation.msp_config()), organisation.peer) is None


# -- one certificate in two spellings


def test_two_spellings_of_the_issuers_signature_are_one_identity() -> None:
    top = root()
    key = ec.generate_private_key(ec.SECP256R1())
    parts = {"issuer": top.name, "issuer_key": top.key, "subject": name("peer0", "peer"), "public": key_info(key)}
    low = certificate(**parts)  # type: ignore[arg-type]
    found = parse_pem(as_pem(low))
    signature = with_s(found.signature, "secp256r1", high=True)
    high = sequence(found.signed, found.algorithm, der(0x03, b"\x00", signature))
    manager = members(by_hand(top))
    spelt = [manager.deserialize(serialize_identity("HandMSP", as_pem(each))) for each in (low, high)]
    assert spelt[0].key == spelt[1].key == ("HandMSP", sha256(low).digest())
    assert all(manager.is_valid(each) for each in spelt)


def test_authorities_with_a_high_s_are_sanitised_too() -> None:
    top = root(high_s=True)
    lower = below(top, "lower", high_s=True)
    config = by_hand(top, intermediates=(lower,))
    manager = members(config)
    signer = member(lower)
    identity = manager.deserialize(signer.serialized)
    assert manager.is_valid(identity)
    msp = manager.msp("HandMSP")
    assert msp is not None
    spelt_low = [low_certificate(each) for each in (lower, top)]
    assert msp.certifiers(identity) == sha256(b"".join(spelt_low)).digest()
    unit = UnitIdentifier("peer", as_pem(lower.certificate))
    assert rule_against(members(replace(config, role_units=ROLE_UNITS | {Role.PEER: unit})), signer) is None


def low_certificate(authority: Issuer) -> bytes:
    found = parse_pem(as_pem(authority.certificate))
    signature = low_s(found.signature, "secp256r1")
    return sequence(found.signed, found.algorithm, der(0x03, b"\x00", signature))


# -- units and roles


@pytest.mark.parametrize(
    ("units", "rule"),
    [
        (("peer",), None),
        (("client",), None),
        (("admin",), None),
        (("orderer",), None),
        (("department1", "peer"), None),
        (("peer", "department1"), None),
        ((), "exactly one role unit"),
        (("department1",), "exactly one role unit"),
        (("Peer",), "exactly one role unit"),
        (("peer ",), "exactly one role unit"),
        (("peer", "client"), "exactly one role unit"),
        (("peer", "peer"), "exactly one role unit"),
    ],
)
def test_a_member_has_exactly_one_role_unit(units: tuple[str, ...], rule: str | None) -> None:
    assert rule_against(members(ORG.msp_config()), ORG.issue_odd("units", units)) == rule


def test_a_role_unit_bound_to_one_authority_is_no_role_of_another() -> None:
    second = make_authority("second")
    both = (pem(ORG.root.certificate), pem(second.certificate))
    bound = {role: UnitIdentifier(unit.unit, pem(ORG.root.certificate)) for role, unit in ROLE_UNITS.items()}
    stranger = ORG.issue_odd("peer5", ("peer",), issuer=second)
    assert rule_against(members(ORG.msp_config(root_certs=both)), stranger) is None
    manager = members(ORG.msp_config(root_certs=both, role_units=bound))
    assert rule_against(manager, stranger) == "role unit certifier"
    assert rule_against(manager, ORG.peer) is None


def test_where_units_are_listed_a_member_carries_one_of_them() -> None:
    listed = (UnitIdentifier("research", pem(ORG.root.certificate)),)
    manager = members(ORG.msp_config(units=listed))
    assert rule_against(manager, ORG.peer) == "organizational units"
    assert rule_against(manager, ORG.issue_odd("researcher", ("research", "peer"))) is None


def test_without_role_units_everyone_is_a_member_and_nobody_has_a_role() -> None:
    config = ORG.msp_config(role_units=None, admins=(ORG.admin.certificate,))
    manager = members(config)
    plain = manager.deserialize(ORG.issue_odd("plain", ()).serialized)
    assert manager.is_valid(plain)
    assert [role for role in Role if manager.satisfies(plain, RolePrincipal("Org1MSP", role))] == [Role.MEMBER]
    admin = manager.deserialize(ORG.admin.serialized)
    held = [role for role in Role if manager.satisfies(admin, RolePrincipal("Org1MSP", role))]
    assert held == [Role.MEMBER, Role.ADMIN]


# -- revocation


def test_whom_the_issuer_revoked_is_refused_whether_the_list_is_pem_or_der() -> None:
    text = ORG.root.revocation_list(ORG.client.certificate)
    binary = parse_list_bytes(text)
    for data in (text, binary):
        manager = members(ORG.msp_config(revocation_lists=(data,)))
        assert rule_against(manager, ORG.client) == "revocation"
        assert rule_against(manager, ORG.peer) is None


def parse_list_bytes(text: bytes) -> bytes:
    block = first_block(text)
    assert block is not None
    return block.content


def test_a_list_that_another_authority_signed_revokes_nobody() -> None:
    """Goal: the key identifier alone is no proof.  Method: another key signs a list that names the issuer's."""
    genuine = parse_list_bytes(ORG.root.revocation_list(ORG.client.certificate))
    found = parts_of_sequence(genuine)
    forged = ec.generate_private_key(ec.SECP256R1()).sign(found[0], ec.ECDSA(hashes.SHA256()))
    data = sequence(found[0], found[1], der(0x03, b"\x00", forged))
    assert rule_against(members(ORG.msp_config(revocation_lists=(data,))), ORG.client) is None


def test_bytes_behind_the_signature_of_a_list_do_not_void_it() -> None:
    genuine = parse_list_bytes(ORG.root.revocation_list(ORG.client.certificate))
    signed, algorithm, signature = parts_of_sequence(genuine)
    data = sequence(signed, algorithm, der(0x03, signature[2:], b"\x00\x00"))
    assert rule_against(members(ORG.msp_config(revocation_lists=(data,))), ORG.client) == "revocation"


def parts_of_sequence(data: bytes) -> list[bytes]:
    return [each.raw for each in Cursor(data).read(SEQUENCE).inside()]


def list_by_hand(
    serial: int,
    key_identifier: bytes | None,
    *,
    algorithm: str = ECDSA_SHA256,
    digest: hashes.HashAlgorithm | None = None,
) -> bytes:
    """A list that the root of the organisation signed, naming any key."""
    named = sequence(oid(algorithm))
    time = der(0x17, b"260101000000Z")
    extensions = b""
    if key_identifier is not None:
        value = der(0x04, sequence(der(0x80, key_identifier)))
        extensions = der(0xA0, sequence(sequence(oid(AUTHORITY_KEY), value)))
    signed = sequence(integer(1), named, name("anyone"), time, sequence(sequence(integer(serial), time)), extensions)
    assert isinstance(ORG.root.key, ec.EllipticCurvePrivateKey)
    signature = ORG.root.key.sign(signed, ec.ECDSA(digest or hashes.SHA256()))
    return sequence(signed, named, der(0x03, b"\x00", signature))


CLIENT_SERIAL = parse_pem(ORG.client.certificate).serial_number


@pytest.mark.parametrize(
    ("data", "client", "peer"),
    [
        (list_by_hand(CLIENT_SERIAL, ROOT.subject_key_id), "revocation", None),
        (list_by_hand(CLIENT_SERIAL + 1, ROOT.subject_key_id), None, None),
        (list_by_hand(CLIENT_SERIAL, b"another key"), None, None),
        (list_by_hand(CLIENT_SERIAL, None), "revocation list", "revocation list"),
        (
            list_by_hand(CLIENT_SERIAL, ROOT.subject_key_id, algorithm="1.2.840.10045.4.1", digest=hashes.SHA1()),
            "revocation",
            None,
        ),
    ],
    ids=["its serial", "another serial", "another key", "no key", "signed over SHA-1"],
)
def test_a_list_counts_for_the_key_that_it_names_and_without_one_nobody_passes(
    data: bytes, client: str | None, peer: str | None
) -> None:
    manager = members(ORG.msp_config(revocation_lists=(data,)))
    assert (rule_against(manager, ORG.client), rule_against(manager, ORG.peer)) == (client, peer)


def test_the_root_cannot_revoke_what_an_intermediate_issued() -> None:
    lists = (NESTED.root.revocation_list(NESTED.client.certificate),)
    assert rule_against(members(NESTED.msp_config(revocation_lists=lists)), NESTED.client) is None


# -- set-up

LOOSE = make_authority("loose")
LEAF = ORG.peer.certificate


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"msp_id": ""}, "MSP name"),
        ({"root_certs": ()}, "MSP root certificates"),
        ({"root_certs": (b"garbage",)}, "PEM"),
        ({"root_certs": (LEAF,)}, "certificate authority"),
        ({"root_certs": (pem(NESTED.issuer.certificate),)}, "chain length"),
        ({"intermediate_certs": (pem(LOOSE.certificate),)}, "certificate chain"),
        ({"intermediate_certs": (LEAF,)}, "certificate authority"),
        ({"tls_root_certs": (LEAF,)}, "certificate authority"),
        ({"tls_intermediate_certs": (pem(NESTED.issuer.certificate),)}, "certificate chain"),
        ({"identity_hash": "MD5"}, "MSP identity hash"),
        ({"revocation_lists": (b"garbage",)}, "revocation list"),
        ({"revocation_lists": (b"text\n" + ORG.root.revocation_list(LEAF),)}, "revocation list"),
        ({"units": (UnitIdentifier("x"),)}, "PEM"),
        ({"units": (UnitIdentifier("x", pem(LOOSE.certificate)),)}, "unit certificate"),
        ({"role_units": {Role.PEER: UnitIdentifier("peer", LEAF)}}, "certificate authority"),
        ({"role_units": {Role.PEER: UnitIdentifier("peer")}}, "MSP admins"),
        ({"role_units": None}, "MSP admins"),
        ({"admins": (LEAF,)}, "admin role"),
        ({"admins": (pem(ORG.root.certificate),)}, "certificate authority"),
        ({"admins": (NESTED.admin.certificate,)}, "certificate chain"),
        ({"role_units": None, "admins": (NESTED.admin.certificate,)}, "certificate chain"),
    ],
)
def test_an_msp_that_breaks_a_rule_of_set_up_is_refused(changes: dict[str, Any], rule: str) -> None:
    assert set_up_rule(ORG.msp_config(**changes)) == rule


def test_authorities_without_key_identifier_or_with_an_unknown_critical_extension_are_refused() -> None:
    assert set_up_rule(by_hand(root(extensions=[constraints(ca=True)]))) == "subject key identifier"
    odd = root(extensions=[constraints(ca=True), subject_key(), ("1.3.6.1.4.1.99999.1", True, b"x")])
    assert set_up_rule(by_hand(odd)) == "certificate chain"
    clients_only = root(extensions=[constraints(ca=True), subject_key(), usages("1.3.6.1.5.5.7.3.2")])
    assert set_up_rule(by_hand(clients_only)) == "certificate chain"


def test_an_authority_that_may_not_sign_certificates_is_refused_as_root() -> None:
    only_digital_signature = ("2.5.29.15", True, der(0x03, b"\x07\x80"))
    odd = root(extensions=[constraints(ca=True), subject_key(), only_digital_signature])
    assert set_up_rule(by_hand(odd)) == "chain length"


def test_a_revoked_intermediate_is_refused_with_its_msp() -> None:
    lists = (NESTED.root.revocation_list(pem(NESTED.issuer.certificate)),)
    assert set_up_rule(NESTED.msp_config(revocation_lists=lists)) == "revocation"


def test_an_intermediate_with_others_below_it_certifies_no_units() -> None:
    top = root()
    middle = below(top, "middle")
    lowest = below(middle, "lowest")
    config = by_hand(top, intermediates=(middle, lowest))
    units = (UnitIdentifier("x", as_pem(middle.certificate)),)
    assert set_up_rule(replace(config, units=units)) == "unit certificate"
    Msp(replace(config, units=(UnitIdentifier("x", as_pem(lowest.certificate)),)))
    Msp(replace(config, units=(UnitIdentifier("x", as_pem(top.certificate)),)))


# -- signatures and principals


@pytest.mark.parametrize(
    ("family", "digest", "is_good"),
    [
        ("SHA2", hashes.SHA256(), True),
        ("SHA2", hashes.SHA3_256(), False),
        ("SHA3", hashes.SHA3_256(), True),
        ("SHA3", hashes.SHA256(), False),
        ("MD5", hashes.SHA256(), False),
    ],
)
def test_signatures_are_over_the_hash_that_the_msp_names(
    family: str, digest: hashes.HashAlgorithm, is_good: bool
) -> None:
    key = ORG.peer.private_key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    signature = low_s(key.sign(b"message", ec.ECDSA(digest)), key.curve.name)
    identity = members(ORG.msp_config(hash_family=family)).deserialize(ORG.peer.serialized)
    assert identity.verify(b"message", signature) is is_good


def test_certifier_ids_are_made_with_the_hash_that_the_msp_names() -> None:
    for family, expected in (("SHA256", sha256(ROOT_DER)), ("SHA3_256", sha3_256(ROOT_DER))):
        manager = members(ORG.msp_config(identity_hash=family))
        principal = UnitPrincipal("Org1MSP", "peer", expected.digest())
        assert manager.satisfies(manager.deserialize(ORG.peer.serialized), principal)


CRLF_COPY = serialize_identity("Org1MSP", ORG.peer.certificate.replace(b"\n", b"\r\n"))
ROOT_ID = sha256(ROOT_DER).digest()


@pytest.mark.parametrize(
    ("principal", "is_peer", "is_invalid_member"),
    [
        (RolePrincipal("Org1MSP", Role.MEMBER), True, False),
        (RolePrincipal("Org1MSP", Role.PEER), True, False),
        (RolePrincipal("Org1MSP", Role.CLIENT), False, False),
        (RolePrincipal("Org1MSP", Role.ADMIN), False, False),
        (RolePrincipal("Org2MSP", Role.PEER), False, False),
        (RolePrincipal("Org1MSP", 7), False, False),
        (RolePrincipal("Org1MSP", -1), False, False),
        (UnitPrincipal("Org1MSP", "peer", ROOT_ID), True, False),
        (UnitPrincipal("Org1MSP", "peer", b""), False, False),
        (UnitPrincipal("Org1MSP", "client", ROOT_ID), False, False),
        (UnitPrincipal("Org2MSP", "peer", ROOT_ID), False, False),
        (IdentityPrincipal(ORG.peer.serialized), True, False),
        (IdentityPrincipal(CRLF_COPY), True, False),
        (IdentityPrincipal(ORG.client.serialized), False, False),
        (IdentityPrincipal(b"garbage"), False, False),
        (AnonymityPrincipal(0), True, True),
        (AnonymityPrincipal(1), False, False),
        (AnonymityPrincipal(2), False, False),
        (CombinedPrincipal((RolePrincipal("Org1MSP", Role.PEER), AnonymityPrincipal(0))), True, False),
        (CombinedPrincipal((RolePrincipal("Org1MSP", Role.PEER), AnonymityPrincipal(1))), False, False),
        (CombinedPrincipal(()), False, False),
        (UnknownPrincipal("class 9"), False, False),
    ],
)
def test_each_kind_of_principal_asks_for_what_it_names(
    principal: Principal, is_peer: bool, is_invalid_member: bool
) -> None:
    manager = members(ORG.msp_config())
    peer = manager.deserialize(ORG.peer.serialized)
    without_role = manager.deserialize(ORG.issue_odd("no role", ()).serialized)
    for _ in range(2):  # The second answer comes from the cache.
        assert manager.satisfies(peer, principal) is is_peer
        assert manager.satisfies(without_role, principal) is is_invalid_member


def test_a_listed_admin_is_one_even_with_the_unit_of_a_client_and_revoked() -> None:
    """Fabric compares listed admins only: nobody asks whether they are valid."""
    revoked = (ORG.root.revocation_list(ORG.client.certificate),)
    manager = members(ORG.msp_config(admins=(ORG.client.certificate,), revocation_lists=revoked))
    identity: Identity = manager.deserialize(ORG.client.serialized)
    assert not manager.is_valid(identity)
    assert manager.satisfies(identity, RolePrincipal("Org1MSP", Role.ADMIN))
    assert not manager.satisfies(identity, RolePrincipal("Org1MSP", Role.MEMBER))


def test_a_certificate_for_clients_of_tls_only_is_no_member() -> None:
    """The same through the usual tools: an enrolment certificate has no extended usage, or the one for servers."""
    clients = ORG.issue_odd("tls", ("peer",), usages=(ExtendedKeyUsageOID.CLIENT_AUTH,))
    servers = ORG.issue_odd("tls", ("peer",), usages=(ExtendedKeyUsageOID.SERVER_AUTH,))
    manager = members(ORG.msp_config())
    assert (rule_against(manager, clients), rule_against(manager, servers)) == ("certificate chain", None)
