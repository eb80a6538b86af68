"""Who may use what on this peer?  The access lists of `core.access`, asked for the channels that the peer is in."""

from collections.abc import Mapping
from typing import Protocol

from ledger.chaincode.values import TransactionContext
from ledger.core.access import PEER_ROLES, check_channel_access, check_peer_access
from ledger.core.channel_config import Bundle
from ledger.core.errors import NotFound
from ledger.core.identity import MspManager
from ledger.core.policy.evaluate import SignedData


class ChannelRules(Protocol):
    """A channel, as far as access goes."""

    @property
    def bundle(self) -> Bundle:
        """The configuration in force."""
        ...


class Access:
    """Access to the resources of one peer.

    Args:
        channels: Its channels by name; read at each call.
        msps: Knows the peer's own organisation alone.
        msp_id: That organisation.
    """

    def __init__(self, channels: Mapping[str, ChannelRules], msps: MspManager, msp_id: str) -> None:
        """Take the parts."""
        self._channels = channels
        self._msps = msps
        self._msp_id = msp_id

    def check(self, resource: str, channel_id: str, transaction: TransactionContext) -> None:
        """Check that a transaction's creator may use a resource of a channel, or of the peer.

        Raises:
            Forbidden: It may not, or there is no such resource.
            NotFound: This peer is not in the channel.
        """
        signed = SignedData(transaction.proposal, transaction.creator, transaction.signature)
        if resource in PEER_ROLES:
            return check_peer_access(self._msps, self._msp_id, resource, signed)
        channel = self._channels.get(channel_id)
        if channel is None:
            raise NotFound(f"channel '{channel_id}' not found")
        return check_channel_access(channel.bundle, resource, signed)
