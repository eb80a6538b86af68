"""How far has a checkpoint come, who signed it, and what is still missing?  Its state, for people and doors.

What is missing is found by supposing: the smallest number of further peers that would satisfy a policy, and which
organisations (or which peers, where the policy names them) they would have to be of.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations_with_replacement, islice
from typing import TypeVar

from ledger.core.channel_config import Bundle, evaluate
from ledger.core.checkpoint import CheckpointProof, PeerSignature, Statement
from ledger.core.checkpoint_proof import (
    CheckpointRules,
    CountedSigner,
    count_signature,
    global_policy_path,
    satisfying_order,
)
from ledger.core.checkpoint_tally import Height
from ledger.core.errors import InvalidCheckpoint
from ledger.core.identity import MspManager
from ledger.core.names import BlockNumber
from ledger.core.policy import extended
from ledger.core.policy.ast import Principal
from ledger.core.policy.extended import ExtendedPolicy, PeerPrincipal, Signature, Weighted
from ledger.core.policy.layouts import SUPPOSED

MORE_MAX = 6
"""Further signers that are supposed at most."""

SETS_TRIED_MAX = 500
"""Sets of further signers that are tried."""

SHOWN_MAX = 3
"""Alternatives that are named."""

Candidate = TypeVar("Candidate")


class CheckpointState(StrEnum):
    """How far a checkpoint has come."""

    PENDING = "pending"
    """Signatures are being collected."""

    VALID = "valid"
    """The global policy, and the local one where it is set, are satisfied."""

    LOCAL = "local"
    """Good enough for this peer's pruning only; joiners can't use it."""

    SUPERSEDED = "superseded"
    """A later checkpoint became valid first."""

    ABANDONED = "abandoned"
    """An admin gave it up here; nothing more is collected for it, and its state is not kept."""

    DIVERGED = "diverged"
    """Others agreed on another statement than this peer computed."""


@dataclass(frozen=True, slots=True)
class SignerStatus:
    """Who signed, for people."""

    msp_id: str
    name: str
    """Common name in the certificate; "" if it has none."""

    certificate_digest: bytes
    """SHA-256 of the sanitised certificate: with the MSP ID, who it is."""

    signed: PeerSignature


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """One checkpoint as this peer knows it."""

    number: BlockNumber
    state: CheckpointState
    statement: Statement
    """What this peer computed; where only a proof is left, what the proof says; zeros if it was given up before."""

    signers: tuple[SignerStatus, ...]
    """Of a valid checkpoint its proof, in order; of a pending one those who count so far."""

    missing: tuple[str, ...]
    """What the policies still ask for, in words: `1 more signature: Org2MSP`."""

    signed_here: bool
    """Whether this peer signed it."""


def status_of_height(height: Height, rules: CheckpointRules) -> CheckpointStatus:
    """Show a height that is being tallied."""
    missing = describe_missing(height, rules)
    for proof, state in ((height.valid, CheckpointState.VALID), (height.local, CheckpointState.LOCAL)):
        if proof is not None:  # Who made it valid: also one whose other word came here first, and does not count.
            found = status_of_proof(proof, height.bundle, state, signed_here=height.signed_here)
            return replace(found, statement=height.statement, missing=missing)
    signers = tuple(signer_status(signer) for signer in height.signers)
    statement = height.statement
    return CheckpointStatus(statement.number, CheckpointState.PENDING, statement, signers, missing, height.signed_here)


def status_of_proof(
    proof: CheckpointProof, bundle: Bundle | None, state: CheckpointState, *, signed_here: bool = False
) -> CheckpointStatus:
    """Show a checkpoint of which the proof is kept.

    Args:
        proof: Statement and signatures.
        bundle: The configuration after the block, to name the signers by; without it they have no names.
        state: How far it has come.
        signed_here: Whether this peer signed it.
    """
    signers = []
    for signed in proof.signatures:
        try:
            if bundle is not None:
                signers.append(signer_status(count_signature(proof.statement, signed, bundle)))
                continue
        except InvalidCheckpoint:
            pass  # It is shown without a name.
        signers.append(SignerStatus("", "", b"", signed))
    return CheckpointStatus(proof.statement.number, state, proof.statement, tuple(signers), (), signed_here)


def signer_status(signer: CountedSigner) -> SignerStatus:
    """Show a signer."""
    return SignerStatus(signer.identity.msp_id, signer.name, signer.identity.digest, signer.signed)


# -- what is missing


def describe_missing(height: Height, rules: CheckpointRules) -> tuple[str, ...]:
    """Say which further signatures would make a pending checkpoint valid, policy by policy."""
    if height.valid is not None:
        return ()
    found = [missing_globally(height)]
    if rules.local_policy is not None:
        found.append(missing_locally(rules.local_policy, height.signers))
    return tuple(text for text in found if text) or ("an order of the signatures in which all policies hold",)


class MixedMembers:
    """Judges real signers by the MSPs, and MSP IDs as supposed peers of those organisations."""

    def __init__(self, msps: MspManager) -> None:
        """Take the MSPs of a configuration."""
        self._msps = msps

    def satisfies(self, identity: CountedSigner | str, principal: Principal, /) -> bool:
        """Tell whether a signer is what a principal asks for."""
        if isinstance(identity, str):
            return SUPPOSED.satisfies(identity, principal)
        return self._msps.satisfies(identity.identity, principal)


def missing_globally(height: Height) -> str:
    """Say what the channel's policy for checkpoints still asks for."""
    bundle, path = height.bundle, global_policy_path(height.bundle)
    members = MixedMembers(bundle.msps)

    def holds(more: Sequence[str]) -> bool:
        signers: tuple[CountedSigner | str, ...] = (*height.signers, *more)
        return evaluate(bundle.config, path, signers, members)

    msp_ids = sorted({organisation.msp_id for organisation in bundle.application.organisations})
    return in_words(smallest(msp_ids, holds), str) or ("" if holds(()) else f"policy {path}")


