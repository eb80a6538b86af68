"""Ordering services behind one interface."""
