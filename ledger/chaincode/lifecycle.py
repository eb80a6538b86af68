"""How do chaincodes come to be defined on a channel?  The built-in chaincode `_lifecycle`, on the normal simulator.

Organisations approve a definition, each in its own implicit collection; then one transaction commits it to the public
state, from where validation takes the chaincode's policy. What is approved is seen by others as hashes only. A commit
here reads every organisation's approval, as Fabric's does, so that the results are equal, but does not ask for them.

Rules and read sets: hyperledger/fabric v3.1.5, core/chaincode/lifecycle/{scc,lifecycle}.go;
layout: `definition_records`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ledger.chaincode.definition_records import (
    DEFINITION,
    LIFECYCLE,
    NAMESPACES,
    PARAMETERS,
    SOURCE,
    SOURCES,
    PrivateArea,
    PublicArea,
    committed_definition,
    field_key,
    implicit_collection,
    metadata_key,
    parameter_fields,
    private_name,
    store,
)
from ledger.chaincode.simulator import Simulator
from ledger.chaincode.values import STATUS_OK, ChaincodeResponse, failure
from ledger.core.errors import Refused
from ledger.wire import lifecycle_calls as wire
from ledger.wire.lifecycle_calls import ProposedDefinition

LEGACY = "lscc"
"""Namespace where definitions stood before `_lifecycle`; looked into while a name is undefined."""

STATUS_NOT_FOUND = 404
"""Status of an answer about a name that is not defined."""

RESERVED_NAMES = frozenset({"cscc", "escc", "lscc", "qscc", "vscc"})

DEFAULT_POLICY = wire.reference_policy("/Channel/Application/Endorsement")

_CHAINCODE_NAME = re.compile(r"[a-zA-Z0-9]+([-_][a-zA-Z0-9]+)*")
_VERSION = re.compile(r"[A-Za-z0-9_.+-]+")
_COLLECTION_NAME = re.compile(r"[A-Za-z0-9-][A-Za-z0-9_-]*")


class DefinitionRefused(Refused):
    """A definition that breaks a rule of `_lifecycle`."""


class NotDefined(Refused):
    """A question about a chaincode without committed definition."""


class Lifecycle:
    """`_lifecycle` on one channel, for one call.

    Args:
        simulator: Where it reads and writes.
        msp_id: Organisation of this peer, for which approvals are made.
        msp_ids: Organisations of the channel's application group.
    """

    def __init__(self, simulator: Simulator, msp_id: str, msp_ids: Sequence[str]) -> None:
        """Prepare one call."""
        self._simulator = simulator
        self._msp_id = msp_id
        self._msp_ids = sorted(msp_ids)

    def invoke(self, args: Sequence[bytes]) -> ChaincodeResponse:
        """Answer a call: exactly a function name and its serialized arguments."""
        functions: Mapping[bytes, Callable[[bytes], bytes]] = {
            b"ApproveChaincodeDefinitionForMyOrg": self.approve,
            b"CommitChaincodeDefinition": self.commit,
            b"CheckCommitReadiness": self.check_readiness,
            b"QueryChaincodeDefinition": self.query,
            b"QueryChaincodeDefinitions": self.query_all,
        }
        if len(args) != 2:
            return failure(f"lifecycle scc operations require exactly two arguments but received {len(args)}")
        function = functions.get(args[0])
        if function is None:
            name = args[0].decode(errors="replace")
            return failure(
                f"Failed to authorize invocation due to failed ACL check: Unmapped policy for {LIFECYCLE}/{name}"
            )
        try:
            return ChaincodeResponse(STATUS_OK, payload=function(args[1]))
        except NotDefined as error:
            return failure(str(error), STATUS_NOT_FOUND)
        except Refused as error:
            return failure(str(error))

    def approve(self, data: bytes) -> bytes:
        """Approve a definition for this peer's organisation.

        1. The definition is well formed and its collections may follow the committed ones.
        2. Its sequence is the committed one, with the same parameters, or the next.
        3. It differs from what the organisation approved for this sequence before.
        4. Parameters and package are written into the organisation's implicit collection.
        """
        definition = with_defaults(wire.decode_approval(data))
        committed = self._check(definition)
        current = 0 if committed is None else committed.sequence
        if definition.sequence not in (current, current + 1):
            raise refused("sequence to approve", f"{max(current, 1)} or {current + 1}", definition.sequence)
        if committed is not None and definition.sequence == current:
            wanted = replace(definition, package_id="")
            if wanted != committed:
                raise refused("parameters of the committed sequence", committed, wanted)
        area = PrivateArea(self._simulator, implicit_collection(self._msp_id))
        name = private_name(definition)
        changed = [
            store(area, NAMESPACES, name, PARAMETERS, parameter_fields(definition)),
            store(area, SOURCES, name, SOURCE, {"PackageID": wire.text_field(definition.package_id)}),
        ]
        if not any(changed):
            raise refused("approval", "something new", f"what {self._msp_id} approved before")
        return b""

    def commit(self, data: bytes) -> bytes:
        """Commit a definition.

        1. The definition is well formed and its collections may follow the committed ones.
        2. Its sequence is the next one.
        3. Every organisation's approval is read.
        4. The fields that change are written to the public state.
        """
        definition = self._next_definition(data)
        self._approvals(definition)
        fields = {"Sequence": wire.number_field(definition.sequence), **parameter_fields(definition)}
        store(PublicArea(self._simulator), NAMESPACES, definition.name, DEFINITION, fields)
        return b""

    def check_readiness(self, data: bytes) -> bytes:
        """Tell which organisations approved exactly this definition as the next one."""
        return wire.encode_readiness(self._approvals(self._next_definition(data)))

    def query(self, data: bytes) -> bytes:
        """Tell the committed definition of a chaincode and who approved it."""
        name = wire.decode_query(data)
        definition = committed_definition(self._simulator, name)
        if definition is None:
            raise NotDefined(f"chaincode {name}", rule="defined", found="no committed definition")
        return wire.encode_definition(definition, self._approvals(definition))

    def query_all(self, _: bytes) -> bytes:
        """Tell all committed definitions, by name."""
        prefix = f"{NAMESPACES}/metadata/"
        scan = self._simulator.open_range(LIFECYCLE, prefix, prefix + "\x7f")
        names = []
        has_more = True
        while has_more:
            batch = scan.next_batch()
            names += [key.removeprefix(prefix) for key, _ in batch.results]
            has_more = batch.has_more
        found = (committed_definition(self._simulator, name) for name in names)
        return wire.encode_definitions(tuple(definition for definition in found if definition is not None))

    def _next_definition(self, data: bytes) -> ProposedDefinition:
        definition = with_defaults(wire.decode_commit(data))
        committed = self._check(definition)
        expected = 1 if committed is None else committed.sequence + 1
        if definition.sequence != expected:
            raise refused("next sequence", expected, definition.sequence)
        return definition

    def _check(self, definition: ProposedDefinition) -> ProposedDefinition | None:
        """Check what stands in a definition, read the committed one and check the collections against it."""
        check_names(definition)
        committed = committed_definition(self._simulator, definition.name)
        if committed is None:
            self._simulator.get_state(LEGACY, definition.name)
        before = () if committed is None else wire.collection_terms(committed.collections)
        check_collections(wire.collection_terms(definition.collections), before, self._msp_ids)
        return committed

    def _approvals(self, definition: ProposedDefinition) -> dict[str, bool]:
        """Compare each organisation's approved fields with a definition, by their hashes."""
        name = private_name(definition)
        expected = {
            metadata_key(NAMESPACES, name): wire.encode_metadata(PARAMETERS),
            **{field_key(NAMESPACES, name, field): value for field, value in parameter_fields(definition).items()},
        }
        approvals = {}
        for msp_id in self._msp_ids:
            area = PrivateArea(self._simulator, implicit_collection(msp_id))
            same = [area.holds(key, value) for key, value in expected.items()]  # All are read, whatever is found.
            approvals[msp_id] = all(same)
        return approvals


