"""`just soak`: minutes of steady traffic, and whether anything grows meanwhile."""
