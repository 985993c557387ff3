"""The running mock, seen by a raw client."""

import asyncio
import gzip
import hashlib
import json
from typing import cast

import pytest
import zstandard

from hivemind_addon.evaluation.mock import answer_text
from tests.evaluation.support import ask, connect, eventually, head, message, quick, read_answer

OPENAI = "/v1/chat/completions"


async def test_both_listeners_serve_at_once():
    async with quick(https_port=0) as mock:
        for tls in (False, True):
            answer = await ask(mock, message(), tls=tls)
            assert answer.status == 200
            assert answer.json()["content"][0]["text"] == answer_text(message(), mock.options)
        assert mock.snapshot()["connections"] == 2


async def test_certificates_are_kept_in_a_given_folder(tmp_path):
    seen = []
    for _ in range(2):
        async with quick(https_port=0, tls_dir=str(tmp_path)) as mock:
            assert (await ask(mock, message(), tls=True)).status == 200
            seen.append((tmp_path / "leaf.pem").read_bytes())
    assert seen[0] == seen[1]
    assert (tmp_path / "leaf.pem").stat().st_mode & 0o077 == 0


async def test_statistics_tell_who_asked_what():
    async with quick() as mock:
        await ask(mock, message(), "/v1/messages?beta=true", x_mock_tag="a", x_mock_tokens="7")
        await ask(mock, message(stream=True), OPENAI)
        await ask(mock, message(), authorization="Bearer key-2", x_api_key="key-1")
        await ask(mock, message(), "/v1/nowhere")
        stats = (await ask(mock, path="/__mock__/stats", method="GET")).json()
        seen = (await ask(mock, path="/__mock__/requests", method="GET")).json()["requests"]
        assert stats == mock.snapshot() | {"connections": stats["connections"]}
    assert stats["requests"]["total"] == 4
    assert stats["requests"]["paths"]["POST /v1/messages"] == 2
    assert stats["requests"]["statuses"] == {"200": 3, "404": 1}
    assert stats["requests"]["dialects"]["anthropic"] == 2
    assert stats["keys"] == {"key-1": 4}
    assert stats["tags"] == {"a": 1}
    assert stats["in_flight"] == 0
    assert stats["peak_concurrency"] == 1
    # The chat stream reported nothing, since it was not asked to.
    assert stats["usage"] == {"input": 2 * (len(message()) // 4), "output": 7 + 20}
    assert seen[0]["path"] == "/v1/messages?beta=true"
    assert seen[0]["sha256"] == hashlib.sha256(message()).hexdigest()
    assert ["x-api-key", "key-1"] in seen[0]["headers"]


async def test_reset_forgets_and_starts_the_plan_anew():
    async with quick(fault_502=0.5, fault_529=0.2, seed=3, rpm=100) as mock:

        async def statuses():
            return [(await ask(mock, message())).status for _ in range(12)]

        first = await statuses()
        assert (await ask(mock, path="/__mock__/reset")).status == 200
        assert mock.snapshot()["requests"]["total"] == 0
        assert await statuses() == first
        assert len(set(first)) > 1


async def test_other_paths_answer_in_the_callers_dialect():
    async with quick() as mock:
        counted = await ask(mock, message(), "/v1/messages/count_tokens")
        assert counted.json() == {"input_tokens": len(message()) // 4}
        models = await ask(mock, path="/v1/models", method="GET", anthropic_version="2023-06-01")
        assert models.json()["has_more"] is False
        assert (await ask(mock, path="/v1/models", method="GET")).json()["object"] == "list"
        upgrade = await ask(
            mock, path="/v1/responses", method="GET", connection="Upgrade", upgrade="websocket"
        )
        assert upgrade.status == 426
        codex = await ask(mock, message(stream=True), "/backend-api/codex/responses")
        assert b"response.completed" in codex.body
        assert (await ask(mock, b"[]", "/v1/messages")).json()["error"][
            "type"
        ] == "invalid_request_error"
        assert (await ask(mock, path="/__mock__/nothing", method="GET")).status == 404


async def test_writes_are_counted_each_time_they_are_processed():
    async with quick() as mock:
        first = await ask(mock, b"data", "/v1/files")
        await ask(mock, b"data", "/v1/files")
        await ask(mock, b"more", f"/v1/files/{first.json()['id']}", "PUT")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ask(mock, b"lost", "/v1/files", x_mock_fault="reset")
        await ask(mock, b"refused", "/v1/files", x_mock_fault="fault_529")
        writes = mock.snapshot()["writes"]
    counts = {(w["method"], w["sha256"]): w["count"] for w in writes}
    assert counts == {
        ("POST", hashlib.sha256(b"data").hexdigest()): 2,
        ("PUT", hashlib.sha256(b"more").hexdigest()): 1,
        ("POST", hashlib.sha256(b"lost").hexdigest()): 1,  # it was processed before the reset
    }


async def test_a_compressed_request_body_is_read_and_recorded_as_it_came():
    packed = zstandard.compress(message())
    async with quick() as mock:
        answer = await ask(mock, packed, content_encoding="zstd")
        assert answer.json()["content"][0]["text"] == answer_text(message(), mock.options)
        assert mock.requests()[0]["sha256"] == hashlib.sha256(packed).hexdigest()
        assert (await ask(mock, packed, content_encoding="gzip")).status == 400


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_are_compressed_only_if_wanted_on_both_sides(stream):
    body = message(stream=stream)
    async with quick() as plain, quick(compress=True) as mock:
        assert "content-encoding" not in (await ask(plain, body, accept_encoding="gzip")).headers
        assert "content-encoding" not in (await ask(mock, body)).headers
        whole = (await ask(mock, body)).body
        packed = await ask(mock, body, accept_encoding="gzip, br")
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == whole


async def test_a_stream_leaves_event_by_event():
    async with quick() as mock:
        answer = await ask(mock, message(stream=True))
        assert all(chunk.endswith(b"\n\n") and chunk.count(b"\n\n") == 1 for chunk in answer.chunks)
        paused = await ask(mock, message(stream=True), x_mock_event_interval="0.001")
        assert paused.body == answer.body


async def test_a_split_event_comes_in_two_pieces_and_whole():
    async with quick() as mock:
        whole = await ask(mock, message(stream=True))
        split = await ask(mock, message(stream=True), x_mock_fault="split")
        assert split.body == whole.body
        assert len(split.chunks) == len(whole.chunks) + 1


async def test_test_headers_shape_the_answer():
    async with quick() as mock:
        long = await ask(mock, message(), x_mock_bytes="300000", x_mock_header_bytes="20000")
        assert len(long.body) > 300_000
        assert long.headers["x-mock-padding"] == "h" * 20_000
        moved = await ask(
            mock, message(), x_mock_status="301", x_mock_location="/x", x_mock_set_cookie="a=b"
        )
        assert (moved.status, moved.headers["location"]) == (301, "/x")
        assert moved.headers["set-cookie"] == "a=b"
        for status in ("204", "304"):
            assert (await ask(mock, message(), x_mock_status=status)).status == int(status)
        assert (await ask(mock, message(), x_mock_status="500")).json()["type"] == "error"
        bad = await ask(mock, message(), x_mock_tokens="many")
        assert bad.status == 400
        assert "x-mock-tokens" in bad.json()["error"]["message"]


async def test_test_headers_can_be_switched_off():
    async with quick(test_headers=False) as mock:
        assert (await ask(mock, message(), x_mock_status="500", x_mock_fault="reset")).status == 200


async def test_the_strict_limit_is_told_in_each_dialect():
    async with quick(rpm=2, window=50) as mock:
        left = [
            (await ask(mock, message())).headers["anthropic-ratelimit-requests-remaining"]
            for _ in range(2)
        ]
        refused = await ask(mock, message())
        assert left == ["1", "0"]
        assert refused.status == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert 48 <= int(refused.headers["retry-after"]) <= 50
        assert "retry-after-ms" not in refused.headers
        # Another key has a limit of its own; what generates nothing is not counted.
        assert (await ask(mock, message(), "/v1/messages/count_tokens")).status == 200
        reader, writer = await connect(mock)
        body = message()
        writer.write(
            head(body, OPENAI).replace(b"x-api-key: key-1", b"authorization: Bearer k2") + body
        )
        other = await read_answer(reader)
        writer.close()
        assert other.headers["x-ratelimit-remaining-requests"] == "1"
        assert mock.snapshot()["refusals"] == {"rate_limit": 1}


async def test_a_global_limit_is_shared_and_can_be_precise():
    async with quick(
        rpm=1, window=50, limit_scope="global", retry_after="ms", limit_mode="refill"
    ) as mock:
        await ask(mock, message(), authorization="Bearer k2")
        refused = await ask(mock, message(), OPENAI)
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert 48_000 < int(refused.headers["retry-after-ms"]) <= 50_000
        assert "try again in" in refused.json()["error"]["message"]


@pytest.mark.parametrize(("path", "force", "status"), [
    ("/v1/messages", False, 529), (OPENAI, False, 503), (OPENAI, True, 529),
])  # fmt: skip
async def test_above_the_concurrency_limit_the_provider_is_overloaded(path, force, status):
    async with quick(concurrency=1, force_529=force) as mock:
        busy = asyncio.create_task(ask(mock, message(), path, x_mock_latency="0.1"))
        await eventually(lambda: mock.snapshot()["in_flight"] == 1)
        refused = await ask(mock, message(), path)
        assert refused.status == status
        kind = "overloaded_error" if path == "/v1/messages" else "server_is_overloaded"
        assert kind in refused.body.decode()
        assert (await busy).status == 200
        assert (await ask(mock, message(), path)).status == 200
        assert mock.snapshot()["peak_concurrency"] == 2


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("where", ["latency", "event", "write"])
async def test_a_client_that_leaves_is_noticed_at_once(where, tls):
    wishes = {
        "latency": {"x-mock-latency": "30"},
        "event": {"x-mock-event-interval": "30"},
        "write": {"x-mock-bytes": str(2**26), "x-mock-tokens": "100"},
    }[where]
    async with quick(https_port=0) as mock:
        reader, writer = await connect(mock, tls=tls)
        body = message(stream=True)
        writer.write(head(body, headers=wishes) + body)
        await eventually(lambda: mock.snapshot()["in_flight"] == 1)
        if where != "latency":
            await reader.readuntil(b"message_start")
        if where == "write":
            cast("asyncio.ReadTransport", writer.transport).pause_reading()
        await asyncio.sleep(0.02)
        assert mock.snapshot()["in_flight"] == 1
        writer.transport.abort()
        await eventually(lambda: mock.snapshot()["in_flight"] == 0, 0.2)
        assert mock.snapshot()["aborted"] == 1
        assert mock.requests()[0]["aborted"] is True
        assert mock.snapshot()["usage"] == {"input": 0, "output": 0}


async def test_a_client_that_waits_for_100_continue_gets_it():
    async with quick() as mock:
        reader, writer = await connect(mock)
        body = message(system="x" * 2_000_000)
        writer.write(head(body, headers={"Expect": "100-continue"}))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await read_answer(reader)).status == 200
        writer.close()


async def test_one_connection_serves_many_requests():
    async with quick() as mock:
        reader, writer = await connect(mock)
        for stream in (False, True, False):
            body = message(stream=stream)
            writer.write(head(body) + body)
            assert (await read_answer(reader)).status == 200
        writer.close()
        assert mock.snapshot()["connections"] == 1


async def test_latency_is_scaled():
    async with quick(latency=1, speed_scale=0.02) as mock:
        started = asyncio.get_running_loop().time()
        await ask(mock, message())
        assert 0.019 <= asyncio.get_running_loop().time() - started < 0.5


async def test_a_request_line_of_the_log_is_json_serialisable():
    async with quick() as mock:
        await ask(mock, message())
        assert json.dumps(mock.requests())
        assert "total=1" in repr(mock)
