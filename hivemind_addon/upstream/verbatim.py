"""Request lines and headers on the wire as they came, also where they are not UTF-8.

Node sends header values as Latin-1. aiohttp writes UTF-8 and silently leaves out what it cannot encode, so
`X-Title: Café` would become `X-Title: Caf`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import client_reqrep
from aiohttp.http_writer import StreamWriter

if TYPE_CHECKING:
    from multidict import CIMultiDict


class VerbatimWriter(StreamWriter):
    """Takes text with the bytes that are not UTF-8 as surrogate escapes (PEP 383) and writes those bytes."""

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        """As aiohttp's own, which also refuses line breaks and other control characters."""
        await super().write_headers(status_line, headers)
        lines = [status_line, *(f"{name}: {value}" for name, value in headers.items())]
        if all(map(str.isascii, lines)):
            return
        self._headers_buf = "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")


def install() -> None:
    """Have aiohttp's client use it: the class is named in its module and nowhere to be passed."""
    client_reqrep.StreamWriter = VerbatimWriter  # type: ignore[attr-defined]
