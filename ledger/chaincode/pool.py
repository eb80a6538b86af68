"""How do contracts run?  In processes of their own, one proposal each at a time, cut off when they take too long."""

from collections.abc import Mapping


class ContractPool:
    """The contracts of one peer and the worker processes that run them.

    Args:
        contracts: Contract name to `module:Class`; every worker loads all of them.
        workers: Number of processes.
        execute_timeout_ms: Time for one proposal; a worker that takes longer is killed.
        start_timeout_ms: Time for a worker to load its contracts.
        memory_bytes_max: Address space of one worker.
        search_path: Folders where contract modules are looked for, before the installed packages.
    """

    def __init__(
        self,
        contracts: Mapping[str, str],
        *,
        workers: int = 2,
        execute_timeout_ms: int = 30_000,
        start_timeout_ms: int = 60_000,
        memory_bytes_max: int = 1 << 30,
        search_path: tuple[str, ...] = (),
    ) -> None:
        """Take the settings; no process is started yet."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the workers and wait until each has loaded every contract."""
        raise NotImplementedError

    def close(self) -> None:
        """End all workers; what runs at the moment fails."""
        raise NotImplementedError
