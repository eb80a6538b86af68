"""When is a signature good?  Fabric's rules for ECDSA and Ed25519, on keys that are built once.

Sources: fabric-lib-go bccsp/sw/ecdsa.go and bccsp/utils/ecdsa.go (DER of r and s, low-S), fabric msp/identities.go
(which hash). ECDSA is over SHA-256, for P-384 keys too (over SHA3-256 if the MSP says so); Ed25519 signs the message
itself. What Fabric's decoder takes and OpenSSL's does not (bytes behind the DER sequence) is cut off here; what neither
should take is refused here: non-minimal integers, r or s not positive, s above half of the group order.
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

GROUP_ORDERS = {
    curve.name: curve.group_order for curve in (ec.SECP224R1(), ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1())
}
"""Order n of each curve's group; Fabric knows no other curves."""

_ECDSA_SHA256 = ec.ECDSA(hashes.SHA256())

_ECDSA_HASHES = {"SHA2": _ECDSA_SHA256, "SHA3": ec.ECDSA(hashes.SHA3_256())}
"""What ECDSA is over, by the hash family that an MSP names."""


def half_order(curve_name: str) -> int:
    """Give n >> 1 of a curve: the largest s of a low-S signature."""
    return GROUP_ORDERS[curve_name] >> 1


def read_der_signature(signature: bytes) -> tuple[int, int, bool] | None:
    """Read SEQUENCE { INTEGER r, INTEGER s } as Go's encoding/asn1 does.

    Args:
        signature: The bytes; more may follow behind s and behind the sequence.

    Returns:
        r, s and whether nothing follows; None if the bytes are no such sequence.
    """
    opened = _open_der(signature, 0, len(signature), 0x30)
    if opened is None:
        return None
    start, end = opened
    numbers: list[int] = []
    position = start
    for _ in range(2):
        inner = _open_der(signature, position, end, 0x02)
        if inner is None:
            return None
        low, position = inner
        raw = signature[low:position]
        if not raw or (len(raw) > 1 and ((raw[0] == 0 and raw[1] < 0x80) or (raw[0] == 0xFF and raw[1] >= 0x80))):
            return None  # Not the shortest form.
        numbers.append(int.from_bytes(raw, "big", signed=True))
    # What stands behind s inside the sequence is passed over, as Go's decoder does for a struct with fewer fields.
    return numbers[0], numbers[1], position == end == len(signature)


def _open_der(data: bytes, position: int, limit: int, tag: int) -> tuple[int, int] | None:
    """Give the borders of the content of the DER element at `position`, None if it is not of this tag or too long."""
    if position + 2 > limit or data[position] != tag:
        return None
    length = data[position + 1]
    start = position + 2
    if length >= 0x80:
        count = length & 0x7F
        if count == 0 or count > 4 or start + count > limit:
            return None
        raw = data[start : start + count]
        length = int.from_bytes(raw, "big")
        if raw[0] == 0 or length < 0x80:
            return None
        start += count
    return (start, start + length) if start + length <= limit else None


def verify(key: PublicKey, message: bytes, signature: bytes, hash_family: str = "SHA2") -> bool:
    """Check a signature by Fabric's rules.

    Args:
        key: The signer's public key.
        message: The signed bytes; hashed here for ECDSA.
        signature: DER(r, s) with low s, or 64 bytes for Ed25519.
        hash_family: What the MSP of the signer names; nothing is good under a name that Fabric does not know.
    """
    if isinstance(key, ed25519.Ed25519PublicKey):
        try:
            key.verify(signature, message)
        except InvalidSignature:
            return False
        return True
    numbers = read_der_signature(signature)
    if numbers is None:
        return False
    r, s, is_exact = numbers
    order, algorithm = GROUP_ORDERS.get(key.curve.name), _ECDSA_HASHES.get(hash_family)
    if order is None or algorithm is None or r <= 0 or s <= 0 or s > order >> 1:
        return False
    try:
        key.verify(signature if is_exact else encode_dss_signature(r, s), message, algorithm)
    except InvalidSignature:
        return False
    return True


def sign(key: PrivateKey, message: bytes) -> bytes:
    """Sign a message so that Fabric takes it: DER with low s for ECDSA, the plain form for Ed25519."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(message)
    signature = key.sign(message, _ECDSA_SHA256)
    return low_s(signature, key.curve.name)


def low_s(signature: bytes, curve_name: str) -> bytes:
    """Rewrite DER(r, s) with s := n - s where s is above half of the group order."""
    r, s = decode_dss_signature(signature)
    if s <= half_order(curve_name):
        return signature
    return encode_dss_signature(r, GROUP_ORDERS[curve_name] - s)
