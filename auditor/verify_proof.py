#!/usr/bin/env python3
"""Check a proof of a PeerLedger channel, with nothing but this file, Python and the package `cryptography`.

    python verify_proof.py PROOF.json --genesis GENESIS.block [--json]

A proof is a file that says something about a ledger: that a transaction stands in it, that one was refused, that a key
has a value or is absent, that one ledger is the beginning of another, or that a checkpoint is valid. It is checked from
the channel's genesis block on, which you must have from somebody you trust. Whoever gave you the proof need not be
trusted; no node and no network is asked. Exit status: 0 the proof holds; 1 it does not, with the reason; 2 usage.

This file was written to be read, and shares no code with the node. It is in eight parts, each resting on those before:

    1  bytes and hashes              5  policies: when are signatures enough?
    2  Merkle trees                  6  the configuration and how it may change
    3  protobuf and DER              7  the proof
    4  certificates and members      8  words

What it does not look at, since it does not bear on who may sign or on what was signed: whether the values of a
configuration are ones that a node can work under (sizes, time-outs, addresses), and certificates for TLS.
"""

import argparse
import base64
import datetime
import functools
import hashlib
import json
import re
import sys

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature


class Refused(Exception):
    """The proof does not hold; `rule` names what it breaks."""

    def __init__(self, rule, detail=""):
        self.rule = rule
        super().__init__(f"{rule}: {detail}" if detail else rule)


def require(condition, rule, detail=""):
    """Refuse unless a condition holds."""
    if not condition:
        raise Refused(rule, detail)


# 1 -- Bytes and hashes. Numbers are big-endian; lp(x) is the length of x in four bytes, then x.


def H(data):
    return hashlib.sha256(data).digest()


def u8(number):
    return number.to_bytes(1, "big")


def u32(number):
    return number.to_bytes(4, "big")


def u64(number):
    return number.to_bytes(8, "big")


def lp(value):
    raw = value.encode() if isinstance(value, str) else value
    return u32(len(raw)) + raw


# 2 -- Merkle trees: RFC 6962 for logs (checked as RFC 9162 says), a compact sparse tree for the state.


def log_leaf(data):
    return H(b"\x00" + data)


def log_node(left, right):
    return H(b"\x01" + left + right)


def check_inclusion(what, leaf, index, size, path, root):
    """RFC 9162, 2.1.3.2: the leaf with this index is in the tree of this size and root."""
    require(0 <= index < size, what, f"index {index} of {size}")
    fn, sn, value = index, size - 1, leaf
    for sibling in path:
        require(sn > 0, what, "the path is too long")
        if fn & 1 or fn == sn:
            value = log_node(sibling, value)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            value = log_node(value, sibling)
        fn, sn = fn >> 1, sn >> 1
    require(sn == 0, what, "the path is too short")
    require(value == root, what, f"leads to {value.hex()} instead of {root.hex()}")


def check_consistency(first, second, path, first_root, second_root):
    """RFC 9162, 2.1.4.2: the tree of `first` leaves is the beginning of that of `second` leaves."""
    rule = "consistency"
    require(0 < first < second, rule, f"sizes {first} and {second}")
    path = list(path) if first & (first - 1) else [first_root, *path]
    require(path, rule, "the path is too short")
    fn, sn = first - 1, second - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    older = newer = path[0]
    for sibling in path[1:]:
        require(sn > 0, rule, "the path is too long")
        if fn & 1 or fn == sn:
            older, newer = log_node(sibling, older), log_node(sibling, newer)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            newer = log_node(newer, sibling)
        fn, sn = fn >> 1, sn >> 1
    require(sn == 0, rule, "the path is too short")
    require(older == first_root, rule, "does not lead to the older root")
    require(newer == second_root, rule, "does not lead to the newer root")


def state_path(namespace, collection, key):
    """Where a key stands in the state tree; kind 0 is public, kind 1 hashed private data."""
    return H(lp("peerledger/path/v1") + u8(1 if collection else 0) + lp(namespace) + lp(collection) + lp(key))


def check_state(path, leaf, siblings, root):
    """The way from the root along `path` ends, after as many steps as there are siblings, at `leaf` (None: empty).

    A leaf is (its own path, value hash). For absence it is another key's, which must really stand on the way.
    """
    depth, rule = len(siblings), "state root"
    value = bytes(32)
    if leaf is not None:
        apart = int.from_bytes(leaf[0], "big") ^ int.from_bytes(path, "big")
        require(apart >> (256 - depth) == 0, "shared bits", f"the leaf is not on the first {depth} steps of the way")
        value = H(b"\x02" + leaf[0] + leaf[1])
    for level in reversed(range(depth)):
        goes_right = path[level // 8] >> (7 - level % 8) & 1
        value = H(b"\x03" + siblings[level] + value) if goes_right else H(b"\x03" + value + siblings[level])
    require(value == root, rule, f"the way leads to {value.hex()} instead of {root.hex()}")


# 3 -- Protobuf and DER. Of protobuf: fields in order; a scalar that comes twice is the last one, a message that comes
# twice is merged (which is what joining its bytes does), a field of an unexpected wire type is unknown and passed over.

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(data, at):
    value = shift = 0
    while True:
        require(at < len(data) and shift < 70, "protobuf", "a varint that does not end")
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            require(value < 1 << 64, "protobuf", "a varint of more than 64 bits")
            return value, at


@functools.lru_cache(maxsize=4096)
def fields(data):
    """List (number, wire type, value) of each field, in order."""
    found, at = [], 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        require(1 <= number < 1 << 29, "protobuf", f"field number {number}")
        if wire == VARINT:
            value, at = varint(data, at)
            found.append((number, wire, value))
            continue
        require(wire in (FIXED64, BYTES, FIXED32), "protobuf", f"wire type {wire}")
        size = {FIXED64: 8, FIXED32: 4}.get(wire)
        if size is None:
            size, at = varint(data, at)
        require(size <= len(data) - at, "protobuf", "a field that runs over the end")
        found.append((number, wire, data[at : at + size]))
        at += size
    return found


def all_bytes(data, number):
    """Every byte string or message of a repeated field."""
    return [value for found, wire, value in fields(data) if (found, wire) == (number, BYTES)]


def one_bytes(data, number):
    """A byte string, b"" without it."""
    return (all_bytes(data, number) or [b""])[-1]


def message(data, number):
    """An embedded message, None without it."""
    parts = all_bytes(data, number)
    return b"".join(parts) if parts else None


def one_number(data, number):
    return ([value for found, wire, value in fields(data) if (found, wire) == (number, VARINT)] or [0])[-1]


def int32(value):
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def text(raw):
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Refused("protobuf", "a text that is not UTF-8") from None


def one_text(data, number):
    return [text(raw) for raw in (all_bytes(data, number) or [b""])][-1]


def put(number, raw):
    """Write a byte string as a field."""
    size, out = len(raw), bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((number << 3 | BYTES, *out, size)) + raw


def tlv(data, at, limit):
    """Read one DER element: (tag, where it begins, where its content begins, where it ends)."""
    require(at + 2 <= limit, "DER", "an element that runs over the end")
    tag, size, start = data[at], data[at + 1], at + 2
    if size >= 0x80:
        count = size & 0x7F
        raw = data[start : start + count]
        size, start = int.from_bytes(raw, "big"), start + count
        require(1 <= count <= 4 and len(raw) == count and raw[0] and size >= 0x80, "DER", "a length")
    require(start + size <= limit, "DER", "an element that runs over the end")
    return tag, at, start, start + size


def children(data, start, end):
    found = []
    while start < end:
        found.append(tlv(data, start, end))
        start = found[-1][3]
    return found


def der(tag, content):
    size = len(content)
    raw = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag,)) + (bytes((size,)) if size < 0x80 else bytes((0x80 | len(raw),)) + raw) + content


