"""How long clients wait."""

import pytest

from hivemind_addon.policies.patience import DEFAULT, patience


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"user-agent": "GeminiCLI/0.5"}, 50, 60),
        ({"user-agent": "Groq/Python 1.7.0"}, 50, 60),
        ({"user-agent": "mistral-client-python/3"}, 250, 300),
        ({"user-agent": "codex_cli_rs/0.1"}, 250, 300),
        ({"user-agent": "claude-cli/2.1 (external, cli)"}, 550, 600),
        ({}, 550, 600),
        ({"x-stainless-read-timeout": "100"}, 90, 100),
        ({"x-stainless-timeout": "20", "user-agent": "Groq/Python"}, 18, 20),
    ],
)
def test_the_wait_ends_before_the_client_gives_up(headers, low, high):
    assert low <= patience(headers) < high


@pytest.mark.parametrize("text", ["NOT_GIVEN", "", "nan", "inf", "-3", "0", "1e999"])
def test_an_unreadable_statement_is_ignored(text):
    assert patience({"x-stainless-timeout": text}) == DEFAULT
