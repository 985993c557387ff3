"""Provider profiles: hosts, paths, model families, and the errors of their files."""

import dataclasses
import re
import string
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind_addon import profile_set as module
from hivemind_addon.model import Operation
from hivemind_addon.profile_set import built_in_folder, load_profiles
from hivemind_addon.profiles import DIALECTS, Profile, Route
from hivemind_addon.schema import SettingsError
from hivemind_addon.wire import registry

GENERATION, EMBEDDINGS = Operation.GENERATION, Operation.EMBEDDINGS
TOKEN_COUNT, OTHER = Operation.TOKEN_COUNT, Operation.OTHER
BUILT_IN = load_profiles()
AT_ONCE = {
    "anthropic": 8,
    "azure-openai": 8,
    "bedrock": 6,
    "deepseek": 64,
    "generic": 4,
    "google-ai": 8,
    "groq": 8,
    "llamacpp": 4,
    "lmstudio": 2,
    "mistral": 8,
    "mlx": 1,
    "ollama": 2,
    "openai": 16,
    "openrouter": 16,
    "vertex": 8,
    "vllm": 64,
    "xai": 8,
}
"""Generations at once per bucket, by profile."""


def errors(folder: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_profiles(folder)
    return [line.removeprefix(f"{folder}/") for line in str(caught.value).splitlines()]


@pytest.fixture
def folder(tmp_path: Path):
    """Write profile files into a folder of the user's; answers the folder."""

    def write(**files: str) -> Path:
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path

    return write


def test_every_built_in_profile_loads():
    assert set(BUILT_IN.profiles) == set(AT_ONCE)
    assert {path.stem for path in built_in_folder().glob("*")} == set(BUILT_IN.profiles)


@pytest.mark.parametrize("profile", BUILT_IN.profiles.values(), ids=str)
def test_built_in_profiles_are_sound(profile):
    assert profile.timeouts.connect == 5
    assert min(profile.timeouts.first_byte, profile.timeouts.idle) >= 600
    assert profile.timeouts.total is None
    assert profile.prelude_hold == 2
    assert {408, 429, 500, 502, 503, 504, 529} <= profile.retryable
    # Only the SDKs of these take a 409 for a lock that passes.
    assert (409 in profile.retryable) is (
        profile.name in ("anthropic", "openai", "azure-openai", "groq", "xai")
    )
    # A 402 may mean that calls in flight have reserved too much at OpenRouter, and is final elsewhere.
    assert (402 in profile.retryable) is (profile.name == "openrouter")
    assert not profile.retryable & {400, 401, 403, 404, 413, 422}
    assert profile.overload
    assert profile.concurrency_of(GENERATION) <= profile.aimd.max


def test_built_in_defaults_are_the_decided_ones():
    found = {name: p.concurrency_of(GENERATION) for name, p in BUILT_IN.profiles.items()}
    assert found == AT_ONCE
    assert BUILT_IN.get("anthropic").auth_headers == ("authorization", "x-api-key")
    assert [p.name for p in BUILT_IN.profiles.values() if p.include_usage] == [
        "deepseek",
        "llamacpp",
        "openai",
        "vllm",
    ]
    assert BUILT_IN.listing is BUILT_IN.get("generic")


def test_the_dialects_are_those_that_exist():
    assert set(DIALECTS) == set(registry.DIALECTS)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.anthropic.com", "anthropic"),
        ("API.Anthropic.COM", "anthropic"),
        ("api.anthropic.com.", "anthropic"),
        ("api.openai.com", "openai"),
        ("chatgpt.com", "openai"),
        *[
            (f"{region}.api.openai.com", "openai")
            for region in ("us", "eu", "ae", "au", "in", "jp")
        ],
        ("my-res.openai.azure.com", "azure-openai"),
        ("my-res.openai.azure.us", "azure-openai"),
        ("my-res.services.ai.azure.com", "azure-openai"),
        ("my-res.cognitiveservices.azure.com", "azure-openai"),
        ("generativelanguage.googleapis.com", "google-ai"),
        ("generativelanguage.mtls.googleapis.com", "google-ai"),
        ("cloudcode-pa.googleapis.com", "google-ai"),
        ("aiplatform.googleapis.com", "vertex"),
        ("us-central1-aiplatform.googleapis.com", "vertex"),
        ("aiplatform.eu.rep.googleapis.com", "vertex"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "bedrock"),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "bedrock"),
        ("bedrock-runtime.cn-north-1.amazonaws.com.cn", "bedrock"),
        ("bedrock-mantle.eu-west-1.api.aws", "bedrock"),
        ("ollama.com", "ollama"),
        ("openrouter.ai", "openrouter"),
        ("api.groq.com", "groq"),
        ("api.mistral.ai", "mistral"),
        ("api.deepseek.com", "deepseek"),
        ("api.x.ai", "xai"),
    ],
)
def test_hosts_of_the_table_are_matched(host, name):
    for port in (None, 443, 8443):
        assert BUILT_IN.match_host(host, port) is BUILT_IN.get(name)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "api.anthropic.com.evil.com",
        "xapi.anthropic.com",
        "x.api.anthropic.com",
        "api-anthropic.com",
        "apixanthropic.com",
        "anthropic.com",
        "platform.claude.com",
        "claude.ai",
        "xapi.openai.com",
        "x.api.openai.com",
        "us.us.api.openai.com",
        "usapi.openai.com",
        "api.openai.com.evil.com",
        "openai.com",
        "ab.chatgpt.com",
        "xchatgpt.com",
        "chatgpt.com.evil.com",
        "api.openai.com\n",
        "api.openai.com:443",
        "ap\u0131.openai.com",
        "AP\u0130.openai.com",
        "\u212aapi.openai.com",
        "api\uff0eopenai\uff0ecom",
        "github.com",
        "storage.googleapis.com",
        "googleapis.com",
        "azure.com",
        "a.b.openai.azure.com",
        "bedrock.us-east-1.amazonaws.com",
        "s3.amazonaws.com",
        "x.ai",
        "console.groq.com",
        "registry.ollama.ai",
        "127.0.0.1",
        "::1",
    ],
)
def test_other_hosts_are_not_touched(host):
    assert BUILT_IN.match_host(host, 443) is None


