"""Do checkpoint proofs and prune receipts say what the ledger says, and did the right ones sign them?

The audit walks beside the verification of the blocks, which hands it at each height of interest what the ledger came to
there. At block *n*:

1. The statement of a proof is that of this ledger: vBlock hash, VLedger root and state hash, all derived from the
   genesis block on.
2. Its signatures are those of peers of the channel, by the configuration in force after block *n*, and satisfy the
   channel's policy for checkpoints in their order. A proof that is only good for the peer's own pruning rests on a
   policy among the peer's settings, which lie elsewhere: its signatures are checked, its policy is not.
3. The roots that the peer computed for block *n*, and the state that it keeps of the latest valid checkpoint, are what
   the blocks make of it.
4. A prune receipt rests on a proof above what it pruned, is signed by a member of the channel, says how many bodies of
   which verdict went, names the receipt before it, and moved the prune point to where it says.
"""

from collections import Counter
from collections.abc import Iterator

from ledger.core.channel_config import Bundle
from ledger.core.checkpoint import CheckpointProof, CheckpointRoots
from ledger.core.checkpoint_proof import CheckpointRules, CountedSigner, Scope, check_proof, count_signature
from ledger.core.errors import InvalidIdentity, MalformedMessage, NotFound, Refused, StorageDamaged
from ledger.core.names import BlockNumber, Digest, verdict_name
from ledger.core.pruning import PruneReceipt, check_chain, decode_receipt
from ledger.core.state import Entry, StateKey
from ledger.node.verify_report import Level
from ledger.node.verify_state import first_difference
from ledger.storage.checkpoints import CheckpointStore
from ledger.storage.ledger_store import LedgerStore

NOT_REACHED = "behind the last block that could be judged"
STATE_GONE = "chain and signatures are in order, the state at that height is not here any more"
OWN_POLICY = "good for the peer's own pruning only; that policy is a setting of the peer"


