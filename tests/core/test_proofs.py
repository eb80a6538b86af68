"""Proofs that hold, for ever; and those that don't, each refused for its reason, by the node and by the auditor's file.

A proof is taken apart, one thing is forged as well as somebody with some keys can do it, and it is put together again.
"""

import datetime
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from fabric_protos.common import common_pb2, configtx_pb2

from ledger.core.block import Block
from ledger.core.channel_config import ConfigGroup
from ledger.core.checkpoint import CheckpointProof, CheckpointRoots, PeerSignature, Statement, signed_bytes
from ledger.core.errors import Refused
from ledger.core.hashing import digest, header_der
from ledger.core.names import BlockNumber, Digest, TxId, TxIndex
from ledger.core.proofs import (
    Kind,
    Proof,
    ProvenCheckpoint,
    ProvenEntry,
    ProvenPrefix,
    ProvenTransaction,
    Verified,
    in_words,
)
from ledger.core.signatures import GROUP_ORDERS
from ledger.core.state import Entry, Version, public_key
from ledger.core.state_tree import StateLeaf, path_of
from ledger.core.vblock import leaf_hash, tx_root, vblock_hash
from ledger.wire.block import encode_block
from ledger.wire.config import config_payload, decode_group, encode_group
from ledger.wire.proofs import encode_proof, verify_file
from tests.kit.auditor import auditor
from tests.kit.channel import CHANNEL, Channel
from tests.kit.organisations import Signer, make_organisation
from tests.kit.proven import CONFIG_BLOCKS, EXPIRED, examples, life
from tests.kit.transactions import config_envelope

GENESIS = life().genesis


def holds(proof: Proof) -> Verified:
    found = verify_file(encode_proof(proof), GENESIS)
    assert auditor().verify(encode_proof(proof), GENESIS)["facts"] == dict(found.facts)
    return found


def refusals(proof: Proof, genesis: bytes = GENESIS) -> tuple[str, str]:
    """The rule that the node names, and that of the auditor's file."""
    data = encode_proof(proof)
    with pytest.raises(Refused) as ours:
        verify_file(data, genesis)
    with pytest.raises(auditor().Refused) as theirs:
        auditor().verify(data, genesis)
    return ours.value.rule, theirs.value.rule


def at(whole: Proof, **changes: object) -> Proof:
    """The proof with another checkpoint part."""
    return replace(whole, checkpoint=replace(whole.checkpoint, **changes))  # type: ignore[arg-type]


def signed_by(statement: Statement, *signers: Signer) -> CheckpointProof:
    return CheckpointProof(
        statement,
        tuple(PeerSignature(each.serialized, each.sign(signed_bytes(statement, each.serialized))) for each in signers),
    )


def resigned(proof: Proof, *signers: Signer, **changes: object) -> Proof:
    """The proof with another statement, properly signed."""
    statement = replace(proof.checkpoint.proof.statement, **changes)  # type: ignore[arg-type]
    return at(proof, proof=signed_by(statement, *signers))


# What holds.


@pytest.mark.parametrize("name", sorted(examples()))
def test_every_example_holds_and_says_so_in_words(name: str) -> None:
    proved, not_proved = in_words(holds(examples()[name]))
    assert any("is valid:" in sentence for sentence in proved)
    assert any("recent" in sentence for sentence in not_proved)


def test_proof_of_rejection_says_that_a_claimed_id_proves_nothing() -> None:
    found = holds(examples()["rejection"])
    proved, not_proved = in_words(found)
    assert "was judged invalid: MVCC_READ_CONFLICT" in proved[0]
    assert str(found.facts["tx_id"]) not in proved[0]
    assert (
        f"It claimed the id {found.facts['tx_id']}, and a claimed id proves nothing about the sender" in not_proved[0]
    )


def test_proofs_outlive_certificates_and_organisations() -> None:
    """Goal: a proof is judged as of its checkpoint.  Method: one signed by a peer whose certificate expired long ago
    and by one of an organisation that has left since; nothing asks for today's date.
    """
    org1, _, org3 = life().organisations
    certificate = x509.load_pem_x509_certificate(org3.peer.certificate)
    assert certificate.not_valid_after_utc == EXPIRED < datetime.datetime.now(datetime.UTC)
    assert life().channel.bundle.organisation_of(org1.msp_id) is None, "it has left"
    found = holds(examples()["checkpoint of those who left"])
    assert found.signers == ("Org1MSP peer0", "Org3MSP peer0")
    assert holds(examples()["consistency"]).facts["older"] == 4


def test_the_trail_holds_every_config_block_up_to_the_checkpoint() -> None:
    assert holds(examples()["presence"]).config_blocks == CONFIG_BLOCKS
    assert holds(examples()["checkpoint"]).config_blocks == CONFIG_BLOCKS[:2]


