"""Every setting of the mock. The command line's options are made from these fields."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """Shares are probabilities from 0 to 1, times are seconds and are multiplied by `speed_scale`."""

    host: str = "127.0.0.1"
    port: int = 9080
    """0 takes a free one."""
    https_port: int = -1
    """0 takes a free one, -1 serves no HTTPS."""
    tls_dir: str = ""
    """Folder for CA and certificate; empty makes a temporary one."""
    seed: int = 0
    tokens: int = 20
    rpm: int = 0
    """Generation calls per window; 0 is no limit."""
    window: float = 60.0
    limit_mode: Literal["strict", "refill"] = "strict"
    """strict: sliding window that counts rejected calls too (the paper's); refill: token bucket."""
    limit_scope: Literal["key", "global"] = "key"
    retry_after: Literal["seconds", "ms", "none"] = "seconds"
    concurrency: int = 0
    """Calls at once, above it overloaded; 0 is no limit."""
    force_529: bool = False
    """Overload is 529 in every dialect; else 503 on OpenAI's paths."""
    latency: float = 0.0
    jitter: float = 0.0
    spike_share: float = 0.0
    spike_factor: float = 5.0
    event_interval: float = 0.0
    speed_scale: float = 1.0
    compress: bool = False
    """Compress if the client accepts it."""
    test_headers: bool = True
    """Obey `x-mock-*` request headers."""
    fault_429: float = 0.0
    fault_500: float = 0.0
    fault_502: float = 0.0
    fault_503: float = 0.0
    fault_529: float = 0.0
    fault_reset: float = 0.0
    """A real TCP reset before any byte."""
    fault_disconnect: float = 0.0
    """A clean close before any byte."""
    fault_cut: float = 0.0
    """A reset in the middle of the answer."""
    fault_fin_cut: float = 0.0
    """A stream that ends early and tidily, without its last event."""
    fault_sse_error: float = 0.0
    """A stream that begins with an overload error; drawn for streams only."""
    fault_sse_error_late: float = 0.0
    fault_split: float = 0.0
    """An event split over two writes: no fault, but readers must bear it."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith("fault_") or field.name == "spike_share":
                _check(field.name, value, 0, 1)
        _check("window", self.window, 0.001, 86_400)
        _check("speed_scale", self.speed_scale, 0.0, 1000)
        _check("tokens", self.tokens, 1, 10_000_000)


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name}: got {value}, allowed: {low} to {high}")
