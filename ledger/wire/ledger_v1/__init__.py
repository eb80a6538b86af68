"""Generated from protos/ledger/v1 by `make protos`: do not edit."""
