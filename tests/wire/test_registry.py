"""Dialects by name."""

import pytest

from hivemind_addon.wire.registry import DIALECTS, get_dialect


@pytest.mark.parametrize("name", ["anthropic", "openai-chat", "openai-responses", "generic"])
def test_every_dialect_is_found_by_its_name(name):
    assert get_dialect(name).name == name
    assert name in DIALECTS


def test_an_unknown_name_is_refused_with_the_names_that_exist():
    with pytest.raises(KeyError, match=r"'gemini'.*anthropic, openai-chat, openai-responses"):
        get_dialect("gemini")
