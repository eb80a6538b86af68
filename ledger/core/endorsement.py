"""Did the right ones endorse?  Policies of chaincodes, collections and keys, evaluated over a transaction's endorsers.

Evaluation is Fabric's: greedy, over the *ordered* endorsers with valid signatures, each identity once. So its result is
a function of the policy, of that ordered tuple and of the configuration, and is remembered by exactly these.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ledger.core.channel_config import Bundle
from ledger.core.definitions import IMPLICIT_PREFIX, LIFECYCLE, Definition
from ledger.core.errors import MalformedMessage
from ledger.core.identity import Identity
from ledger.core.policy.ast import (
    ApplicationPolicy,
    OutOf,
    PolicyReference,
    Role,
    RolePrincipal,
    SignaturePolicy,
    SignedBy,
)
from ledger.core.policy.evaluate import satisfies
from ledger.core.ports import Codec

LIFECYCLE_PATH = "/Channel/Application/LifecycleEndorsement"
"""Policy of the channel that endorses definitions."""

ENTRIES_MAX = 10_000
"""Remembered results; beyond, all are forgotten: an attacker may make new combinations for ever."""


@dataclass(frozen=True, slots=True)
class Endorsers:
    """Who endorsed a transaction with a valid signature, in order, each identity once."""

    identities: tuple[Identity, ...]

    names: tuple[tuple[str, bytes], ...]
    """(MSP ID, certificate digest) of each: what policy results are remembered by."""

    @classmethod
    def of(cls, identities: Sequence[Identity]) -> "Endorsers":
        """Name the identities."""
        return cls(tuple(identities), tuple([(each.msp_id, each.digest) for each in identities]))

    def __str__(self) -> str:
        """List them for a message."""
        return ", ".join(f"{msp_id} {digest.hex()[:8]}" for msp_id, digest in self.names) or "nobody"


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """A key-level parameter as stored: SignaturePolicyEnvelope bytes."""

    parameter: bytes


Rule = bytes | PolicyReference | SignaturePolicy | KeyPolicy
"""A policy to evaluate: bytes of an ApplicationPolicy, or one of the others."""


class Policies:
    """Evaluates policies under one configuration.

    Args:
        bundle: The configuration.
        codec: Decodes policies.
    """

    def __init__(self, bundle: Bundle, codec: Codec) -> None:
        """Remember nothing yet."""
        self.bundle = bundle
        self._codec = codec
        self._results: dict[tuple[Rule, tuple[tuple[str, bytes], ...]], bool] = {}
        self._built_in: dict[str, Rule | None] = {}

    def satisfied(self, rule: Rule, endorsers: Endorsers) -> bool:
        """Tell whether the endorsers satisfy a policy; one that does not decode or compile is satisfied by nobody."""
        key = (rule, endorsers.names)
        result = self._results.get(key)
        if result is None:
            if len(self._results) >= ENTRIES_MAX:
                self._results.clear()
            result = self._results[key] = self._evaluate(rule, endorsers.identities)
        return result

    def _evaluate(self, rule: Rule, identities: tuple[Identity, ...]) -> bool:
        policy = self.decoded(rule)
        if policy is None:
            return False
        if isinstance(policy, PolicyReference):
            return self.bundle.evaluate(policy.path, identities)
        return satisfies(policy, identities, self.bundle.msps)

    def decoded(self, rule: Rule) -> ApplicationPolicy | None:
        """Give a rule as a policy; None if it does not decode, and is satisfied by nobody."""
        try:
            if isinstance(rule, bytes):
                return self._codec.application_policy(rule)
            return self._codec.signature_policy(rule.parameter) if isinstance(rule, KeyPolicy) else rule
        except MalformedMessage:
            return None

    def of_chaincode(self, name: str, definition: Definition) -> Rule:
        """Give the endorsement policy of a chaincode."""
        if name != LIFECYCLE:
            return definition.parameter
        rule = self._remembered(LIFECYCLE, self._lifecycle_rule)
        assert rule is not None, "there is always a policy for definitions"
        return rule

    def of_implicit(self, collection: str) -> Rule | None:
        """Give the endorsement policy of an organisation's implicit collection; None if there is no such one."""
        return self._remembered(collection, lambda: self._implicit_rule(collection.removeprefix(IMPLICIT_PREFIX)))

    def _remembered(self, name: str, make: Callable[[], Rule | None]) -> Rule | None:
        if name not in self._built_in:
            if len(self._built_in) >= ENTRIES_MAX:
                self._built_in.clear()
            self._built_in[name] = make()
        return self._built_in[name]

    def _lifecycle_rule(self) -> Rule:
        """Take the channel's policy for definitions or, where it has none, a member each of most organisations."""
        if self.bundle.has_policy(LIFECYCLE_PATH):
            return PolicyReference(LIFECYCLE_PATH)
        msp_ids = sorted(each.msp_id for each in self.bundle.application.organisations)
        return members_of(msp_ids, len(msp_ids) // 2 + 1)

    def _implicit_rule(self, msp_id: str) -> Rule | None:
        """Take the organisation's own endorsement policy or, where it has none, any member."""
        names = sorted(each.name for each in self.bundle.application.organisations if each.msp_id == msp_id)
        if not msp_id or not names:
            return None
        path = f"/Channel/Application/{names[0]}/Endorsement"
        return PolicyReference(path) if self.bundle.has_policy(path) else members_of([msp_id], 1)


def members_of(msp_ids: Sequence[str], count: int) -> SignaturePolicy:
    """Make the policy "`count` of these organisations, a member each"."""
    leaves = tuple(SignedBy(index) for index in range(len(msp_ids)))
    principals = tuple(RolePrincipal(msp_id, Role.MEMBER) for msp_id in msp_ids)
    return SignaturePolicy(0, (OutOf(count, len(leaves)), *leaves), principals)


__all__ = ["Endorsers", "KeyPolicy", "Policies", "Rule"]
