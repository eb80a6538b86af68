"""Contracts that tests load into workers."""
