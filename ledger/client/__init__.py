"""The visitor: a client of gateway, endorser and orderer that knows nothing of the node."""
