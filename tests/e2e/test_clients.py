"""Every client survives: official SDKs and plain HTTP libraries, none of which repeats anything by itself."""

import contextlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import pytest

from tests.e2e.harness import (
    Mock,
    Proxy,
    free_port,
    run_json,
    running_mock,
    running_proxy,
    upstreams,
)
from tests.e2e.npm import npm_folder

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

HOSTS = (
    "api.anthropic.com",
    "api.openai.com",
    "api.groq.com",
    "generativelanguage.googleapis.com",
    "ollama.com",
    "127.0.0.1",  # behind the reverse listener: Ollama on this machine
)
CALLS, PARALLEL, TOKENS, LANES = 100, 20, 12, 2
SHARE = 0.065
FAULTS: dict[str, Any] = {
    "fault_429": SHARE,
    "fault_502": SHARE,
    "fault_529": SHARE,
    "fault_reset": SHARE,
    "fault_disconnect": SHARE,
    "fault_sse_error": SHARE,  # drawn for streams only, which are half of the calls
}
PATIENT = "retry: {max_retries: 10, base: 0.05, max_delay: 2}\n"


class Client(NamedTuple):
    name: str
    version: str
    """HTTP version towards the proxy."""
    server: str = ""
    """Of Ollama's client: the server that it is told to use; empty is the reverse listener."""


CLIENTS = [
    Client("anthropic", "1.1"),
    Client("anthropic", "2"),
    Client("openai-chat", "1.1"),
    Client("openai-chat", "2"),
    Client("openai-responses", "1.1"),
    Client("mistralai", "1.1"),
    Client("mistralai", "2"),
    Client("groq", "1.1"),
    Client("groq", "2"),
    Client("google-genai", "1.1"),
    Client("google-genai", "2"),
    Client("google-genai-threads", "1.1"),
    Client("ollama", "1.1"),
    Client("ollama", "1.1", "https://ollama.com"),
    Client("ollama", "2", "https://ollama.com"),
    Client("httpx", "1.1"),
    Client("httpx", "2"),
    Client("requests", "1.1"),
    Client("aiohttp", "1.1"),
    Client("curl", "1.1"),
    Client("curl", "2"),
    Client("undici", "1.1"),
    Client("undici", "2"),
]


def name(client: Client) -> str:
    there = client.server.rpartition("/")[2]
    return "-".join(part for part in (client.name, there, f"http{client.version}") if part)


@dataclass(frozen=True)
class Lane:
    """One proxy with its providers; one client at a time runs here."""

    mock: Mock
    mistral: Mock
    """Speaks Mistral's variant of OpenAI's API."""
    proxy: Proxy
    env: dict[str, str]


@dataclass(frozen=True)
class Run:
    """What one client got, what the mock and the proxy counted meanwhile."""

    result: dict[str, Any]
    stats: dict[str, Any]
    counted: dict[str, int]
    log: str


@contextlib.contextmanager
def open_lane(home: Path) -> Iterator[Lane]:
    listener = free_port()
    options = {"seed": 23, "https": True, "tokens": TOKENS, "tls_dir": home / "tls", **FAULTS}
    with (
        running_mock(**options) as mock,
        running_mock(**options, flavour="mistral") as mistral,
        running_proxy(
            home / "proxy",
            upstreams(mock.https_url, HOSTS)
            + f"  api.mistral.ai: {mistral.https_url}\n"
            + PATIENT,
            "--set", f"ssl_verify_upstream_trusted_ca={mock.ca}",
            "--mode", "regular",
            "--mode", f"reverse:http://127.0.0.1:11434@{listener}",
        ) as proxy,
    ):  # fmt: skip
        # curl reads all of its bundle at each start. Loopback is what httpx would send through the proxy.
        env = proxy.client_env() | {
            "CURL_CA_BUNDLE": str(proxy.ca),
            "NO_PROXY": "127.0.0.1",
            "OLLAMA_HOST": f"http://127.0.0.1:{listener}",
            "OLLAMA_API_KEY": "test",
        }
        yield Lane(mock, mistral, proxy, env)


def start(client: Client, env: dict[str, str]) -> dict[str, Any]:
    """The client's report; what it knows of the proxy are variables."""
    amounts = (client.version, str(CALLS), str(PARALLEL))
    if client.name == "undici":
        program = str(Path(__file__).parent / "clients" / "undici.cjs")
        words = ["node", program, *amounts]
        env = {**env, "HIVEMIND_TEST_NPM": str(npm_folder("undici"))}
    else:
        words = [sys.executable, "-m", "tests.e2e.clients", client.name, *amounts]
        env = {**env, "OLLAMA_HOST": client.server} if client.server else env
    report: dict[str, Any] = run_json(words, env)
    return report


def run(lanes: "SimpleQueue[Lane]", client: Client) -> Run:
    lane = lanes.get()
    try:
        mock = lane.mistral if client.name == "mistralai" else lane.mock
        mock.reset()
        before = lane.proxy.status()["totals"]
        result = start(client, lane.env)
        after = lane.proxy.status()["totals"]
        counted = {key: after[key] - before[key] for key in after}
        return Run(result, mock.stats(), counted, lane.proxy.logged())
    finally:
        lanes.put(lane)


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """Two clients at a time: half of a run is waiting for what the provider said."""
    items = [item for item in request.session.items if item.module is request.module]
    with contextlib.ExitStack() as stack:
        lanes: SimpleQueue[Lane] = SimpleQueue()
        for _ in range(LANES):
            lanes.put(stack.enter_context(open_lane(tmp_path_factory.mktemp("lane"))))
        pool = stack.enter_context(ThreadPoolExecutor(LANES))
        stack.callback(pool.shutdown, cancel_futures=True)
        clients = [item.callspec.params["client"] for item in items]
        yield {client: pool.submit(run, lanes, client) for client in clients}


@pytest.mark.timeout(200)
@pytest.mark.parametrize("client", CLIENTS, ids=name)
def test_every_call_is_answered_at_30_percent_faults(runs, client):
    done = runs[client].result()
    assert done.result["failed"] == []
    plain, streamed = done.result["texts"]["plain"], done.result["texts"]["stream"]
    assert (len(plain), len(streamed)) == (100, 100)
    # The mock answers a prompt the same way each time, and no two alike.
    assert streamed == plain
    assert len(set(plain.values())) == 100
    assert {len(text.split()) for text in plain.values()} == {TOKENS}

    assert set(done.stats["faults"]) == set(FAULTS)
    assert sum(done.stats["faults"].values()) > 0.25 * done.stats["requests"]["total"]
    counted = done.counted
    assert (counted["calls"], counted["errors"], counted["in_flight"]) == (200, 0, 0)
    assert counted["attempts"] == done.stats["requests"]["total"]
    assert (counted["output_tokens"], counted["estimated_tokens"]) == (200 * TOKENS, 0)
    assert "Traceback" not in done.log
    assert "Addon error" not in done.log
    # Only an SDK's own default client keeps its version to itself; all of them speak HTTP/1.1.
    assert (done.result["versions"] or ["HTTP/1.1"]) == [f"HTTP/{client.version}"]
