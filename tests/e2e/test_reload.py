"""Changed settings, profiles and script are taken up while calls run, and a bad file changes nothing."""

import asyncio
import os
import shutil
import time

import aiohttp
import psutil
import pytest

from tests.e2e import raw
from tests.e2e.harness import ADDON, eventually, running_mock, running_proxy, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PROFILE = """
name: own
hosts: [own.example]
dialect: openai-chat
paths: [{{path: '/chat/completions$', operation: generation, dialect: openai-chat}}]
retryable: [503]
concurrency: {{generation: {limit}}}
"""
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def limits(proxy) -> dict[str, int]:
    return {b["bucket"].split("/")[0]: b["limit"] for b in proxy.status()["buckets"]}


def replace(path, text: str) -> None:
    """As editors do it: write beside it, then rename."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


async def ask(proxy, host: str = raw.HOST, path: str = "/v1/messages") -> int:
    body = raw.message() if host == raw.HOST else CHAT
    status, _, _ = await raw.exchange(proxy, raw.request_bytes(body, path=path, host=host), host)
    return status


async def test_a_changed_settings_file_is_applied_within_two_seconds(tmp_path):
    with running_mock(seed=1) as mock:
        config = upstreams(mock.http_url)
        with running_proxy(tmp_path, config + "admission: {max_concurrency: 5}\n") as proxy:
            path = tmp_path / "hivemind.yaml"
            assert await ask(proxy) == 200
            assert limits(proxy) == {"anthropic": 5}
            replace(path, config + "admission: {max_concurrency: 7}\ncontrol: {port: 1}\n")
            await eventually(lambda: limits(proxy) == {"anthropic": 7}, 2, proxy.logged)
            log = proxy.logged()
            assert "settings.reloaded changed=admission.max_concurrency,control.port" in log
            assert "(at the next start: control.port)" in log


async def test_a_bad_file_is_refused_once_with_its_line_and_nothing_changes(tmp_path):
    with running_mock(seed=1) as mock:
        config = upstreams(mock.http_url)
        with running_proxy(tmp_path, config + "admission: {max_concurrency: 5}\n") as proxy:
            path = tmp_path / "hivemind.yaml"
            assert await ask(proxy) == 200
            replace(path, "admission: {max_concurrency: many}\nwebsocket: pass\n")
            line = "hivemind.yaml: admission.max_concurrency: got 'many', allowed: "
            await eventually(lambda: line in proxy.logged(), 3)
            await asyncio.sleep(1.5)
            assert proxy.logged().count(line) == 1
            assert proxy.logged().count("settings.refused") == 1
            assert await ask(proxy) == 200, "the old upstreams hold"
            assert limits(proxy) == {"anthropic": 5}
            path.unlink()
            await eventually(lambda: proxy.logged().count("settings.refused") == 2, 3)
            assert await ask(proxy) == 200
            replace(path, config + "admission: {max_concurrency: 9}\n")
            await eventually(lambda: limits(proxy) == {"anthropic": 9}, 2, proxy.logged)


async def test_profiles_come_change_and_go_with_their_files(tmp_path):
    with running_mock(seed=1) as mock:
        (tmp_path / "profiles").mkdir()
        own = tmp_path / "profiles" / "own.yaml"
        config = f"profiles: profiles\nupstreams: {{own.example: {mock.http_url}}}\n"
        with running_proxy(tmp_path, config) as proxy:
            assert await ask(proxy, "own.example", "/v1/chat/completions") == 200
            assert limits(proxy) == {"generic": 4}
            replace(own, PROFILE.format(limit=3))
            await eventually(lambda: "changed=profile own" in proxy.logged(), 2, proxy.logged)
            assert await ask(proxy, "own.example", "/v1/chat/completions") == 200
            assert limits(proxy)["own"] == 3
            replace(own, PROFILE.format(limit=6))
            await eventually(lambda: limits(proxy)["own"] == 6, 2, proxy.logged)
            own.unlink()
            await eventually(lambda: proxy.logged().count("changed=profile own") == 3, 2)
            assert await ask(proxy, "own.example", "/v1/chat/completions") == 200
            assert proxy.status()["totals"]["errors"] == 0


async def test_a_limit_set_by_hand_holds_until_the_files_own_limits_change(tmp_path):
    with running_mock(seed=1) as mock:
        config = upstreams(mock.http_url) + "admission: {max_concurrency: 5}\n"
        with running_proxy(tmp_path, config) as proxy:
            path = tmp_path / "hivemind.yaml"
            assert await ask(proxy) == 200
            async with aiohttp.ClientSession() as session:
                headers = {"Authorization": f"Bearer {proxy.token}"}
                body = {"bucket": "anthropic/*", "limit": 2}
                async with session.post(
                    proxy.control_url + "/api/limit", json=body, headers=headers
                ) as answer:
                    assert answer.status == 200
            replace(path, config + "log: {level: debug}\n")
            await eventually(lambda: "changed=log.level" in proxy.logged(), 2, proxy.logged)
            assert limits(proxy) == {"anthropic": 2}
            replace(path, config.replace("5", "8"))
            await eventually(lambda: limits(proxy) == {"anthropic": 8}, 2, proxy.logged)


APPLIED = "changed=admission.max_concurrency"
STREAMS = 500
RELOADS = int(os.environ.get("HIVEMIND_RELOADS", "20"))
"""Fifty take more than a minute: `HIVEMIND_RELOADS=50 just test tests/e2e/test_reload.py`."""
SCRIPT_RELOADS = RELOADS * 3 // 10
CONFIG_RELOADS = RELOADS - SCRIPT_RELOADS
EVENTS = 12 + RELOADS
"""Of each stream, one a second: longer than all reloads take."""


async def stream(session, proxy, number: int) -> tuple[int, bytes]:
    body = raw.message(stream=True, n=number)
    headers = {"x-mock-tokens": str(EVENTS), "x-mock-event-interval": "1", "x-api-key": "k"}
    async with session.post(
        "https://api.anthropic.com/v1/messages",
        json=body,
        headers=headers,
        proxy=f"http://agent-{number % 50}:x@127.0.0.1:{proxy.port}",
        ssl=raw.tls(proxy.ca),
    ) as answer:
        return number, await answer.read()


@pytest.mark.timeout(240)
async def test_reloads_during_500_streams_cut_nothing_and_lose_nothing(tmp_path):
    script = tmp_path / "script" / "hivemind_script.py"
    script.parent.mkdir()
    shutil.copy(ADDON, script)
    with running_mock(seed=1) as mock:
        config = upstreams(mock.http_url) + "admission: {{max_concurrency: {}}}\n"
        with running_proxy(tmp_path / "p", config.format(600), script=script) as proxy:
            path = tmp_path / "p" / "hivemind.yaml"
            process = psutil.Process(proxy.process.pid)
            timeout = aiohttp.ClientTimeout(total=200)
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
                running = [asyncio.create_task(stream(session, proxy, n)) for n in range(STREAMS)]
                await eventually(lambda: mock.stats()["in_flight"] == STREAMS, 60)
                files = process.num_fds()
                await reload_often(proxy, script, path, config)
                assert mock.stats()["in_flight"] > 0, "all reloads happened while streams ran"
                assert process.num_fds() <= files + 3
                answers = await asyncio.gather(*running)
            said = set()
            for _, body in answers:
                events = body.split(b"\n\n")
                deltas = [event for event in events if b"content_block_delta" in event]
                assert len(deltas) == EVENTS
                assert b"message_stop" in events[-2]
                said.add(b"".join(deltas))
            assert len(said) == 1, "all asked the same and got the same, byte for byte"
            status = proxy.status()
            assert proxy.in_flight() == 0
            assert status["totals"]["calls"] == STREAMS
            assert status["totals"]["errors"] == status["totals"]["cancelled"] == 0
            assert status["totals"]["output_tokens"] == STREAMS * EVENTS
            assert len(status["agents"]) == 50, "who calls is still known"
            last = 601 + (CONFIG_RELOADS - 1) % 2
            assert limits(proxy) == {"anthropic": last}
            assert status["proxy"]["port"] == proxy.port


async def reload_often(proxy, script, path, config) -> None:
    """Touch the script each time mitmproxy looks at it (once a second), and change the settings meanwhile."""
    changed = 0
    for number in range(SCRIPT_RELOADS):
        stamp = time.time() + number
        os.utime(script, (stamp, stamp))
        while changed < CONFIG_RELOADS * (number + 1) // SCRIPT_RELOADS:
            replace(path, config.format(601 + changed % 2))
            changed += 1
            await eventually(lambda n=changed: proxy.logged().count(APPLIED) >= n, 3)
        await eventually(lambda n=number: proxy.logged().count("Loading script") >= n + 2, 6)