def read_ecdsa(signature):
    """Read SEQUENCE {INTEGER r, INTEGER s}; None if it is none. What stands behind s is passed over, as in Fabric."""
    try:
        tag, _, start, end = tlv(signature, 0, len(signature))
        numbers = []
        for _ in range(2):
            kind, _, low, high = tlv(signature, start, end)
            raw, start = signature[low:high], high
            shortest = raw and not (
                len(raw) > 1 and ((raw[0] == 0 and raw[1] < 0x80) or (raw[0] == 0xFF and raw[1] >= 0x80))
            )
            if tag != 0x30 or kind != 0x02 or not shortest:
                return None
            numbers.append(int.from_bytes(raw, "big", signed=True))
        return numbers
    except Refused:
        return None


# 4 -- Certificates and members. Fabric's rules (package msp). A chain is judged one second after the certificate's own
# NotBefore: never by today's date, or every peer would judge differently.

ORDERS = {
    "secp224r1": 2**224 - 0xE95D1F470FC1EC22D6BAA3A3D5C3,
    "secp256r1": 2**256 - 2**224 + 2**192 - 0x4319055258E8617B0C46353D039CDAAF,
    "secp384r1": 2**384 - 0x389CB27E0BC8D220A7E5F24DB74F58851313E695333AD68D,
    "secp521r1": 2**521 - 0x5AE79787C40D069948033FEB708F65A2FC44A36477663B851449048E16EC79BF7,
}
"""The order of each curve that Fabric knows."""

GOOD_HASHES = ("sha256", "sha384", "sha512")
ACCEPTED_USAGES = {"2.5.29.37.0", "1.3.6.1.5.5.7.3.1"}
HOST = re.compile(r"(?:\*|[A-Za-z0-9_:][A-Za-z0-9_:-]*)(?:\.[A-Za-z0-9_:][A-Za-z0-9_:-]*)*\.?")
ROLES = {0: "member", 1: "admin", 2: "client", 3: "peer", 4: "orderer"}
MEMBER, ADMIN, PEER = 0, 1, 3


def pem_content(raw):
    """Give the content of the first PEM block."""
    found = re.search(rb"-----BEGIN ([^-\r\n]*)-----[ \t\r]*\n(.*?)\n-----END \1-----", b"\n" + raw, re.DOTALL)
    require(found, "PEM", "no block")
    try:
        return base64.b64decode(re.sub(rb"[ \t\r\n]", b"", found[2]), validate=True)
    except ValueError:
        raise Refused("PEM", "no base64") from None


class Certificate:
    """What the rules below need of a certificate."""

    def __init__(self, raw):
        try:
            self.x509 = x509.load_der_x509_certificate(raw)
            outer = tlv(raw, 0, len(raw))
            require(outer[3] == len(raw), "certificate", "trailing bytes")
            signed, algorithm, _ = children(raw, outer[2], outer[3])[:3]
            inner = children(raw, signed[2], signed[3])
            inner = inner[1:] if inner[0][0] == 0xA0 else inner  # The version.
            self.der, self.signed = raw, raw[signed[1] : signed[3]]
            self.algorithm = raw[algorithm[1] : algorithm[3]]
            self.issuer, self.subject, self.key_info = (raw[inner[at][1] : inner[at][3]] for at in (2, 4, 5))
            self.serial = self.x509.serial_number
            self.not_before, self.not_after = self.x509.not_valid_before_utc, self.x509.not_valid_after_utc
            names = self.x509.subject
            self.units = [str(one.value) for one in names.get_attributes_for_oid(x509.NameOID.ORGANIZATIONAL_UNIT_NAME)]
            common = names.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
            self.name = str(common[-1].value) if common else ""
            self._read_extensions()
        except Exception as error:  # The library has many errors for what it can't read; each of them means this.
            raise Refused("certificate", str(error)) from error
        try:
            self.key = self.x509.public_key()
        except (ValueError, UnsupportedAlgorithm):
            self.key = None

    def _read_extensions(self):
        found = {each.oid.dotted_string: each for each in self.x509.extensions}
        values = {oid: each.value for oid, each in found.items()}
        constraints = values.get("2.5.29.19")
        self.has_constraints = constraints is not None
        self.is_ca = bool(constraints and constraints.ca)
        self.path_length = constraints.path_length if constraints else None
        usage = values.get("2.5.29.15")
        named = usage and (
            usage.digital_signature or usage.content_commitment or usage.key_encipherment or usage.data_encipherment
            or usage.key_agreement or usage.key_cert_sign or usage.crl_sign
        )  # fmt: skip
        self.may_certify = not named or usage.key_cert_sign
        self.usages = {each.dotted_string for each in values.get("2.5.29.37", ())}
        key_id = values.get("2.5.29.14")
        self.key_id = key_id.digest if key_id else b""
        names = values.get("2.5.29.17")
        self.other_names = names.public_bytes() if names else None
        self.is_constrained = "2.5.29.30" in values
        understood = {"2.5.29." + end for end in ("14 15 17 19 30 31 32 33 35 36 37 54").split()}
        self.is_odd = any(each.critical and oid not in understood for oid, each in found.items())

    def is_signed_by(self, issuer):
        """Fabric's CheckSignatureFrom: the issuer may certify, and signed this."""
        is_v3 = issuer.x509.version is x509.Version.v3
        if (is_v3 and not issuer.has_constraints) or (issuer.has_constraints and not issuer.is_ca):
            return False
        if not issuer.may_certify:
            return False
        try:
            chosen = self.x509.signature_hash_algorithm
            if isinstance(issuer.key, ed25519.Ed25519PublicKey):
                issuer.key.verify(self.x509.signature, self.signed)
            elif chosen is None or chosen.name not in GOOD_HASHES:
                return False
            elif isinstance(issuer.key, ec.EllipticCurvePublicKey):
                issuer.key.verify(self.x509.signature, self.signed, ec.ECDSA(chosen))
            elif isinstance(issuer.key, rsa.RSAPublicKey):
                padding = self.x509.signature_algorithm_parameters
                issuer.key.verify(self.x509.signature, self.signed, padding, chosen)
            else:
                return False
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
            return False
        return True

    @property
    def is_ecdsa_signed(self):
        return self.x509.signature_algorithm_oid.dotted_string.startswith("1.2.840.10045.4.")

    def low_s(self, issuer):
        """The same certificate with s of the issuer's ECDSA signature in the lower half: its one spelling."""
        if not self.is_ecdsa_signed or not isinstance(issuer.key, ec.EllipticCurvePublicKey):
            return self
        numbers, order = read_ecdsa(self.x509.signature), ORDERS.get(issuer.key.curve.name)
        if numbers is None or order is None or numbers[1] <= order >> 1:
            return self
        signature = encode_dss_signature(numbers[0], order - numbers[1])
        return Certificate(der(0x30, self.signed + self.algorithm + der(0x03, b"\x00" + signature)))


