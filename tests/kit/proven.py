"""A ledger that proofs are made from: organisations come and leave, certificates expire, most blocks are pruned."""

import datetime
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from fabric_protos.common import common_pb2, configtx_pb2

from ledger.core.channel_config import ConfigGroup
from ledger.core.checkpoint_proof import Scope
from ledger.core.names import BlockNumber, ChannelId, TxId
from ledger.core.outcome import Outcome
from ledger.core.proofs import Proof
from ledger.core.state import hashed_key, public_key
from ledger.services.proofs import ProofSource
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.ledger_store import LedgerStore
from ledger.wire.block import encode_block
from ledger.wire.codec import CODEC
from ledger.wire.config import config_from_update, encode_group
from tests.kit.channel import CHANNEL, Channel, TestCollection, definition_fields, definition_writes, organisation_group
from tests.kit.memory_view import MemoryLedger
from tests.kit.organisations import START, Organisation, Signer, make_organisation
from tests.kit.peer_folder import digest, honest_proof, transactions
from tests.kit.transactions import config_envelope

CHK = 4
CHECKPOINTS = (4, 8, 12)
CONFIG_BLOCKS = (3, 6, 9)
"""Org3 comes; a peer of Org2 is revoked; Org1 leaves."""

HEIGHT = 15
PRUNE_POINT = 11

EXPIRED = START + datetime.timedelta(days=30)
"""When the certificate of Org3's peer expired: long ago."""


def update_envelope(channel: Channel, read: ConfigGroup, write: ConfigGroup, signers: Sequence[Signer]) -> bytes:
    """A CONFIG_UPDATE envelope signed by admins."""
    update = configtx_pb2.ConfigUpdate(
        channel_id=CHANNEL, read_set=encode_group(read), write_set=encode_group(write)
    ).SerializeToString(deterministic=True)
    signatures = []
    for each in signers:
        header = common_pb2.SignatureHeader(creator=each.serialized, nonce=b"n").SerializeToString()
        signatures.append(configtx_pb2.ConfigSignature(signature_header=header, signature=each.sign(header + update)))
    whole = configtx_pb2.ConfigUpdateEnvelope(config_update=update, signatures=signatures)
    header = common_pb2.Header(channel_header=common_pb2.ChannelHeader(type=2, channel_id=CHANNEL).SerializeToString())
    payload = common_pb2.Payload(header=header, data=whole.SerializeToString())
    return bytes(common_pb2.Envelope(payload=payload.SerializeToString()).SerializeToString())


def change_application(channel: Channel, organisations: dict[str, ConfigGroup], signers: Sequence[Signer]) -> Outcome:
    """Commit a config block that leaves these organisations in the application."""
    before = channel.bundle.config.tree.groups["Application"]
    after = replace(before, version=before.version + 1, groups=organisations)
    update = update_envelope(
        channel, ConfigGroup(groups={"Application": before}), ConfigGroup(groups={"Application": after}), signers
    )
    config = config_from_update(channel.bundle, update, CODEC)
    return channel.commit_block(channel.block(config_envelope(CHANNEL, channel.orderer, config)))


@dataclass(frozen=True)
class ProvenLife:
    """What happened, and to whom."""

    channel: Channel
    organisations: tuple[Organisation, ...]
    genesis: bytes
    outcomes: tuple[Outcome, ...]
    signers: dict[int, tuple[Signer, ...]]
    """Who signs each checkpoint: just enough."""

    revoked: Signer
    """A peer of Org2 that was taken back in block 6."""

    def id_of(self, block: int, verdict: int) -> TxId:
        """Give the claimed id of the first transaction of a block with a verdict."""
        outcome = self.outcomes[block]
        return outcome.tx_ids[outcome.verdicts.index(verdict)]


