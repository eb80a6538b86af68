"""Which envelopes does an orderer take?  Fabric's filters (orderer/common/msgprocessor), and two of ours.

Steps, cheap ones first: 1. there is a channel header of a channel that exists; 2. its type may be sent; 3. the channel
is not in maintenance (configuration updates alone are taken then); 4. the payload is not empty; 5. payload and
signature are not too large; 6. the claimed id has at most 64 characters (ours: ids are kept for ever); 7. the creator's
certificate has not expired; 8. `/Channel/Writers` is satisfied; 9. there is a signature (ours: a policy that asks for
none lets it through, and every peer refuses a block that holds such an envelope). What is inside the transaction is not
looked at: invalid ones enter blocks.
"""

from dataclasses import dataclass
from datetime import datetime

from ledger.core.channel_config import Bundle
from ledger.core.errors import InvalidIdentity, PolicyNotSatisfied, Refused
from ledger.core.policy.evaluate import SignedData

WRITERS = "/Channel/Writers"
MAINTENANCE_WRITERS = "/Channel/Orderer/Writers"
TX_ID_LENGTH_MAX = 64

SUCCESS, BAD_REQUEST, FORBIDDEN, NOT_FOUND, SERVICE_UNAVAILABLE = 200, 400, 403, 404, 503
"""common.Status."""


class BroadcastRefused(Refused):
    """An envelope that is not ordered; `status` is the orderer's answer, `info` its text."""

    def __init__(self, status: int, info: str) -> None:
        """Say with which status and text."""
        super().__init__("envelope", rule=info)
        self.status = status
        self.info = info


@dataclass(frozen=True, slots=True)
class Offered:
    """An envelope as an orderer looks at it."""

    envelope: bytes
    payload: bytes
    signature: bytes
    channel_id: str
    header_type: int
    tx_id: str
    creator: bytes

    @property
    def size_bytes(self) -> int:
        """What counts against the sizes of a batch."""
        return len(self.payload) + len(self.signature)


def check_normal(offered: Offered, bundle: Bundle, now: datetime) -> None:
    """Check an envelope that is to be ordered as it is (steps 3 to 9).

    Raises:
        BroadcastRefused: It is refused.
    """
    if bundle.orderer.consensus_state:
        raise BroadcastRefused(SERVICE_UNAVAILABLE, "normal transactions are rejected: maintenance mode")
    check_filters(offered, bundle, now)


def check_config_update(offered: Offered, bundle: Bundle, now: datetime) -> None:
    """Check the envelope of a configuration update before it is applied (steps 4 to 9).

    Raises:
        BroadcastRefused: It is refused.
    """
    try:
        check_filters(offered, bundle, now)
    except BroadcastRefused as error:
        info = f"config update for existing channel did not pass initial checks: {error.info}"
        raise BroadcastRefused(error.status, info) from error


def check_filters(offered: Offered, bundle: Bundle, now: datetime) -> None:
    """Check what holds for both (steps 4 to 9)."""
    if not offered.payload:
        raise BroadcastRefused(BAD_REQUEST, "envelope payload is empty")
    check_size(offered.size_bytes, bundle)
    if len(offered.tx_id) > TX_ID_LENGTH_MAX:
        raise BroadcastRefused(
            BAD_REQUEST, f"transaction id has {len(offered.tx_id)} characters, at most {TX_ID_LENGTH_MAX} are allowed"
        )
    try:
        identity = bundle.msps.deserialize(offered.creator)
    except InvalidIdentity:
        identity = None
    if identity is not None and identity.certificate.not_after <= now:
        raise BroadcastRefused(BAD_REQUEST, "broadcast client identity expired")
    check_writers(offered, bundle)
    if not offered.signature:
        raise BroadcastRefused(BAD_REQUEST, "envelope signature is empty")


def check_size(size_bytes: int, bundle: Bundle) -> None:
    """Check that payload and signature of an envelope are not too large (step 5).

    Raises:
        BroadcastRefused: They are.
    """
    limit = bundle.orderer.batch_size.absolute_max_bytes
    if size_bytes > limit:
        raise BroadcastRefused(
            BAD_REQUEST, f"message payload is {size_bytes} bytes and exceeds maximum allowed {limit} bytes"
        )


def check_writers(offered: Offered, bundle: Bundle) -> None:
    """Check that the sender may write to the channel (step 8)."""
    path = MAINTENANCE_WRITERS if bundle.orderer.consensus_state else WRITERS
    try:
        bundle.check(path, (SignedData(offered.payload, offered.creator, offered.signature),))
    except PolicyNotSatisfied as error:
        raise BroadcastRefused(
            FORBIDDEN,
            "implicit policy evaluation failed - 0 sub-policies were satisfied, but this policy requires 1 of the "
            "'Writers' sub-policies to be satisfied: permission denied",
        ) from error
