"""Programs that run as agents in processes of their own, with proxy and CA variables and nothing else."""

SDK_CALLS = r"""
import asyncio, hashlib, json, sys
import anthropic, openai

per_kind = int(sys.argv[1])
concurrency = int(sys.argv[2])

async def main():
    claude = anthropic.AsyncAnthropic(api_key="sk-ant-test", max_retries=0)
    gpt = openai.AsyncOpenAI(api_key="sk-test", max_retries=0)
    gate = asyncio.Semaphore(concurrency)
    done, failed, texts = 0, [], {}

    async def messages(n, stream):
        question = [{"role": "user", "content": f"messages {n} {stream}"}]
        if not stream:
            answer = await claude.messages.create(model="claude-sonnet-5", max_tokens=100, messages=question)
            return answer.content[0].text
        parts = []
        async with claude.messages.stream(model="claude-sonnet-5", max_tokens=100, messages=question) as events:
            async for text in events.text_stream:
                parts.append(text)
        return "".join(parts)

    async def chat(n, stream):
        question = [{"role": "user", "content": f"chat {n} {stream}"}]
        answer = await gpt.chat.completions.create(model="gpt-5", messages=question, stream=stream)
        if not stream:
            return answer.choices[0].message.content
        parts = []
        async for chunk in answer:
            assert chunk.choices, "the usage chunk that nobody asked for must stay hidden"
            parts.append(chunk.choices[0].delta.content or "")
        return "".join(parts)

    async def responses(n, stream):
        answer = await gpt.responses.create(model="gpt-5", input=f"responses {n} {stream}", stream=stream)
        if not stream:
            return answer.output_text
        parts = []
        async for event in answer:
            if event.type == "response.output_text.delta":
                parts.append(event.delta)
        return "".join(parts)

    async def embeddings(n, stream):
        answer = await gpt.embeddings.create(model="text-embedding-3-small", input=f"embed {n}")
        assert answer.data[0].embedding
        return None

    async def one(kind, n, stream):
        nonlocal done
        async with gate:
            try:
                text = await kind(n, stream)
                if text is not None:
                    texts[f"{kind.__name__} {n} {stream}"] = text
                done += 1
            except Exception as error:
                failed.append(f"{kind.__name__} {n} {stream}: {type(error).__name__}: {error}")

    kinds = [messages, chat, responses, embeddings]
    await asyncio.gather(*(one(kind, n, n % 2 == 0) for kind in kinds for n in range(per_kind)))
    print(json.dumps({"done": done, "failed": failed[:20], "texts": texts}))

asyncio.run(main())
"""

ONE_CALL = r"""
import json, os, sys
import anthropic
answer = anthropic.Anthropic(api_key="sk-ant-test", max_retries=0).messages.create(
    model="claude-sonnet-5", max_tokens=50, messages=[{"role": "user", "content": "hi"}])
print(json.dumps({"pid": os.getpid(), "text": answer.content[0].text}))
"""

# Sequential agents that die on the first error they see, as in the paper; one process, many agents.
FLEET = r"""
import asyncio, json, sys, time
import anthropic, httpx

agents, turns, stream, base = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "stream", sys.argv[4]

async def agent(number):
    # Own client, own credentials in the proxy URL: an agent of its own.
    client = anthropic.AsyncAnthropic(
        api_key="sk-ant-shared", max_retries=0, **({"base_url": base} if base else {}),
        default_headers={"x-hivemind-agent": f"agent-{number}"})
    try:
        for turn in range(turns):
            question = [{"role": "user", "content": f"agent {number} turn {turn}"}]
            if stream:
                async with client.messages.stream(model="claude-sonnet-5", max_tokens=50, messages=question) as events:
                    async for _ in events.text_stream:
                        pass
                    assert (await events.get_final_message()).stop_reason
            else:
                await client.messages.create(model="claude-sonnet-5", max_tokens=50, messages=question)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None

async def main():
    started = time.monotonic()
    ends = await asyncio.gather(*(agent(n) for n in range(agents)))
    dead = [end for end in ends if end]
    print(json.dumps({"dead": len(dead), "why": dead[:5], "wall": time.monotonic() - started}))

asyncio.run(main())
"""
