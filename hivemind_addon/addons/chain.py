"""Our addons as one to mitmproxy: it asks every object in its chain for every hook, twice per flow hook.

Members stay mitmproxy addons with options, commands and hooks of their own; only the look-up is done once. Order,
and what an exception in one of them means for the rest, are as in mitmproxy for the addons of one script.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mitmproxy import ctx, hooks
from mitmproxy.addonmanager import Loader

Handler = Callable[..., Any]


class Chain:
    """Calls the members that have a hook, in their order."""

    name = "hivemind"

    def __init__(self, *members: object) -> None:
        self.members = members
        for hook in hooks.all_hooks:
            handlers = [getattr(member, hook) for member in members if hasattr(member, hook)]
            if handlers and hook != "load":
                setattr(self, hook, _joined(handlers))

    def load(self, loader: Loader) -> None:
        for member in self.members:
            if hasattr(member, "load"):
                member.load(loader)
            ctx.master.commands.collect_commands(member)


def _joined(handlers: list[Handler]) -> Handler:
    if len(handlers) == 1:
        return handlers[0]
    if any(inspect.iscoroutinefunction(handler) for handler in handlers):

        async def run(*arguments: Any) -> None:
            for handler in handlers:
                result = handler(*arguments)
                if result is not None and inspect.isawaitable(result):
                    await result

        return run

    def call(*arguments: Any) -> Any:
        """Answers what the last of them that answered did: `done` may answer a task."""
        answer = None
        for handler in handlers:
            result = handler(*arguments)
            answer = answer if result is None else result
        return answer

    return call
