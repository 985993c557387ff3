"""The `hivemind` command line."""
