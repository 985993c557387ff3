"""Clients that leave at any moment cost nothing: no permit, no table entry, no upstream work."""

import asyncio
import contextlib
import random
from typing import Any

import pytest

from tests.e2e import raw
from tests.e2e.harness import eventually, running_mock, running_proxy, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# A helper addon in the proxy under test: a slow `responseheaders` hook, `flow.kill`, and a look at the tables.
SPY = r"""
import asyncio, gc, json
from mitmproxy import ctx, http

async def responseheaders(flow):
    if "x-slow-hook" in flow.request.headers:
        await asyncio.sleep(0.3)

async def request(flow):
    if "x-kill-after" in flow.request.headers:
        kill = lambda: flow.killable and flow.kill()
        asyncio.get_running_loop().call_later(float(flow.request.headers["x-kill-after"]), kill)
    if flow.request.path == "/spy":
        from hivemind_addon.upstream.layer import PooledHttpLayer
        from hivemind_addon.addons import state
        gc.collect()
        totals = {}
        handlers = ctx.master.addons.get("proxyserver").connections.values()
        live = {h.client.id for h in handlers}
        for layer in gc.get_objects():
            if isinstance(layer, PooledHttpLayer):
                own = layer.tables()
                if layer.context.client is flow.client_conn:
                    own["streams"] -= 1  # this very request
                for name, size in own.items():
                    totals[name] = totals.get(name, 0) + size
        hive = state.hive()
        hive.desk.validate()
        totals["permits"] = hive.desk.in_use()
        totals["calls"] = len(hive.calls)
        totals["waiters"] = len(hive.desk._waiters)
        flow.response = http.Response.make(200, json.dumps(totals).encode())
"""


async def spy(proxy) -> dict[str, Any]:
    import json

    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(
        b"GET http://spy.invalid/spy HTTP/1.1\r\nHost: spy.invalid\r\nConnection: close\r\n\r\n"
    )
    _status, headers = await raw.read_head(reader)
    body = await raw.read_body(reader, headers)
    writer.close()
    found: dict[str, Any] = json.loads(body)
    return found


async def cancel_http1(proxy, rng, counts):
    """Open, ask, and close at a random moment."""
    reader, writer = await raw.connect(proxy)
    headers = {"x-mock-event-interval": "0.02", "x-mock-tokens": "60"}
    where = rng.choice(["any", "hook", "kill"])
    if where == "hook":
        headers["x-slow-hook"] = "1"
    if where == "kill":
        headers["x-kill-after"] = f"{rng.uniform(0, 0.6):.3f}"
    stream = rng.random() < 0.7
    writer.write(raw.request_bytes(raw.message(stream=stream), headers=headers))
    with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
        async with asyncio.timeout(3 if where == "kill" else rng.uniform(0, 0.8)):
            while await reader.read(65536):
                pass
    counts[where] = counts.get(where, 0) + 1
    writer.transport.abort()


async def cancel_http2(proxy, rng, counts):
    """Several streams on one connection, each reset at a random moment."""
    client = await raw.H2Client.open(proxy)
    try:

        async def one():
            extra = {"x_slow_hook": "1"} if rng.random() < 0.3 else {}
            stream_id = client.send(
                raw.message(stream=rng.random() < 0.7),
                x_mock_event_interval="0.02",
                x_mock_tokens="60",
                **extra,
            )
            await asyncio.sleep(rng.uniform(0, 0.8))
            client.cancel(stream_id)
            counts["h2"] = counts.get("h2", 0) + 1

        await asyncio.gather(*(one() for _ in range(10)))
        await asyncio.sleep(0.05)
    finally:
        client.close()


@pytest.mark.timeout(300)
async def test_a_thousand_random_cancellations_leave_nothing_behind(tmp_path):
    rng = random.Random(20261201)
    script = tmp_path / "spy.py"
    script.write_text(SPY)
    counts: dict[str, int] = {}
    with (
        running_mock(
            seed=7, latency=0.05, jitter=0.05, fault_502=0.1, fault_reset=0.1, fault_529=0.05
        ) as mock,
        running_proxy(
            tmp_path / "proxy",
            # Few permits, so that many are cancelled while they queue; slow backoff, so that some are in it.
            upstreams(mock.http_url) + "admission: {max_concurrency: 12}\nretry: {base: 0.3}\n",
            "-s",
            str(script),
        ) as proxy,
    ):
        while sum(counts.values()) < 1000:
            batch = [cancel_http1(proxy, rng, counts) for _ in range(30)]
            batch += [cancel_http2(proxy, rng, counts) for _ in range(2)]
            await asyncio.gather(*batch)
        ended = asyncio.get_running_loop().time()
        await eventually(lambda: mock.stats()["in_flight"] == 0, 2.0, lambda: str(mock.stats()))
        upstream_closed = asyncio.get_running_loop().time() - ended
        await asyncio.sleep(0.5)
        left = await spy(proxy)
        status = await asyncio.to_thread(proxy.status)
        stats = await asyncio.to_thread(mock.stats)
        log = proxy.logged()
        after = await raw.exchange(proxy, raw.request_bytes(raw.message()))
    assert min(counts.values()) > 100, counts
    assert left == dict.fromkeys(left, 0), left
    assert upstream_closed <= 1.0
    assert status["totals"]["in_flight"] == 0
    assert status["totals"]["cancelled"] > 500
    assert status["totals"]["output_tokens"] > 0, "partial usage is counted"
    assert stats["aborted"] > 100
    assert "Traceback" not in log
    assert "has crashed" not in log
    assert after[0] in (200, 502)


async def test_upstream_is_closed_within_a_second_and_partial_usage_is_counted(tmp_path):
    with (
        running_mock(seed=1) as mock,
        running_proxy(tmp_path, upstreams(mock.http_url)) as proxy,
    ):
        for version in ("h1", "h2"):
            body = raw.message(stream=True)
            if version == "h1":
                reader, writer = await raw.connect(proxy)
                writer.write(
                    raw.request_bytes(
                        body, headers={"x-mock-event-interval": "0.05", "x-mock-tokens": "500"}
                    )
                )
                await reader.readuntil(b"content_block_delta")
                await asyncio.sleep(0.5)
                writer.transport.abort()
            else:
                client = await raw.H2Client.open(proxy)
                stream_id = client.send(body, x_mock_event_interval="0.05", x_mock_tokens="500")
                while b"content_block_delta" not in client.data.get(stream_id, b""):
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.5)
                client.cancel(stream_id)
            await eventually(lambda: mock.stats()["in_flight"] == 0, 1.0)
            await eventually(lambda: proxy.in_flight() == 0, 1.0)
        totals = proxy.status()["totals"]
    assert totals["cancelled"] == 2
    assert totals["output_tokens"] >= 10
    assert totals["estimated_tokens"] > 0