def test_a_host_rule_with_a_port_holds_for_that_port_only():
    ollama = BUILT_IN.get("ollama")
    for host in ("127.0.0.1", "localhost", "::1", "[::1]"):
        assert BUILT_IN.match_host(host, 11434) is ollama
        assert BUILT_IN.match_host(host, 11435) is None
        assert BUILT_IN.match_host(host) is None
    assert ollama.local is not None
    assert (ollama.local.port, ollama.local.detect) == (11434, True)
    assert ollama.local.variables == {"OLLAMA_HOST": "{url}", "OLLAMA_API_KEY": "{key}"}


def test_a_variable_is_exported_for_one_server_only():
    locals_ = [p.local for p in BUILT_IN.profiles.values() if p.local is not None]
    names = [name for local in locals_ for name in local.variables]
    assert len(names) == len(set(names)) > 0
    detected = [local.port for local in locals_ if local.detect]
    assert len(detected) == len(set(detected))
    assert 8080 not in detected, "our own default port"


VERTEX = "/v1/projects/p/locations/us/publishers"
DEPLOYMENT = "/openai/deployments/d"
GENAI = "/v1beta/models/gemini-3-pro"
ROUTES = [
    ("google-ai", "POST", f"{GENAI}:generateContent", GENERATION, "gemini"),
    ("google-ai", "POST", f"{GENAI}:streamGenerateContent?alt=sse", GENERATION, "gemini"),
    ("google-ai", "POST", f"{GENAI}:countTokens", TOKEN_COUNT, "gemini"),
    ("google-ai", "POST", f"{GENAI}:batchEmbedContents", EMBEDDINGS, "gemini"),
    ("google-ai", "POST", f"{GENAI}:batchGenerateContent", OTHER, "gemini"),
    ("google-ai", "GET", GENAI, OTHER, "gemini"),
    ("google-ai", "POST", "/upload/v1beta/files", OTHER, "gemini"),
    ("google-ai", "POST", "/v1internal:streamGenerateContent?alt=sse", GENERATION, "gemini"),
    ("google-ai", "POST", "/v1internal:loadCodeAssist", OTHER, "gemini"),
    ("google-ai", "POST", "/v1beta/openai/chat/completions", GENERATION, "openai-chat"),
    ("vertex", "POST", f"{VERTEX}/google/models/g:streamGenerateContent", GENERATION, "gemini"),
    ("vertex", "POST", f"{VERTEX}/anthropic/models/c:rawPredict", GENERATION, "anthropic"),
    ("vertex", "POST", f"{VERTEX}/anthropic/models/c:streamRawPredict", GENERATION, "anthropic"),
    (
        "vertex",
        "POST",
        f"{VERTEX}/anthropic/models/count-tokens:rawPredict",
        TOKEN_COUNT,
        "anthropic",
    ),
    ("vertex", "POST", f"{VERTEX}/google/models/text-embedding-005:predict", EMBEDDINGS, "gemini"),
    (
        "azure-openai",
        "POST",
        f"{DEPLOYMENT}/chat/completions?api-version=1",
        GENERATION,
        "openai-chat",
    ),
    ("azure-openai", "POST", f"{DEPLOYMENT}/embeddings", EMBEDDINGS, "openai-chat"),
    ("azure-openai", "POST", "/openai/responses?api-version=1", GENERATION, "openai-responses"),
    ("azure-openai", "POST", "/openai/v1/responses", GENERATION, "openai-responses"),
    ("azure-openai", "POST", "/anthropic/v1/messages", GENERATION, "anthropic"),
    ("azure-openai", "POST", "/openai/files", OTHER, "openai-chat"),
    ("bedrock", "POST", "/model/us.anthropic.claude-sonnet-5-v1%3A0/invoke", GENERATION, "bedrock"),
    ("bedrock", "POST", "/model/arn:aws:bedrock:x/y/converse-stream", GENERATION, "bedrock"),
    ("bedrock", "POST", "/model/m/count-tokens", TOKEN_COUNT, "bedrock"),
    ("bedrock", "POST", "/anthropic/v1/messages", GENERATION, "anthropic"),
    ("ollama", "POST", "/api/chat", GENERATION, "ollama"),
    ("ollama", "POST", "/api/embed", EMBEDDINGS, "ollama"),
    ("ollama", "POST", "/api/pull", OTHER, "ollama"),
    ("ollama", "GET", "/api/tags", OTHER, "ollama"),
    ("ollama", "POST", "/v1/chat/completions", GENERATION, "openai-chat"),
    ("openrouter", "POST", "/api/v1/chat/completions", GENERATION, "openai-chat"),
    ("openrouter", "GET", "/api/v1/generation?id=1", OTHER, "openai-chat"),
    ("groq", "POST", "/openai/v1/chat/completions", GENERATION, "openai-chat"),
    ("mistral", "POST", "/v1/fim/completions", GENERATION, "openai-chat"),
    ("deepseek", "POST", "/chat/completions", GENERATION, "openai-chat"),
    ("deepseek", "POST", "/anthropic/v1/messages", GENERATION, "anthropic"),
    ("xai", "POST", "/v1/chat/completions", GENERATION, "openai-chat"),
    ("llamacpp", "POST", "/completion", GENERATION, "generic"),
    ("llamacpp", "GET", "/health", OTHER, "openai-chat"),
    ("lmstudio", "POST", "/api/v1/chat", GENERATION, "generic"),
    ("vllm", "POST", "/v1/chat/completions", GENERATION, "openai-chat"),
    ("generic", "POST", "/api/chat", GENERATION, "ollama"),
    ("generic", "POST", "/api/embeddings", EMBEDDINGS, "ollama"),
    ("generic", "POST", "/v1/embeddings", EMBEDDINGS, "openai-chat"),
    ("generic", "POST", "/v1beta/models/g:streamGenerateContent?alt=sse", GENERATION, "gemini"),
    ("mlx", "POST", "/v1/chat/completions", GENERATION, "openai-chat"),
    ("anthropic", "POST", "/v1/messages", GENERATION, "anthropic"),
    ("anthropic", "POST", "/v1/messages?beta=true", GENERATION, "anthropic"),
    ("anthropic", "post", "/v1/messages/", GENERATION, "anthropic"),
    ("anthropic", "POST", "/v1/messages/count_tokens", TOKEN_COUNT, "anthropic"),
    ("anthropic", "POST", "/v1/messages/count_tokens?beta=true", TOKEN_COUNT, "anthropic"),
    ("anthropic", "POST", "/v1/complete", GENERATION, "anthropic"),
    ("anthropic", "POST", "/v1/messages/batches", OTHER, "anthropic"),
    ("anthropic", "GET", "/v1/messages/batches/msgbatch_1/results", OTHER, "anthropic"),
    ("anthropic", "GET", "/v1/messages", OTHER, "anthropic"),
    ("anthropic", "OPTIONS", "/v1/messages", OTHER, "anthropic"),
    ("anthropic", "GET", "/v1/models", OTHER, "anthropic"),
    ("anthropic", "POST", "/v1/files", OTHER, "anthropic"),
    ("anthropic", "HEAD", "/api/hello", OTHER, "anthropic"),
    ("anthropic", "POST", "/x/v1/messages", OTHER, "anthropic"),
    ("anthropic", "POST", "/v1/messagesx", OTHER, "anthropic"),
    ("anthropic", "POST", "/V1/Messages", OTHER, "anthropic"),
    ("anthropic", "POST", "/other?x=/v1/messages", OTHER, "anthropic"),
    ("anthropic", "POST", "", OTHER, "anthropic"),
    ("openai", "POST", "/v1/chat/completions", GENERATION, "openai-chat"),
    ("openai", "POST", "/v1/completions", GENERATION, "openai-chat"),
    ("openai", "POST", "/v1/responses", GENERATION, "openai-responses"),
    ("openai", "POST", "/v1/responses/compact", GENERATION, "openai-responses"),
    ("openai", "POST", "/v1/responses/input_tokens", TOKEN_COUNT, "openai-responses"),
    ("openai", "GET", "/v1/responses/resp_123", OTHER, "openai-responses"),
    ("openai", "GET", "/v1/responses/resp_123?stream=true", OTHER, "openai-responses"),
    ("openai", "POST", "/v1/responses/resp_123/cancel", OTHER, "openai-responses"),
    ("openai", "DELETE", "/v1/responses/resp_123", OTHER, "openai-responses"),
    ("openai", "GET", "/v1/responses", OTHER, "openai-chat"),
    ("openai", "POST", "/v1/embeddings", EMBEDDINGS, "openai-chat"),
    ("openai", "POST", "/v1/images/generations", GENERATION, "generic"),
    ("openai", "POST", "/v1/audio/speech", GENERATION, "generic"),
    ("openai", "POST", "/v1/moderations", OTHER, "openai-chat"),
    ("openai", "POST", "/v1/batches", OTHER, "openai-chat"),
    ("openai", "GET", "/v1/chat/completions/chatcmpl-1", OTHER, "openai-chat"),
    ("openai", "POST", "/backend-api/codex/responses", GENERATION, "openai-responses"),
    ("openai", "POST", "/backend-api/codex/responses/compact", GENERATION, "openai-responses"),
    ("openai", "GET", "/backend-api/codex/models", OTHER, "openai-chat"),
    ("openai", "POST", "/backend-api/conversation", OTHER, "openai-chat"),
    ("generic", "POST", "/v1/messages", GENERATION, "anthropic"),
    ("generic", "POST", "/anthropic/v1/messages?beta=true", GENERATION, "anthropic"),
    ("generic", "POST", "/v1/messages/count_tokens", TOKEN_COUNT, "anthropic"),
    ("generic", "POST", "/v1/messages/batches", OTHER, "generic"),
    ("generic", "POST", "/openai/v1/chat/completions", GENERATION, "openai-chat"),
    ("generic", "POST", "/api/v1/responses", GENERATION, "openai-responses"),
    ("generic", "POST", "/v1/responses/input_tokens", TOKEN_COUNT, "openai-responses"),
    ("generic", "GET", "/v1/responses/resp_1", OTHER, "generic"),
    ("generic", "POST", "/v1/embeddings", EMBEDDINGS, "openai-chat"),
    ("generic", "POST", "/v1/completions", GENERATION, "openai-chat"),
    ("generic", "GET", "/health", OTHER, "generic"),
    ("generic", "POST", "/api/pull", OTHER, "generic"),
]


