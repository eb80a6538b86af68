"""Which rules does a chaincode's definition set?  Policies and collections from `_lifecycle`'s state.

Definitions are read in the state *before* the block that is judged (fabric-seen, item 1). The layout is Fabric's
(core/chaincode/lifecycle): `namespaces/metadata/<name>` and `namespaces/fields/<name>/<Field>` in namespace
`_lifecycle`. Nothing ties the fields to approvals: whatever two peers endorse is a definition.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ledger.core.errors import MalformedMessage
from ledger.core.names import NEVER
from ledger.core.state import PUBLIC, Entry, StateKey, public_key

LIFECYCLE = "_lifecycle"
"""Namespace of the definitions, a chaincode of its own."""

IMPLICIT_PREFIX = "_implicit_org_"
"""Beginning of the name of an organisation's implicit collection; the MSP ID follows."""

DATATYPE = "ChaincodeDefinition"
"""Datatype that the metadata of a definition names."""

SEQUENCE, ENDORSEMENT, VALIDATION, COLLECTIONS = "Sequence", "EndorsementInfo", "ValidationInfo", "Collections"
FIELDS = (SEQUENCE, ENDORSEMENT, VALIDATION, COLLECTIONS)
"""Fields of a definition."""

BUILT_IN_PLUGIN = "vscc"
"""The only validation plugin that there is."""

SEQUENCE_KEY = re.compile(rb"namespaces/fields/([^/]+)/Sequence")
"""Keys whose writes say that a chaincode's definition was committed."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection that a definition names."""

    name: str

    policy: bytes | None
    """Its own endorsement policy, ApplicationPolicy bytes; None: that of the chaincode."""

    block_to_live: int
    """Blocks that private data stays; 0: for ever."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A committed chaincode definition, as far as validation uses it."""

    sequence: int
    plugin: str
    parameter: bytes
    """ApplicationPolicy bytes."""

    collections: tuple[Collection, ...]
    package: bytes
    """CollectionConfigPackage as stored; empty for none."""

    def collection(self, name: str) -> Collection | None:
        """Find a collection by name, the first if there are several."""
        return next((each for each in self.collections if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a name has no definition that can be used."""

    rule: str
    detail: str


LIFECYCLE_DEFINITION = Definition(0, BUILT_IN_PLUGIN, b"", (), b"")
"""`_lifecycle` itself is always defined; its policy is in the channel configuration."""

Decode = Callable[[bytes, Mapping[str, bytes]], Definition]
"""Decodes a definition from the value of its metadata and its fields; raises `MalformedMessage`."""


class Definitions:
    """The definitions in one state, each read once.

    Args:
        get: Reads an entry of that state.
        decode: Decodes what stands there, see `wire.lifecycle`.
    """

    def __init__(self, get: Callable[[StateKey], Entry | None], decode: Decode) -> None:
        """Read nothing yet."""
        self._get = get
        self._decode = decode
        self._found: dict[str, Definition | Unusable] = {}

    def find(self, name: str) -> Definition | Unusable:
        """Find the definition of a name, or why there is none that can be used."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = LIFECYCLE_DEFINITION if name == LIFECYCLE else self._read(name)
        return found

    def usable(self, name: str) -> Definition | Unusable:
        """Find the definition of a name that is to be validated by.

        A validation plugin that is not built in stops a real peer at the first use (fabric-seen, forged definitions):
        here the name can't be used.
        """
        found = self.find(name)
        if isinstance(found, Unusable) or name == LIFECYCLE:
            return found
        if not found.plugin or not found.parameter:
            return Unusable("definition incomplete", f"{name} has no validation plugin or parameter")
        if found.plugin != BUILT_IN_PLUGIN:
            return Unusable("validation plugin", f"{name}: expected {BUILT_IN_PLUGIN}, found {found.plugin}")
        return found

    def _read(self, name: str) -> Definition | Unusable:
        """Read a definition from the state.

        Fields without metadata are no definition. What does not decode crashes a real peer at commit (fabric-seen,
        forged definitions): here the name can't be used.
        """
        metadata = self._get(public_key(LIFECYCLE, f"namespaces/metadata/{name}"))
        if metadata is None:
            return Unusable("chaincode definition", f"{name} is not defined")
        entries = {each: self._get(public_key(LIFECYCLE, f"namespaces/fields/{name}/{each}")) for each in FIELDS}
        fields = {each: b"" if entry is None else entry.value for each, entry in entries.items()}
        try:
            return self._decode(metadata.value, fields)
        except MalformedMessage as error:
            return Unusable("definition message", f"{name}: {error}")

    def expiry(self, namespace: str, collection: str, block: int) -> int:
        """Say in which block's batch a private entry expires that is written in `block`."""
        definition = self.find(namespace)
        found = definition.collection(collection) if isinstance(definition, Definition) else None
        if found is None or not found.block_to_live or collection.startswith(IMPLICIT_PREFIX):
            return NEVER
        return min(block + found.block_to_live + 1, NEVER)


def committed_names(keys: Iterable[StateKey]) -> list[str]:
    """List the chaincodes whose definition was committed by writing these keys, ascending."""
    matches = [SEQUENCE_KEY.fullmatch(key.key) for key in keys if key.namespace == LIFECYCLE and key.kind == PUBLIC]
    return sorted(match.group(1).decode() for match in matches if match is not None)


__all__ = [
    "IMPLICIT_PREFIX",
    "LIFECYCLE",
    "Collection",
    "Definition",
    "Definitions",
    "Unusable",
    "committed_names",
]
