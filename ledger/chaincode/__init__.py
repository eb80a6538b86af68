"""The stage: runs contracts and records what they read and write."""