@pytest.mark.parametrize(("name", "method", "path", "operation", "dialect"), ROUTES)
def test_paths_tell_operation_and_dialect(name, method, path, operation, dialect):
    for _again in range(2):  # the second answer comes from the cache
        assert BUILT_IN.get(name).route(method, path) == Route(operation, dialect)


def test_outside_its_api_a_host_has_no_generation():
    openai = BUILT_IN.get("openai")
    assert openai.route("POST", "/v1/responses", "chatgpt.com").operation is OTHER
    assert openai.route("POST", "/v1/responses", "api.openai.com").operation is GENERATION
    codex = openai.route("POST", "/backend-api/codex/responses", "ChatGPT.com")
    assert codex.operation is GENERATION
    assert openai.route("POST", "/v1/responses", "proxy.lan").operation is GENERATION


@pytest.mark.parametrize(
    ("name", "model", "family"),
    [
        ("anthropic", "claude-opus-4-1-20250805", "opus"),
        ("anthropic", "claude-3-5-haiku-latest", "haiku"),
        ("anthropic", "Claude-Sonnet-5.5", "sonnet"),
        ("anthropic", "claude-fable-5", "fable"),
        ("anthropic", "claude-2.1", "claude-2.1"),
        ("anthropic", "claude-opusculum", "claude-opusculum"),
        ("openai", "gpt-4o-2024-08-06", "gpt-4o"),
        ("openai", "gpt-4o", "gpt-4o"),
        ("openai", "gpt-5-mini", "gpt-5-mini"),
        ("openai", "o3-20250416", "o3"),
        ("openai", "gpt-4-0613", "gpt-4-0613"),
        ("generic", "qwen/qwen3@20260101", "qwen/qwen3"),
        ("generic", None, "unknown"),
        ("generic", "  ", "unknown"),
        ("generic", "a\nb\x1b", "a_b_"),
        ("generic", "m" * 300, "m" * 64),
    ],
)
def test_snapshots_of_a_model_share_a_family(name, model, family):
    assert BUILT_IN.get(name).family(model) == family


