"""Flows stay inspectable: mitmweb shows streamed bodies, holds and resumes flows; dumps and HAR have the streams."""

import asyncio
import contextlib
import json
import time
import urllib.request
from typing import Any

import pytest
from mitmproxy import io as mitm_io
from mitmproxy.http import HTTPFlow

from tests.e2e import raw
from tests.e2e.harness import eventually, free_port, running_mock, running_proxy, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


class Web:
    """mitmweb's own HTTP API."""

    def __init__(self, port: int):
        self.base = f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": "Bearer test-password"}

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(
            urllib.request.Request(self.base + path, headers=self.headers)
        ) as answer:
            body: bytes = answer.read()
            return body

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        token = "00112233445566778899aabbccddeeff"  # any: cookie and header must agree
        request = urllib.request.Request(
            self.base + path,
            json.dumps(body).encode() if body is not None else b"",
            {
                **self.headers,
                "X-XSRFToken": token,
                "Cookie": f"_mitmproxy_xsrf={token}",
                "Content-Type": "application/json",
            },
            method=method,
        )
        with urllib.request.urlopen(request):
            pass

    def flows(self) -> list[dict[str, Any]]:
        return [f for f in json.loads(self.get("/flows")) if f["type"] == "http"]


@pytest.fixture
def parts(tmp_path):
    with _running(tmp_path) as running:
        yield running


@pytest.fixture
def faulty_parts(tmp_path):
    with _running(tmp_path, fault_529=0.3, fault_reset=0.2) as running:
        yield running


@contextlib.contextmanager
def _running(tmp_path, **faults):
    web_port = free_port()
    with (
        running_mock(seed=1, **faults) as mock,
        running_proxy(
            tmp_path,
            upstreams(mock.http_url) + "retry: {base: 0.05}\n",
            "--set", f"web_port={web_port}",
            "--set", "web_open_browser=false",
            "--set", "web_password=test-password",
            tool="mitmweb",
        ) as proxy,
    ):  # fmt: skip
        yield mock, proxy, Web(web_port)


async def test_a_streamed_flow_shows_its_body_and_what_we_know_of_it(parts):
    _, proxy, web = parts
    _, _, body = await raw.exchange(proxy, raw.request_bytes(raw.message(stream=True)))
    [flow] = await asyncio.to_thread(web.flows)
    shown = await asyncio.to_thread(web.get, f"/flows/{flow['id']}/response/content.data")
    assert shown == body
    assert b"message_stop" in shown
    assert flow["comment"].startswith("HiveMind: ")
    assert "1 attempt" in flow["comment"]


async def test_a_flow_that_is_held_for_5_s_holds_no_permit(parts):
    mock, proxy, web = parts
    await asyncio.to_thread(web.send, "PUT", "/options", {"intercept": "~q"})
    call = asyncio.create_task(raw.exchange(proxy, raw.request_bytes(raw.message(stream=True))))
    await eventually(lambda: any(f["intercepted"] for f in web.flows()), 10)
    started = time.monotonic()
    await asyncio.sleep(1.5)
    assert proxy.in_flight() == 0
    await asyncio.sleep(3.5)
    assert not call.done()
    assert mock.stats()["requests"]["total"] == 0
    [flow] = await asyncio.to_thread(web.flows)
    await asyncio.to_thread(web.send, "POST", f"/flows/{flow['id']}/resume")
    status, _, body = await asyncio.wait_for(call, 10)
    assert status == 200
    assert b"message_stop" in body
    assert time.monotonic() - started >= 5
    assert proxy.in_flight() == 0
    assert proxy.status()["totals"]["calls"] == 1


