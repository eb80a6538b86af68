"""Chaincode definitions: which names can be used, and how long private data lives by them."""

from collections.abc import Mapping

import pytest
from fabric_protos.peer import collection_pb2
from fabric_protos.peer.lifecycle import db_pb2

from ledger.core.definitions import (
    LIFECYCLE_DEFINITION,
    Definition,
    Definitions,
    Unusable,
    committed_names,
)
from ledger.core.names import NEVER, BlockNumber, TxIndex
from ledger.core.policy.ast import PolicyReference
from ledger.core.state import HASHED, Entry, StateKey, Version, public_key
from ledger.wire.codec import CODEC
from ledger.wire.lifecycle import decode_definition
from tests.kit.channel import TestCollection, any_peer, definition_fields, state_data

VERSION = Version(BlockNumber(1), TxIndex(0))


class State:
    """The entries of definitions; counts how often each is read."""

    def __init__(self, name: str, fields: Mapping[str, bytes]) -> None:
        self.entries: dict[StateKey, Entry] = {}
        self.reads = 0
        for field, value in fields.items():
            key = f"namespaces/metadata/{name}" if field == "metadata" else f"namespaces/fields/{name}/{field}"
            self.entries[public_key("_lifecycle", key)] = Entry(value, VERSION)

    def get(self, key: StateKey) -> Entry | None:
        self.reads += 1
        return self.entries.get(key)


def definitions(**fields: bytes | None) -> Definitions:
    """The definitions of a state with one, some of whose fields are changed or taken away."""
    found = {**definition_fields(), **fields}
    state = State("asset", {field: value for field, value in found.items() if value is not None})
    return Definitions(state.get, lambda metadata, values: decode_definition(metadata, values, CODEC))


def rule_against(found: Definitions, name: str = "asset") -> str | None:
    usable = found.usable(name)
    return usable.rule if isinstance(usable, Unusable) else None


def test_a_committed_definition_can_be_used_and_is_read_once() -> None:
    state = State("asset", definition_fields(sequence=4, collections=[TestCollection("c")]))
    found = Definitions(state.get, lambda metadata, values: decode_definition(metadata, values, CODEC))
    definition = found.usable("asset")
    assert isinstance(definition, Definition)
    assert (definition.sequence, definition.plugin, [each.name for each in definition.collections]) == (
        4,
        "vscc",
        ["c"],
    )
    reads = state.reads
    assert found.find("asset") is definition
    assert state.reads == reads
    assert isinstance(found.usable("other"), Unusable)


def test_the_lifecycle_itself_is_always_defined() -> None:
    assert definitions().usable("_lifecycle") is LIFECYCLE_DEFINITION


STRING = db_pb2.StateData(String="text").SerializeToString()
NAMELESS = definition_fields(plugin="")["ValidationInfo"]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({}, None),
        ({"metadata": None}, "chaincode definition"),
        ({"metadata": b"\xff"}, "definition message"),
        ({"metadata": b""}, "definition message"),
        ({"metadata": db_pb2.StateMetadata(datatype="Other").SerializeToString()}, "definition message"),
        ({"Sequence": None}, None),
        ({"Sequence": b"\xff"}, "definition message"),
        ({"Sequence": STRING}, "definition message"),
        ({"Sequence": state_data(Int64=-1)}, None),
        ({"EndorsementInfo": None}, None),
        ({"EndorsementInfo": state_data(Bytes=b"\xff")}, "definition message"),
        ({"ValidationInfo": None}, "definition incomplete"),
        ({"ValidationInfo": state_data(Bytes=b"")}, "definition incomplete"),
        ({"ValidationInfo": NAMELESS}, "definition incomplete"),
        ({"ValidationInfo": definition_fields(policy=b"")["ValidationInfo"]}, "definition incomplete"),
        ({"ValidationInfo": definition_fields(policy=b"\xff")["ValidationInfo"]}, None),
        ({"ValidationInfo": definition_fields(plugin="own")["ValidationInfo"]}, "validation plugin"),
        ({"ValidationInfo": STRING}, "definition message"),
        ({"Collections": None}, None),
        ({"Collections": state_data(Bytes=b"\xff")}, "definition message"),
        ({"Collections": state_data(Int64=3)}, "definition message"),
        ({"Extra": b"\xff"}, None),
    ],
)
def test_a_definition_that_cannot_be_used_says_why(fields: dict[str, bytes | None], rule: str | None) -> None:
    assert rule_against(definitions(**fields)) == rule


