"""What does a chaincode definition in `_lifecycle`'s state say?  Its fields to `core.definitions.Definition`.

Layout (fabric: core/chaincode/lifecycle/serializer.go): `namespaces/metadata/<name>` holds a StateMetadata,
`namespaces/fields/<name>/<Field>` a StateData each; an absent field counts as empty. What does not decode, or has
another type, makes the whole definition unusable.
"""

from collections.abc import Mapping
from typing import Any

from fabric_protos.peer import collection_pb2
from fabric_protos.peer.lifecycle import chaincode_definition_pb2, db_pb2

from ledger.core.definitions import COLLECTIONS, DATATYPE, ENDORSEMENT, SEQUENCE, VALIDATION, Collection, Definition
from ledger.core.errors import MalformedMessage
from ledger.core.ports import Codec
from ledger.wire.messages import merged, parse, walk, written
from ledger.wire.protowire import BYTES

STATIC_CONFIG = 1
"""Field of CollectionConfigPackage and of CollectionConfig that leads to a StaticCollectionConfig."""

MEMBER_POLICY, ENDORSEMENT_POLICY = 2, 8
"""Fields of StaticCollectionConfig that hold policies."""


def decode_definition(metadata: bytes, fields: Mapping[str, bytes], codec: Codec) -> Definition:
    """Decode a chaincode definition.

    Args:
        metadata: Value of `namespaces/metadata/<name>`.
        fields: Values of the fields by name; absent ones are empty.
        codec: Decodes policies that are nested deeper than the library follows.

    Raises:
        MalformedMessage: Something in it does not decode or is of another type.
    """
    datatype = parse(db_pb2.StateMetadata, metadata, "StateMetadata").datatype
    if datatype != DATATYPE:
        raise MalformedMessage("StateMetadata", rule="datatype", expected=DATATYPE, found=datatype)
    sequence = state_data(fields[SEQUENCE], "Int64", SEQUENCE) or 0
    endorsement = state_data(fields[ENDORSEMENT], "Bytes", ENDORSEMENT) or b""
    parse(chaincode_definition_pb2.ChaincodeEndorsementInfo, endorsement, "ChaincodeEndorsementInfo")
    parameters = state_data(fields[VALIDATION], "Bytes", VALIDATION) or b""
    validation = parse(chaincode_definition_pb2.ChaincodeValidationInfo, parameters, "ChaincodeValidationInfo")
    package = state_data(fields[COLLECTIONS], "Bytes", COLLECTIONS) or b""
    collections = decode_collections(package, codec)
    return Definition(sequence, validation.validation_plugin, validation.validation_parameter, collections, package)


def state_data(data: bytes, kind: str, subject: str) -> Any:
    """Take the value out of a StateData; None where it has none.

    Raises:
        MalformedMessage: It does not decode or holds another type.
    """
    message = parse(db_pb2.StateData, data, "StateData")
    found = message.WhichOneof("Type")
    if found is None:
        return None
    if found != kind:
        raise MalformedMessage(f"StateData of {subject}", rule="type", expected=kind, found=found)
    return getattr(message, kind)


def decode_collections(package: bytes, codec: Codec) -> tuple[Collection, ...]:
    """Decode a CollectionConfigPackage.

    Policies are taken as the bytes they came as: the library follows a policy to a depth of 100 only, Go further.

    Raises:
        MalformedMessage: It does not decode.
    """
    found: list[Collection] = []
    for number, wire_type, config in walk(package):
        if number == STATIC_CONFIG and wire_type == BYTES and isinstance(config, bytes):
            static = merged(config, STATIC_CONFIG)
            found.append(Collection("", None, 0) if static is None else decode_collection(static, codec))
    return tuple(found)


def decode_collection(static: bytes, codec: Codec) -> Collection:
    """Decode one StaticCollectionConfig; its policies must decode too.

    Raises:
        MalformedMessage: It does not.
    """
    policy = merged(static, ENDORSEMENT_POLICY)
    if policy is not None:
        codec.application_policy(policy)
    members = merged(static, MEMBER_POLICY)
    signature_policy = None if members is None else merged(members, 1)
    if signature_policy is not None:
        codec.signature_policy(signature_policy)
    rest = b"".join(
        written(number, wire_type, value)
        for number, wire_type, value in walk(static)
        if number not in (MEMBER_POLICY, ENDORSEMENT_POLICY)
    )
    message = parse(collection_pb2.StaticCollectionConfig, rest, "StaticCollectionConfig")
    return Collection(message.name, policy, message.block_to_live)


__all__ = ["decode_collections", "decode_definition"]
