"""Which chaincode runs for a proposal, and what does its run come to?

A contract of the pool runs when its name is defined on the channel. Each run reads the definition's `Sequence` into the
read-write set, so that an upgrade in between makes the transaction conflict; without that read endorsements would
differ from those of Fabric's peers.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from ledger.chaincode.definition_records import LIFECYCLE, NAMESPACES, field_key, read_sequence
from ledger.chaincode.history import LedgerHistory
from ledger.chaincode.lifecycle import LEGACY, Lifecycle
from ledger.chaincode.pool import ContractPool
from ledger.chaincode.simulator import Simulator
from ledger.chaincode.system import CSCC, QSCC, SystemChaincodes
from ledger.chaincode.values import (
    SYSTEM_VERSION,
    ChaincodeResponse,
    SimulationResult,
    TransactionContext,
    failure,
)
from ledger.chaincode.views import opened
from ledger.core.errors import ChaincodeUndefined, ExecutionFailed, MalformedMessage, Refused
from ledger.core.ports import LedgerReader
from ledger.core.state import CONFIG_KEY, StateView, public_key
from ledger.wire.lifecycle_calls import bytes_in_field, endorsement_terms
from ledger.wire.rwset import encode_rwset
from ledger.wire.system_calls import application_msp_ids

INITIALIZED_KEY = "\x00\U0010ffffinitialized"
"""Key under which a chaincode that asks for initialisation keeps the version that was initialised."""

BUILT_IN = frozenset({LIFECYCLE, QSCC, CSCC, LEGACY})
"""Names and namespaces that are no contracts."""


class Access(Protocol):
    """Decides who may use what; drawn here for the built-in chaincodes, which ask by function."""

    def check(self, resource: str, channel_id: str, transaction: TransactionContext) -> None:
        """Check that the transaction's creator may use a resource of a channel ("" for the peer itself).

        Raises:
            Refused: It may not.
        """
        ...


class Runtime:
    """Runs proposals on the contracts of the pool and on the built-in chaincodes of one peer.

    `simulate` blocks (contracts are other processes): call it in a thread, as many at once as the pool has workers.

    Args:
        pool: The contracts; started and closed by its owner.
        msp_id: Organisation of this peer.
        ledgers: The peer's channels by name; read at each call.
        access: Who may use the built-in chaincodes.
    """

    def __init__(
        self, pool: ContractPool, msp_id: str, ledgers: Mapping[str, LedgerReader], access: Access | None = None
    ) -> None:
        """Take the finished parts."""
        self._pool = pool
        self._msp_id = msp_id
        self._system = SystemChaincodes(ledgers)
        self._access = access

    def simulate(
        self, chaincode: str, transaction: TransactionContext, ledger: LedgerReader | None
    ) -> SimulationResult:
        """Simulate one proposal on a consistent view of the channel's state.

        Args:
            chaincode: Name in the proposal's header extension.
            transaction: The proposal; its header, identity, signature and `peer/Propose` checked by the caller.
            ledger: The channel's ledger; None for a call without channel.

        Returns:
            The chaincode's response, whatever its status, with the read-write set.

        Raises:
            SimulationFailed: There is no response; the text is the message of the client's response, status 500.
            StorageFailed: The state could not be read.
            Busy: All workers were busy for too long.
        """
        if chaincode in (QSCC, CSCC):
            response = self._system.invoke(chaincode, transaction.args, self._authorizer(transaction))
            return SimulationResult(response, b"", chaincode, SYSTEM_VERSION)
        if ledger is None:
            raise ChaincodeUndefined(f"chaincode {chaincode} can't be called without a channel")
        height = ledger.height  # Before the view: the history may then lack the view's last block, never exceed it.
        with opened(ledger) as view:
            simulator = Simulator(view, LedgerHistory(ledger, height))
            try:
                if chaincode == LIFECYCLE:
                    return result(self._define(transaction, view, simulator), simulator, chaincode, SYSTEM_VERSION)
                return self._run(chaincode, transaction, view, simulator)
            finally:
                simulator.close()

    def _run(
        self, chaincode: str, transaction: TransactionContext, view: StateView, simulator: Simulator
    ) -> SimulationResult:
        """Run a contract of the pool."""
        channel_id = transaction.channel_id
        version = self._admit(chaincode, channel_id, view, simulator, is_init=transaction.is_init)

        def admit(name: str) -> None:
            if name in BUILT_IN:
                raise ExecutionFailed(f"the built-in chaincode {name} can't be invoked by contracts")
            self._admit(name, channel_id, view, simulator, is_init=False)

        response = self._pool.execute(chaincode, transaction, simulator, admit)
        return result(response, simulator, chaincode, version)

    def _admit(self, chaincode: str, channel_id: str, view: StateView, simulator: Simulator, *, is_init: bool) -> str:
        """Check that a contract may run, and read into the set what its running depends on.

        1. Its name is defined on the channel.
        2. This peer can run it.
        3. It was initialised, if its definition asks for that, or is now.

        Returns:
            The version of the definition.
        """
        defined = f"the chaincode {chaincode} has been successfully defined on channel {channel_id}"
        advice = f"make sure {defined} and try again"
        terms = committed_terms(simulator, view, chaincode)
        if terms is None:
            simulator.get_state(LEGACY, chaincode)
            raise ChaincodeUndefined(f"{advice}: chaincode {chaincode} not found")
        if chaincode not in self._pool:
            raise ChaincodeUndefined(
                f"{advice}: chaincode definition for '{chaincode}' exists, but chaincode is not installed"
            )
        version, init_required = terms
        check_initialization(simulator, chaincode, version, init_required=init_required, is_init=is_init)
        return version

    def _define(self, transaction: TransactionContext, view: StateView, simulator: Simulator) -> ChaincodeResponse:
        """Run `_lifecycle`."""
        function = transaction.args[0].decode(errors="replace") if transaction.args else ""
        try:
            self._authorizer(transaction)(f"{LIFECYCLE}/{function}", transaction.channel_id)
        except Refused as error:
            return failure(f"Failed to authorize invocation due to failed ACL check: {error.subject}")
        config = view.get(public_key("", CONFIG_KEY))
        msp_ids = () if config is None else application_msp_ids(config.value)
        return Lifecycle(simulator, self._msp_id, msp_ids).invoke(transaction.args)

    def _authorizer(self, transaction: TransactionContext) -> Callable[[str, str], None]:
        def authorize(resource: str, channel_id: str) -> None:
            if self._access is not None:
                self._access.check(resource, channel_id, transaction)

        return authorize


def committed_terms(simulator: Simulator, view: StateView, chaincode: str) -> tuple[str, bool] | None:
    """Read version and "must be initialised" of a committed definition; None if there is no usable one.

    Only the sequence is recorded: whatever changes the rest changes it too.
    """
    if read_sequence(simulator, chaincode) is None:
        return None
    stored = view.get(public_key(LIFECYCLE, field_key(NAMESPACES, chaincode, "EndorsementInfo")))
    try:
        return None if stored is None else endorsement_terms(bytes_in_field(stored.value))
    except MalformedMessage:
        return None  # Nobody but a forger writes such a thing.


def check_initialization(
    simulator: Simulator, chaincode: str, version: str, *, init_required: bool, is_init: bool
) -> None:
    """Check that a chaincode is initialised exactly once per version, where its definition asks for it.

    Raises:
        ExecutionFailed: It is not initialised, is already, or does not ask for it.
    """
    if not init_required:
        if is_init:
            raise ExecutionFailed(f"chaincode '{chaincode}' does not require initialization but called as init")
        return
    is_initialized = simulator.get_state(chaincode, INITIALIZED_KEY) == version.encode()
    if is_init and is_initialized:
        raise ExecutionFailed(f"chaincode '{chaincode}' is already initialized but called as init")
    if not is_init and not is_initialized:
        raise ExecutionFailed(
            f"chaincode '{chaincode}' has not been initialized for this version, must call as init first"
        )
    if is_init:
        simulator.put_state(chaincode, INITIALIZED_KEY, version.encode())


def result(response: ChaincodeResponse, simulator: Simulator, chaincode: str, version: str) -> SimulationResult:
    """Put together what an endorser needs; a failed response announces nothing."""
    if not response.endorsable:
        response = replace(response, event=None)
    namespaces = tuple(name for name in simulator.namespaces if name not in BUILT_IN)
    return SimulationResult(response, encode_rwset(simulator.finish()), chaincode, version, namespaces)
