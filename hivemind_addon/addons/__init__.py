"""The addon chain: one class per concern, thin adapters between mitmproxy and the core."""
