"""Pruning a real ledger: what the plan said goes, what was proved stays, and a crash is finished at the next start."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ledger.core.checkpoint import CheckpointProof
from ledger.core.errors import Pruned, PruneRefused, StorageDamaged, StorageFailed
from ledger.core.names import BlockNumber, Verdict
from ledger.core.pruning import PruneReceipt, check_chain
from ledger.services.checkpointing.signing import own_identity
from ledger.services.pruning import STILL_PROVABLE, PrunePlan, PruningMode, PruningService, PruningSettings
from ledger.storage.files import Files
from ledger.storage.ledger_store import LedgerStore
from tests.kit.checkpointing import organisations, proof
from tests.kit.outcomes import judged
from tests.kit.stores import Crash, SteppingFiles, Steps, answers

MINI = judged("mini")
CHK = 10
NOW_MS = 1_790_000_000_000
ORG1, ORG2 = organisations(2)


@dataclass
class Proofs:
    """What checkpointing says."""

    store: LedgerStore
    valid: int | None = 50
    stopped: str = ""
    waiting: str = ""

    def proof_for_pruning(self) -> CheckpointProof | None:
        if self.valid is None:
            return None
        roots = self.store.roots(BlockNumber(self.valid))
        assert roots is not None, "what is valid was computed"
        return proof(roots.statement(self.store.channel_id), ORG1.peer, ORG2.peer)

    def policies(self) -> tuple[str, ...]:
        return ("MAJORITY Endorsement",)

    def waiting_for(self) -> str:
        return self.waiting


@dataclass
class Pruner:
    """A store with its pruning."""

    store: LedgerStore
    proofs: Proofs
    settings: PruningSettings = field(default_factory=lambda: PruningSettings(PruningMode.MANUAL, CHK))

    def but(self, **settings: Any) -> "Pruner":
        return Pruner(self.store, self.proofs, replace(self.settings, **settings))

    @property
    def service(self) -> PruningService:
        return PruningService(self.store, self.proofs, ORG1.peer, self.settings, now_ms=lambda: NOW_MS)

    def refusal(self, to: int | None = None) -> tuple[str, object]:
        with pytest.raises(PruneRefused) as refused:
            self.service.prune(None if to is None else BlockNumber(to))
        return refused.value.rule, refused.value.expected


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of the small recorded channel, with the checkpoints at 50 and 80 computed and kept."""
    folder = tmp_path_factory.mktemp("original")
    with_store(folder, fill)
    return folder


def fill(store: LedgerStore) -> None:
    store.commit_group(MINI.outcomes)
    for number in store.captured():
        store.compute_checkpoint(number)
    for kept in (50, 80):
        store.keep_checkpoint(BlockNumber(kept))


def with_store(folder: Path, action: Callable[[LedgerStore], object]) -> None:
    store = LedgerStore.open(folder, MINI.channel_id, chk=CHK)
    try:
        action(store)
    finally:
        store.close()


@pytest.fixture
def make(original: Path, tmp_path: Path) -> Iterator[Callable[..., Pruner]]:
    """Open copies of that ledger, and close them at the end."""
    opened: list[LedgerStore] = []

    def open_copy(folder: str = "data", *, files: Files | None = None, fresh: bool = True) -> Pruner:
        target = tmp_path / folder
        if fresh:
            shutil.copytree(original, target)
        store = LedgerStore.open(target, MINI.channel_id, chk=CHK, files=files)
        opened.append(store)
        return Pruner(store, Proofs(store))

    yield open_copy
    for store in opened:
        store.close()


def invalid_below(number: int) -> list[tuple[int, int, int]]:
    """List (block, index, verdict) of every invalid transaction below a block."""
    return [
        (outcome.block.number, index, verdict)
        for outcome in MINI.outcomes[:number]
        for index, verdict in enumerate(outcome.verdicts)
        if verdict != Verdict.VALID
    ]


def figures(plan: PrunePlan) -> tuple[object, ...]:
    decision = plan.decision
    return decision.first_block, decision.to_block, dict(plan.transactions_by_verdict), plan.bytes_freed


def receipt_figures(receipt: PruneReceipt) -> tuple[object, ...]:
    return receipt.first_block, receipt.to_block, dict(receipt.by_verdict), receipt.size_bytes


