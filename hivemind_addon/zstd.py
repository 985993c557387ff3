"""Python's own Zstandard module (3.14), or its backport, which mitmproxy brings along."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdCompressor, ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdCompressor, ZstdDecompressor, ZstdError

__all__ = ["ZstdCompressor", "ZstdDecompressor", "ZstdError"]
