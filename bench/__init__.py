"""Benchmarks: ratios measured side by side in one run, by CPU seconds, which are steadier than wall time."""
