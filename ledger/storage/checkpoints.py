"""Which checkpoints did this peer sign, which does it know to be valid, and who lied?  Three small files.

    signed.log     what we signed, below which height we sign nothing any more, whether these files were restored, and
                   which heights an admin gave up
    proofs.log     the proof of every checkpoint that became valid here; the last one of full scope *is* the latest
                   valid checkpoint, so that both move in one durable step
    evidence.log   pairs of statements by one key at one height, divergences of this peer from what others agreed on,
                   and where they begin, as it was found

These files are kept for ever and are never rebuilt: together they are smaller than one segment. Receipts of pruning are
kept by the store of blocks, in the record that moves the prune point.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ledger.core.checkpoint import (
    CheckpointMessage,
    CheckpointProof,
    PeerSignature,
    Statement,
    encode_message,
    encode_proof,
    read_message,
    read_proof,
)
from ledger.core.checkpoint_proof import Scope
from ledger.core.encoding import Reader, lp, u8, u64
from ledger.core.errors import Conflict, MalformedMessage, StorageDamaged
from ledger.core.names import BlockNumber, ChannelId
from ledger.storage.files import Files
from ledger.storage.record_log import RecordLog

EVIDENCE_MAX = 4096
"""Records of evidence that are kept; the disk of an honest peer is not for others to fill."""

RESTORED = "its records come from a backup, and the orderers have not said yet how far it may have signed since"
"""Why a restored peer is silent."""

_SIGNED, _FLOOR, _RESTORED, _SPEAK, _ABANDONED = 1, 2, 3, 4, 5
_FULL, _LOCAL = 1, 2
_EQUIVOCATION, _DIVERGENCE, _RESOLVED, _FINDING = 1, 2, 3, 4


Said = tuple[Statement, PeerSignature]
"""A statement and one signature on it."""


@dataclass(frozen=True, slots=True)
class Equivocation:
    """Two statements by one key at one height."""

    first: Said
    second: Said


@dataclass(frozen=True, slots=True)
class Divergence:
    """What this peer computed, and what others validly agreed on."""

    computed: Statement
    proof: CheckpointProof


class CheckpointStore:
    """The checkpoint records of one channel.  Safe to use from any thread.

    Args:
        directory: Where the files lie; created if it is not there.
        channel: The channel that they are about.
        files: The durable verbs.

    Raises:
        StorageDamaged: A file holds something that no crash leaves behind, or is about another channel.
        StorageFailed: The disk failed.
    """

    def __init__(self, directory: Path, channel: ChannelId, files: Files | None = None) -> None:
        """Open the files and see what is in them."""
        self.channel = channel
        self._lock = threading.RLock()
        self._signed_log = RecordLog(directory / "signed.log", files)
        self._proof_log = RecordLog(directory / "proofs.log", files)
        self._evidence_log = RecordLog(directory / "evidence.log", files)
        self._signed: dict[BlockNumber, int] = {}
        self._floor = -1
        self._restored = False
        self._abandoned: dict[BlockNumber, Statement | None] = {}
        self._proofs: dict[tuple[BlockNumber, Scope], int] = {}
        self._latest: dict[Scope, CheckpointProof] = {}
        self._divergence: Divergence | None = None
        self._finding = b""
        self._load()

    # -- what we signed

    @property
    def floor(self) -> int:
        """Highest height that we may not sign any more, whatever is recorded; -1 for none."""
        return self._floor

    def raise_floor(self, number: int) -> None:
        """Sign nothing at or below a height from now on.

        Durability: holds after a crash on return.
        """
        with self._lock:
            if number > self._floor:
                self._signed_log.append(u8(_FLOOR) + u64(number))
                self._floor = number

    @property
    def restored(self) -> bool:
        """Whether these files are an older copy, and what was signed since is not known: nothing may be signed."""
        return self._restored

    def mark_restored(self) -> None:
        """Say that these files are a copy: what was signed since it was taken is not in them.

        Durability: nothing is signed any more on return, until `speak_above`.
        """
        with self._lock:
            if not self._restored:
                self._signed_log.append(u8(_RESTORED))
                self._restored = True

    def speak_above(self, number: int) -> None:
        """Sign again, and nothing at or below a height: whatever was signed is not above it.

        Durability: holds after a crash on return.
        """
        with self._lock:
            if self._restored:
                self._signed_log.append(u8(_SPEAK) + u64(number))
                self._restored, self._floor = False, max(self._floor, number)
            else:
                self.raise_floor(number)

    def signed(self, number: BlockNumber) -> CheckpointMessage | None:
        """Return what we signed at a height."""
        with self._lock:
            index = self._signed.get(number)
            return None if index is None else _read_signed(self._signed_log.read(index))

    def why_not_sign(self, statement: Statement) -> str:
        """Say why a statement may not be signed, in words; empty if it may.

        What is recorded already may always be said again, if it is the same.
        """
        recorded = self.signed(statement.number)
        if recorded is not None:
            return "" if recorded.statement == statement else "another statement was signed at this height"
        if self._restored:
            return RESTORED
        if statement.number <= self._floor:
            return f"nothing is signed at or below block {self._floor}"
        return ""

    def record_signed(self, message: CheckpointMessage) -> None:
        """Record a statement as ours, before anybody hears of it; the same again is no change.

        Raises:
            Conflict: Another statement is recorded at this height, or the height may not be signed any more.
            StorageFailed: The disk failed; it must not be sent.

        Durability: a different statement at this height is refused for ever on return.
        """
        with self._lock:
            if reason := self.why_not_sign(message.statement):
                raise Conflict(f"checkpoint {message.statement.number} is not signed: {reason}")
            if message.statement.number in self._signed:
                return
            index = self._signed_log.append(u8(_SIGNED) + encode_message(message))
            self._signed[message.statement.number] = index

    # -- what was given up

    @property
    def abandoned(self) -> Mapping[BlockNumber, Statement | None]:
        """The heights that were given up, with what was computed there, where it was."""
        with self._lock:
            return self._abandoned.copy()

    def record_abandoned(self, number: BlockNumber, statement: Statement | None) -> None:
        """Give a height up for good.

        Durability: it is given up after a crash on return.
        """
        with self._lock:
            if number not in self._abandoned:
                content = b"" if statement is None else statement.encoded
                self._signed_log.append(u8(_ABANDONED) + u64(number) + lp(content))
                self._abandoned[number] = statement

    # -- what is valid

    @property
    def latest_valid(self) -> CheckpointProof | None:
        """The proof of the latest valid checkpoint."""
        with self._lock:
            return self._latest.get(Scope.FULL)

    @property
    def latest_for_pruning(self) -> CheckpointProof | None:
        """The proof of the latest checkpoint that this peer's own pruning may rest on."""
        with self._lock:
            proofs = [proof for proof in self._latest.values() if proof is not None]
        return max(proofs, key=lambda proof: proof.statement.number, default=None)

    def record_valid(self, proof: CheckpointProof, scope: Scope) -> None:
        """Record that a checkpoint is valid, or good enough for our own pruning.

        Durability: proof and latest valid checkpoint are durable together on return.
        """
        with self._lock:
            key = (proof.statement.number, scope)
            if key in self._proofs:
                return
            kind = _FULL if scope is Scope.FULL else _LOCAL
            self._proofs[key] = self._proof_log.append(u8(kind) + encode_proof(proof))
            self._see(proof, scope)

    def proof(self, number: BlockNumber, scope: Scope = Scope.FULL) -> CheckpointProof | None:
        """Return the proof of one height."""
        with self._lock:
            index = self._proofs.get((number, scope))
            return None if index is None else self._read_proof(self._proof_log.read(index))[0]

    def numbers(self) -> tuple[BlockNumber, ...]:
        """List every height with a statement of ours or a proof, or that was given up, ascending."""
        with self._lock:
            return tuple(sorted({number for number, _ in self._proofs} | set(self._signed) | set(self._abandoned)))

    # -- who lied

    def record_equivocation(
        self, first: tuple[Statement, PeerSignature], second: tuple[Statement, PeerSignature]
    ) -> bool:
        """Keep two statements of one key; returns False if so much is kept already that this is not."""
        with self._lock:
            if len(self._evidence_log) >= EVIDENCE_MAX:
                return False
            self._evidence_log.append(u8(_EQUIVOCATION) + _encode_pair(first) + _encode_pair(second))
            return True

    def record_divergence(self, computed: Statement, proof: CheckpointProof) -> None:
        """Keep what we computed and what others agreed on; holds until `resolve_divergence`.

        Durability: survives a crash on return, so that a start finds this peer stopped.
        """
        with self._lock:
            self._evidence_log.append(u8(_DIVERGENCE) + lp(computed.encoded) + encode_proof(proof))
            self._divergence, self._finding = Divergence(computed, proof), b""

    def record_finding(self, finding: bytes) -> None:
        """Keep what was found of where the divergence begins, opaque here, until it is resolved or more is found.

        Durability: survives a crash on return.
        """
        with self._lock:
            self._evidence_log.append(u8(_FINDING) + finding)
            self._finding = finding

    @property
    def finding(self) -> bytes:
        """What was found last of where the divergence begins; empty if nothing was yet."""
        return self._finding

    def resolve_divergence(self) -> None:
        """Say that the ledger was made again since: the next start compares afresh. The evidence stays."""
        with self._lock:
            if self._divergence is not None:
                self._evidence_log.append(u8(_RESOLVED))
                self._divergence, self._finding = None, b""

    @property
    def divergence(self) -> Divergence | None:
        """The divergence that stops this peer, if there is one."""
        return self._divergence

    def evidence(self) -> Iterator[Equivocation | Divergence]:
        """Yield all evidence, oldest first."""
        with self._lock:
            records = list(self._evidence_log.records())
        for record in records:
            found = _read_evidence(record)
            if found is not None:
                yield found

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return sum(log.size_bytes for log in (self._signed_log, self._proof_log, self._evidence_log))

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            for log in (self._signed_log, self._proof_log, self._evidence_log):
                log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reading it all at the start

    def _load(self) -> None:
        """Index every record; what does not decode under a good check is damage of another kind, and named."""
        try:
            for index, record in enumerate(self._signed_log.records()):
                if record[0] in (_FLOOR, _SPEAK):
                    self._floor = max(self._floor, Reader(record[1:], "floor").u64())
                    self._restored = self._restored and record[0] == _FLOOR
                elif record[0] == _RESTORED:
                    self._restored = True
                elif record[0] == _ABANDONED:
                    number, statement_or_none = _read_abandoned(record)
                    self._abandoned[number] = statement_or_none
                else:
                    statement = _read_signed(record).statement
                    self._check_channel(statement, self._signed_log)
                    self._signed[statement.number] = index
            for index, record in enumerate(self._proof_log.records()):
                proof, scope = self._read_proof(record)
                self._check_channel(proof.statement, self._proof_log)
                self._proofs[proof.statement.number, scope] = index
                self._see(proof, scope)
            for record in self._evidence_log.records():
                found = _read_evidence(record)
                if record[0] == _FINDING:
                    self._finding = record[1:]
                elif found is None:
                    self._divergence, self._finding = None, b""
                elif isinstance(found, Divergence):
                    self._divergence, self._finding = found, b""
        except MalformedMessage as error:
            raise StorageDamaged(f"a record under {self._signed_log.path.parent} does not decode: {error}") from error

    def _see(self, proof: CheckpointProof, scope: Scope) -> None:
        """Move the latest checkpoint of a scope on, never back."""
        latest = self._latest.get(scope)
        if latest is None or proof.statement.number > latest.statement.number:
            self._latest[scope] = proof

    def _check_channel(self, statement: Statement, log: RecordLog) -> None:
        if statement.channel != self.channel:
            raise StorageDamaged(f"{log.path} is about channel {statement.channel}, not {self.channel}")

    @staticmethod
    def _read_proof(record: bytes) -> tuple[CheckpointProof, Scope]:
        reader = Reader(record, "proof record")
        scope = Scope.FULL if reader.u8() == _FULL else Scope.LOCAL
        proof = read_proof(reader)
        reader.done()
        return proof, scope


