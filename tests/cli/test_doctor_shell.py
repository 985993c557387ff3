"""What the doctor sees of a shell's variables."""

import subprocess
import sys
from dataclasses import replace

import pytest
import requests.utils

from hivemind_addon import rundir
from hivemind_addon.cli.checks import exceptions, shell
from hivemind_addon.cli.checks.exceptions import readers
from hivemind_addon.cli.doctor import chosen
from hivemind_addon.cli.findings import Finding
from hivemind_addon.config import load_all

SETTINGS, PROFILES = load_all(None)
HOSTS = exceptions.llm_hosts(SETTINGS, PROFILES)
ENV = 'eval "$(hivemind env)"'


def info(port: int = 8080, host: str = "127.0.0.1") -> rundir.ProxyInfo:
    return rundir.ProxyInfo(7, "", host, port, "http://127.0.0.1:1", "t", "", "1", 0.0)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        (
            {},
            (
                "HTTPS_PROXY",
                "warn",
                "not set in this shell: only `hivemind run` leads to the proxy",
                f"hivemind run -- CMD, or {ENV}",
            ),
        ),
        (
            {"HTTPS_PROXY": "http://a:x@127.0.0.1:8080"},
            ("HTTPS_PROXY", "ok", "leads to the proxy, 127.0.0.1:8080", ""),
        ),
        (
            {"https_proxy": "localhost:8080"},
            ("https_proxy", "ok", "leads to the proxy, localhost:8080", ""),
        ),
        (
            {"HTTPS_PROXY": "http://127.0.0.1:8080", "https_proxy": "127.0.0.1:8080"},
            ("HTTPS_PROXY", "ok", "leads to the proxy, 127.0.0.1:8080", ""),
        ),
        (
            {"HTTPS_PROXY": "http://127.0.0.1:8081"},
            (
                "HTTPS_PROXY",
                "fail",
                "leads to http://127.0.0.1:8081, but the proxy is on port 8080",
                ENV,
            ),
        ),
        (
            {"HTTPS_PROXY": "socks5://127.0.0.1:8080"},
            (
                "HTTPS_PROXY",
                "fail",
                "leads to socks5://127.0.0.1:8080, but the proxy is on port 8080",
                ENV,
            ),
        ),
        (
            {"HTTPS_PROXY": "http://127.0.0.1:8080", "https_proxy": "http://u:p@corp:3128"},
            (
                "HTTPS_PROXY",
                "fail",
                "differ: HTTPS_PROXY is 127.0.0.1:8080, https_proxy is corp:3128",
                ENV,
            ),
        ),
        (
            {"HTTPS_PROXY": "http://u:p@corp:8080"},
            (
                "HTTPS_PROXY",
                "warn",
                "leads to corp:8080, round the proxy (is it your company's?)",
                "hivemind up --mode upstream:http://corp:8080; then hivemind run -- CMD",
            ),
        ),
        (
            {"HTTPS_PROXY": "http://[::1"},
            ("HTTPS_PROXY", "fail", "is no URL of a proxy", ENV),
        ),
        (
            {"HTTPS_PROXY": "http://127.0.0.1:80800"},
            ("HTTPS_PROXY", "fail", "is no URL of a proxy", ENV),
        ),
    ],
)
def test_the_shells_proxy_variables(environ, found):
    assert shell.proxies(environ, info()) == [Finding(*found)]


def test_a_variable_without_a_proxy_leads_nowhere():
    assert shell.proxies({"HTTPS_PROXY": "http://127.0.0.1:8080"}, None) == [
        Finding(
            "HTTPS_PROXY",
            "fail",
            "leads to 127.0.0.1:8080, where no HiveMind is known",
            "hivemind up",
        )
    ]


