"""HTTP messages as the upstream side sees them: end-to-end headers only, bytes untouched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

DEFAULT_PORTS = {"https": 443, "http": 80}

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""RFC 9110 section 7.6.1, and what proxies were told historically."""

RawHeaders = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where connections can be shared."""

    scheme: str
    host: str
    port: int

    @property
    def netloc(self) -> str:
        """Host and port as a `Host` header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def split_base(base: str) -> tuple[Origin, str]:
    """A checked base URL as origin and path prefix."""
    url = urlsplit(base)
    port = url.port or DEFAULT_PORTS[url.scheme]
    return Origin(url.scheme, url.hostname or "", port), url.path.rstrip("/")


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status line and end-to-end headers of an answer."""

    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...]

    def get(self, name: str) -> str | None:
        """The first value of a header, decoded leniently."""
        wanted = name.lower().encode()
        for key, value in self.headers:
            if key.lower() == wanted:
                return value.decode("utf-8", "replace")
        return None

    def lowered(self) -> dict[str, str]:
        """Headers by lower-cased name; of repeated ones the first."""
        result: dict[str, str] = {}
        for key, value in self.headers:
            result.setdefault(key.decode("latin-1").lower(), value.decode("utf-8", "replace"))
        return result

    def with_header(self, name: str, value: str) -> ResponseHead:
        return self.without(name).adding(name, value)

    def adding(self, name: str, value: str) -> ResponseHead:
        return replace(self, headers=(*self.headers, (name.encode(), value.encode())))

    def without(self, *names: str) -> ResponseHead:
        unwanted = {name.lower().encode() for name in names}
        return replace(self, headers=tuple(h for h in self.headers if h[0].lower() not in unwanted))


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    """Drop hop-by-hop headers and those that `Connection` names."""
    kept = tuple(headers)
    named = {
        token.strip().lower()
        for key, value in kept
        if key.lower() == b"connection"
        for token in value.split(b",")
    }
    unwanted = HOP_BY_HOP | named
    return tuple(header for header in kept if header[0].lower() not in unwanted)


def has_body(method: str, status: int) -> bool:
    """Does an answer of this status to this method carry a body (RFC 9110 section 6.4.1)?"""
    return method.upper() != "HEAD" and status >= 200 and status not in (204, 304)
