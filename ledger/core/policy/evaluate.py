"""Do these signatures satisfy this policy?  Fabric's two steps, greedy and in order (facts: cauthdsl, policies).

Step 1 makes identities of the signature set, in order: an identity that does not deserialise is dropped, one that was
there already is dropped *before* its signature is checked, one whose signature is bad is dropped; only a good signature
is remembered, so a bad first copy does not block a good second one.

Step 2 walks the rule. A leaf takes the first identity, in order, that is not used yet and satisfies its principal.
"n out of" evaluates all its rules, each on a copy of what is used, and keeps the copy only where the rule succeeded.
There is no going back: order can make a satisfiable set fail. The walk keeps its own stack, since policies may nest
ten thousand levels deep.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ledger.core.errors import InvalidIdentity
from ledger.core.identity import Identity, MspManager
from ledger.core.policy.ast import NoRule, OutOf, Principal, SignaturePolicy, SignedBy

Signer = TypeVar("Signer")
SignerIn = TypeVar("SignerIn", contravariant=True)


class Members(Protocol[SignerIn]):
    """Knows who is what; the MSPs of a configuration are the one that verdicts come from."""

    def satisfies(self, identity: SignerIn, principal: Principal, /) -> bool:
        """Tell whether an identity is what a principal asks for."""
        ...


@dataclass(frozen=True, slots=True)
class SignedData:
    """One signature of a set."""

    message: bytes
    """What is signed."""

    identity: bytes
    """SerializedIdentity of the signer."""

    signature: bytes


def valid_identities(signed: Sequence[SignedData], msps: MspManager) -> tuple[Identity, ...]:
    """Make the ordered, distinct identities whose signatures are good (step 1).

    Args:
        signed: The signature set in its order.
        msps: The MSPs of the configuration in force.

    Returns:
        Identities in order; not yet known to be valid members.
    """
    found: dict[tuple[str, bytes], Identity] = {}
    for one in signed:
        try:
            identity = msps.deserialize(one.identity)
        except InvalidIdentity:
            continue
        if identity.key not in found and identity.verify(one.message, one.signature):
            found[identity.key] = identity
    return tuple(found.values())


def is_well_formed(policy: SignaturePolicy) -> bool:
    """Tell whether a policy can be evaluated at all: every leaf names a principal and every rule has content."""
    count = len(policy.principals)
    return bool(policy.rule) and all(
        not isinstance(node, NoRule) and (not isinstance(node, SignedBy) or 0 <= node.index < count)
        for node in policy.rule
    )


def satisfies(policy: SignaturePolicy, identities: Sequence[Signer], msps: Members[Signer]) -> bool:
    """Evaluate a signature policy over ordered identities (step 2).

    A policy that is not well formed is satisfied by nobody.
    """
    if not is_well_formed(policy):
        return False
    stack: list[_Frame] = []
    used = 0
    for node in policy.rule:
        if isinstance(node, OutOf) and node.count > 0:
            stack.append(_Frame(node.n, node.count, used))
            continue
        if isinstance(node, SignedBy):
            ok, after = _take(policy, node.index, identities, used, msps)
        else:
            ok, after = isinstance(node, OutOf) and node.n <= 0, used
        while stack:
            frame = stack[-1]
            frame.left -= 1
            if ok:
                frame.satisfied += 1
                frame.used = after
            if frame.left:
                break
            ok, after = frame.satisfied >= frame.n, frame.used
            stack.pop()
        if not stack:
            return ok
        used = stack[-1].used
    raise AssertionError("a rule in preorder ends with its last leaf")


class _Frame:
    """An "n out of" under evaluation."""

    __slots__ = ("left", "n", "satisfied", "used")

    def __init__(self, n: int, left: int, used: int) -> None:
        self.n = n
        self.left = left
        self.satisfied = 0
        self.used = used


def _take(
    policy: SignaturePolicy, index: int, identities: Sequence[Signer], used: int, msps: Members[Signer]
) -> tuple[bool, int]:
    """Use the first free identity that satisfies a principal; `used` is a bit set over the identities."""
    principal = policy.principals[index]
    for position, identity in enumerate(identities):
        if not used >> position & 1 and msps.satisfies(identity, principal):
            return True, used | 1 << position
    return False, used


def satisfies_slowly(policy: SignaturePolicy, identities: Sequence[Identity], msps: MspManager) -> bool:
    """Evaluate a policy by recursion, as the definition reads: the slow, obvious twin of `satisfies`."""
    if not is_well_formed(policy):
        return False
    nodes = iter(policy.rule)

    def walk(used: set[int]) -> bool:
        node = next(nodes)
        if isinstance(node, SignedBy):
            for position, identity in enumerate(identities):
                if position not in used and msps.satisfies(identity, policy.principals[node.index]):
                    used.add(position)
                    return True
            return False
        assert isinstance(node, OutOf)
        satisfied = 0
        for _ in range(node.count):
            copy = set(used)
            if walk(copy):
                satisfied += 1
                used.clear()
                used.update(copy)
        return satisfied >= node.n

    return walk(set())
