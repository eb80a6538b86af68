"""Did what a transaction read still hold when its turn came?  Version checks and phantoms.

Strictly in the order of the block, against the state before it and the writes of its earlier valid transactions
(fabric: core/ledger/kvledger/txmgmt/validation). For each namespace in the order of the set:

1. public reads: the key was not written or deleted earlier in the block, its committed version is the one read (11);
2. range queries: the range read again gives the same keys and versions, or the same Merkle summary (12);
3. hashed reads, as 1, per collection (11).

The first miss decides.
"""

from collections.abc import Iterator

from ledger.core.batch import Batch
from ledger.core.errors import Fault, shown
from ledger.core.names import Verdict
from ledger.core.range_summary import RangeSummary
from ledger.core.rwset import MerkleSummary, NamespaceSet, RangeQuery, Read, ReadWriteSet
from ledger.core.state import HASHED, PUBLIC, Entry, StateKey, Version
from ledger.core.unrecordable import INCOMPARABLE_RANGE


def check_reads(rwset: ReadWriteSet, batch: Batch) -> Fault | None:
    """Check everything that a transaction read; return the first miss (steps above).

    Args:
        rwset: Its read-write set.
        batch: The updates of the block's earlier valid transactions over the state before it.
    """
    for namespace in rwset.namespaces:
        fault = check_namespace(namespace, batch)
        if fault is not None:
            return fault
    return None


def check_namespace(namespace: NamespaceSet, batch: Batch) -> Fault | None:
    """Check what was read in one namespace."""
    name = namespace.namespace
    for read in namespace.reads:
        fault = check_version(StateKey(PUBLIC, name, "", read.key.encode()), read.version, batch)
        if fault is not None:
            return fault
    for query in namespace.range_queries:
        if (fault := check_range(name, query, batch)) is not None:
            return fault
    for collection in namespace.collections:
        for hashed in collection.reads:
            key = StateKey(HASHED, name, collection.collection, hashed.key_hash)
            if (fault := check_version(key, hashed.version, batch)) is not None:
                return fault
    return None


def check_version(key: StateKey, expected: Version | None, batch: Batch) -> Fault | None:
    """Check that a key has the version that was read, and that the block has not touched it."""
    if key in batch.updates:
        writer = batch.updates[key]
        what = "deleted" if writer is None else f"written by transaction {writer.version.index}"
        return Fault(int(Verdict.MVCC_READ_CONFLICT), "read version", f"{named(key)}: {what} earlier in the block")
    entry = batch.committed(key)
    found = None if entry is None else entry.version
    if found == expected:
        return None
    detail = f"{named(key)}: read at {versioned(expected)}, is at {versioned(found)}"
    return Fault(int(Verdict.MVCC_READ_CONFLICT), "read version", detail)


def check_range(namespace: str, query: RangeQuery, batch: Batch) -> Fault | None:
    """Check that a range query would see the same again.

    What can't be compared at all (`INCOMPARABLE_RANGE`) has the verdict of any phantom (12).
    """
    results = replayed(namespace, query, batch)
    if query.merkle is not None:
        problem = check_summary(results, query.merkle)
    else:
        problem = check_results(results, query.raw_reads or ())
    if problem is None:
        return None
    where = f"{namespace}: range from {shown(ascii(query.start))} to {shown(ascii(query.end))}"
    return Fault(int(INCOMPARABLE_RANGE), "range result", f"{where}: {problem}")


def replayed(namespace: str, query: RangeQuery, batch: Batch) -> Iterator[tuple[bytes, Entry]]:
    """Read a range again.

    An iterator that was not exhausted recorded the last key it fetched as end: that key belongs to the result, and is
    looked up by itself, after the range, also where the range before it is empty or open.
    """
    end = query.end.encode()
    yield from batch.range(namespace, query.start.encode(), end or None)
    if not query.exhausted:
        entry = batch.latest(StateKey(PUBLIC, namespace, "", end))
        if entry is not None:
            yield end, entry


def check_results(results: Iterator[tuple[bytes, Entry]], expected: tuple[Read, ...]) -> str | None:
    """Compare a result with the reads recorded; return what differs.

    A recorded read without version, which crashes a real peer where its key exists, matches nothing.
    """
    for read in expected:
        found = next(results, None)
        if found is None:
            return f"{shown(ascii(read.key))} is gone"
        key, entry = found
        if key != read.key.encode():
            return f"expected {shown(ascii(read.key))}, found {shown(ascii(key))}"
        if entry.version != read.version:
            return f"{shown(ascii(key))}: read at {versioned(read.version)}, is at {versioned(entry.version)}"
    extra = next(results, None)
    return None if extra is None else f"{shown(ascii(extra[0]))} is new"


def check_summary(results: Iterator[tuple[bytes, Entry]], expected: MerkleSummary) -> str | None:
    """Compare a result with the Merkle summary recorded, built with the degree recorded; return what differs.

    A degree below 2, which crashes a real peer, matches nothing; nor does a result too short for a summary.
    """
    if expected.max_degree < 2:
        return f"a summary of degree {expected.max_degree}"
    summary = RangeSummary(expected.max_degree)
    for key, entry in results:
        summary.add(key, entry.version)
    found = summary.finish()
    if found is None:
        return "too few results for a summary"
    if found.max_level != expected.max_level:
        return f"summary of level {expected.max_level}, is of level {found.max_level}"
    return None if found.hashes == expected.hashes else "summary hashes differ"


def named(key: StateKey) -> str:
    """Name a key for a message."""
    if key.kind == HASHED:
        return f"{key.namespace}/{key.collection}: {shown(key.key)}"
    return f"{key.namespace}: {shown(ascii(key.key.decode(errors='replace')))}"


def versioned(version: Version | None) -> str:
    """Show a version for a message."""
    return "absent" if version is None else f"{version.block}:{version.index}"


__all__ = ["check_reads"]
