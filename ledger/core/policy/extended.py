"""When do enough *peers* agree?  Fabric's policy syntax and three words more, for checkpoints (design, section 5).

    policy    = 'MSP.role'                 one signature by somebody of the MSP with the role
              | 'MSP.role#NAME'            ... whose certificate has the common name NAME
              | AND(policy, ...) | OR(policy, ...) | OutOf(n, policy, ...)
              | any(k)                     k distinct peers, whoever they are
              | weighted(t, 'P'=w, ...)    principals whose weights add up to t

Fabric's part is evaluated as Fabric does: greedily, in the order of the signatures, each of which satisfies one leaf.
`any` and `weighted` are questions about *all* signers: they use no signature up, so `AND(any(3), 'Org1MSP.peer')` means
three peers, one of them of Org1. In `weighted` each principal counts once and each signer stands for one principal; of
all ways to assign them the heaviest counts, so the order of the signatures is of no matter there.

The channel's own policy (GCVP) stands in its configuration, where only Fabric's messages fit: `as_signature_policy`
gives the same meaning in those, where there is one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NoReturn, Protocol

from ledger.core.errors import InvalidPolicy
from ledger.core.policy.ast import Node, OutOf, Role, RolePrincipal, SignaturePolicy, SignedBy

TEXT_LENGTH_MAX = 64 * 1024
"""Characters in a policy text."""

WEIGHT_MAX = 2**32
WEIGHTED_PRINCIPALS_MAX = 20
"""Principals of a weighted policy that is written out: all their sets are looked at."""

COALITIONS_MAX = 5000
"""How many ways to reach a weight are written out for a channel's configuration."""


@dataclass(frozen=True, slots=True)
class PeerPrincipal:
    """Somebody of an MSP with a role and, if `name` is set, with that common name."""

    msp_id: str
    role: Role
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.msp_id}.{self.role.name.lower()}" + ("" if self.name is None else f"#{self.name}")


@dataclass(frozen=True, slots=True)
class Signature:
    """A leaf: one signature by a principal."""

    principal: PeerPrincipal


@dataclass(frozen=True, slots=True)
class Threshold:
    """At least `n` of the `count` rules that follow in the sequence."""

    n: int
    count: int


@dataclass(frozen=True, slots=True)
class AnyPeers:
    """At least `n` distinct signers."""

    n: int


@dataclass(frozen=True, slots=True)
class Weighted:
    """Principals whose weights add up to `total` or more."""

    total: int
    weights: tuple[tuple[PeerPrincipal, int], ...]


ExtendedNode = Signature | Threshold | AnyPeers | Weighted


@dataclass(frozen=True, slots=True)
class ExtendedPolicy:
    """A parsed policy."""

    text: str
    """As it was written, for people."""

    rule: tuple[ExtendedNode, ...]
    """The tree in preorder: flat, so that depth costs no stack."""


class PeerSigner(Protocol):
    """A signer as this module sees one."""

    def is_a(self, principal: PeerPrincipal) -> bool:
        """Whether the signer is what a principal describes."""
        ...


def satisfies(policy: ExtendedPolicy, signers: Sequence[PeerSigner]) -> bool:
    """Evaluate a policy over distinct signers, in their order.

    Args:
        policy: The policy.
        signers: Those who signed; each key once, each with the role of a peer.

    Returns:
        Whether they are enough.
    """
    return _Evaluation(policy.rule, signers).run()


class _Evaluation:
    """Fabric's greedy evaluation without recursion: a threshold keeps what it used only where a rule succeeded."""

    def __init__(self, rule: Sequence[ExtendedNode], signers: Sequence[PeerSigner]) -> None:
        self.rule = rule
        self.signers = signers

    def run(self) -> bool:
        """Walk the preorder once.

        A frame is [n, rules left, successes, signers used so far]. Every rule of a threshold is evaluated, also after
        it has enough, as Fabric does.
        """
        frames: list[tuple[int, int, int, frozenset[int]]] = []
        used: frozenset[int] = frozenset()
        for node in self.rule:
            if isinstance(node, Threshold) and node.count > 0:
                frames.append((node.n, node.count, 0, used))
                continue
            done, used = self._leaf(node, used)
            while frames:
                n, left, successes, kept = frames.pop()
                kept = used if done else kept
                successes, left = successes + done, left - 1
                if left > 0:
                    frames.append((n, left, successes, kept))
                    used = kept
                    break
                done, used = successes >= n, kept
            else:
                return done
        raise AssertionError("a policy ends before its rules do")

    def _leaf(self, node: ExtendedNode, used: frozenset[int]) -> tuple[bool, frozenset[int]]:
        match node:
            case Signature(principal):
                for index, signer in enumerate(self.signers):
                    if index not in used and signer.is_a(principal):
                        return True, used | {index}
                return False, used
            case AnyPeers(n):
                return len(self.signers) >= n, used
            case Weighted(total, weights):
                return heaviest(weights, self.signers) >= total, used
            case Threshold(n, _):
                return n <= 0, used


