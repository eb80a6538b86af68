"""The disk: bytes, syncs and LevelDB behind values of the core."""
