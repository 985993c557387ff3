"""Asking a chat stream for usage: as few changed bytes as possible."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.wire.openai_chat import OpenAIChat

DIALECT = OpenAIChat()
ASK = b'"stream_options":{"include_usage":true},'


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b' {"stream": true}', b" {" + ASK + b'"stream": true}'),
        (
            b'{\n "a" : 1.10,\n "stream":true\n}\n',
            b"{" + ASK + b'\n "a" : 1.10,\n "stream":true\n}\n',
        ),
        (
            b'{"x": {"stream_options": 1}, "stream": true}',
            b"{" + ASK + b'"x": {"stream_options": 1}, "stream": true}',
        ),
        (
            '{"p": "é", "stream_options": {"include_obfuscation": false}, "stream": true}'.encode(),
            '{"p":"é","stream_options":{"include_obfuscation":false,"include_usage":true},'
            '"stream":true}'.encode(),
        ),
        (
            b'{"stream": true, "stream_options": null}',
            b'{"stream":true,"stream_options":{"include_usage":true}}',
        ),
        (
            b'{"stream": true, "stream_options": {"include_usage": false}}',
            b'{"stream":true,"stream_options":{"include_usage":true}}',
        ),
        (b'{"stream": true, "stream_options": {"include_usage": true}}', None),
        (b'{"stream": true, "stream_options": [1]}', None),
        (b'{"stream": true, "stream_options": {}, "x": NaN}', None),
        (b'{"stream": true, "stream_options": {}, "x": 1e999}', None),
        (b'{"stream": true, "stream_options": {}, "x": "\\ud800"}', None),
        (b'{"stream": false}', None),
        (b'{"stream": 1}', None),
        (b"{}", None),
        (b"[true]", None),
        (b'{"stream": true', None),
        (b"", None),
        (b'{"stream": true, "x": "\xff"}', None),
        ('{"stream": true}'.encode("utf-16"), None),
        (b"[" * 100_000, None),
    ],
)
def test_usage_is_asked_for_with_as_few_changed_bytes_as_possible(body, changed):
    assert DIALECT.request_usage(body) == changed


bodies = st.dictionaries(
    st.sampled_from(["model", "messages", "stream", "stream_options", "x"]),
    st.booleans()
    | st.text(max_size=5)
    | st.dictionaries(st.sampled_from(["include_usage", "y"]), st.booleans()),
)


@given(bodies, st.sampled_from([None, 1]), st.booleans())
def test_asking_changes_nothing_but_the_wish(tree, indent, ascii_only):
    raw = json.dumps(tree, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
    changed = DIALECT.request_usage(raw)
    if changed is None:
        return
    after = json.loads(changed)
    assert DIALECT.read_request(after).wants_usage
    before = json.loads(raw)
    after["stream_options"].pop("include_usage")
    before.setdefault("stream_options", {}).pop("include_usage", None)
    assert after == before
    assert DIALECT.request_usage(changed) is None
