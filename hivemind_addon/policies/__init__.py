"""Policies: what to do, as pure functions and small state machines. Standard library only."""
