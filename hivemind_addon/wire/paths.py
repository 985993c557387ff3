"""Model names that stand in a path and not in the body (provider-facts 1.2, 1.3)."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

_GOOGLE = re.compile(
    r"(?:/(?P<kind>models|tunedModels|endpoints)/(?P<model>[^/:]+)|/v1internal)"
    r"(?::|%3A)(?P<method>[A-Za-z]+)\Z",
    re.ASCII | re.IGNORECASE,
)
_DEPLOYMENT = re.compile(r"/deployments/(?P<model>[^/]+)/")
_BEDROCK = re.compile(r"/model/(?P<model>.+)/(?P<method>[a-z-]+)\Z", re.ASCII)


class Target(NamedTuple):
    """What a path names; empty where it names nothing."""

    model: str | None = None
    method: str = ""


def google(path: str) -> Target:
    """`.../models/MODEL:METHOD` of the Gemini API and Vertex, `/v1internal:METHOD` of Code Assist."""
    return _target(_GOOGLE.search(path))


def bedrock(path: str) -> Target:
    """`/model/ID/METHOD`; the id may be an ARN, with its slashes and colons encoded or not."""
    return _target(_BEDROCK.search(path))


def deployment(path: str) -> str | None:
    """The deployment in a classic Azure path, `/openai/deployments/NAME/...`."""
    match = _DEPLOYMENT.search(path)
    return unquote(match["model"]) if match else None


def _target(match: re.Match[str] | None) -> Target:
    if match is None:
        return Target()
    model = match["model"]
    return Target(unquote(model) if model else None, match["method"])
