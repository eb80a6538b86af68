"""Who counts, and when do enough peers agree?  Judging signatures and proofs by the configuration after block *n*.

Design, section 5. A signature counts if its identity is a valid member of an organisation of the channel, has the role
of a peer, signed these very bytes, and holds a key that has not been counted yet. A **proof** is an ordered list of
signatures, and its validity is the evaluation of the policies in that order: Fabric's evaluation is greedy, so the
order is part of it. The collector sorts by identity and then searches an order that satisfies; whoever checks a proof
takes it as it stands. A proof once valid stays valid.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice, permutations

from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import CheckpointProof, PeerSignature, Statement, signed_bytes
from ledger.core.errors import InvalidCheckpoint, InvalidIdentity, PolicyNotSatisfied
from ledger.core.identity import Identity, MspManager
from ledger.core.policy import extended
from ledger.core.policy.ast import Role, RolePrincipal
from ledger.core.policy.extended import ExtendedPolicy, PeerPrincipal
from ledger.core.policy.possible import could_hold, could_satisfy
from ledger.core.policy.text import policy_text

CHECKPOINT_POLICY = "/Channel/Application/Checkpoint"
"""The channel's own policy for checkpoints (GCVP)."""

ENDORSEMENT_POLICY = "/Channel/Application/Endorsement"
"""What counts where the channel has no policy for checkpoints."""

ORDERS_MAX = 120
"""Orders of the signatures that are tried, of each kind, before the collector waits for more: all those of five."""


class Scope(StrEnum):
    """What a set of signatures is good for."""

    FULL = "full"
    """Valid: GCVP and, where one is set, LCVP."""

    LOCAL = "local"
    """Good for this peer's own pruning alone, where LCVP *or* GCVP is enough for that."""


@dataclass(frozen=True, slots=True)
class CheckpointRules:
    """By which policies a peer judges; the global one is in the channel's configuration."""

    local_policy: ExtendedPolicy | None = None
    """LCVP."""

    either_prunes: bool = False
    """Whether LCVP *or* GCVP is enough for this peer's own pruning."""


@dataclass(frozen=True, slots=True)
class CountedSigner:
    """A signature that counts, with who made it."""

    signed: PeerSignature
    identity: Identity
    public_key: bytes
    """DER SubjectPublicKeyInfo: one key counts once, whatever certificates it has."""

    name: str
    """Common name in the certificate; "" if it has none."""

    msps: MspManager = field(compare=False, repr=False)

    def is_a(self, principal: PeerPrincipal) -> bool:
        """Whether the signer is what a principal of an extended policy describes."""
        if principal.name is not None and principal.name != self.name:
            return False
        return self.msps.satisfies(self.identity, RolePrincipal(principal.msp_id, principal.role))

    @property
    def sort_key(self) -> tuple[str, bytes]:
        """By what the collector sorts: MSP ID, then digest of the certificate."""
        return self.identity.msp_id, self.identity.digest


def count_signature(statement: Statement, signed: PeerSignature, bundle: Bundle) -> CountedSigner:
    """Judge one signature by the configuration in force after the statement's block.

    1. The identity decodes, and its organisation is in the channel ("unknown identity").
    2. It is valid: chain, revocation, organisational units ("invalid identity").
    3. It has the role of a peer, or where its MSP knows no roles, that of a member ("not a peer").
    4. The signature is its own, over the statement and the identity as it is spelt ("forged signature").

    Raises:
        InvalidCheckpoint: One of these fails.
    """
    subject = f"signature on checkpoint {statement.number}"

    # 1.
    try:
        identity = bundle.msps.deserialize(signed.identity)
    except InvalidIdentity as error:
        raise InvalidCheckpoint(subject, rule="unknown identity", found=str(error)) from error

    # 2.
    try:
        bundle.msps.validate(identity)
    except InvalidIdentity as error:
        raise InvalidCheckpoint(subject, rule="invalid identity", found=str(error)) from error

    # 3.
    msp = bundle.msps.msp(identity.msp_id)
    role = Role.PEER if msp is not None and msp.has_roles else Role.MEMBER
    if not bundle.msps.satisfies(identity, RolePrincipal(identity.msp_id, role)):
        raise InvalidCheckpoint(subject, rule="not a peer", expected=f"{identity.msp_id}.{role.name.lower()}")

    # 4.
    name = identity.certificate.common_name
    if not identity.verify(signed_bytes(statement, signed.identity), signed.signature):
        raise InvalidCheckpoint(subject, rule="forged signature", found=f"{identity.msp_id} {name}")
    return CountedSigner(signed, identity, _key_bytes(identity), name, bundle.msps)


def _key_bytes(identity: Identity) -> bytes:
    """Give the key of a certificate as it is encoded there: a key that can sign has one spelling."""
    return identity.certificate.key_info