@cache
def life() -> ProvenLife:
    """Let it happen, once a process."""
    org1, org2 = make_organisation("Org1MSP"), make_organisation("Org2MSP", intermediate=True)
    org3 = make_organisation("Org3MSP")
    channel = Channel((org1, org2))
    revoked = org2.issue("peer9", "peer")
    expired = org3.issue("peer0", "peer", not_after=EXPIRED)
    org3._issued["peer0", "peer"] = expired
    rules, genesis = channel.transition, channel.genesis
    outcomes = [rules.judge(rules.prepare(genesis, channel.bundle), MemoryLedger(), channel.bundle)]
    fields = definition_fields(collections=[TestCollection("secret", block_to_live=50)])
    outcomes.append(channel.commit(channel.draft(definition_writes("asset", fields), "_lifecycle")))

    def groups(*found: Organisation, version: int = 0) -> dict[str, ConfigGroup]:
        present = channel.bundle.config.tree.groups["Application"].groups
        made = {one.msp_id.removesuffix("MSP"): one for one in found}
        return {name: present.get(name) or organisation_group(one) for name, one in made.items()}

    for number in range(2, HEIGHT):
        if number == 3:
            outcomes.append(change_application(channel, groups(org1, org2, org3), (org1.admin, org2.admin)))
        elif number == 6:
            org2.revoked.append(revoked.certificate)
            changed = groups(org1, org2, org3)
            msp = organisation_group(org2).values["MSP"]
            changed["Org2"] = replace(changed["Org2"], values={"MSP": replace(msp, version=1)})
            outcomes.append(change_application(channel, changed, (org1.admin, org2.admin, org3.admin)))
        elif number == 9:
            outcomes.append(change_application(channel, groups(org2, org3), (org2.admin, org3.admin)))
            channel.organisations = (org2, org3)
        else:
            outcomes.append(channel.commit(*transactions(channel, number)))
    signers: dict[int, tuple[Signer, ...]] = {
        4: (org1.peer, org3.peer),
        8: (org1.peer, org2.peer),
        12: (org2.peer, org3.peer),
    }
    return ProvenLife(channel, (org1, org2, org3), encode_block(genesis), tuple(outcomes), signers, revoked)


class ProvenLedger:
    """That ledger on disk, with its checkpoints valid, and what makes proofs of it."""

    def __init__(self, directory: Path, height: int = HEIGHT) -> None:
        known = life()
        self.genesis = directory / "genesis.block"
        self.genesis.write_bytes(known.genesis)
        self.store = LedgerStore.open(directory / "data", ChannelId(CHANNEL), chk=CHK)
        self.store.commit_group(known.outcomes[:height])
        self.records = CheckpointStore(self.store.records_directory, ChannelId(CHANNEL))
        self.source = ProofSource(self.store, self.records, CHK)
        for number in CHECKPOINTS:
            if number < height:
                self.agree(number)

    def agree(self, number: int) -> None:
        """Let a checkpoint become valid, and keep its state as the peer's service does."""
        at = BlockNumber(number)
        statement = self.store.compute_checkpoint(at).statement(ChannelId(CHANNEL))
        self.records.record_valid(honest_proof(statement, life().signers[number]), Scope.FULL)
        self.store.keep_checkpoint(at)
        for other in self.store.captured():
            if other < number:
                self.store.release(other)

    def prune(self) -> None:
        """Prune below the latest checkpoint."""
        self.store.prune(BlockNumber(PRUNE_POINT), b"a receipt")

    def close(self) -> None:
        self.records.close()
        self.store.close()


@cache
def small_examples() -> dict[str, Proof]:
    """One proof of each kind, at the first checkpoints, with little to check."""
    known = life()
    with tempfile.TemporaryDirectory() as folder:
        ledger = ProvenLedger(Path(folder), height=6)
        source = ledger.source
        made = {
            "inclusion": source.transaction(known.id_of(4, 0)),
            "rejection": source.transaction(known.id_of(2, 11)),
            "presence": source.entry(public_key("asset", "last")),
            "absence": source.entry(public_key("asset", "forged")),
            "absence beside another leaf": source.entry(public_key("asset", "key9")),
            "checkpoint": source.checkpoint(BlockNumber(4)),
        }
        ledger.close()
    return made


@cache
def examples() -> dict[str, Proof]:
    """One proof of each kind and more, once a process."""
    known = life()
    with tempfile.TemporaryDirectory() as folder:
        ledger = ProvenLedger(Path(folder))
        source = ledger.source
        made = {
            "inclusion": source.transaction(known.id_of(7, 0)),
            "inclusion of a config block": source.transaction(known.outcomes[6].tx_ids[0]),
            "inclusion under a later checkpoint": source.transaction(
                known.outcomes[2].tx_ids[0], checkpoint=BlockNumber(12)
            ),
            "rejection": source.transaction(known.id_of(5, 11)),
            "presence": source.entry(public_key("asset", "last")),
            "presence of private data": source.entry(hashed_key("asset", "secret", digest(12))),
            "absence": source.entry(public_key("asset", "forged")),
            "absence beside another leaf": source.entry(public_key("asset", "key11")),
            "consistency": source.consistency(BlockNumber(4), BlockNumber(12)),
            "checkpoint": source.checkpoint(BlockNumber(8)),
            "checkpoint of those who left": source.checkpoint(BlockNumber(4)),
        }
        ledger.close()
    return made


__all__ = [
    "CHECKPOINTS",
    "CHK",
    "CONFIG_BLOCKS",
    "EXPIRED",
    "HEIGHT",
    "PRUNE_POINT",
    "ProvenLedger",
    "ProvenLife",
    "examples",
    "life",
    "small_examples",
    "update_envelope",
]
