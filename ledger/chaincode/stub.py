"""What does a contract talk to inside a worker?  The stub of `fabric-chaincode-python`, answered by our own peer.

Reads are requests to the peer; writes stay here and go to it with the result, since a transaction never sees its own
writes. What the package's own stub does not do, or not right, works: events, invoking other contracts, transient data,
pages of composite keys, a key's own endorsement policy. A failed request is raised, never returned as a value.

This module imports the chaincode package, whose import changes logging and starts a thread: import it in workers only.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from fabric_chaincode_python.fabric_shim.interfaces import ChaincodeStubInterface
from fabric_protos.msp import identities_pb2
from google.protobuf.timestamp_pb2 import Timestamp

from ledger.chaincode.frames import FrameStream, Kind, Write, number, number_in
from ledger.chaincode.values import ChaincodeEvent, TransactionContext

SEPARATOR = "\x00"
"""First character of a composite key, and the one behind each of its parts."""

HIGHEST = "\U0010ffff"
"""Behind every part that a composite key may hold."""


class ContractError(Exception):
    """The peer refused a request, or a contract asked for what can't be."""


class KV(NamedTuple):
    """A result of a range query, with the field names of the chaincode API."""

    namespace: str
    key: str
    value: bytes


class KeyModification(NamedTuple):
    """A result of a history query, with the field names of the chaincode API."""

    tx_id: str
    value: bytes
    timestamp: Any
    """A protobuf Timestamp."""

    is_delete: bool


Result = TypeVar("Result")

Invoke = Callable[[str, Sequence[bytes]], Awaitable[Any]]
"""Runs another contract: (name, arguments) to its Response."""


def _unavailable(name: str) -> Callable[..., Awaitable[Any]]:
    """Make a method that refuses, where the interface's own would silently answer nothing."""

    async def refuse(*_: Any, **__: Any) -> Any:
        raise ContractError(f"{name} is not available: contracts of the pool have no private data and no rich queries")

    return refuse


class QueryIterator(Generic[Result]):
    """Results of a query, to be read with `async for`; fetches 100 at a time.

    Attributes:
        bookmark: Of a page, where the next one starts; "" at the end.
    """

    def __init__(self, results: list[Result], more: Callable[[], list[Result] | None], bookmark: str = "") -> None:
        """Begin with the first results."""
        self._results = results
        self._position = 0
        self._more = more
        self.bookmark = bookmark

    def __aiter__(self) -> AsyncIterator[Result]:
        return self

    async def __anext__(self) -> Result:
        if self._position == len(self._results):
            results = self._more()
            if not results:
                raise StopAsyncIteration
            self._results, self._position = results, 0
        self._position += 1
        return self._results[self._position - 1]

    async def aclose(self) -> None:
        """Stop early; what was fetched stays on record."""
        self._results, self._position, self._more = [], 0, lambda: None


