"""The control port, asked by a real client."""

import logging
import socket

import aiohttp
import pytest

from hivemind_addon.web.control import ControlServer

TOKEN = "a-secret-token"
SNAPSHOT = {
    "version": "9.9",
    "uptime": 1.5,
    "proxy": {"host": "127.0.0.1", "port": 8080},
    "buckets": [{"bucket": "anthropic/k1/opus", "limit": 4, "in_flight": 1, "waiting": 0}],
    "agents": {"lit-7": {"calls": 1}},
    "totals": {"calls": 1},
}


class FakeHive:
    def __init__(self):
        self.resized = []
        self.failure = None

    def snapshot(self):
        return SNAPSHOT

    def resize(self, pattern, limit):
        if self.failure:
            raise self.failure
        self.resized.append((pattern, limit))
        return ["anthropic/k1/opus"]


@pytest.fixture
def hive():
    return FakeHive()


@pytest.fixture
async def client(hive):
    server = ControlServer(hive, TOKEN, "127.0.0.1", 0)
    port = await server.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session
    await server.stop()


def authorised(token=TOKEN):
    return {"Authorization": f"Bearer {token}"}


async def post_limit(client, body, headers=None):
    async with client.post(
        "/api/limit", json=body, headers=authorised() if headers is None else headers
    ) as answer:
        return answer.status, await answer.json()


async def test_health_says_the_version(client):
    async with client.get("/healthz") as answer:
        assert answer.status == 200
        assert await answer.json() == {"status": "ok", "version": "9.9"}


async def test_status_is_the_snapshot_and_needs_no_token(client):
    async with client.get("/api/status") as answer:
        assert await answer.json() == SNAPSHOT


async def test_every_answer_carries_security_headers(client):
    for path in ("/healthz", "/nope"):
        async with client.get(path) as answer:
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "aiohttp" not in answer.headers["Server"]


async def test_a_limit_is_changed_with_the_token(client, hive):
    status, body = await post_limit(client, {"bucket": "anthropic/*", "limit": 7})
    assert (status, body["changed"]) == (200, ["anthropic/k1/opus"])
    assert hive.resized == [("anthropic/*", 7)]


@pytest.mark.parametrize(
    "headers",
    [{}, authorised("wrong"), authorised(TOKEN[:-1]), {"Authorization": f"Basic {TOKEN}"}],
)
async def test_without_the_token_nothing_changes(client, hive, headers):
    status, body = await post_limit(client, {"bucket": "*", "limit": 7}, headers)
    assert status == 401
    assert TOKEN not in body["error"]["message"]
    assert hive.resized == []


async def test_a_token_that_is_no_ascii_is_refused_and_not_a_crash(client):
    headers = {"Authorization": "Bearer h\u00e9h\u00e9"}
    assert (await post_limit(client, {"bucket": "*", "limit": 7}, headers))[0] == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8089", "10.0.0.1", ""])
@pytest.mark.parametrize("path", ["/healthz", "/api/status", "/nope"])
async def test_a_foreign_host_name_is_refused_against_dns_rebinding(client, path, host):
    async with client.get(path, headers={"Host": host}) as answer:
        assert answer.status == 403
        assert (await answer.json())["error"]["field"] == "Host"


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8089", "LOCALHOST"])
async def test_every_loopback_name_is_served(client, host):
    async with client.get("/healthz", headers={"Host": host}) as answer:
        assert answer.status == 200


async def test_a_form_post_is_refused(client, hive):
    async with client.post(
        "/api/limit", data={"bucket": "*", "limit": "7"}, headers=authorised()
    ) as answer:
        assert answer.status == 415
        assert "application/json" in (await answer.json())["error"]["message"]
    assert hive.resized == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"limit": 3}, "bucket"),
        ({"bucket": " ", "limit": 3}, "bucket"),
        ({"bucket": 5, "limit": 3}, "bucket"),
        ({"bucket": "*"}, "limit"),
        ({"bucket": "*", "limit": 0}, "limit"),
        ({"bucket": "*", "limit": True}, "limit"),
        ({"bucket": "*", "limit": 2.5}, "limit"),
        ({"bucket": "*", "limit": "3"}, "limit"),
        ({"bucket": "*", "limit": 10_001}, "limit"),
        ({"bucket": "*", "limit": 3, "extra": 1}, "extra"),
        ([1, 2], "body"),
    ],
)
async def test_a_bad_body_is_answered_with_field_and_what_is_allowed(client, hive, body, field):
    status, answer = await post_limit(client, body)
    assert status == 400
    assert answer["error"]["field"] == field
    assert answer["error"]["message"].startswith(f"{field}: got ")
    assert "allowed: " in answer["error"]["message"]
    assert hive.resized == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 50_000])
