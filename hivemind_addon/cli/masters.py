"""Which mitmproxy master `hivemind up` runs: mitmproxy's own, with a faster addon manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mitmproxy.master import Master


def master_class(web: bool) -> type[Master]:
    """Mitmweb's master or mitmdump's."""
    from hivemind_addon.addons.manager import CachingAddonManager

    stock: type[Master]
    if web:
        from mitmproxy.tools.web.master import WebMaster as stock
    else:
        from mitmproxy.tools.dump import DumpMaster as stock

    class HivemindMaster(stock):  # type: ignore[misc,valid-type]
        """The stock master; only how hooks are dispatched differs."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            CachingAddonManager.take_over(self)

    return HivemindMaster