@given(model=st.text())
def test_a_family_is_always_short_printable_text(model):
    for profile in BUILT_IN.profiles.values():
        family = profile.family(model)
        assert 0 < len(family) <= 64
        assert family.isprintable()


@given(
    host=st.text(string.ascii_letters + ".-\n\u0131\u212a*[]:", max_size=30),
    port=st.none() | st.integers(),
)
def test_a_host_is_matched_only_if_it_is_listed_letter_by_letter(host, port):
    known = {"api.anthropic.com", "api.openai.com", "chatgpt.com"}
    if BUILT_IN.match_host(host, port) is not None:
        bare = host.lower().rstrip(".").strip("[]")
        assert bare in known or bare.partition(".")[2] in known


@given(suffix=st.text("/v1mesagc?#%.", max_size=12))
def test_the_query_never_changes_a_route(suffix):
    for profile in BUILT_IN.profiles.values():
        for path in ("/v1/messages", "/v1/responses", "/x"):
            assert profile.route("POST", f"{path}?{suffix}") == profile.route("POST", path)


def test_caches_are_bounded(monkeypatch):
    monkeypatch.setattr("hivemind_addon.profiles._MOST_CACHED", 8)
    profiles = load_profiles()
    openai = profiles.get("openai")
    for number in range(50):
        profiles.match_host(f"h{number}.example")
        openai.route("GET", f"/v1/responses/{number}")
    openai.route("GET", "/" + "x" * 10_000)
    assert len(profiles._cache) <= 8
    assert len(openai._routes) <= 8
    assert all(len(path) <= 256 for _, path, _ in openai._routes)


