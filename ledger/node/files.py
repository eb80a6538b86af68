"""How does the node read the files that its settings name?"""

from pathlib import Path

from ledger.core.errors import NotFound, StorageFailed


def read(path: Path) -> bytes:
    """Read a file.

    Raises:
        NotFound: It is not there.
        StorageFailed: It can't be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"{path} does not exist") from error
    except OSError as error:
        raise StorageFailed(f"{path}: {error}") from error