def test_plain_http_that_leads_elsewhere_and_socks_are_warned_of():
    environ = {
        "HTTPS_PROXY": "http://127.0.0.1:8080",
        "http_proxy": "http://corp:3128",
        "ALL_PROXY": "",
        "all_proxy": "socks5h://x:1",
    }
    assert [(each.name, each.verdict) for each in shell.proxies(environ, info())] == [
        ("HTTPS_PROXY", "ok"),
        ("http_proxy", "warn"),
        ("ALL_PROXY", "warn"),
    ]


@pytest.mark.parametrize(
    ("url", "host", "same"),
    [
        ("http://127.0.0.1:8080", "", True),
        ("http://localhost:8080", "0.0.0.0", True),
        ("http://[::1]:8080", "::1", True),
        ("http://10.0.0.5:8080", "10.0.0.5", True),
        ("http://127.0.0.1:8080", "10.0.0.5", False),
        ("http://10.0.0.5:8080", "127.0.0.1", False),
        ("http://127.0.0.1", "127.0.0.1", False),
    ],
)
def test_whether_a_url_is_the_proxys(url, host, same):
    assert shell.leads_to(url, info(host=host)) is same


def test_the_proxy_of_this_shell_is_the_one_that_is_examined(running, monkeypatch):
    newer = replace(running, proxy_port=9090, started_at=running.started_at + 1)
    rundir.write_proxy(newer)
    first = chosen({}, None)
    named = chosen({"https_proxy": "http://127.0.0.1:9090"}, None)
    asked = chosen({"https_proxy": "http://127.0.0.1:9090"}, 8080)
    assert [each and each.proxy_port for each in (first, named, asked)] == [8080, 9090, 8080]


def test_llm_hosts_are_those_of_profiles_and_settings(tmp_path):
    for host in ("api.anthropic.com", "api.openai.com", "chatgpt.com", "openrouter.ai"):
        assert host in HOSTS
    assert "resource.openai.azure.com" in HOSTS
    assert "localhost" not in HOSTS
    path = tmp_path / "hivemind.yaml"
    path.write_text("generic_hosts: ['llm.example:8443', '*.corp.example']\n")
    own = exceptions.llm_hosts(*load_all(path))
    assert {"llm.example", "x.corp.example"} <= set(own)


@pytest.mark.parametrize(
    ("word", "who"),
    [
        ("api.anthropic.com", ("Python", "Node", "curl", "Codex", "Go")),
        ("API.Anthropic.com:443", ("Python", "Node", "curl", "Codex", "Go")),
        ("api.anthropic.com.", ("Python", "Node", "curl", "Codex", "Go")),
        ("anthropic.com", ("Python", "Node", "curl", "Codex", "Go")),
        (".anthropic.com", ("Python", "Node", "curl", "Codex", "Go")),
        ("*.anthropic.com", ("Node", "Go")),
        ("*anthropic.com", ("Node", "Go")),
        (".api.anthropic.com", ("Python", "Node", "curl", "Codex")),
        ("ropic.com", ("Python",)),
        ("com", ("Python", "Node", "curl", "Codex", "Go")),
        ("xapi.anthropic.com", ()),
        ("api.anthropic.com:8443", ()),
        ("10.0.0.0/8", ()),
        ("::1", ()),
        ("", ()),
    ],
)
def test_each_family_reads_no_proxy_in_its_way(word, who):
    assert readers(word, "api.anthropic.com") == who


WORDS = (
    "anthropic.com",
    ".anthropic.com",
    ".api.anthropic.com",
    "*.anthropic.com",
    "corp.com",
    "com",
)


@pytest.mark.parametrize("word", WORDS)
def test_what_we_say_of_python_is_what_requests_and_urllib_do(word, monkeypatch):
    import urllib.request

    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", word)
    ours = "Python" in readers(word, "api.anthropic.com")
    assert urllib.request.proxy_bypass("api.anthropic.com") == ours
    assert requests.utils.should_bypass_proxies("https://api.anthropic.com/", None) == ours


