"""Which chaincode runs for a proposal, and what does its run come to?"""

from ledger.chaincode.values import SimulationResult, TransactionContext
from ledger.core.ports import LedgerReader


class Runtime:
    """Runs proposals on the contracts of the pool and on the built-in chaincodes of one peer.

    `simulate` blocks (contracts are other processes): call it in a thread, as many at once as the pool has workers.
    """

    def simulate(
        self, chaincode: str, transaction: TransactionContext, ledger: LedgerReader | None
    ) -> SimulationResult:
        """Simulate one proposal on a consistent view of the channel's state.

        Args:
            chaincode: Name in the proposal's header extension.
            transaction: The proposal, its header, identity, signature and access checked by the caller.
            ledger: The channel's ledger; None for a call without channel.

        Returns:
            The chaincode's response, whatever its status, with the read-write set.

        Raises:
            SimulationFailed: There is no response; the text is the message of the client's response, status 500.
            StorageFailed: The state could not be read.
            Busy: All workers were busy for too long.
        """
        raise NotImplementedError
