"""`hivemind providers` as a user reads it."""

import json

import pytest


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        (
            "https://api.anthropic.com/v1/messages?beta=true",
            [
                "provider anthropic",
                "a generation",
                "dialect: anthropic",
                "anthropic/OWNER/FAMILY, 8 at once",
            ],
        ),
        ("api.groq.com/openai/v1/models", ["provider groq", "no LLM call", "no path rule matches"]),
        (
            "https://x.services.ai.azure.com/anthropic/v1/messages",
            ["provider azure-openai", "dialect: anthropic"],
        ),
        ("http://127.0.0.1:11434/api/chat", ["provider ollama", "127"]),
        (
            "https://api.antropic.com/v1/messages",
            [
                "no provider",
                "Did you mean api.anthropic.com (anthropic)?",
                "generic_hosts: [api.antropic.com]",
            ],
        ),
        ("http://127.0.0.1:8000/v1", ["no provider", "`local` in hivemind.yaml"]),
        ("https://github.com", ["no provider", "tunnelled untouched"]),
    ],
)
def test_a_url_is_explained(invoke, url, parts):
    result = invoke("providers", url)
    assert result.exit_code == 0, result.output
    for part in parts:
        assert part in result.stdout


def test_the_settings_count(invoke, tmp_path):
    (tmp_path / "hivemind.yaml").write_text(
        "generic_hosts: [llm.lan]\nlocal: {vllm: 'http://127.0.0.1:8000'}\n"
    )
    assert "the settings list it" in invoke("providers", "https://llm.lan/v1/messages").stdout
    found = invoke("providers", "--json", "http://127.0.0.1:8000/v1/chat/completions").stdout
    assert json.loads(found) == {
        "host": "127.0.0.1",
        "profile": "vllm",
        "because": "the settings name it: local.vllm",
        "operation": "generation",
        "dialect": "openai-chat",
        "rule": "/v1/chat/completions/?$",
        "bucket": "vllm/OWNER/FAMILY, 64 at once to begin with",
    }


def test_all_are_listed(invoke):
    names = [each["name"] for each in json.loads(invoke("providers", "--json").stdout)]
    assert names == sorted(names)
    assert {"anthropic", "openai", "azure-openai", "google-ai", "ollama", "generic"} <= set(names)
    table = invoke("providers").stdout
    assert all(name in table for name in names)


@pytest.mark.parametrize("url", ["ftp://x", "https://", "://"])
def test_what_is_no_url_is_one_line(refuse, url):
    line = refuse(2, "providers", url)
    assert line == f"hivemind: URL: got {url!r}, allowed: an http or https URL"


def test_bad_settings_are_told(refuse, tmp_path):
    (tmp_path / "hivemind.yaml").write_text("websocket: maybe\n")
    assert "websocket: got 'maybe'" in refuse(2, "providers")