@pytest.mark.parametrize(
    ("environ", "seen", "advice"),
    [
        (
            {"NO_PROXY": "localhost,api.anthropic.com"},
            "'api.anthropic.com' keeps api.anthropic.com from the proxy",
            "export NO_PROXY='localhost,127.0.0.1,::1' no_proxy='localhost,127.0.0.1,::1'",
        ),
        (
            {"no_proxy": "llm-7.openai.azure.com corp.example"},
            "'llm-7.openai.azure.com' keeps llm-7.openai.azure.com from the proxy",
            "export NO_PROXY='corp.example,localhost,127.0.0.1,::1' "
            "no_proxy='corp.example,localhost,127.0.0.1,::1'",
        ),
        (
            {"NO_PROXY": "*,corp.example"},
            "holds *: nothing goes through a proxy",
            "export NO_PROXY='corp.example,localhost,127.0.0.1,::1' "
            "no_proxy='corp.example,localhost,127.0.0.1,::1'",
        ),
    ],
)
def test_no_proxy_that_swallows_an_llm_host(environ, seen, advice):
    found = exceptions.exceptions(environ, HOSTS, PROFILES)
    assert (found.name, found.verdict, found.seen) == ("NO_PROXY", "fail", seen)
    assert found.advice == advice


def test_many_hosts_of_one_entry_are_counted_and_listed_on_demand():
    found = exceptions.exceptions({"NO_PROXY": "googleapis.com"}, HOSTS, PROFILES)
    assert found.seen.startswith("'googleapis.com' keeps ")
    assert " more from the proxy" in found.seen
    assert (
        "googleapis.com: generativelanguage.googleapis.com for Python, Node, curl, Codex, Go"
        in found.detail.splitlines()
    )


@pytest.mark.parametrize(
    "value", ["", "localhost,127.0.0.1,::1", ".corp.example 10.0.0.0/8", "local"]
)
def test_harmless_exceptions(value):
    assert exceptions.exceptions({"NO_PROXY": value}, HOSTS, PROFILES) == Finding(
        "NO_PROXY", "ok", "names no LLM host"
    )


def test_what_is_advised_can_be_typed():
    advice = exceptions.exceptions({"NO_PROXY": "*"}, HOSTS, PROFILES).advice
    code = "import os; print(os.environ['NO_PROXY'], os.environ['no_proxy'])"
    done = subprocess.run(
        ["sh", "-c", f'{advice}; exec "$0" -c "$1"', sys.executable, code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "localhost,127.0.0.1,::1 localhost,127.0.0.1,::1\n"


def test_base_urls_that_lead_round_the_proxy():
    environ = {
        "ANTHROPIC_BASE_URL": "http://localhost:4000",
        "OPENAI_BASE_URL": "https://api.openai.com/v1",
        "GROQ_BASE_URL": "https://me:secret@llm.example/v1",
        "OPENAI_API_BASE": "http://127.0.0.1:8090/v1",
        "OLLAMA_HOST": "0.0.0.0:11434",
        "MISTRAL_SERVER_URL": "http://[",
    }
    found = {each.name: each for each in shell.base_urls(environ, PROFILES, {8090})}
    assert {name: (each.verdict, each.seen) for name, each in found.items()} == {
        "ANTHROPIC_BASE_URL": (
            "warn",
            "leads to localhost:4000 on this machine, so round the proxy",
        ),
        "OPENAI_API_BASE": ("ok", "leads to the proxy, 127.0.0.1:8090"),
        "GROQ_BASE_URL": (
            "warn",
            "leads to llm.example, which no profile knows: passed on untouched",
        ),
        "OLLAMA_HOST": (
            "warn",
            "leads to 0.0.0.0:11434 itself; only `hivemind run` puts the proxy in front of it",
        ),
        "MISTRAL_SERVER_URL": ("fail", "is no URL"),
    }
    assert found["ANTHROPIC_BASE_URL"].advice == "unset ANTHROPIC_BASE_URL"
