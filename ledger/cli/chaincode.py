"""How does a contract come to a channel?  By a definition that is committed with its name, version and policy."""

import asyncio
from typing import Any

from ledger.cli.connection import Target
from ledger.cli.members import Signatory
from ledger.cli.output import out, print_json
from ledger.cli.transactions import with_network
from ledger.client.gateway import Network, commit_definition

TARGET = Target()
SIGNATORY = Signatory()


def commit(
    name: str,
    /,
    *,
    version: str = "1.0",
    sequence: int = 1,
    policy: str | None = None,
    target: Target = TARGET,
    signatory: Signatory = SIGNATORY,
) -> None:
    """Commit a chaincode definition to a channel.

    A contract of the peers' setting `contracts` can be invoked once its name is defined.

    Args:
        name: Name of the chaincode.
        version: Version of the definition.
        sequence: 1 for the first definition, one more for each change.
        policy: Endorsement policy, as AND('Org1MSP.peer','Org2MSP.peer'); the channel's default without it.
        target: The peer and channel.
        signatory: Who signs; User1 of the peer's organisation by default.
    """

    async def act(network: Network) -> Any:
        return await commit_definition(network, name, version, sequence, policy)

    asyncio.run(with_network(target, signatory, act))
    out.print(f"chaincode {name} {version} (sequence {sequence}) is defined", markup=False)


def list_definitions(*, target: Target = TARGET, signatory: Signatory = SIGNATORY, json: bool = False) -> None:
    """List the committed chaincode definitions of a channel.

    Args:
        target: The peer and channel.
        signatory: Who asks; User1 of the peer's organisation by default.
        json: Print them as JSON.
    """
    from fabric_protos.peer.lifecycle import lifecycle_pb2

    async def act(network: Network) -> bytes:
        query = lifecycle_pb2.QueryChaincodeDefinitionsArgs().SerializeToString()
        return await network.contract("_lifecycle").evaluate("QueryChaincodeDefinitions", query)

    result = lifecycle_pb2.QueryChaincodeDefinitionsResult.FromString(asyncio.run(with_network(target, signatory, act)))
    found = [
        {"name": one.name, "version": one.version, "sequence": one.sequence} for one in result.chaincode_definitions
    ]
    if json:
        return print_json(found)
    for one in found:
        out.print(f"{one['name']}  version {one['version']}  sequence {one['sequence']}", markup=False)
    return None
