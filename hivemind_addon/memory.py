"""What a process that runs for weeks asks of the garbage collector and the allocator. All of it is process-wide."""

from __future__ import annotations

import ctypes
import gc
import logging
from asyncio import selector_events
from typing import Any

logger = logging.getLogger("hivemind.memory")

M_MMAP_THRESHOLD = -3
"""glibc's malloc.h; see mallopt(3)."""

MAPPED_BYTES = 128 * 1024
"""glibc's own first value of the threshold; what matters is that setting it keeps it from moving."""

READ_BYTES = 64 * 1024


def settle() -> None:
    """Prepare for a long life. Call it once, when everything is loaded."""
    freeze_heap()
    read_in_small_blocks()
    if not map_large_blocks():
        logger.debug("memory.allocator_kept reason=no_mallopt")


def freeze_heap() -> None:
    """Take what is loaded by now out of the garbage collector's sight.

    Python collects its oldest generation only once a quarter as many objects have come to it as were there at the last
    time. Mitmproxy's flows and layers are cycles, so beside the 100,000 objects of code and options minutes of traffic
    had to pass, and megabytes of dead flows to gather, until a collection that stopped everything for a tenth of a
    second. Without them collections are frequent and short.
    """
    gc.collect()
    gc.freeze()


def read_in_small_blocks() -> None:
    """Have asyncio offer 64 KiB to each read of a socket, and not 256 KiB.

    It allocates the whole size and gives back what did not come. Above `MAPPED_BYTES` that would be a mapping made and
    undone per read, which halved the events per second of streams; mitmproxy takes 64 KiB at a time anyway.
    """
    transport: Any = getattr(selector_events, "_SelectorTransport", None)  # not in the public API
    if getattr(transport, "max_size", 0) > READ_BYTES:
        transport.max_size = READ_BYTES


def map_large_blocks() -> bool:
    """Keep glibc from putting large, short-lived blocks among small ones that stay; False where there is no mallopt.

    glibc raises its threshold for blocks with a mapping of their own to the size of the largest one freed so far (up to
    32 MiB, mallopt(3)). From then on asyncio's receive buffers of 256 KiB come from the heap, each leaves a hole that a
    small block soon sits in, and the process grows for hours although nothing is kept. A threshold that was set stays.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, Windows
        return False
    # musl has the symbol in some builds and answers 0: nothing set.
    return bool(mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES))
