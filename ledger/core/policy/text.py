"""How is a policy of the channel shown to people?  As the text that `parse` would read back, where there is one."""

from collections.abc import Sequence

from ledger.core.policy.ast import (
    AnonymityPrincipal,
    CombinedPrincipal,
    IdentityPrincipal,
    ImplicitMetaPolicy,
    MetaRule,
    NoRule,
    OutOf,
    Principal,
    Role,
    RolePrincipal,
    SignaturePolicy,
    SignedBy,
    UnitPrincipal,
    UnknownPrincipal,
)

TEXT_LENGTH_MAX = 2000
"""Longer texts are cut: they are for people."""


def policy_text(policy: SignaturePolicy | ImplicitMetaPolicy) -> str:
    """Show a policy: `MAJORITY Endorsement`, `AND('Org1MSP.peer', 'Org2MSP.peer')`."""
    if isinstance(policy, ImplicitMetaPolicy):
        rule = MetaRule(policy.rule).name if policy.rule in tuple(MetaRule) else f"rule {policy.rule}"
        return f"{rule} {policy.sub_policy}"
    shown: list[str] = []
    for node in reversed(policy.rule):  # The tree is in preorder: from its end, what a rule holds is shown already.
        match node:
            case SignedBy(index):
                known = 0 <= index < len(policy.principals)
                shown.append(principal_text(policy.principals[index]) if known else "nobody")
            case OutOf(n, count):
                held = [shown.pop() for _ in range(min(count, len(shown)))]
                shown.append(_cut(_gate(n, held)))
            case NoRule():
                shown.append("nobody")
    return shown[-1] if shown else "nobody"


def principal_text(principal: Principal) -> str:
    """Show a principal: `'Org1MSP.peer'`."""
    match principal:
        case RolePrincipal(msp_id, role):
            return f"'{msp_id}.{Role(role).name.lower() if role in tuple(Role) else role}'"
        case UnitPrincipal(msp_id, unit, _):
            return f"'{msp_id}' with unit '{unit}'"
        case IdentityPrincipal(serialized):
            return f"one certificate ({len(serialized)} bytes)"
        case CombinedPrincipal(principals):
            return _cut(" and ".join(type(each).__name__ for each in principals) or "nobody")
        case AnonymityPrincipal() | UnknownPrincipal():
            return "a principal that this peer can't show"


def _gate(n: int, held: Sequence[str]) -> str:
    if len(held) == 1 and n == 1:
        return held[0]
    inside = ", ".join(held)
    if n == len(held):
        return f"AND({inside})"
    return f"OR({inside})" if n == 1 else f"OutOf({n}, {inside})"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}…"


__all__ = ["policy_text", "principal_text"]
