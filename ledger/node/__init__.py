"""The house: configuration, building a node leaves first, running it."""
