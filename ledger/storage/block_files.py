"""Where does a block go on the disk?  Two folders of segments, and when each begins a new file.

*Kept* segments hold what stays for ever; a new one begins with a block k·CHK once the present one is big. *Prunable*
segments hold the bodies of invalid transactions; a new one begins with each block k·CHK, whether or not a checkpoint
there becomes valid, so that at a valid checkpoint *n* every file below *n* can go whole. A block without invalid
transactions writes none. Heights announced for a checkpoint besides the multiples of CHK begin a new file as well.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ledger.core.block import Header
from ledger.core.errors import MalformedMessage, NotFound
from ledger.core.names import BlockNumber
from ledger.core.outcome import Outcome
from ledger.core.vblock import Leaf
from ledger.storage.files import Files
from ledger.storage.ledger_values import StoredBlock
from ledger.storage.segment_records import BODIES, bodies_content, kept_content, leaves_content, stored_block
from ledger.storage.segments import (
    RECORD_BLOCK,
    RECORD_BLOCK_WITH_BODIES,
    Place,
    Position,
    Record,
    SegmentFolder,
    damaged,
)

KEPT_BYTES_MIN = 16 << 20
"""Size from which on a kept segment ends at the next multiple of CHK."""


class Positions(NamedTuple):
    """How far both folders are written."""

    kept: Position | None
    bodies: Position | None


class Places(NamedTuple):
    """Where a block's records lie."""

    kept: Place
    bodies: Place | None


