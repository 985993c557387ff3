"""Models in paths."""

import pytest

from hivemind_addon.wire import paths
from hivemind_addon.wire.anthropic import AnthropicMessages
from hivemind_addon.wire.dialect import RequestFacts
from hivemind_addon.wire.openai_chat import OpenAIChat

VERTEX = "/v1/projects/p/locations/us-east5/publishers"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1beta/models/gemini-2.5-pro:generateContent", ("gemini-2.5-pro", "generateContent")),
        ("/v1/models/gemini%2D3:countTokens", ("gemini-3", "countTokens")),
        ("/v1/models/m%3AembedContent", ("m", "embedContent")),
        ("/v1/models/m:batchEmbedContents", ("m", "batchEmbedContents")),
        ("/v1/tunedModels/mine-1:generateContent", ("mine-1", "generateContent")),
        (f"{VERTEX}/google/models/g@001:streamGenerateContent", ("g@001", "streamGenerateContent")),
        (f"{VERTEX}/anthropic/models/claude-x:rawPredict", ("claude-x", "rawPredict")),
        ("/v1/projects/p/locations/l/endpoints/42:generateContent", ("42", "generateContent")),
        ("/v1internal:streamGenerateContent", (None, "streamGenerateContent")),
        ("/v1beta/models/gemini-2.5-pro", (None, "")),
        ("/v1beta/models", (None, "")),
        ("/v1beta/interactions", (None, "")),
        ("", (None, "")),
    ],
)
def test_google_paths_name_model_and_method(path, expected):
    assert paths.google(path) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "/model/anthropic.claude-3-5-sonnet-20241022-v2%3A0/invoke",
            ("anthropic.claude-3-5-sonnet-20241022-v2:0", "invoke"),
        ),
        ("/model/us.meta.llama3-1:0/converse-stream", ("us.meta.llama3-1:0", "converse-stream")),
        (
            "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx/converse",
            ("arn:aws:bedrock:us-east-1:1:inference-profile/x", "converse"),
        ),
        (
            "/model/arn:aws:bedrock:us-east-1:1:inference-profile/x/converse",
            ("arn:aws:bedrock:us-east-1:1:inference-profile/x", "converse"),
        ),
        ("/openai/v1/chat/completions", (None, "")),
    ],
)
def test_bedrock_paths_name_model_and_method(path, expected):
    assert paths.bedrock(path) == expected


def test_a_deployment_of_azure_counts_as_the_model():
    path = "/openai/deployments/my%20gpt/chat/completions"
    assert OpenAIChat().read_request({"model": "gpt-5"}, path).model == "my gpt"
    assert OpenAIChat().read_request({"model": "gpt-5"}, "/openai/v1/x").model == "gpt-5"
    assert paths.deployment("/openai/deployments") is None


def test_claude_on_vertex_has_its_model_in_the_path():
    path = f"{VERTEX}/anthropic/models/claude-sonnet-4@20250514:streamRawPredict"
    body = {"stream": True, "max_tokens": 5}
    assert AnthropicMessages().read_request(body, path) == RequestFacts(
        "claude-sonnet-4@20250514", True, 5
    )
    assert AnthropicMessages().read_request({"model": "m"}, "/v1/messages").model == "m"