def test_a_file_of_the_user_adds_a_profile(folder):
    place = folder(groq="{name: groq, hosts: ['api\\.groq\\.com'], dialect: openai-chat}")
    profiles = load_profiles(place)
    groq = profiles.match_host("api.groq.com")
    assert groq is profiles.get("groq")
    assert groq.route("POST", "/x") == Route(OTHER, "openai-chat")
    assert profiles.match_host("api.anthropic.com") is profiles.get("anthropic")


def test_a_file_of_the_user_replaces_the_profile_of_its_name(folder):
    profiles = load_profiles(folder(mine="{name: openai, hosts: ['llm\\.lan']}"))
    assert profiles.match_host("api.openai.com") is None
    assert profiles.match_host("llm.lan") is profiles.get("openai")
    assert len(profiles.profiles) == len(AT_ONCE)


def test_a_host_in_two_profiles_belongs_to_the_users(folder):
    profiles = load_profiles(folder(mine="{name: mine, hosts: ['api\\.openai\\.com']}"))
    assert profiles.match_host("api.openai.com") is profiles.get("mine")


def test_other_files_of_the_folder_are_left_alone(folder):
    place = folder()
    (place / "README.md").write_text("words")
    (place / "old.yaml.bak").write_text("words")
    assert set(load_profiles(place).profiles) == set(BUILT_IN.profiles)