class BlockFiles:
    """The segments of one channel.

    Args:
        files: The durable verbs.
        directory: The channel's folder; it is there.
        chk: Blocks between two checkpoints.
        kept_bytes_min: Size from which on a kept segment may end.
    """

    def __init__(self, files: Files, directory: Path, *, chk: int, kept_bytes_min: int = KEPT_BYTES_MIN) -> None:
        """Create the two folders if they are not there."""
        for name in ("kept", "prunable"):
            files.make_directory(directory / name)
        self.kept = SegmentFolder(files, directory / "kept", suffix=".kept", magic=b"PLkept01")
        self.bodies = SegmentFolder(files, directory / "prunable", suffix=".bodies", magic=b"PLbody01")
        self._chk = chk
        self._kept_bytes_min = kept_bytes_min
        self._announced: set[int] = set()

    def announce(self, number: BlockNumber) -> None:
        """Let a new prunable file begin with a block that is no multiple of CHK."""
        self._announced.add(number)

    def is_boundary(self, number: int) -> bool:
        """Tell whether a checkpoint is captured at a block: at each k·CHK above 0, and where it was announced."""
        return number > 0 and (number % self._chk == 0 or number in self._announced)

    # Appending: one thread.

    @property
    def positions(self) -> Positions:
        """How far is appended."""
        return Positions(self.kept.position, self.bodies.position)

    def append(self, outcome: Outcome, leaves: Sequence[Leaf]) -> Places:
        """Append a block: the bodies first, then what is kept. Durable after `sync`."""
        number = outcome.block.number
        bodies = bodies_content(outcome)
        place = None
        if bodies:
            start, end = self._interval(number)
            position = self.bodies.position
            if position is None or position.file < start or number >= self.bodies.end:
                after = self.bodies.end if self.bodies.end <= number else 0  # A forgotten announcement may have set it.
                self.bodies.begin(BlockNumber(max(start, after)), end)
            place = self.bodies.append(number, bodies)
        kind = RECORD_BLOCK_WITH_BODIES if place else RECORD_BLOCK
        return Places(self._keep(number, kept_content(outcome, leaves), kind), place)

    def append_leaves(self, header: Header, verdicts: bytes, commit_hash: bytes, leaves: Sequence[Leaf]) -> Places:
        """Append what a joined ledger has of a block below its checkpoint. Durable after `sync`."""
        content = leaves_content(header, verdicts, commit_hash, leaves)
        return Places(self._keep(header.number, content, RECORD_BLOCK), None)

    def _keep(self, number: BlockNumber, content: bytes, kind: int) -> Place:
        position = self.kept.position
        if position is None or (number % self._chk == 0 and position.size >= self._kept_bytes_min):
            self.kept.begin(number)
        return self.kept.append(number, content, kind)

    def stand_at(self, positions: Positions) -> None:
        """Stand behind positions again, with what lies there still there: `append_again` passes over it."""
        self.bodies.resume(positions.bodies)
        self.kept.resume(positions.kept)

    def append_again(self, places: Places) -> None:
        """Write the records up to and with a block's once more where they are, so that the next sync covers them."""
        for folder, place in ((self.bodies, places.bodies), (self.kept, places.kept)):
            if place is not None:
                folder.append_again(place)

    def sync(self) -> None:
        """Make everything appended durable."""
        self.bodies.sync()
        self.kept.sync()

    def go_back(self, positions: Positions) -> None:
        """Cut off what was appended behind positions."""
        self.bodies.go_back(positions.bodies)
        self.kept.go_back(positions.kept)

    def close(self) -> None:
        """Close the open files."""
        self.kept.close()
        self.bodies.close()

    # Reading: any thread.

    def read(self, number: BlockNumber, places: Places, *, with_bodies: bool = True) -> StoredBlock:
        """Read a block.

        Args:
            number: Its number.
            places: Where it lies.
            with_bodies: Whether the bodies of its invalid transactions are wanted; gone ones are left out.

        Raises:
            StorageDamaged: A record is not what was written.
        """
        kept = self._read(self.kept, places.kept, number)
        bodies = None
        if with_bodies and places.bodies is not None:
            try:
                bodies = self.bodies.read(places.bodies, number)
            except FileNotFoundError:
                bodies = None  # Pruned; the caller knows whether that is right.
        try:
            return stored_block(kept, bodies)
        except MalformedMessage as error:
            if places.bodies is not None and error.subject.startswith(BODIES):
                raise damaged(self.bodies.path(places.bodies.file), places.bodies.offset, str(error)) from error
            raise damaged(self.kept.path(places.kept.file), places.kept.offset, str(error)) from error

    def records(self, kept: Position | None, bodies: Position | None) -> Iterator[tuple[Record, Record | None]]:
        """Yield the records of whole blocks behind positions, in order, until the first that is not whole.

        A block with bodies whose record of bodies is gone with its file is yielded without it.
        """
        all_bodies = self._records(self.bodies, bodies)
        waiting = next(all_bodies, None)
        for record in self._records(self.kept, kept):
            while waiting is not None and waiting.number < record.number:
                waiting = next(all_bodies, None)
            own = waiting if waiting is not None and waiting.number == record.number else None
            yield record, own if record.kind == RECORD_BLOCK_WITH_BODIES else None

    def whole_blocks(self, after: Positions, first: int, prune_point: int) -> Iterator[tuple[BlockNumber, Places]]:
        """Yield the blocks behind positions that are there whole, without a gap; of a pruned one its kept record.

        Args:
            after: Behind what to look.
            first: The block that comes first there.
            prune_point: Highest block whose bodies may be gone.
        """
        for expected, (record, own) in enumerate(self.records(after.kept, after.bodies), first):
            lacks = record.kind == RECORD_BLOCK_WITH_BODIES and own is None
            if record.number != expected or (lacks and record.number > prune_point):
                return
            yield record.number, Places(record.place, own.place if own else None)

    def _records(self, folder: SegmentFolder, position: Position | None) -> Iterator[Record]:
        for first in folder.segments():
            if position is None or first >= position.file:
                yield from folder.scan(first, position.size if position and first == position.file else 0)

    def _read(self, folder: SegmentFolder, place: Place, number: BlockNumber) -> bytes:
        try:
            return folder.read(place, number)
        except FileNotFoundError as error:
            raise damaged(folder.path(place.file), place.offset, "the file is gone") from error

    def _interval(self, number: int) -> tuple[BlockNumber, int]:
        """Give the blocks `[start, end)` of the prunable file that a block belongs to."""
        start = number - number % self._chk
        end = start + self._chk
        for announced in self._announced:
            if start < announced <= number:
                start = announced
            elif number < announced < end:
                end = announced
        return BlockNumber(start), end


def block_not_found(number: int, height: int) -> NotFound:
    """Say that a block was never there."""
    return NotFound(f"block {number} is not there; the ledger has {height} blocks")
