"""A call of each kind at each step of a peer's life fails, or is its last; `make faults` tries every call."""

from collections.abc import Callable

import pytest

from tests.faults.campaign import NOT_REACHED, Campaign, kind_of_file, quick_folder, sample, table
from tests.kit.paths import ROOT

pytestmark = pytest.mark.faults

STEPS = {"open", "commit", "checkpoint", "sign", "valid", "settle", "prune"}


def test_no_single_fault_of_the_disk_costs_anything(need_tool: Callable[[str], str]) -> None:
    """Goal: rules 2 to 4 of the design under faults.  Method: see `campaign`; a sample of them, two lives at once."""
    strace = need_tool("strace")
    with quick_folder() as folder, Campaign(strace, folder, workers=2) as campaign:
        assert {call.step for call in campaign.calls} == STEPS
        assert {"pwrite64", "fdatasync", "fsync", "rename", "unlink"} <= {call.name for call in campaign.calls}
        verdicts = campaign.run(sample(campaign.calls))
    defects = [
        f"{one.fault.kind} at {one.fault.call.step}, {one.fault.call.name} {one.fault.call.path}: {one.defect}"
        for one in verdicts
        if one.defect
    ]
    assert not defects, "\n\n".join(defects)
    reached = [one for one in verdicts if one.outcome != NOT_REACHED]
    assert len(reached) > 0.9 * len(verdicts), "\n".join(table(verdicts))
    assert {"kept segment", "prunable segment", "signed.log", "proofs.log", "prunes.log", "database: log"} <= {
        kind_of_file(one.fault.call.path) for one in verdicts
    }


def test_the_table_in_the_docs_knows_no_defect() -> None:
    text = (ROOT / "docs" / "faults.md").read_text()
    assert "| prune | prunes.log | fdatasync | " in text
    assert "DEFECT" not in text
