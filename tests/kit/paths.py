"""Where do the test data lie?"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The project's top folder."""

VECTORS = ROOT / "tests" / "vectors"
"""Recorded channels and other known answers."""

CHANNELS = tuple(sorted(path.parent.name for path in VECTORS.glob("*/genesis.block")))
"""Names of the recorded channels."""
