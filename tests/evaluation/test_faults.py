"""Faults, as clients really see them."""

import asyncio
import logging

import pytest

from tests.evaluation.support import ask, message, quick, raw_first_byte

PATHS = ("/v1/messages", "/v1/chat/completions", "/v1/responses")
TERMINAL = (b"message_stop", b"[DONE]", b"response.completed")


@pytest.fixture(autouse=True)
def _quiet(caplog):
    """A fault on purpose is no error of the server."""
    yield
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reset_is_a_connection_reset_error_of_the_socket(stream):
    async with quick() as mock:
        port = int(mock.http_url.rpartition(":")[2])
        with pytest.raises(ConnectionResetError):
            await asyncio.to_thread(raw_first_byte, port, message(stream=stream), "reset")
        assert mock.snapshot()["faults"] == {"fault_reset": 1}
        assert mock.snapshot()["aborted"] == 0
        assert mock.requests()[0]["status"] is None


async def test_a_disconnect_is_a_tidy_end_without_a_byte():
    async with quick() as mock:
        port = int(mock.http_url.rpartition(":")[2])
        assert await asyncio.to_thread(raw_first_byte, port, message(), "disconnect") == b""


async def test_a_reset_is_seen_through_tls_too():
    async with quick(https_port=0) as mock:
        with pytest.raises(ConnectionResetError):
            await ask(mock, message(), tls=True, x_mock_fault="reset")
        with pytest.raises(asyncio.IncompleteReadError):
            await ask(mock, message(), tls=True, x_mock_fault="disconnect")


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_a_cut_stream_has_content_and_no_end(path, tls):
    async with quick(https_port=0) as mock:
        whole = await ask(mock, message(stream=True), path, tls=tls)
        answer = await ask(mock, message(stream=True), path, tls=tls, x_mock_fault="cut")
    assert not answer.complete
    assert whole.body.startswith(answer.body)
    assert len(answer.chunks) > 10
    assert not any(mark in answer.body for mark in TERMINAL)


async def test_a_cut_json_answer_stops_halfway():
    async with quick() as mock:
        answer = await ask(mock, message(), x_mock_fault="cut")
        assert answer.status == 200
        assert not answer.complete
        assert 0 < len(answer.body) < int(answer.headers["content-length"])
        assert mock.snapshot()["usage"] == {"input": 0, "output": 0}


@pytest.mark.parametrize("tokens", ["1", "20"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_fin_cut_ends_tidily_without_the_last_event(path, tokens):
    async with quick() as mock:
        answer = await ask(
            mock, message(stream=True), path, x_mock_fault="fin_cut", x_mock_tokens=tokens
        )
    assert answer.complete
    assert b"delta" in answer.body
    assert not any(mark in answer.body for mark in TERMINAL)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("late", [False, True])
async def test_an_overload_inside_a_200_comes_before_or_after_content(path, late):
    fault = "sse_error_late" if late else "sse_error"
    content = {"/v1/messages": b"text_delta", PATHS[1]: b'"content":"', PATHS[2]: b"text.delta"}[
        path
    ]
    async with quick() as mock:
        answer = await ask(mock, message(stream=True), path, x_mock_fault=fault)
    assert answer.status == 200
    assert answer.complete
    assert b"overloaded" in answer.chunks[-1]
    assert (content in answer.body) == late
    if path != PATHS[2]:
        assert len(answer.chunks) == 1 or late


@pytest.mark.parametrize(
    ("fault", "theirs", "ours"),
    [("429", 429, 429), ("500", 500, 500), ("502", 502, 502), ("503", 503, 503), ("529", 503, 529)],
)
async def test_status_faults_speak_the_dialect(fault, theirs, ours):
    async with quick(fault_retry_after=3) as mock:
        ant = await ask(mock, message(), PATHS[0], x_mock_fault=fault)
        oai = await ask(mock, message(), PATHS[1], x_mock_fault=fault)
        assert (ant.status, oai.status) == (ours, theirs)
        assert ant.json()["type"] == "error"
        assert "code" in oai.json()["error"]
        assert ant.headers.get("retry-after") == ("3" if fault == "429" else None)
        assert mock.snapshot()["faults"] == {f"fault_{fault}": 2}


async def test_drawn_faults_repeat_with_the_seed():
    runs = []
    for _ in range(2):
        async with quick(seed=9, fault_502=0.3, fault_429=0.2, fault_fin_cut=0.3) as mock:
            for number in range(20):
                await ask(mock, message(stream=number % 2 == 0))
            runs.append([request["fault"] for request in mock.requests()])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 2