def chains(leaf, roots, intermediates):
    """Every chain from a certificate to a root."""
    at = leaf.not_before + datetime.timedelta(seconds=1)
    checks = [0]

    def is_good(one, below):
        in_time = one.not_before <= at <= one.not_after
        return not one.is_odd and in_time and (one.path_length is None or below <= one.path_length)

    def may_follow(authority, chain):
        same = any(
            (authority.subject, authority.key_info, authority.other_names) == (x.subject, x.key_info, x.other_names)
            for x in chain
        )
        if authority.subject != chain[-1].issuer or authority.key is None or same:
            return False
        checks[0] += 1
        return checks[0] <= 100 and chain[-1].is_signed_by(authority) and is_good(authority, len(chain) - 1)

    def extended(chain):
        found = [[*chain, root] for root in roots if may_follow(root, chain)]
        for authority in intermediates:
            if may_follow(authority, chain):
                found += extended([*chain, authority])
        return found

    if not is_good(leaf, -1):
        return []
    found = [[leaf]] if any(root.der == leaf.der for root in roots) else extended([leaf])
    return [chain for chain in found if all(not one.usages or one.usages & ACCEPTED_USAGES for one in chain)]


def only_chain(leaf, roots, intermediates):
    """The one chain; none or several would leave open who answers for the certificate."""
    found = chains(leaf, roots, intermediates)
    require(len(found) == 1, "certificate chain", f"{leaf.name!r} has {len(found)} chains to the roots")
    nameless = leaf.other_names is None and any(one.is_constrained for one in found[0][1:])
    require(not (nameless and HOST.fullmatch(leaf.name)), "name constraints", leaf.name)
    return found[0]


class Organisation:
    """A membership service provider: who belongs to an organisation, and with which role."""

    def __init__(self, config, version):
        inner = one_bytes(config, 2)
        require(one_number(config, 1) == 0, "MSP type", "only X.509 is known")
        crypto = message(inner, 8) or b""
        self.name, self.version, self.config = one_text(inner, 1), version, config
        self.hash_family = one_text(crypto, 1) or "SHA2"
        digests = {"SHA256": "sha256", "SHA384": "sha384", "SHA3_256": "sha3_256", "SHA3_384": "sha3_384"}
        self.digest = digests.get(one_text(crypto, 2) or "SHA256")
        require(self.name and self.digest, "MSP", "no name, or an unknown hash")
        self.inner, self.lists = set(), []
        self.roots = self._distinct(self._authority(raw) for raw in all_bytes(inner, 2))
        self.intermediates = self._distinct(self._authority(raw) for raw in all_bytes(inner, 3))
        require(self.roots, "MSP", f"{self.name} has no root certificate")
        roots, intermediates = [[self._own(one) for one in some] for some in (self.roots, self.intermediates)]
        self.roots, self.intermediates = self._distinct(roots), self._distinct(intermediates)
        self.lists = [self._revocations(raw) for raw in all_bytes(inner, 5)]
        for root in self.roots:
            self._chain(root)
        for one in self.intermediates:
            chain = self._chain(one)
            if len(chain) > 1:
                self._check_revocation(one, chain[1])
            self.inner.update(parent.der for parent in chain[1:])
        self._read_units(inner)
        self.admins = {self._own(Certificate(pem_content(raw))).der for raw in all_bytes(inner, 4)}

    @staticmethod
    def _distinct(certificates):
        return list({one.der: one for one in certificates}.values())

    @staticmethod
    def _authority(raw):
        found = Certificate(pem_content(raw))
        require(found.is_ca and found.key_id, "certificate authority", found.name)
        return found

    @staticmethod
    def _revocations(raw):
        try:
            found = x509.load_der_x509_crl(pem_content(raw) if raw.startswith(b"-----BEGIN X509 CRL") else raw)
            issuer = [one.value for one in found.extensions if one.oid.dotted_string == "2.5.29.35"]
            return found, (issuer[0].key_identifier or b"") if issuer else None
        except ValueError as error:
            raise Refused("revocation list", str(error)) from error

    def _read_units(self, inner):
        """Units that members must have one of (1), and units that say who has which role (2), with who certifies."""
        self.units, self.roles = {}, None
        for one in all_bytes(inner, 7):
            self.units.setdefault(one_text(one, 2), []).append(self._certifier(one_bytes(one, 1)))
        nodes = message(inner, 11)
        if nodes is not None and one_number(nodes, 1):
            self.roles = {}
            for role, number in ((2, 2), (3, 3), (1, 4), (4, 5)):
                unit = message(nodes, number)
                if unit is not None:
                    certificate = one_bytes(unit, 1)
                    self.roles[role] = (one_text(unit, 2), self._certifier(certificate) if certificate else b"")
        self.roles = self.roles or None

    def _certifier(self, raw):
        own = self._own(self._authority(raw))
        if own.der in {root.der for root in self.roots}:
            return self._over([own])
        known = own.der in {one.der for one in self.intermediates} and own.der not in self.inner
        require(known, "unit certificate", own.name)
        return self._over(self._chain(own))

    def _over(self, chain):
        hasher = hashlib.new(self.digest)
        for one in chain:
            hasher.update(one.der)
        return hasher.digest()

    def _chain(self, certificate):
        return only_chain(certificate, self.roots, self.intermediates)

    def _own(self, certificate):
        """A certificate in its one spelling, by its issuer's curve."""
        if not certificate.is_ecdsa_signed:
            return certificate
        if certificate.is_ca and certificate.is_signed_by(certificate):
            own = certificate.low_s(certificate)
            only_chain(own, [own], [])
            return own
        chain = self._chain(certificate)
        require(len(chain) > 1, "certificate chain", f"{certificate.name!r} has no issuer")
        return certificate.low_s(chain[1])

    def _check_revocation(self, certificate, issuer):
        for found, issuer_id in self.lists:
            require(issuer_id is not None, "revocation list", "one does not say whose it is")
            if issuer_id != issuer.key_id or found.get_revoked_certificate_by_serial_number(certificate.serial) is None:
                continue
            try:
                is_signed = found.is_signature_valid(issuer.key)
            except (TypeError, ValueError, UnsupportedAlgorithm):
                is_signed = False
            require(not is_signed, "revocation", f"{certificate.name!r} was revoked")

    def member(self, pem):
        """Make a member of a PEM certificate; it is not yet known to be a valid one."""
        return Member(self, self._own(Certificate(pem_content(pem))))

    def check(self, member):
        """Is it a valid member?"""
        certificate = member.certificate
        is_new = isinstance(certificate.key, ed25519.Ed25519PublicKey) and self.version >= 3
        is_known = is_new or isinstance(certificate.key, ec.EllipticCurvePublicKey)
        require(is_known and not certificate.is_ca, "member", f"{certificate.name!r}: a CA, or another kind of key")
        chain = self._chain(certificate)
        require(len(chain) > 1, "certificate chain", f"{certificate.name!r} has no issuer")
        require(chain[1].der not in self.inner, "issuer", f"{chain[1].name!r} has authorities below it")
        self._check_revocation(certificate, chain[1])
        certifier = self._over(chain[1:])
        if self.units:
            fits = any(certifier in self.units.get(unit, ()) for unit in certificate.units)
            require(fits, "organizational unit", f"{certificate.name!r} has none of the listed ones")
        if self.roles is not None:
            wanted = dict(self.roles.values())
            found = [unit for unit in certificate.units if unit in wanted]
            require(all(wanted[unit] in (b"", certifier) for unit in found), "role unit", "certified by another CA")
            require(len(found) == 1, "role unit", f"{certificate.name!r} has {len(found)} of them")

    def is_valid(self, member):
        try:
            self.check(member)
        except Refused:
            return False
        return True

    def certifier_of(self, member):
        return self._over(self._chain(member.certificate)[1:])

    def has_role(self, member, role):
        if role == ADMIN and member.certificate.der in self.admins:
            return True
        if role not in ROLES or not self.is_valid(member):
            return False
        unit = (self.roles or {}).get(role)
        return role == MEMBER or (unit is not None and unit[0] in member.certificate.units)


