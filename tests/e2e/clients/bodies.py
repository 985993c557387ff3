"""What a client without an SDK sends and reads; a stream without its last event is an error."""

import json
from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Api:
    url: str
    headers: dict[str, str]
    model: str
    last: str
    """The last event: the name of its type, or its whole data."""

    def body(self, prompt: str, stream: bool) -> bytes:
        tree = {
            "model": self.model,
            "max_tokens": 50,
            "stream": stream,
            "messages": [{"role": "user", "content": prompt}],
        }
        return json.dumps(tree).encode()


MESSAGES = Api(
    "https://api.anthropic.com/v1/messages",
    {
        "x-api-key": "sk-ant-test",
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
    },
    "claude-sonnet-5",
    "message_stop",
)
CHAT = Api(
    "https://api.openai.com/v1/chat/completions",
    {"authorization": "Bearer sk-test", "content-type": "application/json"},
    "gpt-5",
    "[DONE]",
)


def whole_text(answer: dict[str, Any]) -> str:
    if "choices" in answer:
        return str(answer["choices"][0]["message"]["content"])
    return "".join(block["text"] for block in answer["content"])


class StreamText:
    """Collects the text of an SSE stream, line by line."""

    def __init__(self, api: Api) -> None:
        self._last = api.last
        self._parts: list[str] = []
        self._ended = False

    def line(self, line: str) -> None:
        field, _, data = line.partition(":")
        if field != "data":
            return
        assert not self._ended, f"after the last event: {line}"
        data = data.strip()
        if data == self._last:
            self._ended = True
            return
        event = json.loads(data)
        assert "error" not in event, data
        self._ended = event.get("type") == self._last
        if event.get("type") == "content_block_delta":
            self._parts.append(event["delta"].get("text", ""))
        for choice in event.get("choices", ()):
            self._parts.append(choice["delta"].get("content") or "")

    def text(self) -> str:
        assert self._ended, "the stream ended without its last event"
        return "".join(self._parts)


def stream_text(api: Api, lines: Iterable[str]) -> str:
    collected = StreamText(api)
    for line in lines:
        collected.line(line)
    return collected.text()


async def stream_text_async(api: Api, lines: AsyncIterable[str]) -> str:
    collected = StreamText(api)
    async for line in lines:
        collected.line(line)
    return collected.text()
