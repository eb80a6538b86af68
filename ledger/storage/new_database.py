"""How does a database that was made anew take the old one's place, with no moment at which neither counts?

A new one is made in `db.new`. Once it is whole and compared it is renamed to `db.made`: from that moment it is the one
that counts. It is put in the place of `db` at once or, after a crash, at the next opening of the ledger. A `db.new`
that is found is the rest of work that was interrupted: nobody looks at it.
"""

import shutil
from pathlib import Path

from ledger.core.errors import StorageFailed
from ledger.storage.files import Files

DATABASE, NEW, MADE = "db", "db.new", "db.made"
"""Folders in a channel's folder."""


def begin_new(directory: Path) -> Path:
    """Give the folder for a new database, empty.

    Raises:
        StorageFailed: What an interrupted run left can't be removed.
    """
    _remove(directory / NEW)
    return directory / NEW


def put_in_place(directory: Path, files: Files) -> None:
    """Let the new database, closed and whole, take the old one's place.

    Durability: it counts on return, and from some moment before; a crash leaves the old one or the new one.
    """
    files.sync_directory(directory / NEW)
    files.rename(directory / NEW, directory / MADE)
    finish(directory, files)


def finish(directory: Path, files: Files) -> None:
    """Finish what `put_in_place` began; nothing to do is fine."""
    if (directory / MADE).is_dir():
        files.before("remove database", directory / DATABASE)
        _remove(directory / DATABASE)
        files.rename(directory / MADE, directory / DATABASE)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StorageFailed(f"removing {folder} failed: {error}") from error


__all__ = ["DATABASE", "MADE", "NEW", "begin_new", "finish", "put_in_place"]
