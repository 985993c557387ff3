"""The Interactions API of Gemini: named steps, usage in the last event (provider-facts 4.5)."""

from __future__ import annotations

from hivemind_addon.model import Usage
from hivemind_addon.wire import fields
from hivemind_addon.wire.dialect import EventKind

COUNTS = (
    "total_input_tokens",
    "total_cached_tokens",
    "total_tool_use_tokens",
    "total_output_tokens",
    "total_thought_tokens",
    "total_tokens",
)
_ENDS = ("interaction.completed", "interaction.complete", "interaction.cancelled")


def kind_of(name: str, tree: fields.Json) -> EventKind | None:
    """What an event means; None if it is none of this API."""
    kind = fields.text(tree.get("event_type")) or name
    if kind in _ENDS:
        return EventKind.END
    if kind.endswith(".delta"):
        return EventKind.CONTENT
    return EventKind.PRELUDE if kind.startswith(("interaction.", "step.", "content.")) else None


def content_size(tree: fields.Json) -> int:
    """Bytes of text, thought summary and tool arguments in a delta."""
    delta = fields.mapping(tree.get("delta"))
    inner = fields.mapping(delta.get("content"))
    return sum(
        fields.size(part) for part in (delta.get("text"), delta.get("arguments"), inner.get("text"))
    )


def usage_object(tree: fields.Json) -> fields.Json:
    """Usage of a whole answer, or of the event that carries it."""
    carrier = fields.mapping(tree.get("interaction")) or tree
    return fields.mapping(carrier.get("usage"))


def read_usage(found: fields.Json) -> Usage | None:
    """Usage of this API in the normal form."""
    return normal_form(found, COUNTS)


def normal_form(found: fields.Json, names: tuple[str, ...]) -> Usage | None:
    """Google's figures in the normal form; None if none is there.

    Whether the answer's count includes thoughts differs between hosts and over time, so the output is what the total
    has beyond the prompt. Some Vertex answers leave cached tokens out of the prompt: then there are more of them.

    Args:
        found: the usage object.
        names: of prompt, cached part of it, tool-use prompt, answer, thoughts and total.
    """
    if not any(name in found for name in names):
        return None
    prompt, cached, tools, answer, thoughts, total = (fields.count(found.get(n)) for n in names)
    output = max(total - prompt - tools, answer) if total else answer + thoughts
    return Usage(
        input_tokens=tools + (prompt - cached if cached <= prompt else prompt),
        cache_read_tokens=cached,
        output_tokens=max(output, thoughts),
        reasoning_tokens=thoughts,
    )
