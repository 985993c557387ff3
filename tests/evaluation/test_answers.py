"""Bodies and streams of the three dialects, without a server."""

import contextlib
import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.evaluation.mock import MockOptions, answer_text, dialects
from hivemind_addon.evaluation.mock.encoding import choose_encoding, decode_body, make_encoder
from hivemind_addon.evaluation.mock.errors import error_body
from hivemind_addon.evaluation.mock.knobs import NO_KNOBS, read_knobs
from hivemind_addon.evaluation.mock.question import Wishes, read_question
from tests.evaluation.support import message

GENERATING = ("anthropic", "openai-chat", "openai-responses")


def parse(dialect, body):
    events = dialects.stream_events(read_question(dialect, body, Wishes(5)), 0)
    return [json.loads(e.data.split(b"data: ")[1]) for e in events if b"[DONE]" not in e.data]


def text_of_stream(dialect, trees):
    match dialect:
        case "anthropic":
            return "".join(
                t["delta"].get("text", "") for t in trees if t["type"] == "content_block_delta"
            )
        case "openai-chat":
            return "".join(c["delta"].get("content", "") for t in trees for c in t["choices"])
        case _:
            return "".join(t["delta"] for t in trees if t["type"] == "response.output_text.delta")


@given(st.text(max_size=30), st.sampled_from(GENERATING), st.integers(0, 9))
def test_streamed_text_is_the_text_that_can_be_recomputed(content, dialect, tokens):
    body = message(stream=True, system=content, max_tokens=tokens)
    options = MockOptions(tokens=5)
    assert text_of_stream(dialect, parse(dialect, body)) == answer_text(body, options)


def test_the_answer_depends_on_prompt_and_seed_only():
    base = answer_text(message(), MockOptions())
    assert (
        answer_text(message(stream=True, stream_options={"include_usage": True}), MockOptions())
        == base
    )
    assert answer_text(message(system="other"), MockOptions()) != base
    assert any(answer_text(message(), MockOptions(seed=seed)) != base for seed in (1, 2, 3))


def test_anthropic_events_come_in_the_real_order():
    trees = parse("anthropic", message(stream=True))
    assert [name for name, _ in itertools.groupby(t["type"] for t in trees)] == [
        "message_start", "content_block_start", "ping", "content_block_delta",
        "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert trees[0]["message"]["usage"]["output_tokens"] == 1
    assert trees[-2]["usage"]["output_tokens"] == 5
    assert trees[-2]["delta"]["stop_reason"] == "end_turn"


def test_chat_reports_usage_only_if_asked():
    plain = parse("openai-chat", message(stream=True))
    assert not any("usage" in tree for tree in plain)
    assert all(tree["choices"] for tree in plain)
    asked = parse("openai-chat", message(stream=True, stream_options={"include_usage": True}))
    assert all(tree["usage"] is None for tree in asked[:-1])
    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"]["completion_tokens"] == 5
    question = read_question("openai-chat", message(stream=True), Wishes(5))
    assert list(dialects.stream_events(question, 0))[-1].data == b"data: [DONE]\n\n"


def test_responses_events_are_numbered_and_end_with_usage():
    trees = parse("openai-responses", message(stream=True))
    assert [t["sequence_number"] for t in trees] == list(range(len(trees)))
    assert [name for name, _ in itertools.groupby(t["type"] for t in trees)] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added", "response.output_text.delta", "response.output_text.done",
        "response.content_part.done", "response.output_item.done", "response.completed",
    ]  # fmt: skip
    assert trees[-1]["response"]["usage"]["output_tokens"] == 5


def test_a_smaller_maximum_ends_the_answer_and_says_so():
    body = message(stream=True, max_tokens=2)
    assert parse("anthropic", body)[-2]["delta"]["stop_reason"] == "max_tokens"
    assert parse("openai-chat", body)[-1]["choices"][0]["finish_reason"] == "length"
    last = parse("openai-responses", body)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_prompt_tokens_are_a_quarter_of_the_body():
    body = message(system="x" * 400)
    assert read_question("anthropic", body, Wishes(5)).prompt_tokens == len(body) // 4


@pytest.mark.slow
@pytest.mark.parametrize("dialect", GENERATING)
def test_a_large_stream_is_made_lazily(dialect):
    question = read_question(dialect, message(stream=True), Wishes(20, 500, 50 * 2**20))
    tracemalloc.start()
    size = sum(len(event.data) for event in dialects.stream_events(question, 0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size >= 50 * 2**20
    assert peak < 4 * 2**20


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
def test_each_flushed_event_can_be_decoded_before_the_next(encoding):
    encoder = make_encoder(encoding)
    whole = b""
    for number in range(5):
        piece = encoder.add(b"event %d\n\n" % number)
        assert piece
        whole += piece
    whole += encoder.end()
    assert decode_body(whole, encoding) == b"".join(b"event %d\n\n" % n for n in range(5))


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [("", None), ("identity", None), ("gzip, br", "gzip"), ("br;q=1, gzip", "br"),
     ("gzip;q=0, zstd", "zstd"), ("gzip;q=0.5", "gzip")],
)  # fmt: skip
def test_the_first_accepted_encoding_is_taken(accepted, chosen):
    assert choose_encoding(accepted) == chosen


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "rot13"])
def test_a_body_that_is_not_what_it_says_is_refused(encoding):
    with pytest.raises(ValueError, match=r"decoded|unknown"):
        decode_body(b"{not it}", encoding)


@given(st.binary(max_size=200))
def test_no_body_does_more_than_a_value_error(body):
    with contextlib.suppress(ValueError):
        read_question("anthropic", body, Wishes(5))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 502, 503, 529])
def test_errors_have_the_dialects_own_shape(status):
    ours = json.loads(error_body("anthropic", status, "req_9"))
    assert ours["type"] == "error"
    assert ours["request_id"] == "req_9"
    assert set(ours["error"]) == {"type", "message"}
    theirs = json.loads(error_body("openai-chat", status, "req_9", wait=1.5))
    assert set(theirs["error"]) == {"message", "type", "param", "code"}
    assert "try again in 1.500s" in theirs["error"]["message"]


def test_a_wish_that_cannot_be_read_is_refused():
    assert read_knobs({"accept": "x"}) is NO_KNOBS
    assert read_knobs({"x-mock-tokens": "7"}).tokens == 7
    for headers in ({"x-mock-tokens": "many"}, {"x-mock-status": "99"}, {"x-mock-fault": "nap"}):
        with pytest.raises(ValueError, match=r"x-mock|unknown fault"):
            read_knobs(headers)