def test_kinds_are_told_apart() -> None:
    found = {name: proof.kind for name, proof in examples().items()}
    assert set(found.values()) == set(Kind)
    assert found["absence beside another leaf"] is Kind.ABSENCE
    absent = examples()["absence beside another leaf"].subject
    assert isinstance(absent, ProvenEntry) and absent.proof.leaf is not None


# Who may sign.


def checkpoint(number: int = 8) -> Proof:
    return examples()["checkpoint" if number == 8 else "checkpoint of those who left"]


def test_other_genesis_block_leads_nowhere() -> None:
    other = Channel((make_organisation("Org1MSP"), make_organisation("Org2MSP")))
    assert refusals(checkpoint(), encode_block(other.genesis)) == ("mod_policy satisfied", "mod_policy satisfied")


def test_genesis_block_of_the_same_members_is_not_the_ledgers_first() -> None:
    """Goal: the ledger begins with *this* block.  Method: another block 0 with the same configuration."""
    genesis = life().channel.genesis
    payload = common_pb2.Payload.FromString(common_pb2.Envelope.FromString(genesis.envelopes[0]).payload)
    payload.header.signature_header = common_pb2.SignatureHeader(nonce=b"another nonce").SerializeToString()
    envelope = common_pb2.Envelope(payload=payload.SerializeToString()).SerializeToString()
    other = Block(replace(genesis.header, data_hash=digest(envelope)), (envelope,), genesis.metadata)
    assert refusals(checkpoint(), encode_block(other)) == ("genesis block", "genesis block")


def test_too_few_signatures_satisfy_no_policy() -> None:
    proof = checkpoint().checkpoint.proof
    alone = at(checkpoint(), proof=replace(proof, signatures=proof.signatures[:1]))
    assert refusals(alone) == ("global policy", "checkpoint policy")
    assert refusals(at(checkpoint(), proof=replace(proof, signatures=()))) == ("global policy", "checkpoint policy")


def test_one_key_counts_once_whatever_certificates_it_has() -> None:
    org1, org2, _ = life().organisations
    second = org1.issue_odd("peer0 again", ("peer",), key=org1.peer.private_key)
    proof = resigned(checkpoint(), org1.peer, second, org2.peer)
    assert refusals(proof) == ("key counted already", "key counted already")


@pytest.mark.parametrize(
    ("who", "rules"),
    [
        ("revoked", ("invalid identity", "revocation")),
        ("client", ("not a peer", "not a peer")),
        ("stranger", ("unknown identity", "organisation of the channel")),
        ("impostor", ("unknown identity", "certificate chain")),
    ],
)
def test_signature_of_somebody_who_may_not_sign_is_refused(who: str, rules: tuple[str, str]) -> None:
    org1, org2, _ = life().organisations
    signer = {
        "revoked": life().revoked,
        "client": org2.client,
        "stranger": make_organisation("Org9MSP").peer,
        "impostor": make_organisation("Org2MSP").peer,
    }[who]
    assert refusals(resigned(checkpoint(), org1.peer, signer, org2.peer)) == rules


def test_revoked_peer_could_sign_before_it_was_revoked() -> None:
    org1, _, _ = life().organisations
    assert holds(resigned(checkpoint(4), org1.peer, life().revoked)).signers == ("Org1MSP peer0", "Org2MSP peer9")


def test_high_s_and_signatures_over_something_else_are_forged() -> None:
    proof = checkpoint().checkpoint.proof
    first, second = proof.signatures
    r, s = decode_dss_signature(first.signature)
    high = replace(first, signature=encode_dss_signature(r, GROUP_ORDERS["secp256r1"] - s))
    for signatures in ((high, second), (replace(first, signature=second.signature), second)):
        forged = at(checkpoint(), proof=replace(proof, signatures=signatures))
        assert refusals(forged) == ("forged signature", "forged signature")


def test_former_members_can_not_sell_a_false_state() -> None:
    """Goal: Org1 left with block 9; its peer signs, with a second one, another state at block 12.  Method: the config
    block that removed it is left out; but the orderers name it in the block at the checkpoint.
    """
    whole = examples()["presence"]
    org1, org2, _ = life().organisations
    without = replace(whole, config_blocks=whole.config_blocks[:2], subject=None)
    trail_end = whole.config_blocks[1]
    state_hash = replace_state_hash(without, trail_end)
    assert refusals(resigned(without, org1.peer, org2.peer, state_hash=state_hash)) == (
        "last config index",
        "last config block",
    )