def test_listed_hosts_are_exact_or_below_a_domain_with_or_without_a_port():
    profiles = BUILT_IN.with_hosts(("llm.lan", "*.gpu.lan:8000", "api.openai.com", "[fd00::1]"))
    generic = profiles.get("generic")
    for host, port in [("LLM.lan", None), ("llm.lan", 1), ("a.b.gpu.lan", 8000), ("[fd00::1]", 80)]:
        assert profiles.match_host(host, port) is generic
    for host, port in [
        ("x.llm.lan", 1),
        ("llmxlan", 1),
        ("gpu.lan", 8000),
        ("a.gpu.lan", 80),
        ("a.gpu.lan", None),
    ]:
        assert profiles.match_host(host, port) is None
    assert profiles.match_host("api.openai.com") is profiles.get("openai")
    assert BUILT_IN.match_host("llm.lan") is None


HOSTS = "hosts: [a]"
NAME = "a name of lower-case letters, digits, '.', '_' and '-'"
STATUS = "a whole number from 400 to 599"
REGEX = "a regular expression"
ERRORS = [
    (HOSTS, f"name: got nothing, allowed: {NAME}"),
    (f"{{name: null, {HOSTS}}}", f"name: got nothing, allowed: {NAME}"),
    (f"{{name: a/b, {HOSTS}}}", f"name: got 'a/b', allowed: {NAME}"),
    ("name: x", "hosts: got a list of 0, allowed: at least one host, unless listed_hosts or local is set"),
    (
        "{name: x, hosts: ['[a']}",
        f"hosts[0]: got '[a', allowed: {REGEX} (unterminated character set at position 0)",
    ),
    (
        "{name: x, hosts: ['a)|(b']}",
        f"hosts[0]: got 'a)|(b', allowed: {REGEX} (unbalanced parenthesis at position 1)",
    ),
    (
        "{name: x, hosts: ['[[a]']}",
        f"hosts[0]: got '[[a]', allowed: {REGEX} (Possible nested set at position 1)",
    ),
    ("{name: x, hosts: [a, 5]}", f"hosts[1]: got 5, allowed: {REGEX}"),
    ("{name: x, hosts: [{host: a}]}", f"hosts[0].path: got nothing, allowed: {REGEX}, or a port instead"),
    (
        "{name: x, hosts: [a], paths: [{path: '*', operation: other, dialect: generic}]}",
        f"paths[0].path: got '*', allowed: {REGEX} (nothing to repeat at position 0)",
    ),
    (
        "{name: x, hosts: [a], paths: [{path: b, operation: talk, dialect: generic}]}",
        "paths[0].operation: got 'talk', allowed: one of generation, embeddings, token_count, other",
    ),
    (
        "{name: x, hosts: [a], paths: [{path: b, operation: other, dialect: latin}]}",
        "paths[0].dialect: got 'latin', allowed: one of anthropic, openai-chat, openai-responses, gemini, ollama, bedrock, generic",
    ),
    (
        "{name: x, hosts: [a], paths: [{path: b, operation: other, dialect: generic, methods: [get]}]}",
        "paths[0].methods[0]: got 'get', allowed: one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
    ),
    (
        "{name: x, hosts: [a], paths: [{path: b, operation: other, dialect: generic, method: GET}]}",
        "paths[0].method: unknown key (did you mean methods?), allowed: path, methods, operation, dialect",
    ),
    ("{name: x, hosts: [a], paths: [5]}", "paths[0]: got 5, allowed: a mapping with keys"),
    ("{name: x, hosts: [a], retryable: [429, 200]}", f"retryable[1]: got 200, allowed: {STATUS}"),
    ("{name: x, hosts: [a], retryable: [true]}", f"retryable[0]: got true, allowed: {STATUS}"),
    ("{name: x, hosts: [a], overload: [529]}", "overload: got 529, allowed: statuses that retryable lists too"),
    ("{name: x, hosts: [a], limits: {rpm: 0}}", "limits.rpm: got 0, allowed: a whole number from 1 to 10000000000"),
    (
        "{name: x, hosts: [a], concurrency: {generation: 1.5}}",
        "concurrency.generation: got 1.5, allowed: a whole number from 1 to 10000",
    ),
    (
        "{name: x, hosts: [a], concurrency: {other: 1}}",
        "concurrency.other: unknown key, allowed: generation, embeddings, token_count",
    ),
    ("{name: x, hosts: [a], aimd: {min: 9, max: 8}}", "aimd.min: got 9, allowed: at most aimd.max, 8"),
    ("{name: x, hosts: [a], aimd: {decrease: 1}}", "aimd.decrease: got 1, allowed: a number from 0.1 to 0.99"),
    ("{name: x, hosts: [a], timeouts: {idle: 0}}", "timeouts.idle: got 0, allowed: a number from 1 to 86400"),
    ("{name: x, hosts: [a], auth_headers: [X-Api-Key]}", "auth_headers[0]: got 'X-Api-Key', allowed: a header name in lower case"),
    ("{name: x, hosts: [a], include_usage: 1}", "include_usage: got 1, allowed: true or false"),
    ("{name: x, hosts: [a], model_families: [{match: b}]}", f"model_families[0].family: got nothing, allowed: {NAME}"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "line"), ERRORS, ids=[line[:60] for _, line in ERRORS])