class Member:
    """Somebody with a certificate of an organisation; two are the same if their certificates are."""

    def __init__(self, organisation, certificate):
        self.organisation, self.certificate = organisation, certificate
        self.key = (organisation.name, H(certificate.der))

    def __str__(self):
        return f"{self.organisation.name} {self.certificate.name}"

    def signed(self, data, signature):
        """ECDSA over SHA-256 with s in the lower half of the order, or Ed25519."""
        key = self.certificate.key
        try:
            if isinstance(key, ed25519.Ed25519PublicKey):
                key.verify(signature, data)
                return True
            if not isinstance(key, ec.EllipticCurvePublicKey):
                return False
            numbers, order = read_ecdsa(signature), ORDERS.get(key.curve.name)
            chosen = {"SHA2": hashes.SHA256(), "SHA3": hashes.SHA3_256()}.get(self.organisation.hash_family)
            if numbers is None or order is None or chosen is None:
                return False
            r, s = numbers
            if r <= 0 or not 0 < s <= order >> 1:
                return False
            key.verify(encode_dss_signature(r, s), data, ec.ECDSA(chosen))
        except InvalidSignature:
            return False
        return True


# 5 -- Policies. Signatures are looked at in their order and each counts once; a rule takes the first free one that fits
# and never goes back. So the order of signatures is part of a proof.


def read_policy(path, kind, raw):
    """Decode a policy of the configuration: ("meta", name, rule) or ("signatures", rule tree, principals)."""
    if kind == 3:
        return "meta", one_text(raw, 1), int32(one_number(raw, 2))
    require(kind == 1, "policy type", f"{path} has {kind}")
    require(int32(one_number(raw, 1)) == 0, "policy version", path)
    principals = [(int32(one_number(one, 1)), one_bytes(one, 2)) for one in all_bytes(raw, 3)]
    rule = message(raw, 2)
    tree = read_rule(rule if rule is not None else b"", len(principals), path)
    return "signatures", tree, principals


def read_rule(raw, count, path):
    """A rule is the index of a principal, or (n, rules)."""
    index, gates = None, None
    for number, wire, value in fields(raw):  # Of the two alternatives the last one counts.
        if (number, wire) == (1, VARINT):
            index, gates = int32(value), None
        elif (number, wire) == (2, BYTES):
            index, gates = None, (gates or b"") + value
    if gates is not None:
        return int32(one_number(gates, 1)), [read_rule(one, count, path) for one in all_bytes(gates, 2)]
    require(index is not None and 0 <= index < count, "signature policy", f"{path} has a rule without content")
    return index


def holds(rule, principals, members, used, config):
    """Evaluate a rule; `used` collects the members that it takes."""
    if isinstance(rule, int):
        for at, one in enumerate(members):
            if at not in used and fits(one, *principals[rule], config):
                used.add(at)
                return True
        return False
    n, rules = rule
    done = 0
    for inner in rules:
        tried = set(used)
        if holds(inner, principals, members, tried, config):
            done += 1
            used |= tried
    return done >= n


def fits(member, kind, content, config):
    """Is a member what a principal asks for?"""
    own = member.organisation
    try:
        if kind == 0:
            return one_text(content, 1) == own.name and own.has_role(member, int32(one_number(content, 2)))
        if kind == 1:
            named, unit, certifier = one_text(content, 1), one_text(content, 2), one_bytes(content, 3)
            if named != own.name or not own.is_valid(member):
                return False
            return unit in member.certificate.units and certifier == own.certifier_of(member)
        if kind == 2:
            return config.member(content).key == member.key and own.is_valid(member)
        if kind == 3:
            return int32(one_number(content, 1)) == 0
        if kind == 4:
            inner = all_bytes(content, 1)
            return bool(inner) and all(
                fits(member, int32(one_number(one, 1)), one_bytes(one, 2), config) for one in inner
            )
    except Refused:
        return False
    return False


# 6 -- The configuration: a tree of groups, values and policies; and how one follows from another.

KNOWN_CAPABILITIES = {
    "": {"V1_1", "V1_3", "V1_4_2", "V1_4_3", "V2_0", "V3_0"},
    "Orderer": {"V1_1", "V1_4_2", "V2_0"},
    "Application": {"V1_1", "V1_2", "V1_3", "V1_4_2", "V2_0", "V2_5"},
}
"""Another capability may change the rules: then this file is too old to judge."""

KEY = re.compile(r"[a-zA-Z0-9.-]{1,249}")


def is_key(key):
    return KEY.fullmatch(key) is not None and key not in (".", "..")


def read_map(raw, number, read):
    """A protobuf map; of a key that comes twice the last one counts."""
    return {one_text(entry, 1): read(message(entry, 2) or b"") for entry in all_bytes(raw, number)}


