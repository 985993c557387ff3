"""The gate (design D4): a request waits here until its bucket has room, or its client's patience ends."""

from __future__ import annotations

import logging
from typing import Optional

from mitmproxy import command, ctx, exceptions, http
from mitmproxy.addonmanager import Loader

from hivemind_addon.addons import state
from hivemind_addon.model import Outcome
from hivemind_addon.upstream.relay import busy

logger = logging.getLogger("hivemind.admission")

UNUSED = 1.0
"""Seconds after which a permit that nobody used returns: mitmweb may hold the flow for minutes after us."""


class Admission:
    """Asks once and waits once, in the async `request` hook."""

    def load(self, loader: Loader) -> None:
        loader.add_option(
            "hivemind_max_concurrency",
            Optional[int],  # type: ignore[arg-type]  # noqa: UP045 - mitmproxy knows this spelling
            None,
            "Calls in flight per bucket. Wins over admission.max_concurrency; unset, the profile decides.",
        )

    def configure(self, updated: set[str]) -> None:
        if "hivemind_max_concurrency" not in updated:
            return
        limit = ctx.options.hivemind_max_concurrency
        if limit is not None and not 1 <= limit <= 10_000:
            raise exceptions.OptionsError(
                f"hivemind_max_concurrency: got {limit}, allowed: a whole number from 1 to 10000"
            )
        hive = state.hive()
        hive.limit_option = limit
        hive.desk.refresh()

    async def request(self, flow: http.HTTPFlow) -> None:
        call = state.call_of(flow)
        if call is None or call.bucket is None or call.ticket is None or not state.is_open(flow):
            return
        if call.heartbeat is not None and not flow.is_replay:
            return  # the exchange waits: only it can send heartbeats meanwhile
        desk, ticket = state.hive().desk, call.ticket

        def leave(_reason: str) -> None:
            desk.cancel(ticket)

        call.on_cancel(leave)
        permit = await desk.acquire(call.bucket, ticket)
        call.forget(leave)
        if permit is None:
            if call.cancelled is None:
                head, body = busy(call)
                flow.response = http.Response.make(head.status, body, head.headers)
            return
        if call.cancelled is not None or flow.error is not None:
            permit.release(Outcome.IGNORED)
            return
        permit.lend(UNUSED)
        call.permit = permit

    def response(self, flow: http.HTTPFlow) -> None:
        self._return_unused(flow)

    def error(self, flow: http.HTTPFlow) -> None:
        self._return_unused(flow)

    @command.command("hivemind.resize")  # type: ignore[untyped-decorator]
    def resize(self, bucket: str, limit: int) -> str:
        """Set the concurrency limit of every bucket that matches the glob pattern."""
        try:
            changed = state.hive().resize(bucket, limit)
        except ValueError as error:
            raise exceptions.CommandError(str(error)) from error
        return f"{len(changed)} buckets changed: {', '.join(changed) or 'none yet'}"

    def _return_unused(self, flow: http.HTTPFlow) -> None:
        """A flow that was answered locally (map_local, server replay, another addon) never used its permit."""
        call = state.call_of(flow)
        if call is not None and call.permit is not None and not call.attempts:
            call.permit.release(Outcome.IGNORED)
