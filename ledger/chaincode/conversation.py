"""What may a running contract ask of its peer, and what is answered?  The peer's side of one proposal.

The contract's namespace is never named by the worker: it follows from which contract was admitted, so that one
contract can't read or write as another.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

from ledger.chaincode.frames import FrameStream, Kind, StreamEnded, Write, encode_transaction, number, number_in
from ledger.chaincode.ranges import BATCH_COUNT, KeyValue, RangeScan
from ledger.chaincode.simulator import VALIDATION_PARAMETER, Simulator
from ledger.chaincode.values import ChaincodeEvent, ChaincodeResponse, KeyModification, TransactionContext
from ledger.core.errors import ExecutionFailed, LedgerError, Pruned, WorldFailed

Admit = Callable[[str], None]
"""Lets a contract invoke another one, by name; raises SimulationFailed to refuse."""

Answer = tuple[Kind, list[bytes]]


class HistoryQuery:
    """An open history query, answered 100 changes at a time.

    Args:
        changes: The changes, newest first.
    """

    def __init__(self, changes: Iterator[KeyModification]) -> None:
        """Begin before the first change."""
        self._changes = changes

    def next_batch(self) -> tuple[list[KeyModification], bool]:
        """Return the next changes, and whether there are more."""
        batch = list(islice(self._changes, BATCH_COUNT + 1))
        if len(batch) <= BATCH_COUNT:
            return batch, False
        self._changes = chain(batch[BATCH_COUNT:], self._changes)
        return batch[:BATCH_COUNT], True


class Conversation:
    """One proposal in one worker.

    Args:
        stream: Connection to an idle worker.
        name: The contract to run.
        transaction: What it runs for.
        simulator: Where it reads and writes.
        admit: Asked before another contract runs within this one.
        deadline: Monotonic time at which the contract has had enough.

    Attributes:
        is_over: Whether the contract has answered, so that the worker is idle again.
    """

    def __init__(
        self,
        stream: FrameStream,
        name: str,
        transaction: TransactionContext,
        simulator: Simulator,
        admit: Admit,
        deadline: float,
    ) -> None:
        """Prepare; nothing is sent yet."""
        self._stream = stream
        self._running = [name]
        self._transaction = transaction
        self._simulator = simulator
        self._admit = admit
        self._deadline = deadline
        self._queries: list[RangeScan | HistoryQuery] = []
        self._fault: LedgerError | None = None
        self.is_over = False

    def run(self) -> ChaincodeResponse:
        """Send the proposal and answer until the contract does.

        Raises:
            TimeoutError: The contract's time is over.
            StreamEnded: The worker ended or talks nonsense.
            ExecutionFailed: Its writes are not allowed.
            WorldFailed: A local fault, whatever the contract made of it.
        """
        self._stream.send(Kind.EXECUTE, self._running[0].encode(), *encode_transaction(self._transaction))
        while True:
            kind, parts = self._stream.receive(self._time_left())
            try:
                if kind is Kind.DONE:
                    return self._done(parts)
                answer, found = self._answer(kind, parts)
            except (ValueError, IndexError) as error:
                raise StreamEnded(f"a request that can't be: {error}") from error
            except LedgerError as error:
                if self.is_over:
                    raise
                if isinstance(error, WorldFailed):
                    self._fault = error  # The contract is told, to keep the worker usable; but its answer won't count.
                elif isinstance(error, Pruned):  # Peers that have it would answer something else: so none from here.
                    self._fault = ExecutionFailed(str(error))
                answer, found = Kind.FAILED, [str(error).encode()]
            self._stream.send(answer, *found)

    def _time_left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _done(self, parts: list[bytes]) -> ChaincodeResponse:
        status, message, payload, has_event, event_name, event_payload, *writes = parts
        if len(self._running) != 1:
            raise ValueError("the outermost contract answered before the ones that it invoked")
        event = ChaincodeEvent(event_name.decode(), event_payload) if number_in(has_event) else None
        response = ChaincodeResponse(number_in(status), message.decode(), payload, event)
        self.is_over = True
        self._apply(writes)
        if self._fault is not None:
            raise self._fault
        return response

    def _answer(self, kind: Kind, parts: list[bytes]) -> Answer:
        """Do what the worker asks for, in the namespace of the contract that runs at the moment."""
        namespace = self._running[-1]
        match kind:
            case Kind.GET:
                return _value(self._simulator.get_state(namespace, parts[0].decode()))
            case Kind.GET_PARAMETER:
                return _value(self._simulator.get_metadata(namespace, parts[0].decode()).get(VALIDATION_PARAMETER))
            case Kind.RANGE:
                return self._open(self._simulator.open_range(namespace, parts[0].decode(), parts[1].decode()))
            case Kind.HISTORY:
                return self._open(HistoryQuery(self._simulator.history(namespace, parts[0].decode())))
            case Kind.NEXT:
                return self._next(number_in(parts[0]))
            case Kind.PAGE:
                start, end, size, bookmark = parts
                page = self._simulator.page(namespace, start.decode(), end.decode(), number_in(size), bookmark.decode())
                return Kind.PAGE_RESULTS, [page.bookmark.encode(), *_pairs(page.results)]
            case Kind.ENTER:
                return self._enter(parts)
            case Kind.LEAVE:
                return self._leave(parts)
            case _:
                raise ValueError(f"{kind.name} is no request")

    def _open(self, query: RangeScan | HistoryQuery) -> Answer:
        self._queries.append(query)
        return self._next(len(self._queries) - 1)

    def _next(self, query_id: int) -> Answer:
        if query_id < 0:
            raise ValueError(f"query {query_id}")
        query = self._queries[query_id]
        if isinstance(query, RangeScan):
            batch = query.next_batch()
            return Kind.RESULTS, [number(query_id), number(batch.has_more), *_pairs(batch.results)]
        changes, has_more = query.next_batch()
        parts = [part for change in changes for part in _change(change)]
        return Kind.MODIFICATIONS, [number(query_id), number(has_more), *parts]

    def _enter(self, parts: list[bytes]) -> Answer:
        """Let a contract invoke another one: its own writes first, so that rules over both hold in order."""
        name = parts[0].decode()
        self._apply(parts[1:])
        if name in self._running:
            raise ExecutionFailed(f"contract {name} is running already in transaction {self._transaction.tx_id}")
        self._admit(name)
        self._running.append(name)
        return Kind.ENTERED, []

    def _leave(self, parts: list[bytes]) -> Answer:
        if len(self._running) == 1:
            raise ValueError("no contract was entered")
        try:
            self._apply(parts)
        finally:
            self._running.pop()
        return Kind.LEFT, []

    def _apply(self, writes: list[bytes]) -> None:
        """Do the buffered writes of the contract that runs; once they are refused, no answer of it counts."""
        namespace = self._running[-1]
        try:
            for operation, raw_key, value in zip(writes[::3], writes[1::3], writes[2::3], strict=True):
                key = raw_key.decode()
                match Write(number_in(operation)):
                    case Write.PUT:
                        self._simulator.put_state(namespace, key, value)
                    case Write.DELETE:
                        self._simulator.delete_state(namespace, key)
                    case Write.PARAMETER:
                        self._simulator.set_metadata(namespace, key, {VALIDATION_PARAMETER: value})
        except ExecutionFailed as error:
            self._fault = error
            raise


def _value(value: bytes | None) -> Answer:
    return Kind.VALUE, [] if value is None else [value]


def _pairs(results: Sequence[KeyValue]) -> list[bytes]:
    return [part for key, value in results for part in (key.encode(), value)]


def _change(change: KeyModification) -> tuple[bytes, ...]:
    return (
        change.tx_id.encode(),
        change.value,
        number(change.timestamp.seconds),
        number(change.timestamp.nanos),
        number(change.is_delete),
    )
