"""How do chaincode definitions stand in the state of `_lifecycle`?  Records of metadata and fields, and their changes.

A record is metadata (its kind and the names of its fields) and one entry per field. Committed definitions are public;
approvals stand in each organisation's implicit collection, of which a peer needs to know the hashes only. Only what
changes is written, so that the versions of fields tell when they changed.

Layout: hyperledger/fabric v3.1.5, core/chaincode/lifecycle/serializer.go.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Protocol

from ledger.chaincode.simulator import Simulator
from ledger.core.errors import MalformedMessage
from ledger.wire import lifecycle_calls as wire
from ledger.wire.lifecycle_calls import ProposedDefinition, StateMetadata

LIFECYCLE = "_lifecycle"
"""Name and namespace of the chaincode that keeps the definitions."""

NAMESPACES = "namespaces"
"""What definitions, and approvals of them, stand under."""

SOURCES = "chaincode-sources"
"""What the packages that organisations run stand under."""

DEFINITION = StateMetadata("ChaincodeDefinition", ("Sequence", "EndorsementInfo", "ValidationInfo", "Collections"))
PARAMETERS = StateMetadata("ChaincodeParameters", ("EndorsementInfo", "ValidationInfo", "Collections"))
SOURCE = StateMetadata("ChaincodeLocalPackage", ("PackageID",))


class Area(Protocol):
    """A part of the state that records are kept in."""

    def metadata(self, key: str) -> StateMetadata | None:
        """Return the metadata of a record; None if there is no such record."""
        ...

    def holds(self, key: str, value: bytes) -> bool:
        """Tell whether a key has this value."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Write a key; an empty value deletes it."""
        ...


class PublicArea:
    """The public state of `_lifecycle`."""

    def __init__(self, simulator: Simulator) -> None:
        """Work on a simulation."""
        self._simulator = simulator

    def metadata(self, key: str) -> StateMetadata | None:
        """Return the metadata of a record."""
        found = self._simulator.get_state(LIFECYCLE, key)
        return None if found is None else wire.decode_metadata(found)

    def holds(self, key: str, value: bytes) -> bool:
        """Tell whether a key has this value."""
        return self._simulator.get_state(LIFECYCLE, key) == value

    def put(self, key: str, value: bytes) -> None:
        """Write a key."""
        self._simulator.put_state(LIFECYCLE, key, value)


class PrivateArea:
    """An organisation's implicit collection, of which only hashes are known: enough to compare."""

    def __init__(self, simulator: Simulator, collection: str) -> None:
        """Work on a simulation."""
        self._simulator = simulator
        self._collection = collection

    def metadata(self, key: str) -> StateMetadata | None:
        """Return the metadata of a record, as far as it can be told from its hash."""
        found = self._simulator.get_private_hash(LIFECYCLE, self._collection, key)
        if found is None:
            return None
        known = (m for m in (PARAMETERS, SOURCE) if sha256(wire.encode_metadata(m)).digest() == found)
        return next(known, StateMetadata("", ()))

    def holds(self, key: str, value: bytes) -> bool:
        """Tell whether a key has this value."""
        return self._simulator.get_private_hash(LIFECYCLE, self._collection, key) == sha256(value).digest()

    def put(self, key: str, value: bytes) -> None:
        """Write a key."""
        self._simulator.put_private(LIFECYCLE, self._collection, key, value)


def store(area: Area, namespace: str, name: str, metadata: StateMetadata, fields: Mapping[str, bytes]) -> bool:
    """Write a record as far as it changes, and delete fields that it does not have any more.

    Returns:
        Whether anything changed.
    """
    existing = area.metadata(metadata_key(namespace, name))
    known = () if existing is None else existing.fields
    changes = {
        field_key(namespace, name, field): value
        for field, value in fields.items()
        if field not in known or not area.holds(field_key(namespace, name, field), value)
    }
    changes |= {field_key(namespace, name, field): b"" for field in known if field not in fields}
    if existing != metadata:
        changes[metadata_key(namespace, name)] = wire.encode_metadata(metadata)
    for key, value in changes.items():
        area.put(key, value)
    return bool(changes)


def read_sequence(simulator: Simulator, name: str) -> int | None:
    """Read the sequence of a committed definition, as every invocation does first; None if the name is undefined."""
    found = simulator.get_state(LIFECYCLE, field_key(NAMESPACES, name, "Sequence"))
    try:
        return None if found is None else wire.number_in_field(found)
    except MalformedMessage:
        return None  # Nobody but a forger writes such a thing; the name counts as undefined.


def committed_definition(simulator: Simulator, name: str) -> ProposedDefinition | None:
    """Read a whole committed definition; None if the name is not defined.

    Raises:
        MalformedMessage: A field does not decode.
    """
    sequence = read_sequence(simulator, name)
    if simulator.get_state(LIFECYCLE, metadata_key(NAMESPACES, name)) is None or sequence is None:
        return None
    fields = []
    for field in PARAMETERS.fields:
        found = simulator.get_state(LIFECYCLE, field_key(NAMESPACES, name, field))
        fields.append(b"" if found is None else wire.bytes_in_field(found))
    return wire.stored_definition(name, sequence, *fields)


def parameter_fields(definition: ProposedDefinition) -> dict[str, bytes]:
    """Encode the fields that organisations agree on."""
    return {
        "EndorsementInfo": wire.bytes_field(wire.endorsement_info(definition)),
        "ValidationInfo": wire.bytes_field(wire.validation_info(definition)),
        "Collections": wire.bytes_field(definition.collections),
    }


def private_name(definition: ProposedDefinition) -> str:
    """Name an approval."""
    return f"{definition.name}#{definition.sequence}"


def implicit_collection(msp_id: str) -> str:
    """Name the collection that every organisation has without asking."""
    return f"_implicit_org_{msp_id}"


def metadata_key(namespace: str, name: str) -> str:
    """Name the key of a record's metadata."""
    return f"{namespace}/metadata/{name}"


def field_key(namespace: str, name: str, field: str) -> str:
    """Name the key of a record's field."""
    return f"{namespace}/fields/{name}/{field}"
