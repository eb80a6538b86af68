"""How do blocks, envelopes and read-write sets look to people?  Plain JSON values of what is in the bytes."""

from ledger.core.block import Block

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
"""A JSON value."""


def render_bytes(value: bytes) -> dict[str, Json]:
    """Show a byte string: `base64` always, `text` beside it where it is readable UTF-8."""
    raise NotImplementedError


def render_envelope(envelope: bytes) -> dict[str, Json]:
    """Show an envelope: its headers, creator, and what its type makes of its data; undecodable parts say why."""
    raise NotImplementedError


def render_rwset(results: bytes) -> dict[str, Json]:
    """Show a serialized TxReadWriteSet; undecodable parts say why."""
    raise NotImplementedError


def render_block(block: Block) -> dict[str, Json]:
    """Show a block: header with its hash, metadata slots, and each transaction with its verdict."""
    raise NotImplementedError