def heaviest(weights: Sequence[tuple[PeerPrincipal, int]], signers: Sequence[PeerSigner]) -> int:
    """Return the largest weight of principals for which distinct signers stand.

    The sets of principals that can be assigned at once form a matroid, so taking the heaviest first, making room by
    reassigning (an augmenting path) where needed, is optimal.
    """
    ranked = sorted(range(len(weights)), key=lambda index: (-weights[index][1], index))
    able = [[i for i, signer in enumerate(signers) if signer.is_a(principal)] for principal, _ in weights]
    stands_for: dict[int, int] = {}
    return sum(weights[index][1] for index in ranked if _assign(index, able, stands_for))


def _assign(principal: int, able: Sequence[Sequence[int]], stands_for: dict[int, int]) -> bool:
    """Find a signer for one more principal, moving others if that makes room (breadth first)."""
    came_from: dict[int, int] = {}
    queue = [principal]
    for current in queue:
        for signer in able[current]:
            if signer in came_from:
                continue
            came_from[signer] = current
            if signer in stands_for:
                queue.append(stands_for[signer])
                continue
            free = signer
            while True:  # Back along the path: each signer goes to the principal that reached it.
                owner = came_from[free]
                previous = next((s for s, p in stands_for.items() if p == owner), None)
                stands_for[free] = owner
                if previous is None:
                    return True
                free = previous
    return False


_TOKEN = re.compile(r"\s*(?:(?P<quoted>'[^']*'|\"[^\"]*\")|(?P<word>[A-Za-z]+)|(?P<number>[0-9]+)|(?P<sign>[(),=]))")
_PRINCIPAL = re.compile(r"([A-Za-z0-9.-]+)\.(member|admin|client|peer|orderer)(?:#(.+))?", re.DOTALL)


def parse(text: str) -> ExtendedPolicy:
    """Read a policy text.

    Raises:
        InvalidPolicy: It is not one; the message says where.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidPolicy(
            "checkpoint policy", rule="length", expected=f"at most {TEXT_LENGTH_MAX} characters", found=len(text)
        )
    parser = _Parser(text)
    rule = parser.policy()
    parser.end()
    return ExtendedPolicy(text.strip(), tuple(rule))


class _Parser:
    """Reads one policy left to right; open AND, OR, OutOf are kept on a list, not on the stack."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0

    def policy(self) -> list[ExtendedNode]:
        """Read a policy into preorder."""
        rule: list[ExtendedNode] = []
        opened: list[tuple[int, str, int, int]] = []  # (place in rule, word, n, rules so far)
        while True:
            kind, word = self.next("a policy")
            if kind == "quoted":
                rule.append(Signature(self.principal(word)))
            elif kind == "word" and word.upper() in ("AND", "OR", "OUTOF"):
                self.sign("(")
                n = 0
                if word.upper() == "OUTOF":
                    n = self.number()
                    self.sign(",")
                opened.append((len(rule), word.upper(), n, 0))
                rule.append(Threshold(n, 0))
                continue
            elif kind == "word" and word == "any":
                self.sign("(")
                rule.append(AnyPeers(self.positive()))
                self.sign(")")
            elif kind == "word" and word == "weighted":
                rule.append(self.weighted())
            else:
                self.refuse("a policy", word)
            while opened:
                place, name, n, count = opened.pop()
                count += 1
                if self.sign(",", ")") == ",":
                    opened.append((place, name, n, count))
                    break
                rule[place] = self.threshold(name, n, count)
            else:
                return rule

    def threshold(self, name: str, n: int, count: int) -> Threshold:
        """Close AND, OR or OutOf over `count` rules."""
        if name == "OUTOF" and n > count + 1:  # Fabric's own bound.
            self.refuse(f"at most {count + 1}", str(n))
        return Threshold({"AND": count, "OR": 1}.get(name, n), count)

    def weighted(self) -> Weighted:
        """Read what stands behind the word `weighted`."""
        self.sign("(")
        total = self.positive()
        weights: list[tuple[PeerPrincipal, int]] = []
        while self.sign(",", ")") == ",":
            kind, word = self.next("a principal")
            if kind != "quoted":
                self.refuse("a principal in quotes", word)
            principal = self.principal(word)
            if any(principal == other for other, _ in weights):
                self.refuse("each principal once", str(principal))
            self.sign("=")
            weights.append((principal, self.positive()))
        if sum(weight for _, weight in weights) < total:
            self.refuse(f"weights that add up to {total}", str(sum(weight for _, weight in weights)))
        return Weighted(total, tuple(weights))

    def principal(self, quoted: str) -> PeerPrincipal:
        """Read 'MSP.role' or 'MSP.role#NAME'."""
        match = _PRINCIPAL.fullmatch(quoted[1:-1])
        if match is None:
            self.refuse("'MSP.role' or 'MSP.role#NAME'", quoted)
        return PeerPrincipal(match[1], Role[match[2].upper()], match[3])

    def positive(self) -> int:
        """Read a number from 1 on."""
        number = self.number()
        if not 1 <= number <= WEIGHT_MAX:
            self.refuse(f"a number from 1 to {WEIGHT_MAX}", str(number))
        return number

    def number(self) -> int:
        """Read a number, also one in quotes, as Fabric does."""
        kind, word = self.next("a number")
        digits = word.strip("'\"") if kind == "quoted" else word
        if not re.fullmatch(r"[0-9]{1,10}", digits):
            self.refuse("a number", word)
        return int(digits)

    def sign(self, *expected: str) -> str:
        """Read one of some signs."""
        _, word = self.next(" or ".join(expected))
        if word not in expected:
            self.refuse(" or ".join(expected), word)
        return word

    def next(self, expected: str) -> tuple[str, str]:
        """Read one token as (kind, text)."""
        match = _TOKEN.match(self.text, self.offset)
        if match is None:
            self.refuse(expected, self.text[self.offset : self.offset + 20] or "the end")
        self.offset = match.end()
        kind = match.lastgroup
        assert kind is not None, "every alternative of the token is named"
        return kind, match[kind]

    def end(self) -> None:
        """Refuse whatever follows."""
        if rest := self.text[self.offset :].strip():
            self.refuse("the end", rest[:20])

    def refuse(self, expected: str, found: str) -> NoReturn:
        """Say what is wrong, and where."""
        raise InvalidPolicy(
            f"checkpoint policy at character {self.offset}", rule="syntax", expected=expected, found=found
        )


