"""What do we say where a real Fabric peer crashes, hangs, or answers at random?  Our own verdicts, all in one place.

No recorded channel can tell: a peer that crashes does so again after every restart, and one that hangs commits nothing
more. Surviving such blocks with one verdict on every peer is something that Fabric can't do (fabric-seen, "Blocks that
break a real peer"). The rules refer to these names, and each has a test of its own.

One case needs no verdict: a delete of a key, then a parameter-only write of it in the same block, is a crash there;
here the key is absent for the second, as for any parameter-only write of an absent key, and stays deleted (`merge`).
"""

from collections.abc import Iterable

from ledger.core.names import Verdict

UNDECODABLE_BODY = Verdict.INVALID_ENDORSER_TRANSACTION
"""Payload data, action payload or response payload do not decode: Fabric hangs at the next writer in the block, which
is judged as ever here."""

NO_ENDORSED_ACTION = Verdict.INVALID_ENDORSER_TRANSACTION
"""A ChaincodeActionPayload without action, or a Transaction without any: crash."""

NO_HEADER = Verdict.BAD_COMMON_HEADER
"""A payload without header: crash."""

NO_CHANNEL = Verdict.BAD_CREATOR_SIGNATURE
"""A header without channel id: judged with the peer's own MSP there, so that organisations differ."""

CONFIG_BESIDE_OTHERS = Verdict.INVALID_CONFIG_TRANSACTION
"""A CONFIG transaction that is not alone in its block: crash or stop; the others are judged as ever here."""

UNDEFINED_COLLECTION = Verdict.ENDORSEMENT_POLICY_FAILURE
"""A hashed write to a collection that is not defined, the nameless one included: crash at commit."""

UNUSABLE_DEFINITION = Verdict.INVALID_CHAINCODE
"""A forged definition that does not decode, or with a validation plugin that is not built in: crash at its commit or
stop at its first use. Here writing it is as valid as any write, and every use of the name is not."""

UNDECODABLE_PARAMETER = Verdict.ENDORSEMENT_POLICY_FAILURE
"""A key-level parameter that does not decode is stored; the next write of the key stops a channel of Fabric's."""

INCOMPARABLE_RANGE = Verdict.PHANTOM_READ_CONFLICT
"""A recorded range result without version whose key exists, or a Merkle summary of a degree below 2: crash."""


def namespaces_in_order(names: Iterable[str]) -> list[str]:
    """Give the order in which namespaces are judged: ascending, and the first that fails decides.

    Fabric takes them in the random order of a Go map: with one namespace undefined and another failing its policy its
    peers differ. And once a namespace failed it judges no further one, so that a later writer of a key whose parameter
    was set there waits for ever; here it is judged as ever.
    """
    return sorted(names)


__all__ = [
    "CONFIG_BESIDE_OTHERS",
    "INCOMPARABLE_RANGE",
    "NO_CHANNEL",
    "NO_ENDORSED_ACTION",
    "NO_HEADER",
    "UNDECODABLE_BODY",
    "UNDECODABLE_PARAMETER",
    "UNDEFINED_COLLECTION",
    "UNUSABLE_DEFINITION",
    "namespaces_in_order",
]
