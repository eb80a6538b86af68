"""How is `_lifecycle` called, and how does it store what it knows?  Arguments, results and fields as messages.

Formats: peer/lifecycle/lifecycle.proto (calls), db.proto and chaincode_definition.proto (state).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fabric_protos.msp import msp_principal_pb2
from fabric_protos.peer import collection_pb2, policy_pb2
from fabric_protos.peer.lifecycle import chaincode_definition_pb2, db_pb2, lifecycle_pb2

from ledger.wire.messages import parse


@dataclass(frozen=True, slots=True)
class CollectionTerms:
    """What a definition says about one private data collection, as far as `_lifecycle` judges it."""

    name: str
    member_msp_ids: tuple[str, ...]
    """Organisations named in the membership policy; empty for a form that is not a signature policy."""

    is_one_of: bool
    """Whether any single member satisfies the membership policy, however it is nested."""


@dataclass(frozen=True, slots=True)
class ProposedDefinition:
    """A chaincode definition as an organisation approves or commits it."""

    name: str
    sequence: int
    version: str
    endorsement_plugin: str
    validation_plugin: str
    validation_parameter: bytes
    """Serialized ApplicationPolicy."""

    collections: bytes
    """Serialized CollectionConfigPackage; empty for none."""

    init_required: bool
    package_id: str = ""
    """Package that the approving organisation runs; "" for none. Only approvals have one."""


@dataclass(frozen=True, slots=True)
class StateMetadata:
    """What kind of record stands under a name, and which fields it has."""

    datatype: str
    fields: tuple[str, ...]


def decode_approval(data: bytes) -> ProposedDefinition:
    """Decode ApproveChaincodeDefinitionForMyOrgArgs.

    Raises:
        MalformedMessage: The bytes do not decode.
    """
    kind = "ApproveChaincodeDefinitionForMyOrgArgs"
    message = parse(lifecycle_pb2.ApproveChaincodeDefinitionForMyOrgArgs, data, kind)
    return _proposed(message, message.source.local_package.package_id)


def decode_commit(data: bytes) -> ProposedDefinition:
    """Decode CommitChaincodeDefinitionArgs or CheckCommitReadinessArgs, which have the same fields.

    Raises:
        MalformedMessage: The bytes do not decode.
    """
    return _proposed(parse(lifecycle_pb2.CommitChaincodeDefinitionArgs, data, "CommitChaincodeDefinitionArgs"), "")


def decode_query(data: bytes) -> str:
    """Decode QueryChaincodeDefinitionArgs to the name asked for.

    Raises:
        MalformedMessage: The bytes do not decode.
    """
    return str(parse(lifecycle_pb2.QueryChaincodeDefinitionArgs, data, "QueryChaincodeDefinitionArgs").name)


def encode_commit_arguments(definition: ProposedDefinition) -> bytes:
    """Encode CommitChaincodeDefinitionArgs, as a client does."""
    message = lifecycle_pb2.CommitChaincodeDefinitionArgs(**_fields(definition), name=definition.name)
    return bytes(message.SerializeToString(deterministic=True))


def encode_approval_arguments(definition: ProposedDefinition) -> bytes:
    """Encode ApproveChaincodeDefinitionForMyOrgArgs, as a client does."""
    message = lifecycle_pb2.ApproveChaincodeDefinitionForMyOrgArgs(**_fields(definition), name=definition.name)
    if definition.package_id:
        message.source.local_package.package_id = definition.package_id
    else:
        message.source.unavailable.SetInParent()
    return bytes(message.SerializeToString(deterministic=True))


def encode_query_arguments(name: str) -> bytes:
    """Encode QueryChaincodeDefinitionArgs, as a client does."""
    return bytes(lifecycle_pb2.QueryChaincodeDefinitionArgs(name=name).SerializeToString())


def encode_readiness(approvals: Mapping[str, bool]) -> bytes:
    """Encode CheckCommitReadinessResult."""
    return bytes(lifecycle_pb2.CheckCommitReadinessResult(approvals=approvals).SerializeToString(deterministic=True))


def encode_definition(definition: ProposedDefinition, approvals: Mapping[str, bool]) -> bytes:
    """Encode QueryChaincodeDefinitionResult."""
    message = lifecycle_pb2.QueryChaincodeDefinitionResult(**_fields(definition), approvals=approvals)
    return bytes(message.SerializeToString(deterministic=True))


def encode_definitions(definitions: tuple[ProposedDefinition, ...]) -> bytes:
    """Encode QueryChaincodeDefinitionsResult."""
    message = lifecycle_pb2.QueryChaincodeDefinitionsResult()
    for definition in definitions:
        message.chaincode_definitions.add(**_fields(definition), name=definition.name)
    return bytes(message.SerializeToString(deterministic=True))


def endorsement_info(definition: ProposedDefinition) -> bytes:
    """Encode ChaincodeEndorsementInfo, the content of field EndorsementInfo."""
    message = chaincode_definition_pb2.ChaincodeEndorsementInfo(
        version=definition.version,
        init_required=definition.init_required,
        endorsement_plugin=definition.endorsement_plugin,
    )
    return bytes(message.SerializeToString())


def validation_info(definition: ProposedDefinition) -> bytes:
    """Encode ChaincodeValidationInfo, the content of field ValidationInfo."""
    message = chaincode_definition_pb2.ChaincodeValidationInfo(
        validation_plugin=definition.validation_plugin, validation_parameter=definition.validation_parameter
    )
    return bytes(message.SerializeToString())


def stored_definition(
    name: str, sequence: int, endorsement: bytes, validation: bytes, collections: bytes
) -> ProposedDefinition:
    """Put a definition together from its stored fields.

    Raises:
        MalformedMessage: A field does not decode.
    """
    endorsing = parse(chaincode_definition_pb2.ChaincodeEndorsementInfo, endorsement, "ChaincodeEndorsementInfo")
    validating = parse(chaincode_definition_pb2.ChaincodeValidationInfo, validation, "ChaincodeValidationInfo")
    return ProposedDefinition(
        name,
        sequence,
        endorsing.version,
        endorsing.endorsement_plugin,
        validating.validation_plugin,
        validating.validation_parameter,
        collections,
        endorsing.init_required,
    )


@lru_cache(maxsize=1024)
def endorsement_terms(endorsement: bytes) -> tuple[str, bool]:
    """Take version and "must be initialised" out of a ChaincodeEndorsementInfo.

    Raises:
        MalformedMessage: It does not decode.
    """
    message = parse(chaincode_definition_pb2.ChaincodeEndorsementInfo, endorsement, "ChaincodeEndorsementInfo")
    return message.version, message.init_required


def collection_terms(collections: bytes) -> tuple[CollectionTerms, ...]:
    """Decode the collections of a definition.

    Raises:
        MalformedMessage: They do not decode.
    """
    package = parse(collection_pb2.CollectionConfigPackage, collections, "CollectionConfigPackage")
    terms = []
    for config in package.config:
        static = config.static_collection_config
        policy = static.member_orgs_policy.signature_policy
        terms.append(CollectionTerms(static.name, _members(policy.identities), _is_one_of(policy.rule)))
    return tuple(terms)


def _members(identities: Any) -> tuple[str, ...]:
    """Name the organisations of the role principals in a membership policy, in their order."""
    roles = [
        parse(msp_principal_pb2.MSPRole, principal.principal, "MSPRole")
        for principal in identities
        if principal.principal_classification == msp_principal_pb2.MSPPrincipal.ROLE
    ]
    return tuple(role.msp_identifier for role in roles)


def _is_one_of(rule: Any) -> bool:
    """Tell whether every threshold in a rule is 1."""
    rules = [rule]
    while rules:
        each = rules.pop()
        if each.WhichOneof("Type") == "n_out_of":
            if each.n_out_of.n != 1:
                return False
            rules.extend(each.n_out_of.rules)
    return True


def encode_metadata(metadata: StateMetadata) -> bytes:
    """Encode a record's StateMetadata."""
    return bytes(db_pb2.StateMetadata(datatype=metadata.datatype, fields=metadata.fields).SerializeToString())


