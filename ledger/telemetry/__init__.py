"""The window: names of log events and metrics, and their set-up."""
