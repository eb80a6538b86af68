"""What does a range query record?  Its borders, and every result that was fetched, raw or as a Merkle summary.

Fabric records a query by what the peer *fetched*, not by what the contract looked at: results travel 100 at a time and
the peer reads one ahead, so a longer range has 101 results on record before the contract sees the first. Two endorsers
agree on their results only if both fetch alike.

Sources: hyperledger/fabric v3.1.5, core/chaincode/query_response_generator.go (batches),
core/ledger/kvledger/txmgmt/rwsetutil/query_results_helper.go (summary).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from ledger.core.rwset import MerkleSummary, RangeQuery, Read
from ledger.core.state import Entry
from ledger.wire.rwset import encode_query_reads

BATCH_COUNT = 100
"""Results of one answer to a contract."""

DEGREE_MAX = 50
"""Reads or hashes that may wait on one level of a summary; the next one folds the level."""

KeyValue = tuple[str, bytes]
"""A result as the contract sees it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One answer to a range query that is not paged."""

    results: tuple[KeyValue, ...]
    has_more: bool
    """Whether at least one further result exists."""


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to a paged query."""

    results: tuple[KeyValue, ...]
    bookmark: str
    """Where the next page starts; "" at the end."""


class RangeScan:
    """One open range query: fetches results and remembers what it fetched.

    Args:
        start: First key of the range, as asked.
        end: Key behind the range, as asked; "" leaves it open.
        entries: The entries in the range, ascending.
        count_max: Number of results after which the query ends silently.
    """

    def __init__(self, start: str, end: str, entries: Iterator[tuple[bytes, Entry]], count_max: int) -> None:
        """Open the query; nothing is fetched yet."""
        self._start = start
        self._end = end
        self._entries = entries
        self._count_max = count_max
        self._reads: list[Read] = []
        self._ahead: KeyValue | None = None
        self._exhausted = False

    def next_batch(self) -> Batch:
        """Fetch the next results: up to 100, and one more to know whether there is more."""
        results = [] if self._ahead is None else [self._ahead]
        self._ahead = None
        while len(self._reads) < self._count_max:
            result = self._fetch()
            if result is None:
                break
            if len(results) == BATCH_COUNT:
                self._ahead = result
                return Batch(tuple(results), has_more=True)
            results.append(result)
        return Batch(tuple(results), has_more=False)

    def page(self) -> Page:
        """Fetch all results up to the limit as one page and find the key behind it, which is not recorded."""
        results: list[KeyValue] = []
        while len(self._reads) < self._count_max:
            result = self._fetch()
            if result is None:
                return Page(tuple(results), bookmark="")
            results.append(result)
        following = next(self._entries, None)
        return Page(tuple(results), bookmark="" if following is None else following[0].decode())

    def record(self) -> RangeQuery:
        """Say what the query saw, as it stands in the read-write set."""
        end = self._end if self._exhausted or not self._reads else self._reads[-1].key
        if len(self._reads) > DEGREE_MAX:
            return RangeQuery(self._start, end, self._exhausted, merkle=summarize(self._reads))
        raw_reads = tuple(self._reads) or None  # Without results neither form is set.
        return RangeQuery(self._start, end, self._exhausted, raw_reads=raw_reads)

    def close(self) -> None:
        """Let go of the state's iterator; `record` still answers."""
        close = getattr(self._entries, "close", None)
        if close is not None:
            close()

    def _fetch(self) -> KeyValue | None:
        found = next(self._entries, None)
        if found is None:
            self._exhausted = True
            return None
        key = found[0].decode()
        self._reads.append(Read(key, found[1].version))
        return key, found[1].value


def summarize(reads: Sequence[Read], degree_max: int = DEGREE_MAX) -> MerkleSummary:
    """Hash more than `degree_max` reads into a summary.

    Reads are hashed in leaves of `degree_max + 1`, the last one shorter. A level that exceeds `degree_max` hashes is
    folded into one hash on the level above. At the end all levels below the highest are folded upwards.
    """
    levels: list[list[bytes]] = [[]]

    def rise(level: int) -> None:
        """Fold the levels, from `level` on, that hold too much."""
        while len(levels[level]) > degree_max:
            folded = sha256(b"".join(levels[level])).digest()
            levels[level] = []
            level += 1
            if level == len(levels):
                levels.append([])
            levels[level].append(folded)

    leaf_count = degree_max + 1
    for position in range(0, len(reads), leaf_count):
        levels[0].append(sha256(encode_query_reads(reads[position : position + leaf_count])).digest())
        rise(0)
    for level in range(len(levels) - 1):
        hashes = levels[level]
        if hashes:
            levels[level + 1].append(hashes[0] if len(hashes) == 1 else sha256(b"".join(hashes)).digest())
    rise(len(levels) - 1)
    return MerkleSummary(degree_max, len(levels), tuple(levels[-1]))