def check_proof(proof: CheckpointProof, bundle: Bundle, rules: CheckpointRules) -> tuple[CountedSigner, ...]:
    """Check a proof as it stands.

    1. Every signature counts, by the rules of `count_signature`.
    2. No key is in it twice ("key counted already").
    3. The global policy holds, evaluated in the order of the proof.
    4. Where a local policy is set, so does that.

    Returns:
        The signers in order.

    Raises:
        InvalidCheckpoint: Steps 1 and 2.
        PolicyNotSatisfied: Steps 3 and 4.
    """
    # 1.
    signers = tuple(count_signature(proof.statement, signed, bundle) for signed in proof.signatures)

    # 2.
    subject = f"proof of checkpoint {proof.statement.number}"
    if len({signer.public_key for signer in signers}) != len(signers):
        raise InvalidCheckpoint(subject, rule="key counted already", expected="each key once")

    # 3.
    if not global_holds(signers, bundle):
        raise PolicyNotSatisfied(
            subject, rule="global policy", expected=global_policy_path(bundle), found=f"{len(signers)} signatures"
        )

    # 4.
    if rules.local_policy is not None and not extended.satisfies(rules.local_policy, signers):
        raise PolicyNotSatisfied(
            subject, rule="local policy", expected=rules.local_policy.text, found=f"{len(signers)} signatures"
        )
    return signers


def global_policy_path(bundle: Bundle) -> str:
    """Name the policy that makes a checkpoint valid for everybody in a channel."""
    return CHECKPOINT_POLICY if bundle.has_policy(CHECKPOINT_POLICY) else ENDORSEMENT_POLICY


def describe_global_policy(bundle: Bundle) -> str:
    """Show that policy: `MAJORITY Endorsement (/Channel/Application/Endorsement)`."""
    path = global_policy_path(bundle)
    policy = bundle.policy(path)
    return f"{policy_text(policy) if policy is not None else 'nobody'} ({path})"


def global_holds(signers: Sequence[CountedSigner], bundle: Bundle) -> bool:
    """Evaluate the global policy over distinct signers, in their order."""
    return bundle.evaluate(global_policy_path(bundle), tuple(signer.identity for signer in signers))


def collect(
    statement: Statement, signers: Sequence[CountedSigner], bundle: Bundle, rules: CheckpointRules
) -> tuple[CheckpointProof, Scope] | None:
    """Make a proof from the signers so far, if some order of them is enough.

    Args:
        statement: What they all signed.
        signers: Distinct keys, in any order.
        bundle: The configuration in force after the statement's block.
        rules: This peer's own rules.

    Returns:
        The proof and what it is good for, the full scope if any order gives that; or None.
    """
    local = rules.local_policy

    def full(order: Sequence[CountedSigner]) -> bool:
        return global_holds(order, bundle) and (local is None or extended.satisfies(local, order))

    def either(order: Sequence[CountedSigner]) -> bool:
        return global_holds(order, bundle) or (local is not None and extended.satisfies(local, order))

    # Most often too few have signed, and no order has to be tried to know it.
    globally = could_hold(
        bundle.config,
        global_policy_path(bundle),
        lambda principal: any(bundle.msps.satisfies(signer.identity, principal) for signer in signers),
    )
    locally = local is not None and could_satisfy(local, signers)
    wanted = []
    if globally and (local is None or locally):
        wanted.append((full, Scope.FULL))
    if rules.either_prunes and (globally or locally):
        wanted.append((either, Scope.LOCAL))
    for holds, scope in wanted:
        order = satisfying_order(signers, holds)
        if order is not None:
            return CheckpointProof(statement, tuple(signer.signed for signer in order)), scope
    return None


def satisfying_order(
    signers: Sequence[CountedSigner], holds: Callable[[Sequence[CountedSigner]], bool]
) -> Sequence[CountedSigner] | None:
    """Find an order of the signers in which a policy holds: sorted by identity first, then others, boundedly many."""
    return next((order for order in _orders(signers) if holds(order)), None)


def _orders(signers: Sequence[CountedSigner]) -> Iterator[Sequence[CountedSigner]]:
    """Yield orders worth trying.

    Signers of one organisation mostly satisfy the same principals, so the orders of organisations come first: few
    where the plain permutations of a dozen signers would be 479 million.
    """
    ordered = sorted(signers, key=lambda signer: signer.sort_key)
    yield ordered
    yield from islice(_orders_by_organisation(ordered), ORDERS_MAX)
    yield from islice(permutations(ordered), ORDERS_MAX)


def _orders_by_organisation(ordered: Sequence[CountedSigner]) -> Iterator[Sequence[CountedSigner]]:
    """Yield the interleavings of organisations, each keeping its own order, in lexicographic order."""
    labels = [signer.identity.msp_id for signer in ordered]
    while True:
        queues: dict[str, list[CountedSigner]] = {}
        for signer in reversed(ordered):
            queues.setdefault(signer.identity.msp_id, []).append(signer)
        yield [queues[label].pop() for label in labels]
        if not _next_permutation(labels):
            return


def _next_permutation(labels: list[str]) -> bool:
    """Step to the next permutation with repetitions, in place; False behind the last one."""
    pivot = len(labels) - 2
    while pivot >= 0 and labels[pivot] >= labels[pivot + 1]:
        pivot -= 1
    if pivot < 0:
        return False
    other = len(labels) - 1
    while labels[other] <= labels[pivot]:
        other -= 1
    labels[pivot], labels[other] = labels[other], labels[pivot]
    labels[pivot + 1 :] = reversed(labels[pivot + 1 :])
    return True


__all__ = [
    "CHECKPOINT_POLICY",
    "ENDORSEMENT_POLICY",
    "CheckpointRules",
    "CountedSigner",
    "Scope",
    "check_proof",
    "collect",
    "count_signature",
    "describe_global_policy",
    "global_holds",
    "global_policy_path",
    "satisfying_order",
]