class CheckpointAudit:
    """Checks the records of one channel.

    Args:
        store: The ledger that they are about.
        level: Where to say what was found.
    """

    def __init__(self, store: LedgerStore, level: Level) -> None:
        """Read the records; what can't be read is a failure of the level."""
        self._store = store
        self._level = level
        self._records = self._open_records()
        self._receipts = self._read_receipts()
        self._bodies = [Counter[int]() for _ in self._receipts]
        self._passed = 0
        """Receipts whose blocks have all been seen."""
        self._done: set[int] = set()
        self.signers: tuple[CountedSigner, ...] = ()
        """Who signed the latest valid checkpoint, once that was checked."""

    def _open_records(self) -> CheckpointStore | None:
        """Open the checkpoint records, if there are any: a replay has none, and none are made here."""
        folder = self._store.records_directory
        if not (folder / "proofs.log").exists():
            return None
        try:
            return CheckpointStore(folder, self._store.channel_id)
        except StorageDamaged as error:
            self._level.fail(str(error))
            return None

    def _read_receipts(self) -> tuple[PruneReceipt, ...]:
        """Read the receipts and see that each follows from the one before (step 4)."""
        receipts: list[PruneReceipt] = []
        for record in self._store.prune_records():
            try:
                receipt = decode_receipt(record.receipt)
            except MalformedMessage as error:
                self._level.fail(f"prune receipt {len(receipts)}: {error}")
                break
            receipts.append(receipt)
            if record.prune_point != receipt.to_block:
                self._level.fail(
                    f"prune receipt {receipt.sequence}: prune point: expected {receipt.to_block}, "
                    f"found {record.prune_point}"
                )
        try:
            check_chain(receipts)
        except MalformedMessage as error:
            self._level.fail(str(error))
        return tuple(receipts)

    @property
    def latest(self) -> BlockNumber | None:
        """Number of the latest valid checkpoint."""
        proof = self._records.latest_valid if self._records is not None else None
        return None if proof is None else proof.statement.number

    def proved(self) -> tuple[BlockNumber, ...]:
        """List the heights with a proof that is good for everybody, newest first."""
        records = self._records
        if records is None:
            return ()
        return tuple(number for number in reversed(records.numbers()) if records.proof(number) is not None)

    def heights(self) -> frozenset[int]:
        """List the blocks after which `check_at` is due."""
        found = {receipt.checkpoint.statement.number for receipt in self._receipts}
        if self._records is not None:
            found.update(number for number in self._records.numbers() if self._proofs(number))
            if self._records.divergence is not None:
                found.add(self._records.divergence.proof.statement.number)
        return frozenset(found)

    def _proofs(self, number: BlockNumber) -> list[tuple[Scope, CheckpointProof]]:
        """Give the proofs recorded for a height."""
        if self._records is None:
            return []
        proofs = [(scope, self._records.proof(number, scope)) for scope in Scope]
        return [(scope, proof) for scope, proof in proofs if proof is not None]

    def saw(self, number: int, verdicts: bytes) -> None:
        """Hear of a block on the way: what receipts say of it is counted."""
        while self._passed < len(self._receipts) and number > self._receipts[self._passed].to_block:
            self._passed += 1
        if self._passed < len(self._receipts) and number >= self._receipts[self._passed].first_block:
            self._bodies[self._passed].update(verdict for verdict in verdicts if verdict)

    def check_at(self, roots: CheckpointRoots, bundle: Bundle, state: Iterator[tuple[StateKey, Entry]]) -> None:
        """Check everything that is about one height.

        Args:
            roots: What the ledger comes to there.
            bundle: The configuration in force after that block.
            state: All entries live there, in the database's order.
        """
        number = roots.number
        self._done.add(number)
        for scope, proof in self._proofs(number):
            signers = self._check_proof(f"checkpoint {number}", proof, roots, bundle, is_local=scope is Scope.LOCAL)
            if number == self.latest and scope is Scope.FULL and signers is not None:
                self.signers = signers
        self._check_kept(roots, state)
        for receipt, bodies in zip(self._receipts, self._bodies, strict=True):
            if receipt.checkpoint.statement.number == number:
                self._check_receipt(receipt, bodies, roots, bundle)
        divergence = self._records.divergence if self._records is not None else None
        if divergence is not None and divergence.proof.statement.number == number:
            self._check_proof(f"divergence at checkpoint {number}", divergence.proof, roots, bundle, is_local=False)

    def check_signed_at(self, number: BlockNumber, vblock: Digest, vledger_root: Digest, bundle: Bundle) -> None:
        """Check of a height what does not need the state, which is not here any more: chain and signatures.

        Args:
            number: The height.
            vblock: The vBlock hash there.
            vledger_root: The root of the log there.
            bundle: The configuration in force after that block.
        """
        self._done.add(number)
        proofs = [(f"checkpoint {number}", proof, scope is Scope.LOCAL) for scope, proof in self._proofs(number)]
        for receipt in self._receipts:
            if receipt.checkpoint.statement.number == number:
                proofs.append((f"prune receipt {receipt.sequence}", receipt.checkpoint, False))
        for subject, proof, is_local in proofs:
            said = proof.statement
            for what, expected, found in (
                ("vBlock hash", vblock, said.vblock_hash), ("VLedger root", vledger_root, said.vledger_root)
            ):  # fmt: skip
                if expected != found:
                    self._level.fail(f"{subject}: {what}: expected {expected.hex()}, found {found.hex()}")
            self._level.skip(1, STATE_GONE)
            try:
                if not is_local:
                    check_proof(proof, bundle, CheckpointRules())
            except Refused as error:
                self._level.fail(f"{subject}: {error}")

    def _check_proof(
        self, subject: str, proof: CheckpointProof, roots: CheckpointRoots, bundle: Bundle, *, is_local: bool
    ) -> tuple[CountedSigner, ...] | None:
        """Check statement and signatures of a proof (steps 1 and 2); give its signers if they are in order."""
        ours, said = roots.statement(self._store.channel_id), proof.statement
        for what, expected, found in (
            ("vBlock hash", ours.vblock_hash, said.vblock_hash),
            ("VLedger root", ours.vledger_root, said.vledger_root),
            ("state hash", ours.state_hash, said.state_hash),
        ):
            if expected != found:
                self._level.fail(f"{subject}: {what}: expected {expected.hex()}, found {found.hex()}")
        try:
            if is_local:
                signers = tuple(count_signature(said, signed, bundle) for signed in proof.signatures)
                self._level.skip(1, OWN_POLICY)
            else:
                signers = check_proof(proof, bundle, CheckpointRules())
                self._level.checked += 1
        except Refused as error:
            self._level.checked += 1
            self._level.fail(f"{subject}: {error}")
            return None
        return signers

    def _check_kept(self, roots: CheckpointRoots, state: Iterator[tuple[StateKey, Entry]]) -> None:
        """Compare what the peer computed and keeps of a checkpoint (step 3)."""
        computed = self._store.roots(roots.number)
        if computed is not None and computed != roots:
            expected, found = (
                f"vBlock {each.vblock_hash.hex()}, VLedger {each.vledger_root.hex()}, state {each.state_hash.hex()}"
                for each in (roots, computed)
            )
            self._level.fail(f"checkpoint {roots.number}: computed by the peer: expected {expected}, found {found}")
        if roots.number != self.latest or computed is None:
            return
        try:
            view = self._store.checkpoint_view(roots.number)
        except NotFound:
            return  # Released: a later one will be served.
        with view:
            difference = first_difference(state, view.entries())
        if difference is not None:
            self._level.fail(f"checkpoint {roots.number}: state kept for joiners: {difference}")

    def _check_receipt(
        self, receipt: PruneReceipt, bodies: Counter[int], roots: CheckpointRoots, bundle: Bundle
    ) -> None:
        """Check a receipt (step 4)."""
        subject = f"prune receipt {receipt.sequence}"
        local = self._records.proof(roots.number, Scope.LOCAL) if self._records is not None else None
        self._check_proof(subject, receipt.checkpoint, roots, bundle, is_local=receipt.checkpoint == local)
        if receipt.channel != self._store.channel_id:
            self._level.fail(f"{subject}: channel: expected {self._store.channel_id}, found {receipt.channel}")
        if receipt.to_block >= roots.number:
            self._level.fail(f"{subject}: range: expected below checkpoint {roots.number}, found {receipt.to_block}")
        elif tuple(sorted(bodies.items())) != receipt.by_verdict:
            found = in_words(Counter(dict(receipt.by_verdict)))
            self._level.fail(f"{subject}: bodies by verdict: expected {in_words(bodies)}, found {found}")
        try:
            signer = bundle.msps.deserialize(receipt.identity)
            bundle.msps.validate(signer)
        except InvalidIdentity as error:
            self._level.fail(f"{subject}: signer: {error}")
            return
        if not signer.verify(receipt.signed_bytes, receipt.signature):
            self._level.fail(f"{subject}: signature: expected one by {signer.msp_id} {signer.certificate.common_name}")

    def finish(self) -> None:
        """Count what was never reached."""
        for number in sorted(self.heights() - self._done):
            receipts = sum(receipt.checkpoint.statement.number == number for receipt in self._receipts)
            self._level.skip(len(self._proofs(BlockNumber(number))) + receipts, NOT_REACHED)
        pruned = self._store.prune_point
        joined_at = self._store.joined_at
        if pruned >= 0 and not self._receipts and (joined_at is None or pruned >= joined_at):
            self._level.fail(f"blocks up to {pruned} were pruned without a receipt")

    def close(self) -> None:
        """Close the records."""
        if self._records is not None:
            self._records.close()


def in_words(bodies: Counter[int]) -> str:
    """Write counts by verdict."""
    return ", ".join(f"{verdict_name(verdict)} {count}" for verdict, count in sorted(bodies.items())) or "none"


__all__ = ["CheckpointAudit"]
