"""What do we say where a real Fabric peer crashes, hangs, or answers at random?  Our own verdicts, all in one place.

No recorded channel can tell: a peer that crashes does so again after every restart, and one that hangs commits nothing
more. Surviving such blocks with one verdict on every peer is something that Fabric can't do (fabric-seen, "Blocks that
break a real peer"). The rules refer to these names, and each has a test of its own.
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
"""A header without channel id: judged with the peer's own MSP, so every organisation's peers differ."""

CONFIG_BESIDE_OTHERS = Verdict.INVALID_CONFIG_TRANSACTION
"""A CONFIG transaction that is not alone in its block: crash or stop; the others are judged as ever here."""

UNDEFINED_COLLECTION = Verdict.ENDORSEMENT_POLICY_FAILURE
"""A hashed write to a collection that is not defined, the nameless one included: crash at commit."""

UNUSABLE_DEFINITION = Verdict.INVALID_CHAINCODE
"""A forged definition that does not decode, or with a validation plugin that is not built in: crash at its commit or
stop at its first use. Here writing it is as valid as any write, and every use of the name is not."""

UNDECODABLE_PARAMETER = Verdict.ENDORSEMENT_POLICY_FAILURE
"""A key-level parameter that does not decode is stored; the next write of the key stops a channel of Fabric's."""

RANGE_RESULT_WITHOUT_VERSION = Verdict.PHANTOM_READ_CONFLICT
"""A recorded range result that names a key as absent which is there: crash."""

SUMMARY_DEGREE_TOO_SMALL = Verdict.PHANTOM_READ_CONFLICT
"""A Merkle summary of a degree below 2: crash."""

PARAMETER_AFTER_DELETE_IS_NO_OP = True
"""A delete of a key, then a parameter-only write of it in the same block: crash. Here the key stays deleted."""


def namespaces_in_order(names: Iterable[str]) -> list[str]:
    """Give the order in which namespaces are judged: ascending, and the first that fails decides.

    Fabric takes them in the random order of a Go map: with one namespace undefined and another failing its policy its
    peers differ. And once a namespace failed it judges no further one, so that a later writer of a key whose parameter
    was set there waits for ever; here it is judged as ever.
    """
    return sorted(names)


__all__ = [
    "CONFIG_BESIDE_OTHERS",
    "NO_CHANNEL",
    "NO_ENDORSED_ACTION",
    "NO_HEADER",
    "PARAMETER_AFTER_DELETE_IS_NO_OP",
    "RANGE_RESULT_WITHOUT_VERSION",
    "SUMMARY_DEGREE_TOO_SMALL",
    "UNDECODABLE_BODY",
    "UNDECODABLE_PARAMETER",
    "UNDEFINED_COLLECTION",
    "UNUSABLE_DEFINITION",
    "namespaces_in_order",
]