def replace_state_hash(proof: Proof, last: Block) -> Digest:
    statement = proof.checkpoint.proof.statement
    return CheckpointRoots(
        statement.number,
        statement.vblock_hash,
        statement.vledger_root,
        proof.checkpoint.state_root,
        last.number,
        digest(last.envelopes[0]),
    ).state_hash


def test_config_block_behind_the_checkpoint_is_not_taken() -> None:
    older, newer = checkpoint(4), checkpoint(8)
    assert refusals(replace(older, config_blocks=newer.config_blocks)) == ("config blocks", "config blocks")


def test_config_blocks_in_another_order_or_twice_are_refused() -> None:
    first, second = checkpoint().config_blocks
    assert refusals(replace(checkpoint(), config_blocks=(second,)))[0] == "sequence"
    assert refusals(replace(checkpoint(), config_blocks=(second, first)))[0] == "sequence"
    assert refusals(replace(checkpoint(), config_blocks=(first, first, second))) == ("block number", "config blocks")


def forged_config(change: Callable[[ConfigGroup], ConfigGroup], *, keeps_update: bool = True) -> Proof:
    """A proof whose config block 3 has another configuration, signed by the orderers all the same."""
    block = checkpoint(4).config_blocks[0]
    _, content = config_payload(block.envelopes[0])
    envelope = configtx_pb2.ConfigEnvelope.FromString(content)
    envelope.config.channel_group.CopyFrom(encode_group(change(decode_group(envelope.config.channel_group))))
    if not keeps_update:
        envelope.ClearField("last_update")
    channel = Channel(life().organisations[:2], tree=life().channel.tree)
    raw = config_envelope(CHANNEL, channel.orderer, envelope.SerializeToString(deterministic=True))
    made = channel.block(raw)
    made = resealed(channel, made, number=3)
    return replace(checkpoint(4), config_blocks=(made,))


def resealed(channel: Channel, block: Block, number: int) -> Block:
    """The block under another number, signed by the orderer."""
    metadata = common_pb2.Metadata.FromString(block.metadata[0])
    header = replace(block.header, number=BlockNumber(number))
    signature_header = metadata.signatures[0].signature_header
    signed = metadata.value + signature_header + header_der(header.number, header.previous_hash, header.data_hash)
    metadata.signatures[0].signature = channel.orderer.sign(signed)
    return Block(header, block.envelopes, (metadata.SerializeToString(), b"", b"", b"", b""))


def drop_org2(tree: ConfigGroup) -> ConfigGroup:
    application = tree.groups["Application"]
    groups = {name: one for name, one in application.groups.items() if name != "Org2"}
    return replace(tree, groups={**tree.groups, "Application": replace(application, groups=groups)})


def test_orderers_alone_change_no_configuration() -> None:
    """Goal: who may sign is decided by admins.  Method: config blocks that only the orderers agree with."""
    assert refusals(forged_config(drop_org2)) == ("last update", "config update")
    assert refusals(forged_config(drop_org2, keeps_update=False)) == ("last update", "config update")


def test_config_block_that_nobody_signed_is_refused() -> None:
    block = checkpoint(4).config_blocks[0]
    bare = replace(block, metadata=(common_pb2.Metadata().SerializeToString(), b"", b"", b"", b""))
    assert refusals(replace(checkpoint(4), config_blocks=(bare,))) == ("orderer signatures", "orderer signatures")


# What the hashes say.


def test_statement_that_peers_never_signed_is_refused() -> None:
    proof = checkpoint()
    for name in ("vledger_root", "state_hash", "vblock_hash"):
        forged = replace(proof.checkpoint.proof.statement, **{name: bytes(32)})  # type: ignore[arg-type]
        ours, theirs = refusals(at(proof, proof=replace(proof.checkpoint.proof, statement=forged)))
        expected = {"vledger_root": "genesis block", "state_hash": "state hash", "vblock_hash": "vBlock hash"}[name]
        assert (ours, theirs) == (expected, expected)


def test_channel_of_another_name_is_refused() -> None:
    proof = checkpoint()
    forged = replace(proof.checkpoint.proof.statement, channel="otherchannel")  # type: ignore[arg-type]
    vblock = vblock_hash(forged.channel, proof.checkpoint.vblock)
    other = at(proof, proof=replace(proof.checkpoint.proof, statement=replace(forged, vblock_hash=vblock)))
    assert refusals(replace(other, channel=forged.channel)) == ("channel", "channel")


def test_another_block_at_the_checkpoint_is_refused() -> None:
    proof = checkpoint()
    other = replace(proof.checkpoint.block, header=replace(proof.checkpoint.block.header, data_hash=bytes(32)))
    assert refusals(at(proof, block=other)) == ("block hash", "block hash")


