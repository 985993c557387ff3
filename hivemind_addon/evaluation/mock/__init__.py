"""A mock LLM provider: three dialects, limits, faults from a seed, and an honest count of what it saw."""
