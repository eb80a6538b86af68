"""What does verification find?  Ledgers of honest peers, of damaged disks and of peers that lied, level by level."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.core.block import Block, Header
from ledger.core.checkpoint import CheckpointProof, Statement
from ledger.core.checkpoint_proof import Scope
from ledger.core.hashing import header_hash
from ledger.core.names import BlockNumber, ChannelId, Digest, TxId
from ledger.core.outcome import Outcome
from ledger.core.pruning import PruneReceipt, decode_receipt
from ledger.core.state import public_key
from ledger.node.verify import VerifyReport, verify
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.engine_leveldb import LevelDbEngine
from ledger.storage.keys import ROOTS, state_key
from ledger.storage.ledger_store import LedgerStore
from tests.kit.channel import CHANNEL
from tests.kit.organisations import Signer, shared_organisation
from tests.kit.outcomes import genesis_block, judged
from tests.kit.paths import CHANNELS
from tests.kit.peer_folder import CHECKPOINTS, HEIGHT, PRUNE_POINT, PeerFolder, honest_proof, life

NAMES = ["structure", "chain", "signatures", "state", "checkpoint"]
LATEST = CHECKPOINTS[-1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> PeerFolder:
    """A ledger whose checkpoints are valid; not to be changed."""
    return PeerFolder(tmp_path_factory.mktemp("whole")).agree()


@pytest.fixture
def folder(whole: PeerFolder, tmp_path: Path) -> PeerFolder:
    """A copy of it."""
    return copied(whole, tmp_path)


def copied(source: PeerFolder, directory: Path) -> PeerFolder:
    made = object.__new__(PeerFolder)
    made.__dict__.update(source.__dict__)
    made.data, made.channel = directory / "data", directory / "data" / "channels" / CHANNEL
    shutil.copytree(source.data, made.data)
    return made


def verified(folder: PeerFolder) -> VerifyReport:
    return verify(folder.data, folder.genesis, lambda what, done, total: None)


def failed(report: VerifyReport) -> list[str]:
    return [name for name, level in report.levels.items() if not level.ok]


def failure(report: VerifyReport, level: str) -> str:
    found = report.levels[level].first_failure
    assert found is not None, f"{level} is in order; {failed(report)} are not"
    return found


def bodies(low: int, high: int) -> int:
    """Invalid transactions of the blocks `[low, high)`."""
    return sum(len(each.verdicts) - each.verdicts.count(0) for each in life().outcomes[low:high])


# Honest ledgers.


def test_whole_ledger_is_in_order_on_every_level(whole: PeerFolder) -> None:
    report = verified(whole)
    assert report.members() == {
        "channel": CHANNEL,
        "height": HEIGHT,
        "prune_point": None,
        "checkpoint": LATEST,
        "vblock_hash": whole.vblock_hash.hex(),
        "state_hash": whole.state_hash.hex(),
        "levels": {
            name: {"ok": True, "checked": checked, "not_checked": 0, "first_failure": None}
            for name, checked in zip(NAMES, (HEIGHT, HEIGHT, transactions(), HEIGHT, 2), strict=True)
        },
    }
    assert report.signers == ("Org1MSP peer0", "Org2MSP peer0")


def transactions() -> int:
    return sum(len(each.verdicts) for each in life().outcomes)


def test_pruned_ledger_is_verified_to_the_end_and_says_what_it_could_not(folder: PeerFolder) -> None:
    report = verified(folder.prune())
    gone = bodies(0, PRUNE_POINT + 1)
    assert (failed(report), report.prune_point, report.checkpoint) == ([], PRUNE_POINT, LATEST)
    assert (report.vblock_hash, report.state_hash) == (folder.vblock_hash.hex(), folder.state_hash.hex())
    counts = {name: (level.checked, level.not_checked) for name, level in report.levels.items()}
    pruned = sum(any(each.verdicts) for each in life().outcomes[: PRUNE_POINT + 1])
    assert gone > 0 and pruned > 0
    assert counts == {
        "structure": (HEIGHT, 0),
        "chain": (HEIGHT - pruned, pruned),
        "signatures": (transactions() - gone, gone),
        "state": (HEIGHT, 0),
        "checkpoint": (3, 0),
    }


@pytest.mark.parametrize("channel", CHANNELS)
def test_recorded_channel_that_was_pruned_comes_to_the_same_state(channel: str, tmp_path: Path) -> None:
    """Goal: config changes, expiries, forged sets and all: what is left of pruned blocks is enough.  There is no key of
    its peers, so that its receipt can be none, which is the only thing that is wrong.
    """
    known = judged(channel)
    genesis = tmp_path / "genesis.block"
    genesis.write_bytes(genesis_block(channel))
    store = LedgerStore.open(tmp_path / "data", known.channel_id)
    store.commit_group(known.outcomes)
    expected = store.roots_now()
    last = BlockNumber((store.height - 1) // 100 * 100 - 1)
    store.prune(last, b"no receipt")
    store.close()
    report = verify(tmp_path / "data", genesis, lambda what, done, total: None)
    assert failed(report) == ["checkpoint"]
    assert failure(report, "checkpoint").startswith("prune receipt 0: prune receipt")
    assert (report.state_hash, report.vblock_hash) == (expected.state_hash.hex(), expected.vblock_hash.hex())
    assert report.levels["state"].checked == len(known.outcomes)
    assert report.levels["signatures"].not_checked == sum(
        len(each.verdicts) - each.verdicts.count(0) for each in known.outcomes[: last + 1]
    )


def test_verification_leaves_the_files_as_they_are(folder: PeerFolder) -> None:
    def files() -> dict[Path, bytes]:
        """All but the database, whose log LevelDB turns over at every opening."""
        return {
            path: path.read_bytes() for path in folder.channel.rglob("*") if path.is_file() and "db" not in path.parts
        }

    before = files()
    assert len(before) > 5
    verified(folder)
    assert files() == before


def test_blocks_behind_the_last_commit_are_left_to_the_next_start(tmp_path: Path) -> None:
    folder = PeerFolder(tmp_path, life().outcomes[:6])
    shutil.copytree(folder.channel / "db", tmp_path / "earlier")
    store = folder.open()
    store.commit_group(life().outcomes[6:9])
    store.close()
    shutil.rmtree(folder.channel / "db")
    shutil.copytree(tmp_path / "earlier", folder.channel / "db")
    report = verified(folder)
    assert (failed(report), report.height, report.pending) == ([], 6, 3)
    again = folder.open()
    assert (again.height, again.pending_count) == (6, 3)
    again.close()


# Damaged disks.


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_flipped_byte_in_a_kept_record_names_its_block_and_the_rest_is_not_derived(folder: PeerFolder) -> None:
    store = folder.open()
    place = store._row(BlockNumber(5)).kept
    store.close()
    (path,) = folder.channel.glob("kept/*")
    flip(path, place.offset + place.length // 2)
    report = verified(folder)
    assert failed(report) == ["structure"]
    assert failure(report, "structure").startswith(f"block 5: {path} is damaged: record at {place.offset}")
    rest = sum(len(each.verdicts) for each in life().outcomes[5:])
    counts = {name: (level.checked, level.not_checked) for name, level in report.levels.items()}
    assert counts == {
        "structure": (HEIGHT, 0),
        "chain": (5, HEIGHT - 5),
        "signatures": (transactions() - rest, rest),
        "state": (5, HEIGHT - 5),
        "checkpoint": (1, 1),
    }
    assert report.state_hash == folder.state_hash.hex(), "that of the state on disk"


@pytest.mark.parametrize("kind", ["kept", "prunable"])
def test_flipped_byte_anywhere_in_a_segment_is_found(kind: str, tmp_path: Path) -> None:
    folder = PeerFolder(tmp_path, life().outcomes[:4])
    (path,) = (folder.channel / kind).iterdir()
    size = path.stat().st_size
    for offset in {*range(0, size, 199), 3, 11, size - 1}:
        flip(path, offset)
        report = verified(folder)
        assert failed(report) == ["structure"], f"byte {offset}"
        assert str(path) in failure(report, "structure")
        flip(path, offset)
    assert failed(verified(folder)) == []


def test_bodies_that_are_gone_without_pruning_are_missed(folder: PeerFolder) -> None:
    (folder.channel / "prunable" / f"{4:012d}.bodies").unlink()
    report = verified(folder)
    assert failed(report) == ["structure"]
    found = failure(report, "structure")
    assert found.startswith(f"block 4: {folder.channel}/prunable/{4:012d}.bodies is damaged")
    assert "the file is gone" in found
    assert list(report.levels["signatures"].reasons) == ["behind a record that can't be read"]


def test_state_in_the_database_that_differs_is_named_by_its_key(folder: PeerFolder) -> None:
    key = public_key("asset", "key10")
    engine = LevelDbEngine(folder.channel / "db")
    raw = engine.get(state_key(key))
    assert raw is None, "the next block deletes it"
    other = engine.get(state_key(public_key("asset", "last")))
    assert other is not None
    batch = engine.batch()
    batch.put(state_key(key), other)
    batch.write()
    engine.close()
    report = verified(folder)
    assert failed(report) == ["state"]
    assert failure(report, "state") == (
        f"state after block 14: key key10 of asset: expected nothing, found version 14:0, value {b'14'.hex()}"
    )
    assert report.state_hash != folder.state_hash.hex()


def test_roots_in_the_database_that_differ_are_found(folder: PeerFolder) -> None:
    engine = LevelDbEngine(folder.channel / "db")
    name = ROOTS + LATEST.to_bytes(8, "big")
    raw = bytearray(engine.get(name) or b"")
    raw[5] ^= 1
    batch = engine.batch()
    batch.put(name, bytes(raw))
    batch.write()
    engine.close()
    report = verified(folder)
    assert failed(report) == ["checkpoint"]
    assert failure(report, "checkpoint").startswith("checkpoint 8: computed by the peer: expected vBlock ")


def test_damaged_record_of_proofs_is_a_failure_of_its_level(folder: PeerFolder) -> None:
    path = folder.channel / "records" / "proofs.log"
    flip(path, path.stat().st_size // 2)
    report = verified(folder)
    assert failed(report) == ["checkpoint"]
    assert failure(report, "checkpoint").startswith(f"{path}: record ")


# Peers that lied: what they committed differs from what the rules say of the same blocks.


def lied(directory: Path, number: int, **changes: Any) -> VerifyReport:
    """Verify the ledger of a peer that made something else of one block."""
    outcomes = list(life().outcomes)
    outcomes[number] = replace(outcomes[number], **changes)
    return verified(PeerFolder(directory, outcomes))


def with_verdict(outcome: Outcome, index: int, verdict: int) -> bytes:
    return outcome.verdicts[:index] + bytes((verdict,)) + outcome.verdicts[index + 1 :]


@pytest.mark.parametrize(
    ("index", "verdict", "expected"),
    [
        (0, 10, "expected VALID, found ENDORSEMENT_POLICY_FAILURE"),
        (1, 0, "expected BAD_CREATOR_SIGNATURE (creator signature: by Org1MSP), found VALID"),
        (5, 12, "expected MVCC_READ_CONFLICT ("),
    ],
)
def test_false_verdict_is_found_with_the_rule_that_decides(
    index: int, verdict: int, expected: str, tmp_path: Path
) -> None:
    report = lied(tmp_path, 9, verdicts=with_verdict(life().outcomes[9], index, verdict))
    assert failed(report) == ["signatures", "state"]
    assert failure(report, "signatures").startswith(f"block 9, transaction {index}: verdict: {expected}")
    assert failure(report, "state").startswith(
        f"state after block 14: transaction id {life().outcomes[9].tx_ids[index]}"
    )


def test_false_commit_hash_is_found(tmp_path: Path) -> None:
    report = lied(tmp_path, 3, commit_hash=bytes(32))
    assert failed(report) == ["state"]
    assert failure(report, "state") == (
        f"block 3: commit hash: expected {life().outcomes[3].commit_hash.hex()}, found {bytes(32).hex()}"
    )


def test_changes_that_no_transaction_made_are_found(tmp_path: Path) -> None:
    outcome = life().outcomes[14]
    updates = dict(outcome.updates)
    key = next(key for key in updates if key.key == b"last")
    entry = updates[key]
    assert entry is not None
    report = lied(tmp_path, 14, updates=updates | {key: entry._replace(value=b"more")})
    assert failed(report) == ["state"]
    assert failure(report, "state") == (
        "state after block 14: key last of asset: expected version 14:0, value 3134, found version 14:0, value 6d6f7265"
    )


def test_private_data_that_did_not_expire_is_found(tmp_path: Path) -> None:
    (key,) = life().outcomes[8].expired
    report = lied(tmp_path, 8, expired=())
    assert failed(report) == ["state"]
    assert failure(report, "state").startswith(
        f"state after block 14: key {key.key.hex()} of asset/secret: expected nothing, found version 5:2"
    )


def test_false_transaction_id_is_found(tmp_path: Path) -> None:
    ids = life().outcomes[6].tx_ids
    report = lied(tmp_path, 6, tx_ids=(TxId("00" * 32), *ids[1:]))
    assert failed(report) == ["state"]
    assert failure(report, "state").startswith("state after block 14: transaction id ")


def with_block(outcome: Outcome, **changes: Any) -> Block:
    return replace(outcome.block, **changes)


def test_block_that_no_orderer_signed_is_found(tmp_path: Path) -> None:
    outcome = life().outcomes[6]
    metadata = (life().outcomes[5].block.metadata[0], *outcome.block.metadata[1:])
    report = lied(tmp_path, 6, block=with_block(outcome, metadata=metadata))
    assert failed(report) == ["signatures"]
    assert failure(report, "signatures").startswith("block 6: orderer signatures; expected /Channel/Orderer/BlockVal")


def test_pruned_block_that_no_orderer_signed_is_found(tmp_path: Path) -> None:
    outcomes = list(life().outcomes)
    metadata = (outcomes[5].block.metadata[0], *outcomes[6].block.metadata[1:])
    outcomes[6] = replace(outcomes[6], block=with_block(outcomes[6], metadata=metadata))
    report = verified(PeerFolder(tmp_path, outcomes).agree().prune())
    assert failed(report) == ["signatures"]
    assert failure(report, "signatures").startswith("block 6: orderer signatures")


def test_false_verdict_of_valid_is_found_though_the_block_was_pruned(tmp_path: Path) -> None:
    outcomes = list(life().outcomes)
    outcomes[6] = replace(outcomes[6], verdicts=with_verdict(outcomes[6], 3, 0))
    report = verified(PeerFolder(tmp_path, outcomes).agree().prune())
    assert failed(report) == ["signatures", "state"], "the proof is of this very ledger"
    assert failure(report, "signatures").startswith(
        "block 6, transaction 3: verdict: expected ENDORSEMENT_POLICY_FAILURE (endorsement policy: "
    )


def test_envelopes_in_another_order_are_found(tmp_path: Path) -> None:
    outcome = life().outcomes[6]
    first, second, *others = outcome.block.envelopes
    report = lied(tmp_path, 6, block=with_block(outcome, envelopes=(second, first, *others)))
    assert "chain" in failed(report)
    assert failure(report, "chain").startswith("block 6: data hash; expected ")


def hash_of(header: Header) -> Digest:
    return header_hash(header.number, header.previous_hash, header.data_hash)


def test_block_of_another_chain_is_found(tmp_path: Path) -> None:
    outcome = life().outcomes[6]
    header = replace(outcome.block.header, previous_hash=bytes(32))
    report = lied(tmp_path, 6, block=with_block(outcome, header=header), block_hash=hash_of(header))
    assert "chain" in failed(report)
    assert failure(report, "chain") == (
        f"block 6: previous hash: expected {life().outcomes[5].block_hash.hex()}, found {bytes(32).hex()}"
    )


# Checkpoints.


def another(statement: Statement, **changes: Any) -> Statement:
    return replace(statement, **changes)


def stranger(role: str) -> Signer:
    return shared_organisation("OtherMSP" if role == "stranger" else "Org1MSP").issue(
        "odd", role.replace("stranger", "peer")
    )


def forged(statement: Statement, signers: Sequence[Signer]) -> CheckpointProof:
    proof = honest_proof(statement, signers)
    first, second = proof.signatures
    return replace(proof, signatures=(first, replace(second, signature=first.signature)))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (forged, "checkpoint 8: signature on checkpoint 8: forged signature; found Org2MSP peer0"),
        (
            lambda statement, signers: honest_proof(statement, signers[:1]),
            "checkpoint 8: proof of checkpoint 8: global policy; expected /Channel/Application/Endorsement",
        ),
        (
            lambda statement, signers: honest_proof(statement, (signers[0], signers[0])),
            "checkpoint 8: proof of checkpoint 8: key counted already",
        ),
        (
            lambda statement, signers: honest_proof(statement, (signers[0], stranger("stranger"))),
            "checkpoint 8: signature on checkpoint 8: unknown identity",
        ),
        (
            lambda statement, signers: honest_proof(statement, (signers[1], stranger("client"))),
            "checkpoint 8: signature on checkpoint 8: not a peer; expected Org1MSP.peer",
        ),
        (
            lambda statement, signers: honest_proof(another(statement, state_hash=Digest(bytes(32))), signers),
            "checkpoint 8: state hash: expected ",
        ),
        (
            lambda statement, signers: honest_proof(another(statement, vledger_root=Digest(bytes(32))), signers),
            "checkpoint 8: VLedger root: expected ",
        ),
        (
            lambda statement, signers: honest_proof(another(statement, vblock_hash=Digest(bytes(32))), signers),
            "checkpoint 8: vBlock hash: expected ",
        ),
    ],
)
def test_proof_that_proves_nothing_is_named_by_its_rule(
    make: Callable[[Statement, Sequence[Signer]], CheckpointProof], expected: str, tmp_path: Path
) -> None:
    report = verified(PeerFolder(tmp_path).agree(make))
    assert failed(report) == ["checkpoint"]
    assert failure(report, "checkpoint").startswith(expected)
    assert report.checkpoint == LATEST


def test_proof_for_own_pruning_only_is_no_valid_checkpoint_and_its_policy_is_left_open(tmp_path: Path) -> None:
    def one(statement: Statement, signers: Sequence[Signer]) -> CheckpointProof:
        return honest_proof(statement, signers[:1])

    report = verified(PeerFolder(tmp_path).agree(one, Scope.LOCAL).prune())
    level = report.levels["checkpoint"]
    assert (failed(report), report.checkpoint) == ([], CHECKPOINTS[0])
    assert (level.checked, level.not_checked) == (1, 2)


def test_proof_above_the_last_block_is_not_checked(tmp_path: Path) -> None:
    folder = PeerFolder(tmp_path).agree()
    records = CheckpointStore(folder.channel / "records", ChannelId(CHANNEL))
    latest = records.latest_valid
    assert latest is not None
    beyond = another(latest.statement, number=BlockNumber(HEIGHT + 5))
    records.record_valid(honest_proof(beyond, life().channel.peers), Scope.FULL)
    records.close()
    report = verified(folder)
    assert (failed(report), report.checkpoint) == ([], HEIGHT + 5)
    assert (report.levels["checkpoint"].checked, report.levels["checkpoint"].not_checked) == (2, 1)


def test_divergence_stays_a_failure_until_the_ledger_is_made_again(folder: PeerFolder) -> None:
    records = CheckpointStore(folder.channel / "records", ChannelId(CHANNEL))
    latest = records.latest_valid
    assert latest is not None
    agreed = another(latest.statement, state_hash=Digest(bytes(32)))
    records.record_divergence(latest.statement, honest_proof(agreed, life().channel.peers))
    records.close()
    report = verified(folder)
    assert failed(report) == ["checkpoint"]
    assert failure(report, "checkpoint").startswith("divergence at checkpoint 8: state hash: expected ")


# Receipts.


def signed_again(receipt: PruneReceipt, signer: Signer | None = None, **changes: Any) -> PruneReceipt:
    signer = signer or life().channel.peers[0]
    made = replace(receipt, identity=signer.serialized, **changes)
    return made.with_signature(signer.sign(made.signed_bytes))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda each: each.with_signature(each.signature[:-1]), "prune receipt 0: signature: expected one by Org1MSP"),
        (lambda each: signed_again(each, stranger("stranger")), "prune receipt 0: signer: "),
        (
            lambda each: signed_again(each, by_verdict=((10, 3),)),
            "prune receipt 0: bodies by verdict: expected BAD_CREATOR",
        ),
        (lambda each: signed_again(each, to_block=BlockNumber(8)), "prune receipt 0: prune point: expected 8, found 7"),
        (lambda each: signed_again(each, first_block=BlockNumber(2)), "prune receipt 0: first block"),
        (lambda each: signed_again(each, sequence=1), "prune receipt 0: sequence"),
        (lambda each: signed_again(each, channel=ChannelId("other")), "prune receipt 0: channel"),
        (
            lambda each: signed_again(each, checkpoint=forged(each.checkpoint.statement, life().channel.peers)),
            "prune receipt 0: signature on checkpoint 8: forged signature",
        ),
    ],
)
def test_receipt_that_is_not_right_is_named_by_its_rule(
    change: Callable[[PruneReceipt], PruneReceipt], expected: str, folder: PeerFolder, tmp_path: Path
) -> None:
    pruned = copied(folder, tmp_path / "pruned").prune()
    store = pruned.open()
    (record,) = store.prune_records()
    store.close()
    store = folder.open()
    store.prune(PRUNE_POINT, change(decode_receipt(record.receipt)).encoded)
    store.close()
    report = verified(folder)
    assert failed(report) == ["checkpoint"]
    assert failure(report, "checkpoint").startswith(expected)
