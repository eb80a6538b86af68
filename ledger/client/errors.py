"""What can go wrong for an application that submits transactions?"""

from dataclasses import dataclass

from ledger.core.errors import LedgerError
from ledger.core.names import verdict_name


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one node answered instead of helping."""

    address: str
    msp_id: str
    message: str

    def __str__(self) -> str:
        """Show it in one line."""
        return f"{self.msp_id} at {self.address}: {self.message}"


class CallRefused(LedgerError):
    """A call that the gateway answered with a status.

    Attributes:
        call: Evaluate, Endorse, Submit or CommitStatus.
        code: The gRPC status by name.
        message: Its text.
        answers: What each node answered that did not help.
        transaction_id: Id of the transaction.
    """

    def __init__(
        self, call: str, code: str, message: str, answers: tuple[NodeAnswer, ...], transaction_id: str
    ) -> None:
        """Say which call was refused, and by whom."""
        self.call = call
        self.code = code
        self.message = message
        self.answers = answers
        self.transaction_id = transaction_id
        lines = [f"{call}: {code}: {message}", *(f"  {answer}" for answer in answers)]
        super().__init__("\n".join(lines))


class TransactionInvalid(LedgerError):
    """A transaction that was ordered and found invalid by the peers.

    Attributes:
        transaction_id: Its id.
        verdict: Its validation code.
        block: Number of its block.
    """

    def __init__(self, transaction_id: str, verdict: int, block: int) -> None:
        """Say which transaction, and why it is invalid."""
        self.transaction_id = transaction_id
        self.verdict = verdict
        self.block = block
        super().__init__(f"transaction {transaction_id} in block {block} is invalid: {verdict_name(verdict)}")
