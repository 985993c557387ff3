"""Dialects by name."""

import pytest

from hivemind_addon.wire.registry import DIALECTS, get_dialect


def test_these_dialects_exist():
    assert list(DIALECTS) == [
        "anthropic",
        "openai-chat",
        "openai-responses",
        "gemini",
        "ollama",
        "bedrock",
        "generic",
    ]


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_is_found_by_its_name(name):
    assert get_dialect(name).name == name


def test_an_unknown_name_is_refused_with_the_names_that_exist():
    with pytest.raises(KeyError, match=r"'cohere'.*anthropic, openai-chat, openai-responses"):
        get_dialect("cohere")