class PeerStub(ChaincodeStubInterface):  # type: ignore[misc]  # The chaincode package carries no types.
    """One contract's view of one transaction.

    Args:
        stream: Connection to the peer.
        namespace: The contract's name.
        transaction: What it runs for; its `args` are this contract's.
        invoke: Runs another contract within the same transaction.
    """

    def __init__(self, stream: FrameStream, namespace: str, transaction: TransactionContext, invoke: Invoke) -> None:
        """Begin without writes and event."""
        self._stream = stream
        self._namespace = namespace
        self._transaction = transaction
        self._invoke = invoke
        self._writes: list[bytes] = []
        self._has_written = False
        self._has_paged = False
        self.event: ChaincodeEvent | None = None

    def get_function_and_parameters(self) -> tuple[str, list[str]]:
        """Return the name of the function and its parameters."""
        if not self._transaction.args:
            raise ContractError("the proposal names no function")
        function, *parameters = [each.decode() for each in self._transaction.args]
        return function, parameters

    def get_args(self) -> tuple[bytes, ...]:
        """Return function name and parameters as bytes."""
        return self._transaction.args

    def get_txid(self) -> str:
        """Return the transaction id."""
        return self._transaction.tx_id

    def get_channel_id(self) -> str:
        """Return the channel."""
        return self._transaction.channel_id

    def get_creator(self) -> dict[str, Any]:
        """Return the client's identity: `mspid` and `idBytes` (its certificate as PEM)."""
        identity = identities_pb2.SerializedIdentity.FromString(self._transaction.creator)
        return {"mspid": identity.mspid, "idBytes": identity.id_bytes}

    def get_transient(self) -> Mapping[str, bytes]:
        """Return the data that is no part of the transaction."""
        return self._transaction.transient

    def get_tx_timestamp(self) -> Any:
        """Return the client's time as a protobuf Timestamp."""
        return Timestamp(seconds=self._transaction.timestamp.seconds, nanos=self._transaction.timestamp.nanos)

    async def get_state(self, key: str) -> bytes:
        """Return the committed value of a key; empty if it is absent."""
        parts = self._ask(Kind.GET, key.encode())
        return parts[0] if parts else b""

    async def put_state(self, key: str, value: bytes | str) -> None:
        """Write a key; an empty value deletes it."""
        self._write(Write.PUT, key, value.encode() if isinstance(value, str) else bytes(value))

    async def delete_state(self, key: str) -> None:
        """Delete a key."""
        self._write(Write.DELETE, key, b"")

    async def set_state_validation_parameter(self, key: str, policy: bytes) -> None:
        """Give a key its own endorsement policy: SignaturePolicyEnvelope bytes, empty for none."""
        self._write(Write.PARAMETER, key, policy)

    async def get_state_validation_parameter(self, key: str) -> bytes:
        """Return a key's own endorsement policy; empty if it has none."""
        parts = self._ask(Kind.GET_PARAMETER, key.encode())
        return parts[0] if parts else b""

    async def get_state_by_range(self, start_key: str, end_key: str) -> QueryIterator[KV]:
        """Query keys with `start_key <= key < end_key`; "" leaves a border open."""
        return self._open(Kind.RANGE, self._kv, (start_key.encode(), end_key.encode()))

    async def get_state_by_range_with_pagination(
        self, start_key: str, end_key: str, page_size: int, bookmark: str = ""
    ) -> QueryIterator[KV]:
        """Query one page of a range; the transaction can't write then."""
        if self._has_written:
            raise ContractError("a transaction that writes can't make paged queries: their borders are not protected")
        self._has_paged = True
        first, *rest = self._ask(
            Kind.PAGE, start_key.encode(), end_key.encode(), number(int(page_size)), (bookmark or "").encode()
        )
        return QueryIterator(self._kv(rest), lambda: None, bookmark=first.decode())

    async def get_state_by_partial_composite_key(
        self, object_type: str, attributes: Sequence[str]
    ) -> QueryIterator[KV]:
        """Query the composite keys that begin with these parts."""
        prefix = self.create_composite_key(object_type, attributes)
        return await self.get_state_by_range(prefix, prefix + HIGHEST)

    async def get_state_by_partial_composite_key_with_pagination(
        self, object_type: str, attributes: Sequence[str], page_size: int, bookmark: str = ""
    ) -> QueryIterator[KV]:
        """Query one page of the composite keys that begin with these parts."""
        prefix = self.create_composite_key(object_type, attributes)
        return await self.get_state_by_range_with_pagination(prefix, prefix + HIGHEST, page_size, bookmark)

    async def get_history_for_key(self, key: str) -> QueryIterator[KeyModification]:
        """Query the past changes of a key, newest first."""
        return self._open(Kind.HISTORY, _modifications, (key.encode(),))

    async def invoke_chaincode(self, chaincode_name: str, args: Sequence[bytes | str], channel: str = "") -> Any:
        """Run another contract in this transaction and return its Response, whatever its status."""
        encoded = [each.encode() if isinstance(each, str) else bytes(each) for each in args]
        if channel not in ("", self._transaction.channel_id):
            raise ContractError(f"contracts of other channels can't be invoked: {channel}")
        self._ask(Kind.ENTER, chaincode_name.encode(), *self.take_writes())
        return await self._invoke(chaincode_name, encoded)

    def set_event(self, name: str, payload: bytes | str | None) -> None:
        """Announce something; the last event of the outermost contract goes into the transaction."""
        if not name:
            raise ContractError("an event needs a name")
        self.event = ChaincodeEvent(name, payload.encode() if isinstance(payload, str) else bytes(payload or b""))

    def create_composite_key(self, object_type: str, attributes: Sequence[str]) -> str:
        """Join an object type and attributes to one key."""
        parts = [object_type, *attributes]
        for part in parts:
            if not isinstance(part, str) or SEPARATOR in part or HIGHEST in part:
                raise ContractError(f"not a part of a composite key: {part!r}")
        if not object_type:
            raise ContractError("a composite key needs an object type")
        return SEPARATOR + "".join(part + SEPARATOR for part in parts)

    def split_composite_key(self, composite_key: str) -> tuple[str | None, list[str]]:
        """Take a composite key apart; (None, []) for another key."""
        if len(composite_key) < 2 or composite_key[0] != SEPARATOR:
            return None, []
        object_type, *attributes = composite_key[1:].split(SEPARATOR)[:-1]
        return object_type, attributes

    get_query_result = _unavailable("get_query_result")
    get_query_result_with_pagination = _unavailable("get_query_result_with_pagination")
    get_private_data = _unavailable("get_private_data")
    get_private_data_hash = _unavailable("get_private_data_hash")
    put_private_data = _unavailable("put_private_data")
    delete_private_data = _unavailable("delete_private_data")
    set_private_data_validation_parameter = _unavailable("set_private_data_validation_parameter")
    get_private_data_validation_parameter = _unavailable("get_private_data_validation_parameter")
    get_private_data_by_range = _unavailable("get_private_data_by_range")
    get_private_data_by_partial_composite_key = _unavailable("get_private_data_by_partial_composite_key")
    get_private_data_query_result = _unavailable("get_private_data_query_result")

    def take_writes(self) -> list[bytes]:
        """Hand over the writes that the peer has not got yet."""
        writes, self._writes = self._writes, []
        return writes

    def _ask(self, kind: Kind, *parts: bytes) -> list[bytes]:
        self._stream.send(kind, *parts)
        answer, found = self._stream.receive()
        if answer is Kind.FAILED:
            raise ContractError(found[0].decode())
        return found

    def _write(self, operation: Write, key: str, value: bytes) -> None:
        if self._has_paged:
            raise ContractError("a transaction that made paged queries can't write: their borders are not protected")
        self._has_written = True
        self._writes += (number(operation), key.encode(), value)

    def _open(
        self, kind: Kind, parse: Callable[[list[bytes]], list[Result]], query: tuple[bytes, ...]
    ) -> QueryIterator[Result]:
        query_id, has_more, *parts = self._ask(kind, *query)
        results = parse(parts)

        def more() -> list[Result] | None:
            nonlocal has_more
            if not number_in(has_more):
                return None
            _, has_more, *parts = self._ask(Kind.NEXT, query_id)
            return parse(parts)

        return QueryIterator(results, more)

    def _kv(self, parts: list[bytes]) -> list[KV]:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [KV(self._namespace, key.decode(), value) for key, value in pairs]


def _modifications(parts: list[bytes]) -> list[KeyModification]:
    fields = iter(parts)
    return [
        KeyModification(
            tx_id.decode(),
            value,
            Timestamp(seconds=number_in(seconds), nanos=number_in(nanos)),
            bool(number_in(is_delete)),
        )
        for tx_id, value, seconds, nanos, is_delete in zip(fields, fields, fields, fields, fields, strict=True)
    ]
