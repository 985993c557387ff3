"""Every setting of the mock. The command line's options are made from these fields."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

HeaderFamily = Literal[
    "auto",
    "anthropic",
    "unified",
    "openai",
    "codex",
    "azure",
    "groq",
    "mistral",
    "openrouter",
    "none",
]
FlavourChoice = Literal["auto", "openai", "azure", "groq", "openrouter", "mistral", "deepseek"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """Shares are probabilities from 0 to 1, times are seconds.

    Latencies and intervals are multiplied by `speed_scale`; `window` is not.

    Raises:
        ValueError: if a value is out of range; with its name.
    """

    host: str = "127.0.0.1"
    port: int = 9080
    """0 takes a free one."""
    https_port: int = -1
    """0 takes a free one, -1 serves no HTTPS."""
    tls_dir: str = ""
    """Folder of ca.pem and leaf.pem, which are made if missing; empty makes a temporary one."""
    seed: int = 0
    """Decides faults, latencies and answers."""
    tokens: int = 20
    """Output tokens of an answer, if the request does not ask for fewer."""
    rpm: int = 0
    """Generation calls per window; 0 is no limit."""
    window: float = 60.0
    """Length of the provider's "minute"."""
    limit_mode: Literal["strict", "refill"] = "strict"
    """strict: sliding window that counts rejected calls too (the paper's); refill: token bucket."""
    limit_scope: Literal["key", "global"] = "key"
    """Whether each credential has a limit of its own."""
    retry_after: Literal["seconds", "ms", "none"] = "seconds"
    """How a 429 says when to return; ms adds `retry-after-ms` to the whole seconds."""
    concurrency: int = 0
    """Generation calls at once, above it overloaded; 0 is no limit."""
    queue: bool = False
    """Calls above `concurrency` wait for their turn, as at a model server on one's own machine."""
    header_family: HeaderFamily = "auto"
    """Whose limit headers answers carry; auto goes by dialect and path."""
    cached_tokens: int = 0
    """Tokens of each prompt that come from the provider's cache."""
    reasoning_tokens: int = 0
    """Output tokens of each answer that are thought and not said."""
    flavour: FlavourChoice = "auto"
    """Whose variant of OpenAI's API; auto goes by path."""
    websocket: bool = False
    """Accept WebSocket upgrades and send each message back; else answer 426."""
    force_529: bool = False
    """Overload is 529 in every dialect; else 503 on OpenAI's paths."""
    latency: float = 0.0
    """Time before the first byte of an answer."""
    jitter: float = 0.0
    """Latency varies evenly by plus and minus this."""
    spike_share: float = 0.0
    """Share of calls whose latency is multiplied by `spike_factor`."""
    spike_factor: float = 5.0
    event_interval: float = 0.0
    """Time between the events of a stream."""
    speed_scale: float = 1.0
    """All latencies and intervals are multiplied by this."""
    compress: bool = False
    """Compress answers for clients that accept it."""
    test_headers: bool = True
    """Obey `x-mock-*` request headers."""
    fault_retry_after: float = 1.0
    """What an injected 429 names as its delay."""
    fault_429: float = 0.0
    fault_500: float = 0.0
    fault_502: float = 0.0
    fault_503: float = 0.0
    fault_529: float = 0.0
    """Overload; 503 on OpenAI's paths unless `force_529`."""
    fault_reset: float = 0.0
    """A real TCP reset before any byte."""
    fault_disconnect: float = 0.0
    """A clean close before any byte."""
    fault_cut: float = 0.0
    """A reset in the middle of the answer."""
    fault_fin_cut: float = 0.0
    """A stream that ends early and tidily, without its last event."""
    fault_sse_error: float = 0.0
    """A stream that begins with an overload error."""
    fault_sse_error_late: float = 0.0
    """A stream that breaks off with an overload error after some content."""
    fault_split: float = 0.0
    """A stream's event split over two writes: no fault, but readers must bear it."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in SHARES:
                _check(field.name, getattr(self, field.name), 0, 1)
            elif bounds := RANGES.get(field.name):
                _check(field.name, getattr(self, field.name), *bounds)
            elif choices := CHOICES.get(field.name):
                value = getattr(self, field.name)
                if value not in choices:
                    raise ValueError(f"{field.name}: got {value!r}, allowed: {', '.join(choices)}")


FAULT_SHARES = tuple(
    name
    for name in MockOptions.__dataclass_fields__
    if name.startswith("fault_") and name != "fault_retry_after"
)
SHARES = (*FAULT_SHARES, "spike_share")
DAY = 86_400.0
RANGES: dict[str, tuple[float, float]] = {
    "port": (0, 65_535),
    "https_port": (-1, 65_535),
    "tokens": (1, 10_000_000),
    "cached_tokens": (0, 10_000_000),
    "reasoning_tokens": (0, 10_000_000),
    "rpm": (0, 10_000_000),
    "window": (0.001, DAY),
    "concurrency": (0, 1_000_000),
    "latency": (0, DAY),
    "jitter": (0, DAY),
    "spike_factor": (0, 1000),
    "event_interval": (0, DAY),
    "speed_scale": (0, 1000),
    "fault_retry_after": (0, DAY),
}
CHOICES = {
    "limit_mode": ("strict", "refill"),
    "limit_scope": ("key", "global"),
    "retry_after": ("seconds", "ms", "none"),
    "header_family": get_args(HeaderFamily),
    "flavour": get_args(FlavourChoice),
}


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name}: got {value}, allowed: {low:g} to {high:g}")
