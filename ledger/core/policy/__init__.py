"""Signature policies and implicit-meta policies: their form, their text and their evaluation."""
