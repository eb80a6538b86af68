"""What does a chaincode see, and what does it leave behind?  One simulation on one view of the state.

A simulation reads committed state only: it never sees its own writes, and all reads of a key give one version. Writes
are collected. All chaincodes that take part in one transaction share a simulation, each with its own namespace.

Values of private data are not kept by this peer; what is here of them is what read-write sets carry, their hashes.

Source of the rules: hyperledger/fabric v3.1.5, core/ledger/kvledger/txmgmt/txmgr/tx_simulator.go, query_executor.go.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from ledger.chaincode.ranges import Page, RangeScan
from ledger.chaincode.rwset_builder import NamespaceBuilder, PrivateWrite, RwsetBuilder, hash_key
from ledger.chaincode.values import KeyModification
from ledger.core.errors import ExecutionFailed
from ledger.core.rwset import ReadWriteSet
from ledger.core.state import Entry, StateView, hashed_key, public_key
from ledger.wire.rwset import decode_metadata

QUERY_COUNT_MAX = 100_000
"""Results after which a range query ends silently, as in Fabric's sample configuration."""

VALIDATION_PARAMETER = "VALIDATION_PARAMETER"
"""Name of the metadata entry that holds a key's own endorsement policy."""


class HistoryReader(Protocol):
    """Tells the past of a key; history is no part of the read-write set."""

    def modifications(self, namespace: str, key: str) -> Iterator[KeyModification]:
        """Yield the changes of a public key by valid transactions, newest first."""
        ...


class Simulator:
    """One simulation.

    Args:
        view: The state as of one block; stays consistent for as long as the simulation lasts.
        history: Where history queries are answered from; None where there is none.
        query_count_max: Results after which a range query ends silently.
    """

    def __init__(
        self, view: StateView, history: HistoryReader | None = None, *, query_count_max: int = QUERY_COUNT_MAX
    ) -> None:
        """Begin with an empty read-write set."""
        self._view = view
        self._history = history
        self._query_count_max = query_count_max
        self._builder = RwsetBuilder()
        self._has_written = False
        self._has_paged = False

    def get_state(self, namespace: str, key: str) -> bytes | None:
        """Read the committed value of a public key; None if it is absent."""
        entry = self._read(namespace, key)
        return None if entry is None else entry.value

    def put_state(self, namespace: str, key: str, value: bytes) -> None:
        """Write a public key; an empty value deletes it, since Fabric can't store one.

        Raises:
            ExecutionFailed: The simulation made a paged query before.
        """
        self._writing(namespace).writes[key] = value

    def delete_state(self, namespace: str, key: str) -> None:
        """Delete a public key, whether or not it is there."""
        self.put_state(namespace, key, b"")

    def get_metadata(self, namespace: str, key: str) -> dict[str, bytes]:
        """Read the metadata of a public key; the read counts like one of the value."""
        entry = self._read(namespace, key)
        return dict(decode_metadata(entry.metadata)) if entry is not None and entry.metadata else {}

    def set_metadata(self, namespace: str, key: str, entries: Mapping[str, bytes]) -> None:
        """Write the metadata of a public key; no entries clear it."""
        self._writing(namespace).metadata_writes[key] = dict(entries)

    def open_range(self, namespace: str, start: str, end: str) -> RangeScan:
        """Query the public keys with `start <= key < end`; "" leaves a border open."""
        return self._scan(namespace, start, end, self._query_count_max)

    def page(self, namespace: str, start: str, end: str, page_size: int, bookmark: str = "") -> Page:
        """Query one page of a range.

        Args:
            namespace: Whose keys.
            start: First key, unless a bookmark is given.
            end: Key behind the range; "" leaves it open.
            page_size: Number of results, at least 1.
            bookmark: Where to go on, from the page before.

        Raises:
            ExecutionFailed: The simulation wrote before, or the page has no size.
        """
        if self._has_written:
            raise ExecutionFailed("a transaction that writes can't make paged queries: their borders are not protected")
        if page_size < 1:
            raise ExecutionFailed(f"a page needs a size of at least 1, found {page_size}")
        self._has_paged = True
        return self._scan(namespace, bookmark or start, end, min(page_size, self._query_count_max)).page()

    def history(self, namespace: str, key: str) -> Iterator[KeyModification]:
        """Yield the past changes of a public key, newest first; nothing is recorded.

        Raises:
            ExecutionFailed: This peer keeps no history.
        """
        if self._history is None:
            raise ExecutionFailed("this peer has no history to query")
        return self._history.modifications(namespace, key)

    def get_private_hash(self, namespace: str, collection: str, key: str) -> bytes | None:
        """Read the hash of a private value; None if the key is absent."""
        entry = self._view.get(hashed_key(namespace, collection, hash_key(key)))
        version = None if entry is None else entry.version
        self._builder.namespace(namespace).collection(collection).reads[key] = version
        return None if entry is None else entry.value

    def put_private(self, namespace: str, collection: str, key: str, value: bytes) -> None:
        """Write a private key; an empty value deletes it."""
        self._writing(namespace).collection(collection).writes[key] = PrivateWrite(value)

    def delete_private(self, namespace: str, collection: str, key: str) -> None:
        """Delete a private key, whether or not it is there."""
        self.put_private(namespace, collection, key, b"")

    def purge_private(self, namespace: str, collection: str, key: str) -> None:
        """Delete a private key with its past."""
        self._writing(namespace).collection(collection).writes[key] = PrivateWrite(b"", is_purge=True)

    def set_private_metadata(self, namespace: str, collection: str, key: str, entries: Mapping[str, bytes]) -> None:
        """Write the metadata of a private key."""
        self._writing(namespace).collection(collection).metadata_writes[key] = dict(entries)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces read or written so far, ascending."""
        return self._builder.names

    def finish(self) -> ReadWriteSet:
        """Close what is open and return the read-write set."""
        self.close()
        return self._builder.build()

    def close(self) -> None:
        """Let go of the state's iterators."""
        for scan in self._builder.scans():
            scan.close()

    def _read(self, namespace: str, key: str) -> Entry | None:
        entry = self._view.get(public_key(namespace, key))
        self._builder.namespace(namespace).reads[key] = None if entry is None else entry.version
        return entry

    def _writing(self, namespace: str) -> NamespaceBuilder:
        """Check that writes are allowed and return where they go."""
        if self._has_paged:
            raise ExecutionFailed("a transaction that made paged queries can't write: their borders are not protected")
        self._has_written = True
        return self._builder.namespace(namespace)

    def _scan(self, namespace: str, start: str, end: str, count_max: int) -> RangeScan:
        entries = self._view.range(namespace, start.encode(), end.encode() if end else None)
        scan = RangeScan(start, end, entries, count_max)
        self._builder.namespace(namespace).scans.append(scan)
        return scan