async def test_a_body_that_is_no_json_is_answered_with_400(client, body):
    headers = {**authorised(), "Content-Type": "application/json"}
    async with client.post("/api/limit", data=body, headers=headers) as answer:
        assert answer.status == 400
        assert "not valid JSON" in (await answer.json())["error"]["message"]


async def test_a_huge_body_is_refused(client):
    status, answer = await post_limit(client, {"bucket": "x" * 100_000, "limit": 1})
    assert status == 413
    assert answer["error"]["message"]


async def test_what_the_hive_refuses_is_told(client, hive):
    hive.failure = ValueError("pattern '[': not usable")
    status, answer = await post_limit(client, {"bucket": "[", "limit": 1})
    assert (status, answer["error"]["message"]) == (400, "pattern '[': not usable")


async def test_a_crash_is_an_answer_without_details(client, hive, caplog):
    hive.failure = RuntimeError("inner secret")
    status, answer = await post_limit(client, {"bucket": "*", "limit": 1})
    assert (status, answer["error"]["message"]) == (500, "internal error")
    assert "control.failed" in caplog.text


async def test_wrong_paths_and_methods_are_json_errors(client):
    async with client.get("/nope") as answer:
        assert (answer.status, "error" in await answer.json()) == (404, True)
    async with client.get("/api/limit") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")


async def test_a_taken_port_is_replaced_by_a_free_one_and_both_are_told(hive, caplog):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wanted = taken.getsockname()[1]
        server = ControlServer(hive, TOKEN, "127.0.0.1", wanted)
        with caplog.at_level(logging.WARNING):
            used = await server.start()
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{used}/healthz") as answer,
        ):
            assert answer.status == 200
        await server.stop()
        await server.stop()
    assert used != wanted
    assert f"wanted={wanted} used={used}" in caplog.text


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "example.com", ""])
def test_it_listens_on_loopback_only(hive, host):
    with pytest.raises(ValueError, match="loopback"):
        ControlServer(hive, TOKEN, host, 0)


def test_an_empty_token_is_refused(hive):
    with pytest.raises(ValueError, match="token"):
        ControlServer(hive, "", "127.0.0.1", 0)


class FakeListeners:
    def servers(self):
        return [{"profile": "ollama", "target": "http://127.0.0.1:11434", "url": None}]

    async def open(self, profile, target):
        if profile == "taken":
            raise OSError("no port is free")
        if profile != "ollama":
            raise ValueError(f"profile: got {profile!r}, allowed: one of ollama")
        return "http://127.0.0.1:21434"


@pytest.fixture
async def local_client(hive):
    server = ControlServer(hive, TOKEN, "127.0.0.1", 0, FakeListeners())
    port = await server.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session
    await server.stop()


async def post_local(client, body, headers=None):
    sent = authorised() if headers is None else headers
    async with client.post("/api/local", json=body, headers=sent) as answer:
        return answer.status, await answer.json()


async def test_local_servers_are_listed_and_opened(local_client):
    async with local_client.get("/api/local") as answer:
        assert (await answer.json())["servers"][0]["profile"] == "ollama"
    body = {"profile": "ollama", "target": "http://127.0.0.1:11434"}
    assert await post_local(local_client, body) == (200, {**body, "url": "http://127.0.0.1:21434"})
    assert (await post_local(local_client, body, {}))[0] == 401


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"profile": "x", "target": "http://h:1"}, 400, "profile: got 'x', allowed: one of ollama"),
        ({"profile": "taken", "target": "http://h:1"}, 503, "no port is free"),
        (
            {"profile": 7, "target": "http://h:1"},
            400,
            "profile: got 7, allowed: the name of a profile",
        ),
        (
            {"profile": "ollama", "target": "h:1"},
            400,
            'target: got "h:1", allowed: an http or https URL of host and port',
        ),
        (
            {"profile": "ollama", "target": "http://u:p@h:1"},
            400,
            'target: got "http://u:p@h:1", allowed: an http or https URL of host and port',
        ),
    ],
)
async def test_a_listener_that_cannot_be_opened_says_why(local_client, body, status, message):
    found, answer = await post_local(local_client, body)
    assert (found, answer["error"]["message"]) == (status, message)