# -- what goes


def test_what_the_plan_said_goes_and_the_receipt_says_the_same(make: Callable[..., Pruner]) -> None:
    pruner = make()
    before = pruner.store.disk_use()
    plan = pruner.service.plan()
    assert plan.decision.checkpoint == 50
    assert plan.policies == ("MAJORITY Endorsement",)
    assert plan.still_provable == STILL_PROVABLE
    assert all((pruner.store.directory / "prunable" / name).exists() for name in plan.files)

    receipt = pruner.service.prune()
    assert receipt is not None
    assert receipt_figures(receipt) == figures(plan)
    assert figures(plan)[:2] == (0, 49)
    assert sum(dict(plan.transactions_by_verdict).values()) == len(invalid_below(50)) > 0
    assert before.prunable - pruner.store.disk_use().prunable == plan.bytes_freed > 0
    assert not any((pruner.store.directory / "prunable" / name).exists() for name in plan.files)
    assert pruner.store.first_block == 50


def test_a_plan_changes_nothing(make: Callable[..., Pruner]) -> None:
    pruner = make().but(mode=PruningMode.OFF)
    before = (pruner.store.disk_use(), pruner.store.first_block)
    assert figures(pruner.service.plan()) == figures(pruner.service.plan())
    assert (pruner.store.disk_use(), pruner.store.first_block) == before


def test_pruning_changes_no_answer(make: Callable[..., Pruner]) -> None:
    pruner = make()
    before = answers(pruner.store)
    assert pruner.service.prune() is not None
    assert answers(pruner.store) == before


def test_status_of_a_pruned_invalid_transaction_is_still_answered(make: Callable[..., Pruner]) -> None:
    pruner = make()
    pruner.service.prune()
    for block, index, verdict in invalid_below(50):
        tx_id = MINI.outcomes[block].tx_ids[index]
        places = [place for place in pruner.store.places(tx_id) if (place.block, place.index) == (block, index)]
        assert [place.verdict for place in places] == [verdict] if tx_id else places == []
        for place in places:
            with pytest.raises(Pruned) as gone:
                pruner.store.envelope(place)
            assert (gone.value.block, gone.value.index, gone.value.verdict) == (block, index, verdict)
            assert gone.value.first_block == 50
    with pytest.raises(Pruned):
        pruner.store.block_bytes(BlockNumber(49))
    assert pruner.store.block_bytes(BlockNumber(50))


def test_receipt_is_signed_and_holds_the_proof(make: Callable[..., Pruner]) -> None:
    pruner = make()
    receipt = pruner.service.prune()
    assert receipt is not None
    assert own_identity(receipt.identity).verify(receipt.signed_bytes, receipt.signature)
    assert receipt.identity == ORG1.peer.serialized
    assert receipt.checkpoint == pruner.proofs.proof_for_pruning()
    assert (receipt.channel, receipt.sequence, receipt.issued_at_ms) == (MINI.channel_id, 0, NOW_MS)
    assert pruner.service.receipts() == (receipt,)


def test_receipts_form_a_chain_and_outlive_a_restart(make: Callable[..., Pruner]) -> None:
    pruner = make()
    first = pruner.service.prune(BlockNumber(29))
    pruner.proofs.valid = 80
    second = pruner.service.prune()
    assert first is not None and second is not None
    assert (first.to_block, second.first_block, second.to_block) == (29, 30, 79)
    pruner.store.close()
    again = make(fresh=False)
    assert again.service.receipts() == (first, second)
    assert again.store.first_block == 80
    check_chain(again.service.receipts())


# -- what is refused


@pytest.mark.parametrize("to", [50, 51, 79, 10**6])
def test_above_the_latest_valid_checkpoint_is_refused_and_the_largest_height_named(
    make: Callable[..., Pruner], to: int
) -> None:
    pruner = make()
    assert pruner.refusal(to) == ("latest valid checkpoint", "at most 49")
    with pytest.raises(PruneRefused, match="the latest valid checkpoint is at block 50"):
        pruner.service.plan(BlockNumber(to))
    assert pruner.store.first_block == 0