def with_defaults(definition: ProposedDefinition) -> ProposedDefinition:
    """Fill in what a definition may leave out."""
    return replace(
        definition,
        endorsement_plugin=definition.endorsement_plugin or "escc",
        validation_plugin=definition.validation_plugin or "vscc",
        validation_parameter=definition.validation_parameter or DEFAULT_POLICY,
    )


def check_names(definition: ProposedDefinition) -> None:
    """Check the chaincode's name and version.

    Raises:
        DefinitionRefused: One of them has another form than Fabric's.
    """
    if not _CHAINCODE_NAME.fullmatch(definition.name):
        raise refused("chaincode name", _CHAINCODE_NAME.pattern, definition.name)
    if definition.name in RESERVED_NAMES:
        raise refused("chaincode name", "one that no built-in chaincode has", definition.name)
    if not _VERSION.fullmatch(definition.version):
        raise refused("chaincode version", _VERSION.pattern, definition.version)


def check_collections(
    proposed: Sequence[wire.CollectionTerms], committed: Sequence[wire.CollectionTerms], msp_ids: Sequence[str]
) -> None:
    """Check the collections of a definition, also against those that exist.

    Raises:
        DefinitionRefused: A name, a member or a membership policy is not allowed, or an existing collection is missing.
    """
    names = [terms.name for terms in proposed]
    for terms in proposed:
        if not _COLLECTION_NAME.fullmatch(terms.name):
            raise refused("collection name", _COLLECTION_NAME.pattern, terms.name)
        if names.count(terms.name) > 1:
            raise refused("collection name", "each name once", terms.name)
        if not terms.is_one_of:
            raise refused("collection membership", "a policy of OR only", terms.name)
        for msp_id in terms.member_msp_ids:
            if msp_id not in msp_ids:
                raise refused("collection member", f"an organisation of the channel, {', '.join(msp_ids)}", msp_id)
    for terms in committed:
        if terms.name not in names:
            reason = f"existing collection [{terms.name}] missing in the proposed collection configuration"
            raise refused(reason, terms.name, ", ".join(names) or "no collections")


def refused(rule: str, expected: object, found: object) -> DefinitionRefused:
    """Make the error for a definition that breaks a rule."""
    return DefinitionRefused("chaincode definition", rule=rule, expected=expected, found=found)
