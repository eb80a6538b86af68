"""Fabric's gRPC services and our own."""
