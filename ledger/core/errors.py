"""What can go wrong, and whose fault is it?  One tree: theirs, the world's, and nothing else.

Each error of *theirs* carries the rule that was broken, what was expected and what was found, as data: the doors put
them into gRPC details and problem documents, people read them in the message.
"""

from dataclasses import dataclass


class LedgerError(Exception):
    """The root of everything that this package raises on purpose."""


class Refused(LedgerError):
    """Something from outside broke a rule (*theirs*).

    Attributes:
        rule: Short name of the rule that refused, the same in code, tests and messages.
        expected: What the rule asks for.
        found: What was there instead.
    """

    def __init__(self, subject: str, *, rule: str, expected: object = None, found: object = None) -> None:
        """Describe what was refused (`subject`) and why."""
        self.subject = subject
        self.rule = rule
        self.expected = expected
        self.found = found
        parts = [f"{subject}: {rule}"]
        if expected is not None:
            parts.append(f"expected {shown(expected)}")
        if found is not None:
            parts.append(f"found {shown(found)}")
        super().__init__("; ".join(parts))


class MalformedMessage(Refused):
    """Bytes that do not decode as what they should be."""


class InvalidBlock(Refused):
    """A block that is refused whole: number, hashes, well-formedness or orderer signatures are wrong."""


class InvalidIdentity(Refused):
    """A certificate or serialized identity that is no valid member of its organisation."""


class InvalidConfig(Refused):
    """A channel configuration or configuration update that breaks a rule."""


class InvalidPolicy(Refused):
    """A policy text or policy message that is not well formed."""


class PolicyNotSatisfied(Refused):
    """A set of signatures that does not satisfy the policy asked for."""


class InvalidCheckpoint(Refused):
    """A checkpoint message, statement or proof that breaks a rule."""


class InvalidProof(Refused):
    """A Merkle proof that does not prove what it should."""


class InvalidProposal(Refused):
    """A proposal that is not simulated: its header, identity, signature or access is wrong."""


class InvalidSetting(Refused):
    """A setting of a node that is unknown or out of range."""


class PruneRefused(Refused):
    """A prune request above what may be pruned; `expected` names the largest height allowed."""


class AbandonRefused(Refused):
    """A checkpoint that is not given up: it is valid, or its time is over; `found` says which."""


class Forbidden(Refused):
    """A caller that is known but not entitled."""


class NotFound(LedgerError):
    """Something asked for by name that was never there."""


class Pruned(LedgerError):
    """Something that was here and was pruned: never a hang, never "not found".

    Attributes:
        first_block: The first block that this peer holds whole.
        block: The block asked for, or that held what was asked for.
        index: Index of the stub in that block, where one transaction was asked for.
        verdict: The verdict of that transaction, likewise.
    """

    def __init__(self, *, block: int, first_block: int, index: int | None = None, verdict: int | None = None) -> None:
        """Say what is gone and where whole blocks begin."""
        self.block = block
        self.first_block = first_block
        self.index = index
        self.verdict = verdict
        what = f"block {block}" if index is None else f"transaction {index} of block {block} (verdict {verdict})"
        super().__init__(f"{what} was pruned; the first whole block is {first_block}")


class BeforeJoining(Pruned):
    """Something of blocks below the checkpoint that this peer joined from: it never had it."""

    def __init__(
        self, what: str, *, block: int, first_block: int, index: int | None = None, verdict: int | None = None
    ) -> None:
        """Say what is not here, and the first block of which it is."""
        super().__init__(block=block, first_block=first_block, index=index, verdict=verdict)
        self.args = (
            f"{what} is not here: this peer joined from a checkpoint and has it from block {first_block} on; "
            "ask a peer that was there from the start",
        )


class Conflict(LedgerError):
    """A request that contradicts what is already there (a channel that exists, a second process on a directory)."""


class WorldFailed(LedgerError):
    """Nobody's request is wrong: disk, network or another process failed (*the world's*)."""


class StorageFailed(WorldFailed):
    """Reading or writing the disk failed; never a verdict."""


class StorageDamaged(WorldFailed):
    """What is on the disk is not what was written; the message names the file, the record and what to do."""


class DatabaseDamaged(StorageDamaged):
    """The derived database is damaged or gone; the segments are whole, and rebuilding from them restores it."""


class PeerUnreachable(WorldFailed):
    """Another node did not answer in time or closed the connection."""


class Busy(WorldFailed):
    """A bound was reached; the same request may succeed later."""


class ChannelStopped(WorldFailed):
    """The channel does not commit any more; the message says which rule stopped it and at which block."""


class Diverged(ChannelStopped):
    """A valid checkpoint differs from what this peer computed (design, rule 7)."""


class SimulationFailed(LedgerError):
    """A proposal that could not be simulated to a response; its text is what the client gets with status 500."""


class ChaincodeUndefined(SimulationFailed):
    """The chaincode has no committed definition on the channel, or this peer can't run it."""


class ExecutionFailed(SimulationFailed):
    """The chaincode ran out of time, its process ended, or it broke the rules of simulation."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why one transaction is invalid, as data: kept beside its verdict and shown to people."""

    verdict: int
    """The validation code, see `names.Verdict`."""

    rule: str
    """Short name of the rule that decided."""

    detail: str = ""
    """What was expected and found: key, versions, namespace, policy."""


def shown(value: object, length_max: int = 120) -> str:
    """Render a value from outside for a message: bytes as hex, everything cut to a readable length."""
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= length_max else f"{text[:length_max]}… ({len(text)} characters)"
