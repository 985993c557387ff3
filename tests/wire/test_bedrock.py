"""Amazon Bedrock: admission and retry by status."""

import json

import pytest

from hivemind_addon.wire.bedrock import Bedrock
from hivemind_addon.wire.dialect import RequestFacts
from hivemind_addon.wire.error_codes import AUTH, OVERLOAD, QUOTA, TERMINAL, THROTTLE, TRANSIENT
from hivemind_addon.wire.generic import GenericReader

DIALECT = Bedrock()
CLAUDE = "/model/anthropic.claude-3-5-sonnet-20241022-v2%3A0"
NAME = "anthropic.claude-3-5-sonnet-20241022-v2:0"


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (f"{CLAUDE}/invoke", {"max_tokens": 9}, RequestFacts(NAME, False, 9)),
        (f"{CLAUDE}/invoke-with-response-stream", {}, RequestFacts(NAME, True)),
        (f"{CLAUDE}/converse", {"inferenceConfig": {"maxTokens": 7}}, RequestFacts(NAME, False, 7)),
        (f"{CLAUDE}/converse-stream", {"stream": False}, RequestFacts(NAME, True)),
        (f"{CLAUDE}/count-tokens", {}, RequestFacts(NAME)),
        ("/x", {"model": "m"}, RequestFacts("m")),
    ],
)
def test_model_and_streaming_come_from_the_path(path, body, expected):
    assert DIALECT.read_request(body, path) == expected


def test_answers_pass_unread():
    kind = "application/vnd.amazon.eventstream"
    assert DIALECT.stream_decoder(kind, streamed=True) is None
    assert DIALECT.heartbeat_type(f"{CLAUDE}/converse-stream") is None
    assert DIALECT.read_usage(b'{"usage": {"inputTokens": 1, "outputTokens": 2}}') is None
    assert DIALECT.request_usage(b"{}") is None
    assert DIALECT.error_event(502, "cut") == b""
    assert isinstance(DIALECT.stream_reader(), GenericReader)


@pytest.mark.parametrize(
    ("status", "name", "message", "kind"),
    [
        (429, "ThrottlingException", "Too many requests, please wait.", THROTTLE),
        (429, "ThrottlingException", "Too many tokens, please wait.", THROTTLE),
        (429, "ThrottlingException", "Too many tokens per day, please wait.", QUOTA),
        (400, "ThrottlingException", "Rate exceeded", THROTTLE),
        (429, "ModelNotReadyException", "The model is not ready.", OVERLOAD),
        (503, "ServiceUnavailableException", "", TRANSIENT),
        (408, "ModelTimeoutException", "", TRANSIENT),
        (424, "ModelErrorException", "", TRANSIENT),
        (424, "", "", TRANSIENT),
        (500, "InternalServerException", "", TRANSIENT),
        (400, "ValidationException", "too long", TERMINAL),
        (400, "ServiceQuotaExceededException", "", TERMINAL),
        (403, "AccessDeniedException", "", AUTH),
        (403, "ExpiredTokenException", "", AUTH),
        (404, "ResourceNotFoundException", "", TERMINAL),
    ],
)
def test_the_class_in_the_header_decides(status, name, message, kind):
    headers = {"x-amzn-errortype": f"{name}:http://internal.amazon.com/coral/com.amazon/"}
    failure = DIALECT.classify(status, headers, json.dumps({"message": message}).encode(), 0.0)
    assert failure is not None
    assert (failure.kind, failure.code) == (kind, name or f"http_{status}")
    assert failure.message == message
    assert failure.retry_after is None


def test_the_class_may_stand_in_the_body():
    body = b'{"__type": "com.amazon.coral#ThrottlingException", "Message": "slow"}'
    failure = DIALECT.classify(400, {}, body, 0.0)
    assert failure is not None
    assert (failure.kind, failure.code, failure.message) == (
        THROTTLE,
        "ThrottlingException",
        "slow",
    )


def test_own_errors_have_the_shape_of_bedrock():
    assert json.loads(DIALECT.error_body(503, "why")) == {"message": "why"}
    assert json.loads(DIALECT.error_body(503, "why", "cut")) == {"message": "why", "code": "cut"}
