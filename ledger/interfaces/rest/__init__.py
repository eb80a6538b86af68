"""The HTTP interface of a peer."""
