"""Makes each call visible: one log line, one flow comment, plain flow metadata. Never a prompt or a credential."""

from __future__ import annotations

import logging

from mitmproxy import http
from mitmproxy.log import LegacyLogEvents

from hivemind_addon.addons import state
from hivemind_addon.call import Call

logger = logging.getLogger("hivemind.request")


class Telemetry:
    """Reports ended calls."""

    def running(self) -> None:
        # mitmproxy turns each log record into a deprecated `add_log` hook, which asks all addons and wakes the loop
        # through a pipe: 5 % of the processor time of a request. The line per call goes past that handler.
        handlers = [h for h in logging.getLogger().handlers if not isinstance(h, LegacyLogEvents)]
        logger.handlers = handlers
        logger.propagate = not handlers

    def response(self, flow: http.HTTPFlow) -> None:
        self._report(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        self._report(flow)

    def _report(self, flow: http.HTTPFlow) -> None:
        call = state.call_of(flow)
        if call is None:
            return
        flow.metadata["hivemind"] = call.summary()
        if not flow.comment:
            flow.comment = comment(call)
        waited = (call.admitted_at or call.arrived_at) - call.arrived_at
        logger.info(
            "request.done request_id=%s agent=%s bucket=%s attempt=%d status=%s cancelled=%s "
            "seconds=%.3f waited=%.3f %s",
            call.request_id,
            call.identity.agent,
            call.bucket or "-",
            call.attempts,
            call.status or "-",
            call.cancelled or "-",
            state.hive().clock.monotonic() - call.arrived_at,
            waited,
            _tokens(call),
        )


def comment(call: Call) -> str:
    """One line for people who look at the flow."""
    attempts = "1 attempt" if call.attempts == 1 else f"{call.attempts} attempts"
    parts = [f"HiveMind: {call.identity.agent}", attempts]
    if call.failures:
        parts.append(
            "after " + ", ".join(f"{f.status or ''} {f.code}".strip() for f in call.failures)
        )
    if call.usage is not None:
        parts.append(_tokens(call))
    if call.cancelled:
        parts.append(call.cancelled)
    return ", ".join(parts)


def _tokens(call: Call) -> str:
    usage = call.usage
    if usage is None:
        return "tokens=-"
    mark = " estimated" if usage.estimated else ""
    return f"tokens={usage.prompt_tokens}+{usage.output_tokens}{mark}"