def test_without_a_valid_checkpoint_nothing_goes(make: Callable[..., Pruner]) -> None:
    pruner = make()
    pruner.proofs.valid = None
    assert pruner.service.prune() is None
    assert pruner.refusal(9) == ("latest valid checkpoint", "no pruning yet")
    assert pruner.service.reason == "no checkpoint is valid yet"
    pruner.proofs.waiting = "checkpoint 50 waits for 1 more signature: Org2MSP"
    assert pruner.service.reason == pruner.proofs.waiting


def test_a_checkpoint_whose_state_can_not_be_served_any_more_is_none(make: Callable[..., Pruner]) -> None:
    pruner = make()
    pruner.store.release(BlockNumber(50))
    assert pruner.service.prune() is None
    assert pruner.refusal(9) == ("latest valid checkpoint", "no pruning yet")


def test_peer_that_diverged_prunes_nothing(make: Callable[..., Pruner]) -> None:
    pruner = make().but(mode=PruningMode.AUTO)
    pruner.proofs.stopped = "diverged: at block 50"
    assert pruner.refusal() == ("divergence", "no divergence")
    assert pruner.service.checkpoint_valid(BlockNumber(50)) is None
    assert pruner.service.reason == "diverged: at block 50"
    assert pruner.store.first_block == 0


def test_mode_off_prunes_nothing(make: Callable[..., Pruner]) -> None:
    pruner = make().but(mode=PruningMode.OFF)
    assert pruner.refusal() == ("pruning mode", "manual or auto")
    assert pruner.service.checkpoint_valid(BlockNumber(50)) is None
    assert pruner.service.reason == "pruning is off"
    assert pruner.store.first_block == 0


def test_only_mode_auto_prunes_by_itself(make: Callable[..., Pruner]) -> None:
    pruner = make()
    assert pruner.service.checkpoint_valid(BlockNumber(50)) is None
    receipt = pruner.but(mode=PruningMode.AUTO).service.checkpoint_valid(BlockNumber(50))
    assert receipt is not None and receipt.to_block == 49
    assert pruner.but(mode=PruningMode.AUTO).service.checkpoint_valid(BlockNumber(50)) is None, "nothing is left"
    assert len(pruner.service.receipts()) == 1


@pytest.mark.parametrize(("to", "gone_to"), [(9, 9), (10, 9), (18, 9), (19, 19), (48, 39), (49, 49)])
def test_a_request_is_rounded_down_to_where_an_interval_ends(
    make: Callable[..., Pruner], to: int, gone_to: int
) -> None:
    receipt = make().service.prune(BlockNumber(to))
    assert receipt is not None and receipt.to_block == gone_to


def test_a_request_within_the_first_interval_prunes_nothing(make: Callable[..., Pruner]) -> None:
    pruner = make()
    assert pruner.service.prune(BlockNumber(8)) is None
    assert pruner.service.receipts() == ()


def test_blocks_to_keep_hold_pruning_back(make: Callable[..., Pruner]) -> None:
    pruner = make().but(keep_blocks_min=len(MINI.outcomes) - 35)
    assert pruner.refusal(40) == ("blocks to keep", "at most 29")
    receipt = pruner.service.prune()
    assert receipt is not None and receipt.to_block == 29
    assert pruner.service.reason.startswith(f"{len(MINI.outcomes) - 35} blocks are to be kept")


def test_a_pin_holds_pruning_back_until_it_ends(make: Callable[..., Pruner]) -> None:
    pruner = make()
    pin = pruner.store.pin(BlockNumber(25), "joiner peer1", timeout_s=60)
    assert pruner.refusal(30) == ("pinned", "at most 19")
    assert "joiner peer1 needs blocks from 25 on" in pruner.service.plan().decision.held_back_by
    receipt = pruner.service.prune()
    assert receipt is not None and receipt.to_block == 19
    pruner.store.unpin(pin)
    receipt = pruner.service.prune()
    assert receipt is not None and receipt.to_block == 49


# -- the archive


