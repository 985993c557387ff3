"""The control port."""