def test_collections_keep_their_policies_as_they_came_and_the_first_of_a_name_counts() -> None:
    own = TestCollection("own", policy=any_peer("Org1MSP"))
    reference = TestCollection("referring", policy=PolicyReference("/Channel/Application/Writers"))
    again = TestCollection("own", 7)
    fields = definition_fields(collections=[own, reference, TestCollection("plain"), again])
    definition = definitions(Collections=fields["Collections"]).usable("asset")
    assert isinstance(definition, Definition)
    policies = [each.policy for each in definition.collections]
    assert policies[2:] == [None, None]
    assert CODEC.application_policy(policies[0] or b"") == any_peer("Org1MSP")
    assert CODEC.application_policy(policies[1] or b"") == PolicyReference("/Channel/Application/Writers")
    found = definition.collection("own")
    assert found is not None
    assert found.block_to_live == 0
    assert definition.collection("none") is None


def test_a_collection_with_a_policy_that_does_not_decode_makes_the_definition_unusable() -> None:
    static = collection_pb2.StaticCollectionConfig(name="c").SerializeToString() + b"\x42\x01\xff"  # Field 8.
    config = b"\x0a" + bytes((len(static),)) + static
    package = b"\x0a" + bytes((len(config),)) + config
    assert rule_against(definitions(Collections=state_data(Bytes=package))) == "definition message"


@pytest.mark.parametrize(
    ("namespace", "collection", "block", "expected"),
    [
        ("asset", "short", 10, 14),
        ("asset", "short", 0, 4),
        ("asset", "kept", 10, NEVER),
        ("asset", "longest", 10, NEVER),
        ("asset", "longest", 0, NEVER),
        ("asset", "unknown", 10, NEVER),
        ("asset", "_implicit_org_Org1MSP", 10, NEVER),
        ("nothing", "short", 10, NEVER),
        ("asset", "", 10, NEVER),
    ],
)
def test_private_data_lives_for_so_many_blocks_after_the_one_that_wrote_it(
    namespace: str, collection: str, block: int, expected: int
) -> None:
    collections = [
        TestCollection("short", 3),
        TestCollection("kept", 0),
        TestCollection("longest", 2**64 - 1),
        TestCollection("_implicit_org_Org1MSP", 3),
    ]
    found = definitions(Collections=definition_fields(collections=collections)["Collections"])
    assert found.expiry(namespace, collection, block) == expected


def test_a_definition_with_an_unknown_plugin_still_says_how_long_private_data_lives() -> None:
    fields = definition_fields(plugin="own", collections=[TestCollection("short", 3)])
    found = definitions(**fields)
    assert rule_against(found) == "validation plugin"
    assert found.expiry("asset", "short", 10) == 14


def test_writing_a_sequence_commits_a_name() -> None:
    keys = [
        public_key("_lifecycle", "namespaces/fields/b/Sequence"),
        public_key("_lifecycle", "namespaces/fields/a/Sequence"),
        public_key("_lifecycle", "namespaces/fields/c/Collections"),
        public_key("_lifecycle", "namespaces/fields/d/e/Sequence"),
        public_key("_lifecycle", "namespaces/fields//Sequence"),
        public_key("_lifecycle", "x/namespaces/fields/f/Sequence"),
        public_key("asset", "namespaces/fields/g/Sequence"),
        StateKey(HASHED, "_lifecycle", "c", b"namespaces/fields/h/Sequence"),
    ]
    assert committed_names(keys) == ["a", "b"]
