"""What does a range query record?  Its borders, and every result that was fetched, raw or as a Merkle summary.

Fabric records a query by what the peer *fetched*, not by what the contract looked at: results travel 100 at a time and
the peer reads one ahead, so a longer range has 101 results on record before the contract sees the first. Two endorsers
agree on their results only if both fetch alike.

Source: hyperledger/fabric v3.1.5, core/chaincode/query_response_generator.go. The summary is in `core.range_summary`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.core.range_summary import RangeSummary
from ledger.core.rwset import RangeQuery, Read
from ledger.core.state import Entry, Version

BATCH_COUNT = 100
"""Results of one answer to a contract."""

DEGREE_MAX = 50
"""Results that are recorded one by one; more are summarised."""

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
        self._reads: list[tuple[bytes, Version]] = []
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
        end = self._end if self._exhausted or not self._reads else self._reads[-1][0].decode()
        summary = RangeSummary(DEGREE_MAX)
        for key, version in self._reads:
            summary.add(key, version)
        merkle = summary.finish()
        if merkle is not None:
            return RangeQuery(self._start, end, self._exhausted, merkle=merkle)
        raw_reads = tuple(Read(key.decode(), version) for key, version in self._reads)
        return RangeQuery(self._start, end, self._exhausted, raw_reads=raw_reads or None)  # No results: neither form.

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
        key, entry = found
        self._reads.append((key, entry.version))
        return key.decode(), entry.value
