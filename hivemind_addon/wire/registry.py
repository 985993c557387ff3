"""All dialects by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind_addon.wire.anthropic import AnthropicMessages
from hivemind_addon.wire.bedrock import Bedrock
from hivemind_addon.wire.gemini import Gemini
from hivemind_addon.wire.generic import Generic
from hivemind_addon.wire.ollama import Ollama
from hivemind_addon.wire.openai_chat import OpenAIChat
from hivemind_addon.wire.openai_responses import OpenAIResponses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.wire.dialect import Dialect

DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        AnthropicMessages(),
        OpenAIChat(),
        OpenAIResponses(),
        Gemini(),
        Ollama(),
        Bedrock(),
        Generic(),
    )
}


def get_dialect(name: str) -> Dialect:
    """The dialect of this name.

    Raises:
        KeyError: naming those that exist.
    """
    try:
        return DIALECTS[name]
    except KeyError:
        raise KeyError(f"no dialect {name!r}: there are {', '.join(DIALECTS)}") from None