def test_archive_holds_what_goes_as_the_receipt_says(make: Callable[..., Pruner], tmp_path: Path) -> None:
    pruner = make().but(archive_directory=tmp_path / "archive")
    plan = pruner.service.plan()
    contents = {name: (pruner.store.directory / "prunable" / name).read_bytes() for name in plan.files}
    receipt = pruner.service.prune()
    assert receipt is not None
    assert dict(receipt.archived) == {name: sha256(content).digest() for name, content in contents.items()}
    for name, content in contents.items():
        assert (tmp_path / "archive" / f"{MINI.channel_id}-{name}").read_bytes() == content


class LyingArchive(Files):
    """A disk that gives something else back than was written to the archive."""

    def read(self, path: Path, offset: int, size: int) -> bytes:
        content = super().read(path, offset, size)
        return content[:-1] + b"?" if path.parent.name == "archive" else content


class FullArchive(Files):
    """A disk without space for the archive."""

    def create(self, path: Path, *arguments: Any, **options: Any) -> Any:
        if path.parent.name == "archive":
            raise StorageFailed(f"{path}: no space left on device")
        return super().create(path, *arguments, **options)


@pytest.mark.parametrize(("files", "error"), [(LyingArchive(), StorageDamaged), (FullArchive(), StorageFailed)])
def test_nothing_is_pruned_where_the_archive_is_no_true_copy(
    make: Callable[..., Pruner], tmp_path: Path, files: Files, error: type[Exception]
) -> None:
    pruner = make(files=files).but(archive_directory=tmp_path / "archive")
    before = pruner.store.disk_use()
    with pytest.raises(error):
        pruner.service.prune()
    assert (pruner.store.disk_use(), pruner.store.first_block, pruner.service.receipts()) == (before, 0, ())
    receipt = pruner.but(archive_directory=None).service.prune()
    assert receipt is not None and receipt.to_block == 49


# -- crashes


def test_a_crash_between_record_and_unlink_is_finished_at_the_next_start(make: Callable[..., Pruner]) -> None:
    steps = Steps()
    pruner = make(files=SteppingFiles(steps))
    before, plan = answers(pruner.store), pruner.service.plan()
    counted = make("counted", files=SteppingFiles(counting := Steps()))
    opened = len(counting.taken)
    counted.service.prune()
    unlinks = [place for place, (verb, _) in enumerate(counting.taken[opened:], 1) if verb == "unlink"]
    assert len(unlinks) == len(plan.files) > 1

    steps.crash_at = len(steps.taken) + unlinks[1]
    with pytest.raises(Crash):
        pruner.service.prune()
    left = [name for name in plan.files if (pruner.store.directory / "prunable" / name).exists()]
    assert len(left) == len(plan.files) - 1, "it crashed behind the first of them"
    pruner.store.close()

    again = make(fresh=False)
    assert not any((again.store.directory / "prunable" / name).exists() for name in plan.files)
    assert again.store.first_block == 50
    (receipt,) = again.service.receipts()
    assert receipt_figures(receipt) == figures(plan)
    assert answers(again.store) == before


def test_at_whatever_step_it_crashes_the_prune_point_is_the_old_or_the_new_one(
    make: Callable[..., Pruner], tmp_path: Path
) -> None:
    to = BlockNumber(19)
    counted = make("counted", files=SteppingFiles(counting := Steps()))
    opened = len(counting.taken)
    counted.but(archive_directory=tmp_path / "archive").service.prune(to)
    step_count = len(counting.taken) - opened
    expected = counted.service.receipts()[0]
    before = counted.store.roots_now()
    seen: set[int] = set()
    for step in range(1, step_count + 1):
        folder = f"step {step}"
        files = SteppingFiles(steps := Steps())
        pruner = make(folder, files=files).but(archive_directory=tmp_path / f"archive {step}")
        steps.crash_at = len(steps.taken) + step
        with pytest.raises(Crash):
            pruner.service.prune(to)
        pruner.store.close()
        files.cut_power()

        again = make(folder, fresh=False).but(archive_directory=tmp_path / f"archive {step}")
        done = again.service.receipts()
        assert again.store.first_block == (20 if done else 0)
        seen.add(len(done))
        if not done:
            again.service.prune(to)
        (receipt,) = again.service.receipts()
        assert receipt_figures(receipt) == receipt_figures(expected)
        assert receipt.archived == expected.archived
        assert again.store.roots_now() == before
        assert list(again.service.plan(to).files) == []
    assert seen == {0, 1}
