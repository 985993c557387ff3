"""The upstream side: our layer inside mitmproxy's HTTP stack and the shared connection pool."""