@dataclass(frozen=True, slots=True)
class SupposedSigner:
    """Somebody who is exactly what one principal asks for; nobody in particular without one."""

    principal: PeerPrincipal | None

    def is_a(self, principal: PeerPrincipal) -> bool:
        """Whether this signer is what a principal describes."""
        return principal == self.principal


def missing_locally(policy: ExtendedPolicy, signers: Sequence[CountedSigner]) -> str:
    """Say what this peer's own policy still asks for."""
    named: dict[PeerPrincipal, None] = {}
    for node in policy.rule:
        if isinstance(node, Signature):
            named[node.principal] = None
        elif isinstance(node, Weighted):
            named |= dict.fromkeys(principal for principal, _ in node.weights)
    candidates = [*(SupposedSigner(principal) for principal in named), SupposedSigner(None)]

    def holds(more: Sequence[SupposedSigner]) -> bool:
        found: list[extended.PeerSigner] = [*signers, *more]
        return extended.satisfies(policy, found)

    if satisfying_order(signers, lambda order: extended.satisfies(policy, order)) is not None:
        return ""
    words = in_words(smallest(candidates, holds), lambda one: str(one.principal or "any other peer"))
    return f"local policy: {words or policy.text}"


def smallest(
    candidates: Sequence[Candidate], holds: Callable[[Sequence[Candidate]], bool]
) -> list[tuple[Candidate, ...]]:
    """Find the smallest sets of candidates with which a policy holds; none if it holds already, or none was found."""
    if holds(()):
        return []
    for count in range(1, MORE_MAX + 1):
        sets: Iterator[tuple[Candidate, ...]] = combinations_with_replacement(candidates, count)
        if found := [some for some in islice(sets, SETS_TRIED_MAX) if holds(some)]:
            return found
    return []


def in_words(sets: Sequence[tuple[Candidate, ...]], name: Callable[[Candidate], str]) -> str:
    """Name the alternatives: `1 more signature: Org2MSP or Org3MSP`."""
    if not sets:
        return ""
    count = len(sets[0])
    shown = [" and ".join(name(one) for one in some) for some in sets[:SHOWN_MAX]]
    more = " or others" if len(sets) > SHOWN_MAX else ""
    return f"{count} more signature{'s' if count > 1 else ''}: {' or '.join(shown)}{more}"


__all__ = [
    "CheckpointState",
    "CheckpointStatus",
    "SignerStatus",
    "describe_missing",
    "status_of_height",
    "status_of_proof",
]