def transaction(name: str = "inclusion") -> tuple[Proof, ProvenTransaction]:
    proof = examples()[name]
    assert isinstance(proof.subject, ProvenTransaction)
    return proof, proof.subject


@pytest.mark.parametrize(
    "changes",
    [{"verdict": 4}, {"index": TxIndex(4)}, {"tx_id": TxId("somebody else's")}, {"envelope_digest": bytes(32)}],
)
def test_other_leaf_than_the_blocks_own_is_refused(changes: dict[str, object]) -> None:
    proof, found = transaction("rejection")
    forged = replace(found, leaf=replace(found.leaf, **changes))  # type: ignore[arg-type]
    assert refusals(replace(proof, subject=forged)) == ("root", "transaction root")


def test_other_envelope_of_a_valid_transaction_is_refused() -> None:
    proof, found = transaction()
    forged = replace(found, envelope=found.envelope + b"\0" if found.envelope else None)
    assert refusals(replace(proof, subject=forged)) == ("root", "transaction root")


def test_invented_transaction_root_is_refused_by_the_log() -> None:
    """Goal: an envelope of one's own can't be slipped in.  Method: a vBlock header with a root made for it."""
    proof, found = transaction()
    leaf = replace(found.leaf, index=TxIndex(0), tx_id=TxId("mine"))
    vblock = replace(found.vblock, tx_root=tx_root([leaf]), transaction_count=1, valid_count=1)
    assert leaf_hash(leaf) == vblock.tx_root
    forged = replace(found, leaf=leaf, path=(), vblock=vblock)
    assert refusals(replace(proof, subject=forged)) == ("root", "vLedger root")


def entry(name: str) -> tuple[Proof, ProvenEntry]:
    proof = examples()[name]
    assert isinstance(proof.subject, ProvenEntry)
    return proof, proof.subject


@pytest.mark.parametrize(
    "changes", [{"value": b"13"}, {"version": Version(BlockNumber(11), TxIndex(0))}, {"metadata": b"x"}, {"expiry": 99}]
)
def test_other_entry_than_the_states_own_is_refused(changes: dict[str, object]) -> None:
    proof, found = entry("presence")
    assert found.entry is not None
    forged = replace(found, entry=found.entry._replace(**changes))  # type: ignore[arg-type]
    assert refusals(replace(proof, subject=forged)) == ("state root", "state root")


def test_present_key_can_not_be_shown_absent() -> None:
    proof, found = entry("presence")
    hidden = replace(found, entry=None, proof=replace(found.proof, leaf=None))
    assert refusals(replace(proof, subject=hidden)) == ("state root", "state root")
    own = replace(found, entry=None)
    assert refusals(replace(proof, subject=own)) == ("other leaf", "absence")


def test_absent_key_can_not_be_shown_present() -> None:
    proof, found = entry("absence")
    made = replace(found, entry=Entry(b"x", Version(BlockNumber(2), TxIndex(0))))
    assert refusals(replace(proof, subject=made)) == ("state root", "state root")


def test_leaf_that_does_not_stand_on_the_way_shows_no_absence() -> None:
    proof, found = entry("absence beside another leaf")
    assert found.proof.leaf is not None and found.proof.siblings
    last = path_of(public_key("asset", "last"))
    forged = replace(found, proof=replace(found.proof, leaf=StateLeaf(last, found.proof.leaf.value_hash)))
    ours, theirs = refusals(replace(proof, subject=forged))
    assert ours == theirs in ("shared bits", "state root")


def test_consistency_needs_an_older_checkpoint_and_its_own_path() -> None:
    proof = examples()["consistency"]
    assert isinstance(proof.subject, ProvenPrefix)
    backwards = Proof(
        proof.channel, proof.config_blocks, proof.subject.older, replace(proof.subject, older=proof.checkpoint)
    )
    assert refusals(backwards) == ("older checkpoint", "consistency")
    cut = replace(proof, subject=replace(proof.subject, path=proof.subject.path[:-1]))
    assert refusals(cut) == ("proof length", "consistency")
    other = replace(proof, subject=replace(proof.subject, path=(Digest(bytes(32)), *proof.subject.path[1:])))
    assert refusals(other)[1] == "consistency"


def test_older_checkpoint_of_a_consistency_proof_is_checked_too() -> None:
    proof = examples()["consistency"]
    assert isinstance(proof.subject, ProvenPrefix)
    older: ProvenCheckpoint = proof.subject.older
    unsigned = replace(older, proof=replace(older.proof, signatures=()))
    assert refusals(replace(proof, subject=replace(proof.subject, older=unsigned))) == (
        "global policy",
        "checkpoint policy",
    )