def decode_metadata(data: bytes) -> StateMetadata:
    """Decode a record's StateMetadata.

    Raises:
        MalformedMessage: The bytes do not decode.
    """
    message = parse(db_pb2.StateMetadata, data, "StateMetadata")
    return StateMetadata(message.datatype, tuple(message.fields))


def number_field(value: int) -> bytes:
    """Encode a field that holds a number."""
    return bytes(db_pb2.StateData(Int64=value).SerializeToString())


def bytes_field(value: bytes) -> bytes:
    """Encode a field that holds bytes; empty ones are written too."""
    return bytes(db_pb2.StateData(Bytes=value).SerializeToString())


def text_field(value: str) -> bytes:
    """Encode a field that holds text."""
    return bytes(db_pb2.StateData(String=value).SerializeToString())


def number_in_field(data: bytes) -> int:
    """Decode a field that holds a number.

    Raises:
        MalformedMessage: The bytes do not decode.
    """
    return int(parse(db_pb2.StateData, data, "StateData").Int64)


def bytes_in_field(data: bytes) -> bytes:
    """Decode a field that holds bytes.

    Raises:
        MalformedMessage: The bytes do not decode.
    """
    return bytes(parse(db_pb2.StateData, data, "StateData").Bytes)


def reference_policy(path: str) -> bytes:
    """Encode an ApplicationPolicy that refers to a policy of the channel configuration."""
    return bytes(policy_pb2.ApplicationPolicy(channel_config_policy_reference=path).SerializeToString())


def _proposed(message: Any, package_id: str) -> ProposedDefinition:
    return ProposedDefinition(
        message.name,
        message.sequence,
        message.version,
        message.endorsement_plugin,
        message.validation_plugin,
        message.validation_parameter,
        message.collections.SerializeToString(deterministic=True),
        message.init_required,
        package_id,
    )


def _fields(definition: ProposedDefinition) -> dict[str, Any]:
    """The fields that all messages about a definition share."""
    collections = None
    if definition.collections:
        collections = parse(collection_pb2.CollectionConfigPackage, definition.collections, "CollectionConfigPackage")
    return {
        "sequence": definition.sequence,
        "version": definition.version,
        "endorsement_plugin": definition.endorsement_plugin,
        "validation_plugin": definition.validation_plugin,
        "validation_parameter": definition.validation_parameter,
        "collections": collections,
        "init_required": definition.init_required,
    }