def as_signature_policy(policy: ExtendedPolicy, msp_ids: Sequence[str]) -> SignaturePolicy:
    """Say the same in Fabric's messages, for `/Channel/Application/Checkpoint`.

    Args:
        policy: The policy.
        msp_ids: The organisations whose peers `any` means.

    Returns:
        A signature policy that the same signers satisfy.

    Raises:
        InvalidPolicy: It names a common name, which a channel's configuration can't; or it combines `any` or
            `weighted` with other rules, whose signatures those would use up there; or it would be too long.
    """
    if len(policy.rule) > 1 and any(isinstance(node, AnyPeers | Weighted) for node in policy.rule):
        raise InvalidPolicy(policy.text, rule="channel policy", expected="any or weighted alone")
    principals: list[RolePrincipal] = []
    rule: list[Node] = []

    def leaf(principal: PeerPrincipal) -> None:
        if principal.name is not None:
            raise InvalidPolicy(policy.text, rule="channel policy", expected="no common name", found=principal)
        rule.append(SignedBy(len(principals)))
        principals.append(RolePrincipal(principal.msp_id, principal.role))

    for node in policy.rule:
        match node:
            case Signature(principal):
                leaf(principal)
            case Threshold(n, count):
                rule.append(OutOf(n, count))
            case AnyPeers(n):
                rule.append(OutOf(n, n * len(msp_ids)))
                for msp_id in msp_ids:
                    for _ in range(n):
                        leaf(PeerPrincipal(msp_id, Role.PEER))
            case Weighted():
                coalitions = _coalitions(policy, node)
                rule.append(OutOf(1, len(coalitions)))
                for coalition in coalitions:
                    rule.append(OutOf(len(coalition), len(coalition)))
                    for principal in coalition:
                        leaf(principal)
    return SignaturePolicy(0, tuple(rule), tuple(principals))


def _coalitions(policy: ExtendedPolicy, node: Weighted) -> list[tuple[PeerPrincipal, ...]]:
    """List the smallest sets of principals that reach the weight, those of fewer principals first.

    Weights are positive: a set is smallest if it does not reach the weight without its lightest member.
    """

    def refuse(expected: str, found: int) -> NoReturn:
        raise InvalidPolicy(policy.text, rule="channel policy", expected=expected, found=found)

    if len(node.weights) > WEIGHTED_PRINCIPALS_MAX:
        refuse(f"at most {WEIGHTED_PRINCIPALS_MAX} principals", len(node.weights))
    found: list[tuple[PeerPrincipal, ...]] = []
    for size in range(1, len(node.weights) + 1):
        for chosen in combinations(node.weights, size):
            reached = sum(weight for _, weight in chosen)
            if reached >= node.total > reached - min(weight for _, weight in chosen):
                found.append(tuple(principal for principal, _ in chosen))
            if len(found) > COALITIONS_MAX:
                refuse(f"at most {COALITIONS_MAX} coalitions", len(found))
    return found


__all__ = [
    "AnyPeers",
    "ExtendedNode",
    "ExtendedPolicy",
    "PeerPrincipal",
    "PeerSigner",
    "Signature",
    "Threshold",
    "Weighted",
    "as_signature_policy",
    "heaviest",
    "parse",
    "satisfies",
]
