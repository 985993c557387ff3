"""Accounts: every call ends here once, with what it cost (design D13's ground; budgets come on top)."""

from __future__ import annotations

from mitmproxy import http

from hivemind_addon.addons import state


class BudgetAccounting:
    """Settles calls. The figures come from the streamed chunks that the relay's tap has read."""

    def response(self, flow: http.HTTPFlow) -> None:
        self._settle(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        self._settle(flow)

    def _settle(self, flow: http.HTTPFlow) -> None:
        call = state.call_of(flow)
        if call is None:
            return
        if call.status is None and flow.response is not None:
            call.status = flow.response.status_code
        state.hive().end(call)
