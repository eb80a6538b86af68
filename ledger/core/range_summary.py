"""How is a long range result summarised?  Fabric's Merkle tree over the reads of a range query.

Reads are hashed in groups of `max_degree` + 1 as leaves of level 1; a level that holds more than `max_degree` hashes is
folded into one hash of the level above. At the end what is left makes a last leaf, the levels below the highest are
folded upwards (a single hash rises as it is), and the highest once more if it holds too many (fabric:
core/ledger/kvledger/txmgmt/rwsetutil/query_results_helper.go). A result that never filled a leaf has no summary.
"""

from hashlib import sha256
from itertools import pairwise

from ledger.core.encoding import uvarint
from ledger.core.rwset import MerkleSummary
from ledger.core.state import Version

LEAF_LEVEL = 1


class RangeSummary:
    """Hashes the reads of a range one by one, holding little of them.

    Args:
        max_degree: Reads in a leaf, and hashes on a level, that are not yet too many; at least 2.
    """

    def __init__(self, max_degree: int) -> None:
        """Stand before the first read."""
        assert max_degree >= 2
        self._max_degree = max_degree
        self._pending: list[bytes] = []
        self._levels: list[list[bytes]] = [[]]

    def add(self, key: bytes, version: Version) -> None:
        """Add the next read."""
        self._pending.append(read_bytes(key, version))
        if len(self._pending) > self._max_degree:
            self._close_leaf()

    def finish(self) -> MerkleSummary | None:
        """Fold everything up; None if there were no more than `max_degree` reads."""
        levels = self._levels
        if len(levels) == 1 and not levels[0]:
            return None
        if self._pending:
            self._close_leaf()
        for below, above in pairwise(levels):
            if below:
                above.append(below[0] if len(below) == 1 else sha256(b"".join(below)).digest())
                below.clear()
        if len(levels[-1]) > self._max_degree:
            levels.append([sha256(b"".join(levels[-1])).digest()])
        return MerkleSummary(self._max_degree, LEAF_LEVEL + len(levels) - 1, tuple(levels[-1]))

    def _close_leaf(self) -> None:
        """Hash the pending reads as a leaf and fold the levels that hold too many hashes then."""
        folded = sha256(b"".join(self._pending)).digest()
        self._pending.clear()
        level = 0
        while True:
            if level == len(self._levels):
                self._levels.append([])
            hashes = self._levels[level]
            hashes.append(folded)
            if len(hashes) <= self._max_degree:
                return
            folded = sha256(b"".join(hashes)).digest()
            hashes.clear()
            level += 1


def read_bytes(key: bytes, version: Version) -> bytes:
    """Encode one read as a field of QueryReads: KVRead{key, version{block_num, tx_num}}, zero numbers left out."""
    numbers = b""
    if version.block:
        numbers += b"\x08" + uvarint(version.block)
    if version.index:
        numbers += b"\x10" + uvarint(version.index)
    read = (b"\x0a" + uvarint(len(key)) + key if key else b"") + b"\x12" + uvarint(len(numbers)) + numbers
    return b"\x0a" + uvarint(len(read)) + read


__all__ = ["RangeSummary"]
