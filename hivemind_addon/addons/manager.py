"""A faster addon manager for `hivemind up`, where the master is ours.

Stock mitmproxy asks each of some forty addons for every hook of every flow whether it has that hook, twice per
hook since every flow hook is followed by `update`. This one remembers the answer until an addon is added or
removed. Under plain `mitmdump -s` nothing of mitmproxy is replaced.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mitmproxy import exceptions, flow, hooks
from mitmproxy.addonmanager import AddonManager, safecall
from mitmproxy.master import Master


class CachingAddonManager(AddonManager):
    """Same order, same error handling, same halting as the stock manager."""

    def __init__(self, master: Master) -> None:
        super().__init__(master)  # type: ignore[no-untyped-call]
        self._handlers: dict[str, list[list[Callable[..., Any]]]] = {}
        """By hook name: for each top-level addon that has any, its handlers in order."""

    @classmethod
    def take_over(cls, master: Master) -> None:
        """Put a caching manager in the place of a master's fresh stock manager."""
        stock = master.addons
        master.options.changed.disconnect(stock._configure_all)  # noqa: SLF001 - its only listener
        fast = cls(master)
        fast.chain, fast.lookup = stock.chain, stock.lookup
        master.addons = fast

    def clear(self) -> None:
        self._handlers.clear()
        super().clear()  # type: ignore[no-untyped-call]

    def register(self, addon: object) -> object:
        self._handlers.clear()
        registered: object = super().register(addon)  # type: ignore[no-untyped-call]
        # Loading may have triggered hooks while a script's own addons were not visible yet.
        self._handlers.clear()
        return registered

    def add(self, *addons: object) -> None:
        super().add(*addons)  # type: ignore[no-untyped-call]
        self._handlers.clear()

    def remove(self, addon: object) -> None:
        super().remove(addon)  # type: ignore[no-untyped-call]
        self._handlers.clear()

    async def handle_lifecycle(self, event: hooks.Hook) -> None:
        await self.trigger_event(event)
        message = event.args()[0]
        if isinstance(message, flow.Flow):
            await self.trigger_event(hooks.UpdateHook([message]))

    async def trigger_event(self, event: hooks.Hook) -> None:
        groups = self._handlers.get(event.name)
        if groups is None:
            groups = self._handlers[event.name] = self._collect(event)
        arguments = event.args()
        for handlers in groups:
            try:
                with safecall():
                    for handler in handlers:
                        result = handler(*arguments)
                        if result is not None and inspect.isawaitable(result):
                            await result
            except exceptions.AddonHalt:
                return

    def _collect(self, event: hooks.Hook) -> list[list[Callable[..., Any]]]:
        groups = []
        for addon in self.chain:
            with safecall():
                handlers = [handler for _, handler in self._iter_hooks(addon, event)]
                if handlers:
                    groups.append(handlers)
        return groups
