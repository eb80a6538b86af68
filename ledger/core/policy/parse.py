"""Which policy does this text mean?  Fabric's command-line syntax (common/policydsl/policyparser.go).

    AND('Org1MSP.peer', OR('Org2MSP.member', 'Org3MSP.admin'))      OutOf(2, 'A.peer', 'B.peer', 'C.peer')

AND is all of its rules, OR one of them; names are taken in three spellings (AND, And, and). Every mention of a
principal makes an entry of the list, from left to right, so that the encoding equals that of Fabric's tools.
"""

import re
from dataclasses import dataclass, field

from ledger.core.errors import InvalidPolicy
from ledger.core.policy.ast import Node, OutOf, Principal, Role, RolePrincipal, SignaturePolicy, SignedBy

TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z]+)\s*\(|(?P<quoted>'[^']*'|\"[^\"]*\")|(?P<number>\d+)|(?P<mark>[(),]))")
PRINCIPAL = re.compile(r"([A-Za-z0-9.-]+)\.(member|admin|client|peer|orderer)")
DEPTH_MAX = 100
"""Nesting that people write; deeper texts are refused."""


@dataclass(slots=True)
class _Gate:
    """A gate whose arguments are being read."""

    name: str
    position: int
    n: int | None
    parts: list[list[Node]] = field(default_factory=list)


def parse_policy(text: str) -> SignaturePolicy:
    """Parse a policy text.

    Raises:
        InvalidPolicy: The text is none; the error names the place.
    """
    principals: list[Principal] = []
    gates: list[_Gate] = []
    done: list[Node] | None = None
    position, wants_part = 0, True
    while position < len(text.rstrip()):
        match = TOKEN.match(text, position)
        if match is None or (done is not None and not gates):
            raise _error(text, position, "the end" if done is not None else "a gate or a principal")
        start, position = match.start(match.lastgroup or 0), match.end()
        if match["mark"] == ",":
            if wants_part or not gates:
                raise _error(text, start, "a gate or a principal")
            wants_part = True
            continue
        if match["mark"] == ")":
            if wants_part or not gates:
                raise _error(text, start, "a gate or a principal")
            done = _close(text, gates.pop())
        elif not wants_part or match["mark"]:
            raise _error(text, start, "',' or ')'")
        elif match["name"]:
            gates.append(_open(text, start, match["name"]))
            if len(gates) > DEPTH_MAX:
                raise _error(text, start, f"at most {DEPTH_MAX} levels")
            continue
        elif (digits := _digits(match)) and _wants_number(gates):
            gates[-1].n = int(digits)
            wants_part = False
            continue
        elif match["number"]:
            raise _error(text, start, "a gate or a principal")
        else:
            principals.append(_principal(text, start, match["quoted"][1:-1]))
            done = [SignedBy(len(principals) - 1)]
        if gates:
            gates[-1].parts.append(done)
        wants_part = False
    if done is None or gates:
        raise _error(text, len(text), "')'" if gates else "a gate or a principal")
    return SignaturePolicy(0, tuple(done), tuple(principals))


def _digits(match: re.Match[str]) -> str:
    """Give the digits of a number, which may stand in quotes; empty if a token is none."""
    token = match["number"] or (match["quoted"] or "  ")[1:-1]
    return token if re.fullmatch(r"[0-9]{1,9}", token) else ""


def _wants_number(gates: list[_Gate]) -> bool:
    """Tell whether the innermost gate is an OutOf that has not said its number."""
    return bool(gates) and gates[-1].name == "outof" and gates[-1].n is None and not gates[-1].parts


def _open(text: str, position: int, name: str) -> _Gate:
    lower = name.lower()
    spellings = {"and": ("AND", "And", "and"), "or": ("OR", "Or", "or"), "outof": ("OutOf", "OUTOF", "outof")}
    if name not in spellings.get(lower, ()):
        raise _error(text, position, "AND, OR or OutOf", name)
    return _Gate(lower, position, None)


def _close(text: str, gate: _Gate) -> list[Node]:
    """Write a gate in preorder."""
    count = len(gate.parts)
    if gate.name == "outof" and gate.n is None:
        raise _error(text, gate.position, "OutOf(n, …)")
    if count == 0:
        raise _error(text, gate.position, "at least one rule")
    n = {"and": count, "or": 1}.get(gate.name, gate.n or 0)
    if n > count + 1:
        raise _error(text, gate.position, f"n from 0 to {count + 1}", str(n))
    nodes: list[Node] = [OutOf(n, count)]
    for part in gate.parts:
        nodes += part
    return nodes


def _principal(text: str, position: int, name: str) -> RolePrincipal:
    match = PRINCIPAL.fullmatch(name)
    if match is None:
        raise _error(text, position, "'MSPID.role' with role member, admin, client, peer or orderer", name)
    return RolePrincipal(match[1], Role[match[2].upper()])


def _error(text: str, position: int, expected: str, found: str | None = None) -> InvalidPolicy:
    rest = found if found is not None else text[position : position + 20] or "the end"
    return InvalidPolicy(f"policy {text!r}", rule=f"syntax at character {position}", expected=expected, found=rest)