def _read_signed(record: bytes) -> CheckpointMessage:
    reader = Reader(record, "signed record")
    if (kind := reader.u8()) != _SIGNED:
        raise MalformedMessage("signed record", rule="kind", expected=_SIGNED, found=kind)
    message = read_message(reader)
    reader.done()
    return message


def _read_abandoned(record: bytes) -> tuple[BlockNumber, Statement | None]:
    reader = Reader(record[1:], "abandoned record")
    number, content = BlockNumber(reader.u64()), reader.lp()
    reader.done()
    return number, Statement.decode(content) if content else None


def _encode_pair(pair: Said) -> bytes:
    statement, signed = pair
    return lp(statement.encoded) + lp(signed.identity) + lp(signed.signature)


def _read_evidence(record: bytes) -> Equivocation | Divergence | None:
    """Read a record of evidence; None for the notes that a divergence was resolved, and where one begins."""
    reader = Reader(record, "evidence record")
    kind = reader.u8()
    found: Equivocation | Divergence | None
    if kind == _FINDING:
        return None
    if kind == _RESOLVED:
        found = None
    elif kind == _DIVERGENCE:
        found = Divergence(Statement.decode(reader.lp()), read_proof(reader))
    elif kind == _EQUIVOCATION:
        pairs = [(Statement.decode(reader.lp()), PeerSignature(reader.lp(), reader.lp())) for _ in range(2)]
        found = Equivocation(pairs[0], pairs[1])
    else:
        raise MalformedMessage("evidence record", rule="kind", expected="1 to 4", found=kind)
    reader.done()
    return found


__all__ = ["RESTORED", "CheckpointStore", "Divergence", "Equivocation"]
