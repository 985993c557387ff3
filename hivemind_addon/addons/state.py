"""What the addons share. This module is imported once per process and so survives a script reload."""

from __future__ import annotations

import weakref

from mitmproxy import http

from hivemind_addon.call import Call
from hivemind_addon.config import load_all
from hivemind_addon.hive import Hive
from hivemind_addon.intake import Caller

calls: weakref.WeakKeyDictionary[http.HTTPFlow, Call] = weakref.WeakKeyDictionary()
"""The live call of each managed flow."""

callers: weakref.WeakKeyDictionary[http.HTTPFlow, Caller] = weakref.WeakKeyDictionary()
"""What headers told of the caller of each flow."""

flows: weakref.WeakValueDictionary[str, http.HTTPFlow] = weakref.WeakValueDictionary()
"""Flows of running calls by request id."""

_hive: list[Hive] = []


def hive() -> Hive:
    """The process's one `Hive`; made with default settings at first use."""
    if not _hive:
        _hive.append(Hive(*load_all(None)))
    return _hive[0]


def is_open(flow: http.HTTPFlow) -> bool:
    """Is this flow still waiting for an answer that nobody has given?"""
    return flow.live and flow.response is None and flow.error is None and not flow.is_replay


def lowered(headers: http.Headers) -> dict[str, str]:
    """Headers by lower-cased name; of repeated ones the first."""
    result: dict[str, str] = {}
    for key, value in headers.fields:
        result.setdefault(key.decode("latin-1").lower(), value.decode("utf-8", "replace"))
    return result
