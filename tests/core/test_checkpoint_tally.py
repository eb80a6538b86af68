"""What a peer does with CHECKPOINT messages: what counts, what is dropped by which rule, and what follows in order."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from ledger.core import checkpoint_tally
from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import CheckpointMessage, CheckpointProof, PeerSignature, Statement
from ledger.core.checkpoint_proof import CheckpointRules, Scope, check_proof
from ledger.core.checkpoint_tally import (
    EARLY_BYTES_PER_SOURCE_MAX,
    EARLY_SOURCES_MAX,
    HEIGHTS_MAX,
    Arrived,
    Computed,
    Diverged,
    Dropped,
    Effect,
    Evidence,
    OwnSignatureSeen,
    Persist,
    ProofArrived,
    Send,
    Tally,
    TallySettings,
    Valid,
    step,
)
from ledger.core.names import BlockNumber
from ledger.core.policy import extended
from ledger.services.checkpointing.signing import own_identity
from tests.kit.checkpointing import CHANNEL_ID, default_bundle, make_bundle, message, organisations, proof, statement_at
from tests.kit.organisations import Signer, make_organisation

ORG1, ORG2, ORG3, ORG4 = organisations(4)
A, B, C = ORG1.peer, ORG2.peer, ORG3.peer
THREE = default_bundle(3)
"""A majority: two of three organisations."""

AT_10, OTHER_AT_10 = statement_at(10), statement_at(10, "other")


class Machine:
    """A peer's machine, with everything that it ever wanted done."""

    def __init__(
        self, bundle: Bundle = THREE, own: Signer | None = A, *, local: str | None = None, either: bool = False
    ) -> None:
        self.bundle = bundle
        self.own = own
        rules = CheckpointRules(extended.parse(local) if local else None, either)
        identity = own_identity(own.serialized) if own else None
        settings = TallySettings(CHANNEL_ID, rules, own.serialized if own else b"", identity)
        self.tally = Tally(settings)
        self.effects: list[Effect] = []

    def take(self, event: Any) -> tuple[Effect, ...]:
        before = self.tally
        self.tally, effects = step(before, event)
        assert step(before, event)[1] == effects, "a step depends on the state and the event alone"
        self.effects += effects
        return effects

    def compute(self, statement: Statement, *, sign: bool = True) -> tuple[Effect, ...]:
        own = message(self.own, statement) if sign and self.own else None
        return self.take(Computed(statement, self.bundle, own))

    def hear(self, signer: Signer, statement: Statement, source: str = "somebody") -> tuple[Effect, ...]:
        return self.take(Arrived(message(signer, statement), source))

    def hear_proof(self, statement: Statement, *signers: Signer) -> tuple[Effect, ...]:
        return self.take(ProofArrived(proof(statement, *signers), "somebody"))

    @property
    def valid(self) -> int | None:
        latest = self.tally.latest_valid
        return latest.statement.number if latest is not None else None


