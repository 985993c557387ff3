"""Names and addresses of hosts: which of them mean this machine."""

from __future__ import annotations

import ipaddress
import re

_PORT = re.compile(r":[0-9]*$")
_INSIDE = (".localhost", ".local", ".internal", ".home.arpa", ".test")
"""Top-level names that no stranger can have in the public DNS (RFC 6761, 6762, 8375; ICANN 2024 for `internal`)."""


def is_address(host: str) -> bool:
    """Is this an IP address, not a name?"""
    return _address(host) is not None


def is_loopback(host: str) -> bool:
    """Is this `localhost` or a loopback address?"""
    if host.lower() == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def is_foreign_name(host: str) -> bool:
    """Could this name, sent to a listener on loopback, have come from a stranger's web page (DNS rebinding)?

    An address cannot be rebound; a name without dots and the names that are reserved for private use cannot be had.
    """
    name = host.lower().rstrip(".")
    return "." in name and not is_address(name) and not name.endswith(_INSIDE)


def split_host(header: str) -> str:
    """The host of a Host header, without port and brackets."""
    return _PORT.sub("", header).strip("[]")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
