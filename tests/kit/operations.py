"""What did the recorded chaincode do?  Its operations, as its arguments name them, on any simulation of ours.

The recorded chaincode takes `run` and a JSON list of operations: {"o": operation, "k": key or first key, "e": end key,
"c": parts of a composite key, "v": value, "n": number, "x": hex, "coll": collection, "cc": chaincode, "ops": its list}.
"""

import json
from collections.abc import Callable
from typing import Any

from ledger.chaincode.ranges import Batch, RangeScan
from ledger.chaincode.simulator import VALIDATION_PARAMETER, Simulator

Operation = dict[str, Any]

UNKNOWN = "unknown operation"
PRIVATE = frozenset({"pput", "pget", "phash", "pdel", "ppurge", "pvp"})
SECRET = b"secret"
"""Value that came as transient data in the only recorded call with some."""

OPEN_START = "\x01"
"""What the recorded chaincode's shim asks for where a range has no first key."""


def run(
    simulator: Simulator, namespace: str, operations: list[Operation], invoke: Callable[[str, list[Operation]], None]
) -> None:
    """Do the operations in order.

    Args:
        simulator: Where.
        namespace: Of the chaincode that runs.
        operations: What it was told.
        invoke: Calls another chaincode.
    """
    for operation in operations:
        if operation["o"] == "call":
            invoke(operation["cc"], operation["ops"])
        elif not step(simulator, namespace, operation):
            return


def step(simulator: Simulator, namespace: str, operation: Operation) -> bool:
    """Do one operation; False for one that the chaincode does not know, at which it ends."""
    key = composite(operation["c"]) if "c" in operation else operation.get("k", "")
    value = (operation.get("v", "") * operation.get("n", 1)).encode() if operation["o"] == "put" else b""
    text = operation.get("v", "").encode()
    coll = operation.get("coll", "")
    parameter = {VALIDATION_PARAMETER: bytes.fromhex(operation.get("x", ""))}
    match operation["o"]:
        case "put":
            simulator.put_state(namespace, key, value)
        case "puts":
            for number in range(operation["n"]):
                simulator.put_state(namespace, f"{key}{number:03d}", b"v")
        case "del":
            simulator.delete_state(namespace, key)
        case "get":
            simulator.get_state(namespace, key)
        case "mget":
            for each in operation["v"].split(","):
                simulator.get_state(namespace, each)
        case "inc":
            simulator.put_state(namespace, key, (simulator.get_state(namespace, key) or b"") + b"+")
        case "range":
            iterate(simulator, namespace, operation, key or OPEN_START, operation["e"])
        case "crange":
            iterate(simulator, namespace, operation, key, key + "\U0010ffff")
        case "page":
            simulator.page(namespace, key, operation["e"], operation["n"], operation["v"])
        case "vp":
            simulator.set_metadata(namespace, key, parameter)
        case "pput":
            simulator.put_private(namespace, coll, key, SECRET if "t" in operation else text)
        case "pdel":
            simulator.delete_private(namespace, coll, key)
        case "ppurge":
            simulator.purge_private(namespace, coll, key)
        case "pget" | "phash":
            simulator.get_private_hash(namespace, coll, key)
        case "pvp":
            simulator.set_private_metadata(namespace, coll, key, parameter)
        case "hist" | "event" | "status" | "batch" | "endbatch":
            pass  # Not in the read-write set.
        case _:
            return False
    return True


def iterate(simulator: Simulator, namespace: str, operation: Operation, start: str, end: str) -> None:
    """Look at `n` results (all, where it is 0), overwriting each if a value is given."""
    scan = simulator.open_range(namespace, start, end)
    wanted = operation.get("n", 0)
    written = {"touch": b"touched", "sweep": b""}.get(operation.get("v", ""))
    seen = 0
    batch = scan.next_batch()
    while batch.results:
        # The recorded shim fetches the next batch as soon as the last result of one is looked at.
        results, batch = batch.results, batch if seen + len(batch.results) > wanted > 0 else following(scan, batch)
        for key, _ in results:
            if wanted and seen == wanted:
                return
            seen += 1
            if written is not None:
                simulator.put_state(namespace, key, written)


def following(scan: RangeScan, batch: Batch) -> Batch:
    """Fetch the batch behind one; an empty one at the end."""
    return scan.next_batch() if batch.has_more else Batch((), has_more=False)


def composite(parts: list[str]) -> str:
    """Make a composite key."""
    return "\x00" + "".join(f"{part}\x00" for part in parts)


def uses_private_data(operations: list[Operation]) -> bool:
    """Tell whether the private-data interface is used, for which the peer reads the chaincode's whole definition."""
    return any(operation["o"] in PRIVATE for operation in operations)


def operations_in(args: tuple[bytes, ...]) -> list[Operation]:
    """Decode the arguments of a run."""
    decoded: list[Operation] = json.loads(args[1]) if len(args) > 1 else []
    return decoded
