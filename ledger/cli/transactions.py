"""How are transactions submitted and looked up from the command line?  Through a peer's gateway, as applications do."""

import asyncio
import json as jsonlib
import sys
from typing import Any

from ledger.cli.connection import Target
from ledger.cli.members import Signatory
from ledger.cli.output import STATUS_FAILED, out, print_json, print_members
from ledger.client.gateway import Network, connect
from ledger.client.tls import ClientTls
from ledger.core.names import verdict_name

TARGET = Target()
SIGNATORY = Signatory()


def gateway_tls(target: Target) -> tuple[str, ClientTls]:
    """Give address and TLS of the target's gateway."""
    settings = target.settings()
    assert target.network is not None, "the settings come from a network"
    domain = settings["name"].partition(".")[2]
    organisation = target.network / "organizations" / "peerOrganizations" / domain
    roots = (organisation / "msp" / "tlscacerts" / "tlsca.pem").read_bytes()
    return str(settings["grpc_listen"]), ClientTls(roots)


def submit(
    chaincode: str,
    function: str,
    /,
    *arguments: str,
    endorser: tuple[str, ...] = (),
    target: Target = TARGET,
    signatory: Signatory = SIGNATORY,
    json: bool = False,
) -> None:
    """Endorse a transaction, have it ordered and wait for its verdict; status 1 if it is invalid.

    Args:
        chaincode: Name of the chaincode.
        function: Function to call.
        arguments: Its arguments, as text.
        endorser: MSP ID of an organisation to ask, repeatable; the policies decide without it.
        target: The peer and channel.
        signatory: Who signs; User1 of the peer's organisation by default.
        json: Print the outcome as JSON.
    """

    async def act(network: Network) -> dict[str, Any]:
        submitted = await network.contract(chaincode).submit_async(function, *arguments, organisations=endorser)
        status = await submitted.status()
        return {
            "transaction_id": submitted.transaction_id, "verdict": verdict_name(status.code),
            "block": status.block_number, "result": submitted.result.decode(errors="replace"),
        }  # fmt: skip

    answer = asyncio.run(with_network(target, signatory, act))
    if json:
        print_json(answer)
    else:
        print_members({name.replace("_", " "): value for name, value in answer.items()})
    sys.exit(0 if answer["verdict"] == "VALID" else STATUS_FAILED)


def evaluate(
    chaincode: str,
    function: str,
    /,
    *arguments: str,
    target: Target = TARGET,
    signatory: Signatory = SIGNATORY,
    json: bool = False,
) -> None:
    """Run a chaincode function on one peer and print its result; nothing is ordered.

    Args:
        chaincode: Name of the chaincode.
        function: Function to call.
        arguments: Its arguments, as text.
        target: The peer and channel.
        signatory: Who signs; User1 of the peer's organisation by default.
        json: Print the result as a JSON document, parsed where it is one.
    """

    async def act(network: Network) -> bytes:
        return await network.contract(chaincode).evaluate(function, *arguments)

    result = asyncio.run(with_network(target, signatory, act)).decode(errors="replace")
    if not json:
        return out.print(result, markup=False)
    try:
        return print_json({"result": jsonlib.loads(result)})
    except ValueError:
        return print_json({"result": result})


def status(transaction_id: str, /, *, target: Target = TARGET, json: bool = False) -> None:
    """Say what became of a transaction; status 1 if it is not known or invalid.

    Args:
        transaction_id: Its id.
        target: The peer and channel.
        json: Print the document as JSON.
    """
    document = target.channel_get(f"/transactions/{transaction_id}")
    if json:
        print_json(document)
    else:
        print_members({name: value for name, value in document.items() if not isinstance(value, dict | list)})
    sys.exit(0 if document.get("code", document.get("verdict")) in (0, "VALID") else STATUS_FAILED)


async def with_network(target: Target, signatory: Signatory, act: Any) -> Any:
    """Connect to the target's gateway and act on its channel."""
    address, tls = gateway_tls(target)
    signer = signatory.load(target, "User1")
    channel = target.channel_id()
    async with connect(address, signer, tls) as gateway:
        return await act(gateway.network(channel))


__all__ = ["evaluate", "gateway_tls", "status", "submit", "with_network"]
