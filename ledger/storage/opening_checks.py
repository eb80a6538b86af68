"""Do a ledger's files belong together?  Looked at whenever it is opened, in a time that does not grow with its height.

The database is derived, so damage to it is healed by making it again, and damage to a segment is not: which of the two
is wrong has to be told apart. So first the database is held against itself: the hash of its last vBlock is made again
from its rows and the channel's name, which a database of another channel, or one that lost rows, does not pass. Then
the kept segments are held against it: each is there, has the size that was committed, and its own header; and the last
block in them is the one that the database names.
"""

from ledger.core.errors import DatabaseDamaged
from ledger.core.hashing import header_hash
from ledger.core.names import ZERO_DIGEST, BlockNumber, ChannelId
from ledger.core.vblock import VBlockHeader, vblock_hash
from ledger.storage.block_files import BlockFiles, Places
from ledger.storage.engine import Engine
from ledger.storage.keys import BlockRow, Savepoint, block_key, row_of
from ledger.storage.ledger_values import StoredBlock
from ledger.storage.segments import damaged


def check_database(engine: Engine, channel_id: ChannelId, savepoint: Savepoint) -> None:
    """Check that a database is one of this channel, and that its last blocks are there.

    Raises:
        DatabaseDamaged: It is not.
    """
    if savepoint.height == 0:
        return
    number = BlockNumber(savepoint.height - 1)
    row = _row(engine, channel_id, number)
    previous = _row(engine, channel_id, number - 1).vblock_hash if number else ZERO_DIGEST
    header = VBlockHeader(
        number, previous, row.block_hash, len(row.verdicts), row.verdicts.count(0), row.tx_root, row.commit_hash
    )
    if not vblock_hash(channel_id, header) == row.vblock_hash == savepoint.vblock_hash:
        raise _database_damaged(channel_id, f"its last vBlock, {number}, is not one of this channel")


def check_segments(files: BlockFiles, engine: Engine, channel_id: ChannelId, savepoint: Savepoint) -> None:
    """Check that the kept segments are those that a sound database speaks of; a short last one is left to the caller.

    Raises:
        StorageDamaged: One is missing, has another size or header, or holds other blocks.
    """
    position = savepoint.kept
    if position is None or files.kept.size(position.file) < position.size:
        return
    _check_header(files, position.file)
    first = position.file
    while first > 0:
        place = _row(engine, channel_id, first - 1).kept
        size, expected = files.kept.size(place.file), place.offset + place.length
        if size != expected:
            what = "the file is gone" if size < 0 else f"the file has {size} bytes, {expected} were committed"
            raise damaged(files.kept.path(place.file), min(max(size, 0), place.offset), what)
        _check_header(files, place.file)
        first = place.file
    number = BlockNumber(savepoint.height - 1)
    row = _row(engine, channel_id, number)
    check_stored(files, row, files.read(number, Places(row.kept, row.bodies), with_bodies=False))


def check_stored(files: BlockFiles, row: BlockRow, stored: StoredBlock) -> None:
    """Check that a block in the segments is the one that was committed.

    Raises:
        StorageDamaged: It is another one.
    """
    header = stored.header
    found = header_hash(header.number, header.previous_hash, header.data_hash)
    if (found, stored.verdicts, stored.commit_hash) != (row.block_hash, row.verdicts, row.commit_hash):
        path = files.kept.path(row.kept.file)
        raise damaged(path, row.kept.offset, f"it holds another block {stored.number} than was committed")


def _check_header(files: BlockFiles, file: int) -> None:
    found = files.kept.bounds(file)[0]
    if found != file:
        raise damaged(files.kept.path(file), 0, f"it is the segment that begins with block {found}")


def _row(engine: Engine, channel_id: ChannelId, number: int) -> BlockRow:
    raw = engine.get(block_key(number))
    if raw is None:
        raise _database_damaged(channel_id, f"it lacks block {number}")
    return row_of(raw)


def _database_damaged(channel_id: ChannelId, what: str) -> DatabaseDamaged:
    return DatabaseDamaged(f"the database of {channel_id} is damaged: {what}; a start makes it anew from the segments")
