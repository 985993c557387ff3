"""The allocator and the garbage collector, seen in processes of their own: both are process-wide."""

import ctypes
import subprocess
import sys
import textwrap

import pytest

from hivemind_addon import memory

glibc = pytest.mark.skipif(
    sys.platform != "linux" or not memory.map_large_blocks(), reason="needs glibc's malloc"
)


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    ).stdout


@glibc
@pytest.mark.parametrize("mapped", [True, False])
def test_a_large_block_gets_a_mapping_of_its_own_even_after_larger_ones_were_freed(mapped):
    out = run(f"""
        import ctypes
        from hivemind_addon import memory
        if {mapped}:
            assert memory.map_large_blocks()
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        libc.malloc.argtypes = [ctypes.c_size_t]
        libc.free.argtypes = [ctypes.c_void_p]
        libc.free(libc.malloc(8 << 20))  # glibc learns from this that 8 MiB belong into its heap
        block = libc.malloc(256 << 10)
        heap = next(line for line in open("/proc/self/maps") if "[heap]" in line).split()[0]
        start, end = (int(part, 16) for part in heap.split("-"))
        print(start <= block < end)
    """)
    assert out.strip() == str(not mapped)


def test_without_mallopt_nothing_is_done(monkeypatch):
    def no_library(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    assert memory.map_large_blocks() is False


def test_what_is_loaded_is_not_collected_again_and_what_comes_is():
    out = run("""
        import gc
        from hivemind_addon import memory
        before = len(gc.get_objects())
        memory.settle()
        print(gc.get_freeze_count() > before // 2, len(gc.get_objects()) < before // 10)
        class Node: pass
        node = Node(); node.me = node; del node
        print(gc.collect() > 0)
    """)
    assert out.split() == ["True"] * 3


def test_sockets_are_read_in_blocks_that_get_no_mapping_of_their_own():
    out = run("""
        from asyncio import selector_events
        from hivemind_addon import memory
        memory.settle()
        print(selector_events._SelectorSocketTransport.max_size)
    """)
    assert int(out) == memory.READ_BYTES < memory.MAPPED_BYTES
