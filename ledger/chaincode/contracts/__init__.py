"""Contracts that come with the node: samples to run and to copy."""
