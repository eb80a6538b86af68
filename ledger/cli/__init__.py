"""The front desk: the command peerledger."""