def test_each_error_of_a_profile_is_one_line(folder, content, line):
    assert errors(folder(x=content)) == [f"x.yaml: {line}"]


def test_errors_of_all_files_come_at_once(folder):
    place = folder(
        a="{name: a, hosts: 1}", b="name: [", c="{name: c, hosts: [c]}", d="{name: c, hosts: [d]}"
    )
    assert [line.partition(": ")[0] for line in errors(place)] == [
        "a.yaml",
        "b.yaml",
        "d.yaml",
    ]
    assert (
        errors(place)[-1]
        == "d.yaml: name: got 'c', allowed: a name that no other file of the folder has"
    )


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    missing = tmp_path / "none"
    assert errors(missing) == [f"{missing}: profiles cannot be read: No such file or directory"]


def test_the_built_in_folder_of_a_wheel_wins(tmp_path, monkeypatch):
    (tmp_path / "hivemind_addon" / "_profiles").mkdir(parents=True)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "hivemind_addon" / "profiles.py"))
    assert built_in_folder() == tmp_path / "hivemind_addon" / "_profiles"


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
names = st.sampled_from(
    [f.name for f in dataclasses.fields(Profile)]
    + ["path", "host", "operation", "dialect", "match", "family", "rpm", "min", "max", "idle"]
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(names | st.text(), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(tree=st.dictionaries(names, trees, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_tree_raises_anything_but_a_settings_error(tmp_path, tree):
    text = yaml.safe_dump({"name": "x", "hosts": ["a"]} | tree)
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8", errors="replace")
    lines = []
    try:
        load_profiles(tmp_path)
    except SettingsError as error:
        lines = str(error).splitlines()
    assert len(lines) <= 10
    assert all(line.startswith(str(tmp_path)) and line.isprintable() for line in lines)


@pytest.mark.parametrize("file", ["config", "profile_set", "profiles", "reload", "schema"])
def test_settings_need_no_event_loop_and_no_proxy(file):
    source = (Path(module.__file__).parent / f"{file}.py").read_text()
    assert not re.search(r"\b(?:import|from) (?:mitmproxy|aiohttp|asyncio)\b", source)
