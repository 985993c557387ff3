"""Programs that call a provider as real clients do: official SDKs and plain HTTP libraries.

Each runs in a process of its own with proxy and CA variables only, repeats nothing by itself and reports every
error that it sees.
"""
