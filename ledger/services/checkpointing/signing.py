"""When does a peer sign a checkpoint?  Once per height, and never where it may have signed something else before.

After a restore from an older copy of the disk the record of what was signed is older than what others have seen. That
shows in our own signature coming back from above the record: from then on this peer is silent until the orderers have
said how far the channel is, and signs nothing at or below that height any more (design, section 5). Where `peerledger
restore` made the records, it is silent from the start.

Everything here runs in the service's executor, but for the question to the orderers.
"""

import asyncio
from dataclasses import replace

from ledger.core.certificates import parse_pem
from ledger.core.checkpoint import CheckpointMessage, PeerSignature, signed_bytes
from ledger.core.checkpoint_tally import Computed
from ledger.core.errors import WorldFailed
from ledger.core.identity import Identity
from ledger.core.names import BlockNumber
from ledger.services.checkpointing.conversations import log
from ledger.services.checkpointing.ports import NewestOrdered, PeerSigner
from ledger.services.checkpointing.values import CheckpointingSettings
from ledger.storage.checkpoints import RESTORED, CheckpointStore
from ledger.wire.codec import CODEC

ORDERERS_TIMEOUT_S = 10.0
"""How long the orderers have to say what they ordered."""


class OwnWord:
    """What this peer says itself.

    Args:
        signer: Its identity.
        store: Its checkpoint records.
        settings: Its settings for the channel.
        newest_ordered: Asks the orderers for their newest block.

    Attributes:
        identity: The identity as a value, to know its signatures when they come back.
    """

    def __init__(
        self,
        signer: PeerSigner,
        store: CheckpointStore,
        settings: CheckpointingSettings,
        newest_ordered: NewestOrdered,
    ) -> None:
        """Take the parts.

        Raises:
            MalformedMessage, InvalidIdentity: The signer's identity is none.
        """
        self._signer = signer
        self._store = store
        self._settings = settings
        self._newest_ordered = newest_ordered
        self.identity = own_identity(signer.serialized)
        self._seen: BlockNumber | None = None

    def signed(self, event: Computed) -> Computed:
        """Sign what was computed, if we may; what was signed before is said again as it was."""
        statement = event.statement
        recorded = self._store.signed(statement.number)
        if recorded is not None and recorded.statement == statement:
            return replace(event, own=recorded)
        latest = self._store.latest_valid
        if latest is not None and statement.number <= latest.statement.number:
            return event  # Nobody asks any more.
        reason = self.silent() or self._store.why_not_sign(statement)
        if reason:
            extra = {"channel": statement.channel, "number": statement.number, "reason": reason}
            log.warning("checkpoint_not_signed", extra=extra)
            return event
        identity = self._signer.serialized
        signed = PeerSignature(identity, self._signer.sign(signed_bytes(statement, identity)))
        settings = self._settings
        return replace(event, own=CheckpointMessage(statement, signed, settings.interval_blocks, settings.libraries))

    def silent(self) -> str:
        """Say why this peer signs nothing at present, whatever the height; empty if it signs.  From any thread."""
        if not self._settings.signs:
            return "this peer has not validated the blocks itself"
        if self._store.restored:
            return RESTORED
        if self._seen is not None:
            return f"its own signature was seen at block {self._seen}, above its record"
        divergence = self._store.divergence
        return "" if divergence is None else divergence_text(divergence.computed.number)

    def seen(self, number: BlockNumber) -> None:
        """Hear that our own good signature came in; fall silent if there is no record of it.

        Durability: that this height was signed is known for good on return; what else was, the orderers bound.
        """
        if self._store.signed(number) is None and number > self._store.floor:
            log.warning("checkpoint_own_signature_seen", extra={"channel": self._store.channel, "number": number})
            self._seen = max(number, self._seen or number)
            self._store.raise_floor(number)

    async def newest_seen(self) -> int | None:
        """Ask the orderers how far we may have signed; None if we are not silent for that, or they don't answer."""
        if self._seen is None and not self._store.restored:
            return None
        try:
            async with asyncio.timeout(ORDERERS_TIMEOUT_S):
                return max(self._seen or 0, await self._newest_ordered())
        except (WorldFailed, TimeoutError):
            return None

    def speak_above(self, number: int) -> None:
        """Sign nothing at or below a height any more, and break the silence, unless more was seen since."""
        self._store.speak_above(number)
        if self._seen is not None and self._seen <= number:
            self._seen = None


def own_identity(serialized: bytes) -> Identity:
    """Read a peer's own identity; nobody is judged by it.

    Raises:
        MalformedMessage, InvalidIdentity: It is none.
    """
    msp_id, pem = CODEC.serialized_identity(serialized)
    certificate = parse_pem(pem)
    return Identity(msp_id, certificate, certificate.digest, serialized)


def divergence_text(number: BlockNumber) -> str:
    """Say where this peer differs from what others agreed on."""
    return f"diverged: a valid checkpoint at block {number} differs from what this peer computed"


__all__ = ["OwnWord", "divergence_text"]
