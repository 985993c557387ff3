"""Wire formats: bytes in, meaning out. Standard library only, no I/O."""
