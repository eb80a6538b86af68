"""How do read-write sets travel?  Messages of ledger/rwset/*.proto to values of `core.rwset`, and back.

Decoding keeps the order of the message, sorted or not, since validation follows it; encoding writes what it is given
and leaves the normative order to who builds the set. Fields are ascending and defaults omitted, as Go writes them, so
that endorsements of different peers are equal byte for byte.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from fabric_protos.ledger.rwset import rwset_pb2
from fabric_protos.ledger.rwset.kvrwset import kv_rwset_pb2

from ledger.core.names import BlockNumber, TxIndex
from ledger.core.rwset import (
    CollectionSet,
    HashedMetadataWrite,
    HashedRead,
    HashedWrite,
    MerkleSummary,
    MetadataWrite,
    NamespaceSet,
    RangeQuery,
    Read,
    ReadWriteSet,
    Write,
)
from ledger.core.state import Version
from ledger.wire.messages import parse

REMEMBERED_BYTES_MAX = 100
"""Longest KVRWSet that is remembered: the reads of a chaincode's definition, which each of its transactions makes."""

REMEMBERED_MAX = 4096
"""Sets remembered; beyond, all are forgotten."""

_remembered: dict[tuple[str, bytes], NamespaceSet] = {}


def decode_rwset(data: bytes) -> ReadWriteSet:
    """Decode a TxReadWriteSet with everything in it.

    Raises:
        MalformedMessage: It or a set inside it does not decode.
    """
    message = parse(rwset_pb2.TxReadWriteSet, data, "TxReadWriteSet")
    return ReadWriteSet(tuple([namespace_from(each) for each in message.ns_rwset]))


def namespace_from(message: Any) -> NamespaceSet:
    """Decode one NsReadWriteSet; short ones are remembered, since most transactions of a chaincode share one."""
    data = message.rwset
    if len(data) > REMEMBERED_BYTES_MAX or message.collection_hashed_rwset:
        return decode_namespace(message)
    key = (message.namespace, data)
    found = _remembered.get(key)
    if found is None:
        found = decode_namespace(message)
        if len(_remembered) >= REMEMBERED_MAX:
            _remembered.clear()
        _remembered[key] = found
    return found


def decode_namespace(message: Any) -> NamespaceSet:
    """Decode one NsReadWriteSet."""
    kv = parse(kv_rwset_pb2.KVRWSet, message.rwset, "KVRWSet")
    return NamespaceSet(
        message.namespace,
        tuple([read_from(each) for each in kv.reads]),
        tuple([range_from(each) for each in kv.range_queries_info]) if kv.range_queries_info else (),
        tuple([Write(each.key, each.value, each.is_delete) for each in kv.writes]),
        tuple([MetadataWrite(each.key, entries_from(each), stored_entries(each)) for each in kv.metadata_writes])
        if kv.metadata_writes
        else (),
        tuple([collection_from(each) for each in message.collection_hashed_rwset])
        if message.collection_hashed_rwset
        else (),
    )


def collection_from(message: Any) -> CollectionSet:
    """Decode one CollectionHashedReadWriteSet."""
    hashed = parse(kv_rwset_pb2.HashedRWSet, message.hashed_rwset, "HashedRWSet")
    return CollectionSet(
        message.collection_name,
        tuple([HashedRead(each.key_hash, version_from(each)) for each in hashed.hashed_reads]),
        tuple(
            [
                HashedWrite(each.key_hash, each.value_hash, each.is_delete, each.is_purge)
                for each in hashed.hashed_writes
            ]
        ),
        tuple(
            [
                HashedMetadataWrite(each.key_hash, entries_from(each), stored_entries(each))
                for each in hashed.metadata_writes
            ]
        ),
        message.pvt_rwset_hash,
    )


def read_from(message: Any) -> Read:
    """Decode one KVRead."""
    return Read(message.key, version_from(message))


def version_from(message: Any) -> Version | None:
    """Decode the version of a read; an absent one says that the key was absent."""
    if not message.HasField("version"):
        return None
    version = message.version
    return Version(BlockNumber(version.block_num), TxIndex(version.tx_num))


def range_from(message: Any) -> RangeQuery:
    """Decode one RangeQueryInfo."""
    raw_reads = merkle = None
    match message.WhichOneof("reads_info"):
        case "raw_reads":
            raw_reads = tuple([read_from(each) for each in message.raw_reads.kv_reads])
        case "reads_merkle_hashes":
            summary = message.reads_merkle_hashes
            merkle = MerkleSummary(summary.max_degree, summary.max_level, tuple(summary.max_level_hashes))
    return RangeQuery(message.start_key, message.end_key, message.itr_exhausted, raw_reads, merkle)