async def test_a_killed_flow_ends_its_upstream_within_a_second(parts):
    mock, proxy, web = parts
    reader, writer = await raw.connect(proxy)
    writer.write(
        raw.request_bytes(
            raw.message(stream=True),
            headers={"x-mock-event-interval": "0.05", "x-mock-tokens": "800"},
        )
    )
    await reader.readuntil(b"content_block_delta")
    [flow] = await asyncio.to_thread(web.flows)
    await asyncio.to_thread(web.send, "POST", f"/flows/{flow['id']}/kill")
    await eventually(lambda: mock.stats()["in_flight"] == 0, 1.0)
    await eventually(lambda: proxy.in_flight() == 0, 1.0)
    rest = await asyncio.wait_for(reader.read(-1), 5)
    assert not rest.endswith(b"0\r\n\r\n"), "a kill must not look like an end"
    writer.transport.abort()
    assert proxy.status()["totals"]["cancelled"] == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_replayed_flow_passes_gate_retry_and_account_like_any_call(faulty_parts, stream):
    mock, proxy, web = faulty_parts
    request = raw.request_bytes(raw.message(stream=stream), headers={"x-hivemind-agent": "writer"})
    _, _, body = await raw.exchange(proxy, request)
    [flow] = await asyncio.to_thread(web.flows)
    for calls in range(2, 8):
        await asyncio.to_thread(web.send, "POST", f"/flows/{flow['id']}/replay")
        await eventually(lambda n=calls: proxy.status()["totals"]["calls"] == n, 10)
        await eventually(lambda: proxy.in_flight() == 0 and web.flows()[0].get("response"), 10)
        shown = await asyncio.to_thread(web.get, f"/flows/{flow['id']}/response/content.data")
        assert shown == body
    status = proxy.status()
    assert status["agents"]["writer"]["calls"] == 7
    assert status["agents"]["writer"]["errors"] == 0
    assert status["totals"]["attempts"] == mock.stats()["requests"]["total"] > 7
    assert status["totals"]["output_tokens"] == 7 * 20


async def test_a_replay_that_cannot_succeed_stores_the_providers_answer(parts):
    mock, proxy, web = parts
    request = raw.request_bytes(raw.message(), headers={"x-mock-status": "400"})
    assert (await raw.exchange(proxy, request))[0] == 400
    [flow] = await asyncio.to_thread(web.flows)
    await asyncio.to_thread(web.send, "POST", f"/flows/{flow['id']}/replay")
    await eventually(lambda: mock.stats()["requests"]["total"] == 2, 10)
    await eventually(lambda: (web.flows()[0].get("response") or {}).get("status_code") == 400, 10)
    assert proxy.in_flight() == 0


async def test_dumps_and_har_contain_the_streams(tmp_path):
    dump, har = tmp_path / "flows.mitm", tmp_path / "flows.har"
    with (
        running_mock(seed=1, compress="true") as mock,
        running_proxy(
            tmp_path / "proxy", upstreams(mock.http_url), "-w", str(dump), "--set", f"hardump={har}"
        ) as proxy,
    ):
        _, _, plain = await raw.exchange(proxy, raw.request_bytes(raw.message(stream=True)))
        await raw.exchange(
            proxy, raw.request_bytes(raw.message(stream=True), headers={"accept-encoding": "gzip"})
        )
        await raw.exchange(proxy, raw.request_bytes(raw.message()))
        assert proxy.stop() == 0
    with dump.open("rb") as file:
        flows = [f for f in mitm_io.FlowReader(file).stream() if isinstance(f, HTTPFlow)]
    flows = [flow for flow in flows if flow.request.method == "POST"]
    answers = [flow.response for flow in flows if flow.response is not None]
    assert len(answers) == 3
    assert answers[0].content == plain
    assert b"message_stop" in (answers[1].content or b"")
    assert flows[0].metadata["hivemind"]["output_tokens"] == 20
    assert (flows[0].server_conn.peername or ("", 0))[0] == "127.0.0.1"
    entries = [
        e for e in json.loads(har.read_text())["log"]["entries"] if e["request"]["method"] == "POST"
    ]
    texts = [entry["response"]["content"]["text"] for entry in entries]
    assert sum("message_stop" in text for text in texts) == 2