def read_group(raw):
    def read_config_policy(one):
        inner = message(one, 2)
        kind = None if inner is None else int32(one_number(inner, 1))
        return {
            "version": one_number(one, 1),
            "mod_policy": one_text(one, 3),
            "type": kind,
            "value": one_bytes(inner or b"", 2),
        }

    def read_config_value(one):
        return {"version": one_number(one, 1), "mod_policy": one_text(one, 3), "value": one_bytes(one, 2)}

    return {
        "version": one_number(raw, 1),
        "mod_policy": one_text(raw, 5),
        "groups": read_map(raw, 2, read_group),
        "values": read_map(raw, 3, read_config_value),
        "policies": read_map(raw, 4, read_config_policy),
    }


def read_payload(envelope, kind):
    """Give channel, data and the two headers of an envelope's payload, whose type must be `kind`."""
    payload = one_bytes(envelope, 1)
    header = message(payload, 1) or b""
    channel_header = one_bytes(header, 1)
    require(int32(one_number(channel_header, 1)) == kind, "header type", f"expected {kind}")
    return one_text(channel_header, 4), one_bytes(payload, 2), channel_header, one_bytes(header, 2)


class Configuration:
    """One configuration of the channel, in force from its block on."""

    def __init__(self, channel, envelope):
        require(re.fullmatch(r"[a-z][a-z0-9.-]{0,248}", channel), "channel id", channel)
        config = message(envelope, 1)
        group = None if config is None else message(config, 2)
        require(group is not None, "configuration", "there is none")
        self.channel, self.sequence, self.tree = channel, one_number(config, 1), read_group(group)
        self.last_update = message(envelope, 2)
        groups = self.tree["groups"]
        require(set(groups) == {"Orderer", "Application"}, "channel groups", ", ".join(groups))
        for part, known in KNOWN_CAPABILITIES.items():
            found = self._capabilities(groups[part] if part else self.tree)
            require(found <= known, "known capability", ", ".join(found - known))
        self.is_v3 = "V3_0" in self._capabilities(self.tree)
        self.organisations = {}
        self.msp_ids = {}
        for part in ("Orderer", "Application"):
            for name, one in groups[part]["groups"].items():
                require("MSP" in one["values"] and not one["groups"], "organisation", name)
                config = one["values"]["MSP"]["value"]
                made = Organisation(config, 3 if self.is_v3 else 1)
                known = self.organisations.setdefault(made.name, made)
                require(known.config == config or read_same(known.config, config), "one MSP for an MSP ID", made.name)
                self.msp_ids[part, name] = made.name
        self.policies = {}
        self._read_policies("/Channel", self.tree)

    @staticmethod
    def _capabilities(group):
        value = group["values"].get("Capabilities")
        return set(read_map(value["value"], 1, bytes)) if value else set()

    def _read_policies(self, path, group):
        for name, one in group["policies"].items():
            self.policies[f"{path}/{name}"] = read_policy(f"{path}/{name}", one["type"], one["value"])
        for name, inner in group["groups"].items():
            self._read_policies(f"{path}/{name}", inner)

    def member(self, serialized):
        """Make a member of a SerializedIdentity."""
        name = one_text(serialized, 1)
        require(name in self.organisations, "organisation of the channel", name)
        return self.organisations[name].member(one_bytes(serialized, 2))

    def satisfied(self, path, members):
        """Do these members, in this order, satisfy the policy at a path?"""
        policy = self.policies.get(path)
        if policy is None:
            return False
        if policy[0] == "signatures":
            return holds(policy[1], policy[2], members, set(), self)
        group = path.rpartition("/")[0]
        node = self.tree
        for name in group.split("/")[2:]:
            node = node["groups"][name]
        count = len(node["groups"])
        done = sum(self.satisfied(f"{group}/{child}/{policy[1]}", members) for child in node["groups"])
        needed = {0: min(count, 1), 1: count, 2: count // 2 + 1 if count else 0}.get(policy[2])
        return done >= needed if needed is not None else done == 0

    def signed_by_enough(self, path, signed):
        """Do signatures, (data, identity, signature) each, satisfy a policy? Bad ones and repetitions don't count."""
        members = {}
        for data, identity, signature in signed:
            try:
                one = self.member(identity)
            except Refused:
                continue
            if one.key not in members and one.signed(data, signature):
                members[one.key] = one
        return self.satisfied(path, list(members.values()))

    def consenters(self):
        """The orderers of a byzantine fault tolerant ordering service, by their numbers."""
        value = self.tree["groups"]["Orderer"]["values"].get("Orderers")
        found = {}
        for one in all_bytes(value["value"], 1) if value else ():
            identity = put(1, one_bytes(one, 4)) + put(2, one_bytes(one, 5))
            found.setdefault(one_number(one, 1) & 0xFFFFFFFF, identity)
        return found


def read_same(first, second):
    """Are two MSP configurations the same, however they are spelt? Only the plain case is looked at: fields sorted."""
    return sorted(fields(one_bytes(first, 2)), key=repr) == sorted(fields(one_bytes(second, 2)), key=repr)


def elements(group, path=("Channel",)):
    """List everything in a tree by (kind, path)."""
    found = {("group", path): group}
    for kind, key in (("value", "values"), ("policy", "policies")):
        for name, one in group[key].items():
            require(is_key(name), "config key", name)
            found[kind, (*path, name)] = one
    for name, inner in group["groups"].items():
        require(is_key(name), "config key", name)
        found |= elements(inner, (*path, name))
    return found


def apply_update(before, envelope):
    """Apply a CONFIG_UPDATE to a configuration: give the tree that comes of it.

    What is changed must be a version higher than it was and be allowed by its own mod_policy, which the signatures of
    the update must satisfy; what the update only reads must have the version that it names.
    """
    _, data, _, _ = read_payload(envelope, 2)
    update = one_bytes(data, 1)
    signed = []
    for one in all_bytes(data, 2):
        header = one_bytes(one, 1)
        signed.append((header + update, one_bytes(header, 1), one_bytes(one, 2)))
    require(one_text(update, 1) == before.channel, "config update", "it is for another channel")
    sets = [message(update, number) for number in (2, 3)]
    read, write = [{} if one is None else elements(read_group(one)) for one in sets]
    current = elements(before.tree)
    for place, one in read.items():
        known = place in current and current[place]["version"] == one["version"]
        require(known, "config update", f"its read set has another {place}")
    delta = {
        place: one for place, one in write.items() if place not in read or read[place]["version"] != one["version"]
    }
    require(delta, "config update", "it changes nothing")
    for place, one in delta.items():
        parts = one["mod_policy"].removeprefix("/").split("/")
        require(one["mod_policy"] and all(map(is_key, parts)), "mod_policy", f"of {place}")
        existing = current.get(place)
        expected = 0 if existing is None else existing["version"] + 1
        require(one["version"] == expected, "version", f"of {place}: expected {expected}")
        if existing is not None:
            path = policy_path(place, existing["mod_policy"])
            require(path in before.policies and before.signed_by_enough(path, signed), "mod_policy satisfied", path)
    result = {**current, **delta}
    if ("value", ("Channel", "Orderer", "Capabilities")) in result:
        result = {place: {**one, "mod_policy": one["mod_policy"] or "Admins"} for place, one in result.items()}
    return assembled(result, ("Channel",))


def policy_path(place, mod_policy):
    """A mod_policy is relative to the group that an element stands in; that of a group to the group itself."""
    if mod_policy.startswith("/"):
        return mod_policy
    kind, path = place
    return "/" + "/".join(path if kind == "group" else path[:-1]) + "/" + mod_policy


def assembled(found, path):
    """Build the tree below a path; a group has exactly the members that it names."""
    group = found["group", path]
    return {
        **group,
        "groups": {name: assembled(found, (*path, name)) for name in group["groups"]},
        "values": {name: found["value", (*path, name)] for name in group["values"]},
        "policies": {name: found["policy", (*path, name)] for name in group["policies"]},
    }


class Block:
    """A block of the ordering service."""

    def __init__(self, number, previous_hash, data_hash, envelopes=(), orderer_metadata=b""):
        self.number, self.previous_hash, self.data_hash = number, previous_hash, data_hash
        self.envelopes, self.orderer_metadata = envelopes, orderer_metadata
        content = number.to_bytes(number.bit_length() // 8 + 1, "big")
        self.header = der(0x30, der(0x02, content) + der(0x04, previous_hash) + der(0x04, data_hash))
        self.hash = H(self.header)

    @classmethod
    def decode(cls, raw):
        header = message(raw, 1)
        require(header is not None, "block", "no header")
        slots = all_bytes(message(raw, 3) or b"", 1)
        envelopes = all_bytes(message(raw, 2) or b"", 1)
        return cls(
            one_number(header, 1), one_bytes(header, 2), one_bytes(header, 3), envelopes, slots[0] if slots else b""
        )

    def encoded(self):
        """The one spelling that proofs use: metadata slots above 0 empty."""
        number, out = self.number, bytearray()
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        header = b"\x08" + bytes((*out, number)) if self.number else b""
        header += put(2, self.previous_hash) if self.previous_hash else b""
        header += put(3, self.data_hash) if self.data_hash else b""
        slots = put(1, self.orderer_metadata) + put(1, b"") * 4
        return put(1, header) + put(2, b"".join(put(1, one) for one in self.envelopes)) + put(3, slots)

    def config(self):
        """Give channel and configuration of a config block: its one envelope."""
        require(len(self.envelopes) == 1, "config block", f"block {self.number} has other than one envelope")
        require(H(self.envelopes[0]) == self.data_hash, "data hash", f"of block {self.number}")
        channel, data, _, _ = read_payload(self.envelopes[0], 1)
        return Configuration(channel, data)

    def check_orderers(self, before):
        """The orderers of the configuration before the block signed it; give the last config block that they name."""
        value, signed = one_bytes(self.orderer_metadata, 1), []
        consenters = before.consenters() if before.is_v3 else {}
        for one in all_bytes(self.orderer_metadata, 2):
            header, signature, numbered = one_bytes(one, 1), one_bytes(one, 2), one_bytes(one, 3)
            if header or not numbered or not before.is_v3:
                signed.append((value + header + self.header, one_bytes(header, 1), signature))
            elif (identity := consenters.get(one_number(numbered, 1) & 0xFFFFFFFF)) is not None:
                signed.append((value + numbered + self.header, identity, signature))
        enough = before.signed_by_enough("/Channel/Orderer/BlockValidation", signed)
        require(enough, "orderer signatures", f"of block {self.number}")
        return one_number(message(value, 1) or b"", 1)


class Trail:
    """The configurations of a channel: each config block is signed by the orderers and follows by a signed update."""

    def __init__(self, genesis, blocks):
        block = Block.decode(genesis)
        require(block.number == 0, "genesis block", f"it has number {block.number}")
        self.genesis_hash = block.hash
        self.steps = [(0, H(block.envelopes[0]) if block.envelopes else b"", block.config())]
        self.channel = self.steps[0][2].channel
        self._hash_vblock(block)
        for raw in blocks:
            block = Block.decode(raw)
            require(block.encoded() == raw, "config block", f"block {block.number} is not in the one spelling")
            number, _, before = self.steps[-1]
            require(block.number > number, "config blocks", f"{block.number} after {number}")
            block.check_orderers(before)
            after = block.config()
            require(after.channel == self.channel, "channel", after.channel)
            require(after.sequence == before.sequence + 1, "sequence", f"of block {block.number}")
            require(after.last_update is not None, "config update", f"none in block {block.number}")
            same = apply_update(before, after.last_update) == after.tree
            require(same, "config update", f"that in block {block.number} does not lead to its configuration")
            renamed = [
                one for one in after.msp_ids if before.msp_ids.get(one, after.msp_ids[one]) != after.msp_ids[one]
            ]
            require(not renamed, "MSP ID", f"block {block.number} changes that of {renamed}")
            self.steps.append((block.number, H(block.envelopes[0]), after))

    def _hash_vblock(self, block):
        """The vBlock of the genesis block: its one transaction is valid."""
        _, _, header, signature_header = read_payload(block.envelopes[0], 1)
        computed = H(one_bytes(signature_header, 2) + one_bytes(signature_header, 1)).hex()
        root = leaf_hash(0, 0, H(block.envelopes[0]), one_text(header, 5) or computed)
        members = {"previous_hash": bytes(32), "block_hash": block.hash, "transactions": 1, "valid": 1,
                   "tx_root": root, "commit_hash": b""}  # fmt: skip
        self.genesis_vblock = vblock_hash(self.channel, 0, members)

    def at(self, number):
        """The last config block at or below a block: (number, digest of its envelope, configuration)."""
        return [step for step in self.steps if step[0] <= number][-1]


# 7 -- The proof. Its file has one spelling: exactly these members, lower-case hex, whole numbers.


def leaf_hash(index, verdict, envelope_digest, tx_id):
    """What a vBlock says of one ordered transaction, valid or not."""
    return H(b"\x00" + u32(index) + u8(verdict) + envelope_digest + lp(tx_id))


def vblock_hash(channel, number, vblock):
    return H(
        lp("peerledger/vblock/v1") + lp(channel) + u64(number) + vblock["previous_hash"] + vblock["block_hash"]
        + u32(vblock["transactions"]) + u32(vblock["valid"]) + vblock["tx_root"] + lp(vblock["commit_hash"])
    )  # fmt: skip


def unhex(value, size=None):
    good = isinstance(value, str) and re.fullmatch("(?:[0-9a-f]{2})*", value) is not None
    require(good and (size is None or len(value) == 2 * size), "form", f"expected lower-case hex, found {value!r:.60}")
    return bytes.fromhex(value)


def a_hash(value):
    return unhex(value, 32)


def a_text(value):
    good = isinstance(value, str) and not re.search("[\ud800-\udfff]", value)
    require(good, "form", f"expected a text, found {value!r:.60}")
    return value


def a_number(bits):
    def read(value):
        good = type(value) is int and 0 <= value < 1 << bits
        require(good, "form", f"expected a whole number of {bits} bits, found {value!r:.60}")
        return value

    return read


def a_list(read, most):
    def read_list(value):
        require(isinstance(value, list) and len(value) <= most, "form", "expected a list, or a shorter one")
        return [read(one) for one in value]

    return read_list


def an_object(**forms):
    def read(value):
        require(isinstance(value, dict) and set(value) == set(forms), "form", f"expected {', '.join(forms)}")
        return {name: form(value[name]) for name, form in forms.items()}

    return read


def or_null(read):
    return lambda value: None if value is None else read(value)


PATH = a_list(a_hash, 64)
VBLOCK = an_object(previous_hash=a_hash, block_hash=a_hash, transactions=a_number(32), valid=a_number(32),
                   tx_root=a_hash, commit_hash=unhex)  # fmt: skip
CHECKPOINT = an_object(
    number=a_number(64), vblock_hash=a_hash, vledger_root=a_hash, state_hash=a_hash, state_root=a_hash,
    signatures=a_list(an_object(identity=unhex, signature=unhex), 4096),
    block=an_object(previous_hash=unhex, data_hash=unhex, orderer_metadata=unhex),
    vblock=VBLOCK, genesis_path=PATH,
)  # fmt: skip
PLACE = {"block": a_number(64), "index": a_number(32)}
TRANSACTION = {**PLACE, "verdict": a_number(8), "tx_id": a_text, "path": PATH, "vblock": VBLOCK, "log_path": PATH}
ENTRY = {"namespace": a_text, "collection": a_text, "key": unhex, "siblings": a_list(a_hash, 256)}
VALUE = {**PLACE, "value": unhex, "metadata": unhex, "expiry": or_null(a_number(64))}
COMMON = {"format": a_text, "version": a_number(8), "kind": a_text, "channel": a_text, "checkpoint": CHECKPOINT,
          "config_blocks": a_list(unhex, 100_000)}  # fmt: skip
KINDS = {
    "inclusion": {"transaction": an_object(**TRANSACTION, envelope=unhex)},
    "rejection": {"transaction": an_object(**TRANSACTION, envelope_digest=a_hash)},
    "presence": {"entry": an_object(**ENTRY, **VALUE)},
    "absence": {"entry": an_object(**ENTRY, other=or_null(an_object(path=a_hash, value_hash=a_hash)))},
    "consistency": {"older": CHECKPOINT, "consistency_path": PATH},
    "checkpoint": {},
}


def read_proof(data):
    """Read the file strictly."""

    def distinct(pairs):
        require(len(dict(pairs)) == len(pairs), "form", "a name comes twice")
        return dict(pairs)

    def no_number(value):
        raise Refused("form", f"{value} is no whole number")

    require(len(data) <= 256 << 20, "form", "the file is too long")
    try:
        found = json.loads(data.decode(), object_pairs_hook=distinct, parse_float=no_number, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise Refused("form", f"no JSON: {error}") from error
    kind = found.get("kind") if isinstance(found, dict) else None
    require(isinstance(kind, str) and kind in KINDS, "kind", f"{kind!r:.60} is none that is known here")
    proof = an_object(**COMMON, **KINDS[kind])(found)
    is_known = (proof["format"], proof["version"]) == ("peerledger/proof", 1)
    require(is_known, "format", f"{proof['format']} {proof['version']} is none that is known here")
    return proof


def check_vblock(channel, one):
    """The vBlock header at a checkpoint is that of its block, and the one that was agreed on."""
    number, vblock = one["number"], one["vblock"]
    header = one["block"]
    block = Block(number, header["previous_hash"], header["data_hash"], (), header["orderer_metadata"])
    require(vblock["block_hash"] == block.hash, "block hash", f"of checkpoint {number}")
    require(vblock_hash(channel, number, vblock) == one["vblock_hash"], "vBlock hash", f"of checkpoint {number}")
    return block


def check_checkpoint(channel, one, block, trail):
    """A checkpoint is valid; give who signed it, and which policy they satisfy."""
    number = one["number"]
    config_number, config_digest, config = trail.at(number)
    # The state, with the configuration that it is judged by.
    state = H(lp("peerledger/state/v1") + one["state_root"] + u64(config_number) + config_digest)
    require(state == one["state_hash"], "state hash", f"of checkpoint {number}")
    # The ledger begins with your genesis block.
    first = log_leaf(trail.genesis_vblock)
    check_inclusion("genesis block", first, 0, number + 1, one["genesis_path"], one["vledger_root"])
    # The orderers signed the block that the checkpoint is at, and name the last config block: none is left out.
    if number == 0:
        require(block.hash == trail.genesis_hash, "genesis block", "the checkpoint is at another one")
    else:
        named = block.check_orderers(trail.at(number - 1)[2])
        require(named == config_number, "last config block", f"the orderers name {named}, the trail {config_number}")
    # The signatures of peers: each good, each key once, and together enough, in their order.
    statement = lp("peerledger/checkpoint/v1") + lp(channel) + u64(number)
    statement += one["vblock_hash"] + one["vledger_root"] + one["state_hash"]
    members = []
    for signed in one["signatures"]:
        member = config.member(signed["identity"])
        own = member.organisation
        own.check(member)
        require(own.has_role(member, MEMBER if own.roles is None else PEER), "not a peer", str(member))
        good = member.signed(statement + signed["identity"], signed["signature"])
        require(good, "forged signature", f"of {member} on checkpoint {number}")
        members.append(member)
    keys = {member.certificate.key_info for member in members}
    require(len(keys) == len(members), "key counted already", f"in checkpoint {number}")
    path = "/Channel/Application/Checkpoint"
    path = path if path in config.policies else "/Channel/Application/Endorsement"
    require(config.satisfied(path, members), "checkpoint policy", f"{path} by {', '.join(map(str, members))}")
    return [str(member) for member in members], path


def verify(data, genesis):
    """Check a proof.

    Args:
        data: The file.
        genesis: The channel's genesis block, serialized.

    Returns:
        {"facts": what is proved, "signers": who signed, "policy": where it stands, "config_blocks": the trail}.

    Raises:
        Refused: It does not hold.
    """
    try:
        return _verify(data, genesis)
    except RecursionError as error:
        raise Refused("nesting", "something is nested deeper than this file follows") from error


def _verify(data, genesis):
    # What hashes show comes first, signatures last.
    proof = read_proof(data)
    kind, channel, checkpoint = proof["kind"], proof["channel"], proof["checkpoint"]
    number, older = checkpoint["number"], proof.get("older")
    block = check_vblock(channel, checkpoint)
    facts = {"kind": kind, "channel": channel, "checkpoint": number}
    said = ("vblock_hash", "vledger_root", "state_hash")
    if kind in ("inclusion", "rejection"):
        facts |= check_transaction(channel, kind, proof["transaction"], checkpoint)
    elif kind in ("presence", "absence"):
        facts |= check_entry(kind, proof["entry"], checkpoint)
    elif kind == "consistency":
        older_block = check_vblock(channel, older)
        roots = older["vledger_root"], checkpoint["vledger_root"]
        check_consistency(older["number"] + 1, number + 1, proof["consistency_path"], *roots)
        facts |= {"older": older["number"], **{f"older_{name}": older[name].hex() for name in said}}
    if kind in ("consistency", "checkpoint"):
        facts |= {name: checkpoint[name].hex() for name in said}
    trail = Trail(genesis, proof["config_blocks"])
    require(channel == trail.channel, "channel", f"the proof is about {channel}, the genesis block of {trail.channel}")
    require(trail.steps[-1][0] <= number, "config blocks", f"one is above checkpoint {number}")
    signers, policy = check_checkpoint(channel, checkpoint, block, trail)
    if older is not None:
        check_checkpoint(channel, older, older_block, trail)
    trail_numbers = [step[0] for step in trail.steps[1:]]
    return {"facts": facts, "signers": signers, "policy": policy, "config_blocks": trail_numbers}


def check_transaction(channel, kind, one, checkpoint):
    """A transaction stands at its place, with its verdict."""
    require((one["verdict"] == 0) == (kind == "inclusion"), "verdict", f"{one['verdict']} in a proof of {kind}")
    digest = H(one["envelope"]) if kind == "inclusion" else one["envelope_digest"]
    leaf, vblock = leaf_hash(one["index"], one["verdict"], digest, one["tx_id"]), one["vblock"]
    check_inclusion("transaction root", leaf, one["index"], vblock["transactions"], one["path"], vblock["tx_root"])
    above = log_leaf(vblock_hash(channel, one["block"], vblock))
    size = checkpoint["number"] + 1
    check_inclusion("vLedger root", above, one["block"], size, one["log_path"], checkpoint["vledger_root"])
    found = {name: one[name] for name in ("block", "index", "verdict", "tx_id")}
    return {**found, "envelope_digest": digest.hex()}


def check_entry(kind, one, checkpoint):
    """A key has an entry, or none, in the state."""
    never = (1 << 64) - 1
    path = state_path(one["namespace"], one["collection"], one["key"])
    found = {"namespace": one["namespace"], "collection": one["collection"], "key": one["key"].hex()}
    if kind == "absence":
        other = one["other"] and (one["other"]["path"], one["other"]["value_hash"])
        require(other is None or other[0] != path, "absence", "the leaf is that of the key")
        check_state(path, other, one["siblings"], checkpoint["state_root"])
        return found
    require(one["expiry"] != never, "form", "never is written as null")
    expiry = never if one["expiry"] is None else one["expiry"]
    said = lp(one["value"]) + u64(one["block"]) + u32(one["index"]) + lp(one["metadata"]) + u64(expiry)
    check_state(path, (path, H(said)), one["siblings"], checkpoint["state_root"])
    found |= {"value": one["value"].hex(), "block": one["block"], "index": one["index"]}
    return {**found, "metadata": one["metadata"].hex(), "expiry": one["expiry"]}


# 8 -- Words.

VERDICTS = (
    "VALID NIL_ENVELOPE BAD_PAYLOAD BAD_COMMON_HEADER BAD_CREATOR_SIGNATURE INVALID_ENDORSER_TRANSACTION "
    "INVALID_CONFIG_TRANSACTION UNSUPPORTED_TX_PAYLOAD BAD_PROPOSAL_TXID DUPLICATE_TXID ENDORSEMENT_POLICY_FAILURE "
    "MVCC_READ_CONFLICT PHANTOM_READ_CONFLICT UNKNOWN_TX_TYPE TARGET_CHAIN_NOT_FOUND MARSHAL_TX_ERROR NIL_TXACTION "
    "EXPIRED_CHAINCODE CHAINCODE_VERSION_CONFLICT BAD_HEADER_EXTENSION BAD_CHANNEL_HEADER BAD_RESPONSE_PAYLOAD "
    "BAD_RWSET ILLEGAL_WRITESET INVALID_WRITESET INVALID_CHAINCODE"
).split()


def words(verified):
    """Say what was proved, and what was not."""
    facts = verified["facts"]
    kind, number = facts["kind"], facts["checkpoint"]
    verdict = facts.get("verdict", 0)
    name = VERDICTS[verdict] if verdict < len(VERDICTS) else f"code {verdict}"
    key = f"key {facts.get('key')} (hex) of namespace {facts.get('namespace')!r}"
    key += f", collection {facts['collection']!r}" if facts.get("collection") else ""
    said = {
        "inclusion": "transaction {tx_id!r} stands at index {index} of block {block} and was judged VALID; SHA-256 of "
        "its envelope: {envelope_digest}",
        "rejection": "an envelope with SHA-256 {envelope_digest} was ordered at index {index} of block {block} and was "
        f"judged invalid ({name}); it claimed the id {{tx_id!r}}",
        "presence": f"after block {number}, {key} has the value {{value}} (hex), written by transaction {{index}} of "
        "block {block}",
        "absence": f"after block {number} there is no {key}",
        "consistency": f"the ledger at checkpoint {{older}} is the beginning of that at checkpoint {number}",
        "checkpoint": f"checkpoint {number}: vBlock hash {{vblock_hash}}, vLedger root {{vledger_root}}, state hash "
        "{state_hash}",
    }[kind].format(**{**facts, "key": ""})
    trail = ", ".join(map(str, verified["config_blocks"])) or "none"
    lines = [
        "The proof holds.",
        f"Proved, of channel {facts['channel']}: {said}.",
        f"Checkpoint {number} was signed by {', '.join(verified['signers'])}, which satisfies {verified['policy']}.",
        f"Who may sign follows from your genesis block; config blocks on the way: {trail}.",
        f"Not proved: anything after block {number}, or when something happened by the clock.",
    ]
    if kind == "rejection":
        lines.append("Not proved: who sent the envelope. A claimed id proves nothing about the sender.")
    return "\n".join(map(printable, lines))


def printable(line):
    """Names and ids were chosen by somebody: they get no control over your terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def main():
    parser = argparse.ArgumentParser(description="Check a proof of a PeerLedger channel.")
    parser.add_argument("proof", type=argparse.FileType("rb"))
    parser.add_argument("--genesis", type=argparse.FileType("rb"), required=True, help="the channel's genesis block")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    asked = parser.parse_args()
    try:
        found = verify(asked.proof.read(), asked.genesis.read())
    except Refused as refusal:
        print(
            json.dumps({"holds": False, "reason": str(refusal)})
            if asked.json
            else f"REFUSED: {printable(str(refusal))}"
        )
        return 1
    print(json.dumps({"holds": True, **found}, indent=1) if asked.json else words(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
