"""How does one contract process work?  It loads all contracts, then runs one proposal after the other for its peer.

Run as `python -m ledger.chaincode.worker FD LIFELINE` by the pool. It has no environment but what the pool gives it,
no descriptor but the connection and the lifeline (whose end means that the peer is gone), and a limited address space.
"""

import asyncio
import importlib
import logging
import os
import resource
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ledger.chaincode.frames import FrameStream, Kind, StreamEnded, decode_transaction, number, number_in
from ledger.chaincode.values import STATUS_ERROR, TransactionContext

LIFELINE_LOST = 3
"""Exit status of a worker whose peer is gone."""


def main() -> None:
    """Serve the peer until it closes the connection."""
    descriptor, lifeline = int(sys.argv[1]), int(sys.argv[2])
    threading.Thread(target=end_with_the_peer, args=(lifeline,), daemon=True).start()
    stream = FrameStream(socket.socket(fileno=descriptor))
    try:
        Worker(stream).serve()
    except StreamEnded:
        return


def end_with_the_peer(lifeline: int) -> None:
    """Wait for the end of the lifeline, whatever a contract is doing, and end the process."""
    os.read(lifeline, 1)
    os._exit(LIFELINE_LOST)


class Worker:
    """The contracts of one process.

    Args:
        stream: Connection to the peer.
    """

    def __init__(self, stream: FrameStream) -> None:
        """Begin without contracts."""
        self._stream = stream
        self._chaincodes: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()

    def serve(self) -> None:
        """Load what the peer names, then run what it asks for.

        Raises:
            StreamEnded: The peer closed the connection.
        """
        _, parts = self._stream.receive()
        try:
            self.load(parts)
        except Exception as error:  # noqa: BLE001  # Foreign modules fail in any way; the peer says which one.
            self._stream.send(Kind.FAILED, f"{type(error).__name__}: {error}".encode())
            return
        self._stream.send(Kind.READY)
        while True:
            _, (name, *rest) = self._stream.receive()
            self.execute(name.decode(), decode_transaction(rest))

    def load(self, parts: list[bytes]) -> None:
        """Limit the memory, set up logging, import the contracts."""
        limit, folder_count, *texts = parts
        folders = [text.decode() for text in texts[: number_in(folder_count)]]
        contracts = [text.decode() for text in texts[number_in(folder_count) :]]
        resource.setrlimit(resource.RLIMIT_AS, (number_in(limit), number_in(limit)))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.path[:0] = folders
        contract_api = importlib.import_module("fabric_chaincode_python.fabric_contract_api")
        quiet_logging()
        for name, path in zip(contracts[::2], contracts[1::2], strict=True):
            module_name, _, class_name = path.partition(":")
            contract = getattr(importlib.import_module(module_name), class_name)
            self._chaincodes[name] = contract_api.ContractChaincode.new_chaincode(contract())

    def execute(self, name: str, transaction: TransactionContext) -> None:
        """Run a contract for a proposal and send its answer, its event and its writes."""
        response, stub = self._loop.run_until_complete(self.run(name, transaction))
        event = stub.event
        self._stream.send(
            Kind.DONE,
            number(response.status),
            response.message.encode(),
            response.payload,
            number(event is not None),
            event.name.encode() if event is not None else b"",
            event.payload if event is not None else b"",
            *stub.take_writes(),
        )

    async def run(self, name: str, transaction: TransactionContext) -> tuple[Any, Any]:
        """Run a contract and return its Response and its stub."""
        from fabric_protos.peer import proposal_response_pb2

        from ledger.chaincode.stub import PeerStub

        async def invoke(callee: str, args: Sequence[bytes]) -> Any:
            response, callee_stub = await self.run(callee, replace(transaction, args=tuple(args), is_init=False))
            self._stream.send(Kind.LEAVE, *callee_stub.take_writes())
            answer, found = self._stream.receive()
            if answer is Kind.FAILED:
                raise RuntimeError(found[0].decode())
            return response

        stub = PeerStub(self._stream, name, transaction, invoke)
        try:
            chaincode = self._chaincodes[name]
            response = await (chaincode.init(stub) if transaction.is_init else chaincode.invoke(stub))
        except StreamEnded:
            raise
        except Exception as error:  # noqa: BLE001  # What the API lets through, as arguments that are not UTF-8.
            response = proposal_response_pb2.Response(status=STATUS_ERROR, message=f"{type(error).__name__}: {error}")
        return response, stub


def quiet_logging() -> None:
    """Undo what importing the chaincode package did: it logs everything, values included, and from another thread."""
    package = importlib.import_module("fabric_chaincode_python.fabric_shim.logging")
    package._QUEUE_LISTENER.stop()
    for logger in (logging.getLogger(), logging.getLogger("asyncio")):
        logger.handlers.clear()
    logging.basicConfig(level=logging.INFO, format="contract %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("asyncio").setLevel(logging.ERROR)


if __name__ == "__main__":
    main()
