"""One small file per malformed block or envelope, named after its fault: the rule on the list refuses it.

`kind` says what a file is: a `common.Block`, refused whole, or a `common.Envelope` of a well-formed block, which gets a
verdict before any state is asked.
"""

import json
from pathlib import Path

import pytest

from ledger.core.errors import InvalidBlock
from ledger.wire.block import check_well_formed, decode_block
from ledger.wire.transaction import decode_transaction

SHELF = Path(__file__).parent
EXHIBITS: dict[str, dict[str, object]] = json.loads((SHELF / "shelf.json").read_text())


def test_every_file_is_on_the_list_and_the_other_way_round() -> None:
    assert {path.name for path in SHELF.glob("*.bin")} == set(EXHIBITS)


@pytest.mark.parametrize("name", sorted(EXHIBITS))
def test_exhibit_is_refused_by_its_rule(name: str) -> None:
    data, expected = (SHELF / name).read_bytes(), EXHIBITS[name]
    if expected["kind"] == "block":
        with pytest.raises(InvalidBlock) as refusal:
            check_well_formed(decode_block(data))
        assert refusal.value.rule == expected["rule"]
        return
    fault = decode_transaction(data).fault
    assert fault is not None
    assert (fault.rule, fault.verdict) == (expected["rule"], expected["verdict"])


def test_unknown_groups_nested_as_deep_as_go_follows_are_read_over() -> None:
    envelope = (SHELF / "envelope-groups-nested-too-deep.bin").read_bytes()
    assert decode_transaction(envelope).fault is not None
    nested = b"\x1b" * 5000 + b"\x1c" * 5000
    from fabric_protos.common import common_pb2

    message = common_pb2.Envelope(payload=b"\x12\x01d" + nested, signature=b"s").SerializeToString()
    fault = decode_transaction(message).fault
    assert fault is not None
    assert fault.rule == "header"  # The payload decoded; it has none.