def kinds(effects: Sequence[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def rules_of(effects: Sequence[Effect]) -> list[str]:
    """The rules by which something was dropped."""
    return [effect.rule for effect in effects if isinstance(effect, Dropped)]


def valid_proof(effects: Sequence[Effect], scope: Scope = Scope.FULL) -> CheckpointProof:
    (found,) = [effect for effect in effects if isinstance(effect, Valid)]
    assert found.scope is scope
    return found.proof


# -- the good case, in order


def test_own_statement_is_persisted_before_it_is_sent() -> None:
    machine = Machine()
    effects = machine.compute(AT_10)
    assert kinds(effects) == ["Persist", "Send", "Counted"]
    assert effects[0] == Persist(message(A, AT_10))
    assert effects[1] == Send(message(A, AT_10))


def test_the_vote_that_completes_the_policy_makes_the_checkpoint_valid() -> None:
    machine = Machine()
    machine.compute(AT_10)
    effects = machine.hear(B, AT_10)
    assert kinds(effects) == ["Counted", "Valid"]
    found = valid_proof(effects)
    assert check_proof(found, THREE, CheckpointRules())
    assert machine.valid == 10


def test_our_own_signature_is_sent_before_the_validity_that_it_completes_is_told() -> None:
    machine = Machine()
    machine.hear(B, AT_10)
    assert kinds(machine.compute(AT_10)) == ["Persist", "Send", "Counted", "Counted", "Valid"]


def test_a_checkpoint_becomes_valid_without_our_signature() -> None:
    machine = Machine()
    assert machine.compute(AT_10, sign=False) == ()
    machine.hear(B, AT_10)
    valid_proof(machine.hear(C, AT_10))


def test_a_proof_from_somebody_is_taken_as_it_stands() -> None:
    machine = Machine()
    machine.compute(AT_10, sign=False)
    effects = machine.hear_proof(AT_10, C, B)
    assert valid_proof(effects) == proof(AT_10, C, B)
    assert kinds(effects) == ["Counted", "Counted", "Valid"]


def test_signatures_of_a_proof_that_is_not_enough_count_one_by_one() -> None:
    machine = Machine(default_bundle(4))
    machine.compute(AT_10)
    assert kinds(machine.hear_proof(AT_10, B)) == ["Counted"]
    valid_proof(machine.hear_proof(AT_10, C))


def test_once_valid_a_checkpoint_stays_valid_and_later_signatures_change_nothing() -> None:
    machine = Machine()
    machine.compute(AT_10)
    first = valid_proof(machine.hear(B, AT_10))
    assert kinds(machine.hear(C, AT_10)) == ["Counted"]
    assert rules_of(machine.hear_proof(AT_10, C, B)) == ["repeated"]
    machine.hear(B, OTHER_AT_10)
    assert machine.tally.latest_valid == machine.tally.heights[BlockNumber(10)].valid == first


def test_a_later_checkpoint_replaces_what_is_pending_below() -> None:
    machine = Machine()
    machine.compute(AT_10)
    machine.compute(statement_at(20))
    machine.hear(B, statement_at(20))
    assert machine.valid == 20
    assert list(machine.tally.heights) == [20]
    assert rules_of(machine.hear(B, AT_10)) == ["late"]
    assert rules_of(machine.hear_proof(AT_10, A, B)) == ["late"]
    assert machine.valid == 20


def test_a_start_that_computes_again_what_is_valid_says_nothing() -> None:
    machine = Machine()
    machine.tally = replace(machine.tally, latest_valid=proof(AT_10, A, B))
    assert machine.compute(AT_10) == ()
    assert machine.compute(AT_10) == ()
    assert "Persist" in kinds(machine.compute(statement_at(20)))


# -- what is dropped, by name


def test_foreign_channel_is_dropped() -> None:
    machine = Machine()
    foreign = statement_at(10, channel="elsewhere")
    machine.compute(AT_10)
    assert rules_of(machine.hear(B, foreign)) == ["foreign channel"]
    assert rules_of(machine.hear_proof(foreign, B, C)) == ["foreign channel"]
    assert machine.tally.early == {}


def test_early_message_is_kept_and_counts_once_its_height_is_reached() -> None:
    machine = Machine()
    assert machine.hear(B, AT_10) == ()
    assert machine.hear(B, statement_at(20)) == ()
    effects = machine.compute(AT_10)
    assert machine.valid == 10
    assert "Valid" in kinds(effects)
    assert list(machine.tally.early["somebody"]) == [message(B, statement_at(20))]


def test_early_message_that_comes_twice_is_repeated() -> None:
    machine = Machine()
    machine.hear(B, AT_10)
    assert rules_of(machine.hear(B, AT_10)) == ["repeated"]


def test_early_proof_is_dropped_for_it_will_be_asked_for() -> None:
    assert rules_of(Machine().hear_proof(AT_10, A, B)) == ["early"]


def test_memory_for_early_messages_is_bounded_and_a_flood_displaces_only_its_own() -> None:
    machine = Machine()
    machine.hear(C, AT_10, "honest")
    padding = PeerSignature(bytes(16 * 1024), b"")
    dropped: list[str] = []
    for number in range(1000, 0, -1):  # The nearest last: it displaces what is farther away.
        flood = CheckpointMessage(statement_at(number), padding, 10)
        dropped += rules_of(machine.take(Arrived(flood, "flood")))
    kept = machine.tally.early["flood"]
    assert set(dropped) == {"early"}
    assert len(kept) * 16 * 1024 <= EARLY_BYTES_PER_SOURCE_MAX
    assert [one.statement.number for one in kept] == list(range(1, len(kept) + 1))
    machine.compute(AT_10)
    assert machine.valid == 10


def test_more_sources_than_are_remembered_are_dropped_as_early() -> None:
    machine = Machine()
    for number in range(EARLY_SOURCES_MAX):
        assert machine.hear(B, AT_10, f"source {number}") == ()
    assert rules_of(machine.hear(B, AT_10, "one more")) == ["early"]


def test_early_message_about_a_height_that_is_no_checkpoint_is_dropped_when_it_is_passed() -> None:
    machine = Machine()
    machine.hear(B, statement_at(7))
    assert "no checkpoint here" in rules_of(machine.compute(AT_10))
    assert rules_of(machine.hear(B, statement_at(8))) == ["no checkpoint here"]
    assert machine.tally.early == {}


def test_repeated_message_counts_once() -> None:
    machine = Machine(default_bundle(4))
    machine.compute(AT_10)
    machine.hear(B, AT_10)
    assert rules_of(machine.hear(B, AT_10)) == ["repeated"]
    assert len(machine.tally.heights[BlockNumber(10)].signers) == 2


def test_a_second_signature_by_one_peer_on_the_same_statement_is_repeated() -> None:
    machine = Machine(default_bundle(4))
    machine.compute(AT_10)
    machine.hear(B, AT_10)
    again = CheckpointMessage(AT_10, PeerSignature(B.serialized, B.sign(AT_10.encoded + B.serialized)), 10)
    assert again.signed.signature != message(B, AT_10).signed.signature
    assert rules_of(machine.take(Arrived(again, "somebody"))) == ["repeated"]


def test_stranger_is_dropped() -> None:
    machine = Machine()
    machine.compute(AT_10)
    assert rules_of(machine.hear(ORG4.peer, AT_10)) == ["unknown identity"]
    assert rules_of(machine.hear(make_organisation("Org2MSP").peer, AT_10)) == ["unknown identity"]
    assert rules_of(machine.take(Arrived(replace_identity(b"no identity"), "somebody"))) == ["unknown identity"]
    assert rules_of(machine.hear_proof(AT_10, B, ORG4.peer)) == ["unknown identity"]
    assert machine.valid is None


def replace_identity(identity: bytes) -> CheckpointMessage:
    return replace(message(B, AT_10), signed=PeerSignature(identity, b"signature"))


def test_member_that_is_no_peer_is_dropped() -> None:
    machine = Machine()
    machine.compute(AT_10)
    for signer in (ORG2.client, ORG2.admin, ORG2.issue("orderer", "orderer")):
        assert rules_of(machine.hear(signer, AT_10)) == ["not a peer"]
    assert machine.valid is None


def test_identity_without_exactly_one_role_is_dropped_as_invalid() -> None:
    machine = Machine()
    machine.compute(AT_10)
    for units in ((), ("peer", "admin")):
        assert rules_of(machine.hear(ORG2.issue_odd("odd", units), AT_10)) == ["invalid identity"]


def test_revoked_peer_is_dropped_as_invalid() -> None:
    organisation = make_organisation("Org2MSP")
    revoked = organisation.issue("revoked", "peer")
    organisation.revoked.append(revoked.certificate)
    machine = Machine(make_bundle((ORG1, organisation)))
    machine.compute(AT_10)
    assert rules_of(machine.hear(revoked, AT_10)) == ["invalid identity"]
    valid_proof(machine.hear(organisation.peer, AT_10))


def test_forged_signature_is_dropped() -> None:
    machine = Machine()
    machine.compute(AT_10)
    forged = CheckpointMessage(AT_10, message(B, OTHER_AT_10).signed, 10)
    assert rules_of(machine.take(Arrived(forged, "somebody"))) == ["forged signature"]
    swapped = CheckpointMessage(AT_10, PeerSignature(B.serialized, message(C, AT_10).signed.signature), 10)
    assert rules_of(machine.take(Arrived(swapped, "somebody"))) == ["forged signature"]
    assert machine.valid is None


def test_malformed_signature_is_a_forged_one() -> None:
    machine = Machine()
    machine.compute(AT_10)
    for signature in (b"", b"\x30", bytes(72)):
        broken = CheckpointMessage(AT_10, PeerSignature(B.serialized, signature), 10)
        assert rules_of(machine.take(Arrived(broken, "somebody"))) == ["forged signature"]


def test_one_key_counts_once_whatever_certificates_it_has() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    first, second = (ORG2.issue_odd(name, ("peer",), key=key) for name in ("one", "two"))
    machine = Machine(make_bundle((ORG1, ORG2), "any(3)"))
    machine.compute(AT_10)
    machine.hear(first, AT_10)
    assert rules_of(machine.hear(second, AT_10)) == ["key counted already"]
    assert machine.valid is None
    assert rules_of(machine.hear_proof(AT_10, A, first, second)) == ["key counted already"]
    assert machine.valid is None


def test_signers_of_one_organisation_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_tally, "SIGNERS_PER_ORGANISATION_MAX", 2)
    machine = Machine(default_bundle(4))
    machine.compute(AT_10)
    peers = [ORG2.issue(f"peer{number}", "peer") for number in range(3)]
    assert [rules_of(machine.hear(peer, AT_10)) for peer in peers] == [[], [], ["too many signers"]]


def test_heights_that_are_tallied_are_bounded() -> None:
    machine = Machine()
    for number in range(10, 10 * (HEIGHTS_MAX + 3), 10):
        machine.compute(statement_at(number))
    assert len(machine.tally.heights) == HEIGHTS_MAX
    assert rules_of(machine.hear(B, AT_10)) == ["no checkpoint here"]


# -- equivocation


def test_equivocation_is_kept_as_evidence_once_and_the_first_word_counts() -> None:
    machine = Machine(default_bundle(4))
    machine.compute(AT_10)
    machine.hear(B, AT_10)
    effects = machine.hear(B, OTHER_AT_10)
    assert kinds(effects) == ["Evidence", "Dropped"]
    assert rules_of(effects) == ["equivocation"]
    first, second = message(B, AT_10).signed, message(B, OTHER_AT_10).signed
    assert effects[0] == Evidence((AT_10, first), (OTHER_AT_10, second))
    assert kinds(machine.hear(B, statement_at(10, "third"))) == ["Dropped"]
    assert len(machine.tally.heights[BlockNumber(10)].signers) == 2


def test_two_signatures_on_one_statement_are_no_equivocation() -> None:
    machine = Machine(default_bundle(4))
    machine.compute(AT_10)
    machine.hear(B, AT_10)
    again = CheckpointMessage(AT_10, PeerSignature(B.serialized, B.sign(AT_10.encoded + B.serialized)), 10)
    assert not any(isinstance(effect, Evidence) for effect in machine.take(Arrived(again, "somebody")))


def test_an_equivocator_can_not_make_others_diverge() -> None:
    machine = Machine()
    machine.compute(AT_10)
    for signer in (B, C):
        machine.hear(signer, AT_10)
    for signer in (B, C):
        machine.hear(signer, OTHER_AT_10)
    assert machine.tally.diverged is None
    assert machine.valid == 10


def test_proof_with_the_signature_of_an_equivocator_is_taken_as_it_stands() -> None:
    """Others may have heard its other word first: what they came to stays valid, here too."""
    machine = Machine()
    machine.compute(AT_10, sign=False)
    machine.hear(B, OTHER_AT_10)
    effects = machine.hear_proof(AT_10, B, C)
    assert kinds(effects) == ["Evidence", "Dropped", "Counted", "Valid"]
    assert machine.valid == 10


# -- divergence


def test_others_that_validly_agree_on_something_else_make_the_machine_stop() -> None:
    machine = Machine()
    machine.compute(AT_10)
    machine.hear(B, OTHER_AT_10)
    effects = machine.hear(C, OTHER_AT_10)
    assert kinds(effects) == ["Counted", "Diverged"]
    (found,) = [effect for effect in effects if isinstance(effect, Diverged)]
    assert (found.computed, found.proof.statement) == (AT_10, OTHER_AT_10)
    assert check_proof(found.proof, THREE, CheckpointRules())
    assert rules_of(machine.hear(B, AT_10)) == ["diverged"]
    assert rules_of(machine.compute(statement_at(20))) == ["diverged"]


def test_a_proof_of_something_else_makes_the_machine_stop() -> None:
    machine = Machine()
    machine.compute(AT_10)
    assert kinds(machine.hear_proof(OTHER_AT_10, B, C)) == ["Diverged"]


def test_a_second_valid_statement_at_a_valid_height_makes_the_machine_stop() -> None:
    machine = Machine()
    machine.compute(AT_10)
    machine.hear(B, AT_10)
    assert kinds(machine.hear_proof(OTHER_AT_10, B, C)) == ["Diverged"]


def test_what_is_not_enough_by_our_own_rule_stops_nobody() -> None:
    machine = Machine(local="'Org1MSP.peer'")
    machine.compute(AT_10)
    assert "Diverged" not in kinds(machine.hear_proof(OTHER_AT_10, B, C))
    assert machine.tally.diverged is None


def test_where_either_policy_prunes_divergence_still_takes_both() -> None:
    machine = Machine(local="'Org2MSP.peer'", either=True)
    machine.compute(AT_10)
    machine.hear(B, OTHER_AT_10)
    assert machine.tally.diverged is None
    machine.hear(C, OTHER_AT_10)
    assert machine.tally.diverged is not None


def test_a_ledger_made_again_that_differs_from_what_was_valid_is_a_divergence() -> None:
    machine = Machine()
    machine.tally = replace(machine.tally, latest_valid=proof(AT_10, A, B))
    assert kinds(machine.compute(OTHER_AT_10)) == ["Diverged"]


# -- our own signature


def test_own_signature_on_a_height_not_reached_is_noticed() -> None:
    machine = Machine()
    assert machine.hear(A, AT_10) == (OwnSignatureSeen(BlockNumber(10)),)


def test_forged_own_signature_on_a_height_not_reached_is_not_believed() -> None:
    machine = Machine()
    forged = CheckpointMessage(AT_10, message(A, OTHER_AT_10).signed, 10)
    assert machine.take(Arrived(forged, "somebody")) == ()


def test_own_signature_that_is_not_in_the_record_is_noticed() -> None:
    machine = Machine()
    machine.compute(AT_10, sign=False)
    assert "OwnSignatureSeen" in kinds(machine.hear(A, AT_10))


def test_own_signature_in_a_proof_is_noticed() -> None:
    machine = Machine()
    machine.compute(AT_10, sign=False)
    assert "OwnSignatureSeen" in kinds(machine.hear_proof(AT_10, A))


def test_own_signature_that_comes_back_is_repeated() -> None:
    machine = Machine()
    machine.compute(AT_10)
    assert kinds(machine.hear(A, AT_10)) == ["Dropped"]


def test_own_signature_on_another_statement_is_noticed_and_kept_as_evidence() -> None:
    machine = Machine()
    machine.compute(AT_10)
    assert kinds(machine.hear(A, OTHER_AT_10)) == ["OwnSignatureSeen", "Evidence", "Dropped"]


# -- policies


def test_both_policies_must_hold_where_a_local_one_is_set() -> None:
    machine = Machine(local="'Org3MSP.peer'")
    machine.compute(AT_10)
    assert kinds(machine.hear(B, AT_10)) == ["Counted"]
    valid_proof(machine.hear(C, AT_10))


def test_local_policy_alone_is_good_for_pruning_only_where_either_prunes() -> None:
    machine = Machine(default_bundle(4), local="'Org1MSP.peer'", either=True)
    effects = machine.compute(AT_10)
    assert valid_proof(effects, Scope.LOCAL) == proof(AT_10, A)
    assert machine.valid is None
    assert kinds(machine.hear(B, AT_10)) == ["Counted"], "it is told once"
    valid_proof(machine.hear(C, AT_10), Scope.FULL)


def test_global_policy_alone_is_good_for_pruning_only_where_either_prunes() -> None:
    machine = Machine(local="'Org3MSP.peer'", either=True)
    machine.compute(AT_10)
    valid_proof(machine.hear(B, AT_10), Scope.LOCAL)
    assert machine.valid is None
    valid_proof(machine.hear(C, AT_10), Scope.FULL)


def test_proof_that_holds_for_others_but_not_by_our_local_policy_is_no_valid_checkpoint_here() -> None:
    machine = Machine(own=B, local="'Org3MSP.peer'")
    machine.compute(AT_10)
    effects = machine.hear_proof(AT_10, A, B)
    assert kinds(effects) == ["Counted"]
    assert machine.valid is None


def test_channels_own_checkpoint_policy_comes_before_the_one_for_endorsements() -> None:
    machine = Machine(make_bundle((ORG1, ORG2, ORG3), "AND('Org1MSP.peer', 'Org2MSP.peer', 'Org3MSP.peer')"))
    machine.compute(AT_10)
    assert kinds(machine.hear(B, AT_10)) == ["Counted"]
    valid_proof(machine.hear(C, AT_10))


def test_configuration_after_the_block_decides_who_counts() -> None:
    machine = Machine(default_bundle(4))
    machine.compute(AT_10)
    machine.bundle = THREE
    machine.compute(statement_at(20))
    assert rules_of(machine.hear(ORG4.peer, statement_at(20))) == ["unknown identity"]
    assert rules_of(machine.hear(ORG4.peer, AT_10)) == []
