"""What the dialects with JSON bodies share."""

import pytest

from hivemind_addon.wire.registry import DIALECTS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("anthropic", "text/event-stream"),
        ("openai-chat", "text/event-stream"),
        ("openai-responses", "text/event-stream"),
        ("gemini", None),
        ("ollama", None),
        ("bedrock", None),
        ("generic", "text/event-stream"),
    ],
)
def test_a_heartbeat_goes_only_where_a_stream_surely_bears_it(name, expected):
    assert DIALECTS[name].heartbeat_type("/v1/any") == expected
