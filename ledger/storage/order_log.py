"""Where does an orderer keep its blocks?  One append-only log a channel; a block counts once it is synced."""

from pathlib import Path

from ledger.core.errors import NotFound, StorageDamaged
from ledger.core.names import BlockNumber
from ledger.storage.files import DirectoryLock
from ledger.storage.record_log import RecordLog


class OrderLog:
    """The blocks of one channel in order, block *n* being record *n*.

    Args:
        directory: The channel's folder, made if it is not there.

    Raises:
        Conflict: Another process has it open.
        StorageDamaged, StorageFailed: The log can't be used.
    """

    def __init__(self, directory: Path) -> None:
        """Open the log; a torn record at its end is cut."""
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(directory / "LOCK")
        try:
            self._log = RecordLog(directory / "blocks.log")
        except BaseException:
            self._lock.close()
            raise

    @property
    def height(self) -> int:
        """Number of blocks."""
        return len(self._log)

    @property
    def first_block(self) -> BlockNumber:
        """First block held; this log is never cut at its front."""
        return BlockNumber(0)

    def append(self, number: BlockNumber, block: bytes) -> None:
        """Add the next block.

        Durability: the block is on the disk on return.

        Raises:
            StorageFailed: The disk failed; the block does not count.
        """
        assert number == self.height, "blocks are appended in order"
        self._log.append(block)

    def block_bytes(self, number: BlockNumber) -> bytes:
        """Read a serialized block.

        Raises:
            NotFound: It is not there yet.
            StorageDamaged: It is not what was written.
        """
        if not 0 <= number < self.height:
            raise NotFound(f"block {number} is not there; the height is {self.height}")
        data = self._log.read(number)
        if not data:
            raise StorageDamaged(f"block {number} of the order log is empty")
        return data

    def close(self) -> None:
        """Close the log."""
        self._log.close()
        self._lock.close()