def entries_from(message: Any) -> tuple[tuple[str, bytes], ...]:
    """Decode the entries of a metadata write."""
    return tuple([(entry.name, entry.value) for entry in message.entries])


def stored_entries(message: Any) -> bytes:
    """Encode the entries of a metadata write as Fabric stores them: without key, unknown fields of entries kept."""
    return bytes(kv_rwset_pb2.KVMetadataWrite(entries=message.entries).SerializeToString())


def decode_metadata(data: bytes) -> tuple[tuple[str, bytes], ...]:
    """Decode the metadata of a key as stored: KVMetadataWrite without key.

    Raises:
        MalformedMessage: It does not decode.
    """
    return entries_from(parse(kv_rwset_pb2.KVMetadataWrite, data, "KVMetadataWrite"))


def encode_rwset(rwset: ReadWriteSet) -> bytes:
    """Encode a TxReadWriteSet as an endorser signs it."""
    message = rwset_pb2.TxReadWriteSet(data_model=rwset_pb2.TxReadWriteSet.KV)
    for namespace in rwset.namespaces:
        into = message.ns_rwset.add(namespace=namespace.namespace, rwset=encode_kv(namespace))
        for collection in namespace.collections:
            into.collection_hashed_rwset.add(
                collection_name=collection.collection,
                hashed_rwset=encode_hashed(collection),
                pvt_rwset_hash=collection.pvt_rwset_hash,
            )
    return bytes(message.SerializeToString(deterministic=True))


def encode_kv(namespace: NamespaceSet) -> bytes:
    """Encode the KVRWSet of a namespace: its public part."""
    message = kv_rwset_pb2.KVRWSet()
    message.reads.extend(map(read_message, namespace.reads))
    message.range_queries_info.extend(map(range_message, namespace.range_queries))
    for write in namespace.writes:
        message.writes.add(key=write.key, is_delete=write.is_delete, value=write.value)
    for metadata in namespace.metadata_writes:
        message.metadata_writes.add(key=metadata.key, entries=entry_messages(metadata.entries))
    return bytes(message.SerializeToString(deterministic=True))


def encode_hashed(collection: CollectionSet) -> bytes:
    """Encode the HashedRWSet of a collection."""
    message = kv_rwset_pb2.HashedRWSet()
    for read in collection.reads:
        message.hashed_reads.add(key_hash=read.key_hash, version=version_message(read.version))
    for write in collection.writes:
        message.hashed_writes.add(
            key_hash=write.key_hash, is_delete=write.is_delete, value_hash=write.value_hash, is_purge=write.is_purge
        )
    for metadata in collection.metadata_writes:
        message.metadata_writes.add(key_hash=metadata.key_hash, entries=entry_messages(metadata.entries))
    return bytes(message.SerializeToString(deterministic=True))


def encode_query_reads(reads: Sequence[Read]) -> bytes:
    """Encode QueryReads: what a Merkle summary hashes as one leaf."""
    message = kv_rwset_pb2.QueryReads(kv_reads=map(read_message, reads))
    return bytes(message.SerializeToString(deterministic=True))


def read_message(read: Read) -> Any:
    """Make one KVRead."""
    return kv_rwset_pb2.KVRead(key=read.key, version=version_message(read.version))


def version_message(version: Version | None) -> Any:
    """Make a Version, or None for an absent one."""
    if version is None:
        return None
    return kv_rwset_pb2.Version(block_num=version.block, tx_num=version.index)


def range_message(query: RangeQuery) -> Any:
    """Make one RangeQueryInfo; no results set neither form."""
    message = kv_rwset_pb2.RangeQueryInfo(start_key=query.start, end_key=query.end, itr_exhausted=query.exhausted)
    if query.raw_reads is not None:
        message.raw_reads.SetInParent()
        message.raw_reads.kv_reads.extend(map(read_message, query.raw_reads))
    elif query.merkle is not None:
        message.reads_merkle_hashes.SetInParent()
        message.reads_merkle_hashes.max_degree = query.merkle.max_degree
        message.reads_merkle_hashes.max_level = query.merkle.max_level
        message.reads_merkle_hashes.max_level_hashes.extend(query.merkle.hashes)
    return message


def entry_messages(entries: Iterable[tuple[str, bytes]]) -> list[Any]:
    """Make KVMetadataEntry messages."""
    return [kv_rwset_pb2.KVMetadataEntry(name=name, value=value) for name, value in entries]


__all__ = [
    "decode_metadata",
    "decode_rwset",
    "encode_hashed",
    "encode_kv",
    "encode_query_reads",
    "encode_rwset",
]
