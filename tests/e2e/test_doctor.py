"""The doctor beside a real proxy, with real clients."""

import json
import shutil
import subprocess

import pytest

from hivemind_addon.cli.environment import Caller, agent_environment
from hivemind_addon.evaluation.mock.tls import server_context
from hivemind_addon.rundir import ProxyInfo
from tests.e2e.harness import free_port, running_mock, running_proxy, upstreams
from tests.e2e.test_command_line import HIVEMIND

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLIENTS = [name for name in ("python", "node", "curl") if name == "python" or shutil.which(name)]
CA_NAMES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "CODEX_CA_CERTIFICATE",
)


@pytest.fixture(scope="module")
def mock():
    with running_mock() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tmp_path_factory, mock):
    """WebSockets pass here and LLM hosts are the mock: what leaves the proxy is seen there."""
    config = "websocket: pass\n" + upstreams(mock.http_url)
    with running_proxy(tmp_path_factory.mktemp("doctor"), config) as running:
        yield running


def environment(proxy) -> dict[str, str]:
    """What `hivemind run` gives, on a plain shell."""
    state = json.loads((proxy.home / "hive" / "run" / f"proxy-{proxy.port}.json").read_text())
    plain = {"PATH": proxy.client_env()["PATH"], "HOME": str(proxy.home)}
    plain["HIVEMIND_HOME"] = str(proxy.home / "hive")
    return {**plain, **agent_environment(plain, ProxyInfo(**state), Caller(), proxy.home / "ca")}


def ask(proxy, environ, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
    words = [HIVEMIND, "doctor", "--json", *options]
    done = subprocess.run(
        words, env=environ, capture_output=True, text=True, timeout=90, check=False, cwd=proxy.home
    )
    assert done.stdout, done.stderr
    return done.returncode, {each["name"]: each for each in json.loads(done.stdout)}


def test_under_hivemind_run_all_is_well(proxy):
    code, found = ask(proxy, environment(proxy))
    bad = {name: each for name, each in found.items() if each["verdict"] == "fail"}
    assert (code, bad) == (0, {})
    assert found["proxy"]["seen"].startswith(f"runs on 127.0.0.1:{proxy.port}")
    assert found["program"] == {
        "name": "program",
        "verdict": "ok",
        "seen": "HiveMind 0.1.0, as in the proxy",
        "advice": "",
        "detail": "",
    }
    assert found["clock"]["verdict"] == "ok"
    assert found["CA key"]["verdict"] == "ok"
    assert found["certificate"]["seen"] == "api.anthropic.com shows one of our CA"
    for client in CLIENTS:
        assert found[f"trust: {client}"]["seen"] == "trusts our CA in this shell"


def test_a_shell_without_variables_is_tried_as_hivemind_run_would_set_it(proxy):
    environ = environment(proxy)
    plain = {name: environ[name] for name in ("PATH", "HOME", "HIVEMIND_HOME")}
    code, found = ask(proxy, plain)
    assert code == 0
    assert found["HTTPS_PROXY"]["verdict"] == "warn"
    for client in CLIENTS:
        assert found[f"trust: {client}"]["seen"] == "trusts our CA under hivemind run"


def test_a_shell_without_ca_variables_is_told_which_clients_fail(proxy):
    environ = environment(proxy)
    code, found = ask(proxy, {k: v for k, v in environ.items() if k not in CA_NAMES})
    assert code == 1
    for client in CLIENTS:
        assert found[f"trust: {client}"] == {
            "name": f"trust: {client}",
            "verdict": "fail",
            "seen": "does not trust our CA in this shell, only under hivemind run",
            "advice": 'hivemind run -- CMD, or eval "$(hivemind env)"',
            "detail": found[f"trust: {client}"]["detail"],
        }
        assert "certificate" in found[f"trust: {client}"]["detail"]


def test_each_client_is_told_by_its_own_variable(proxy, tmp_path):
    other = str(server_context(tmp_path / "tls")[1])
    code, found = ask(proxy, {**environment(proxy), "SSL_CERT_FILE": other})
    assert code == 1
    assert found["SSL_CERT_FILE"]["seen"] == f"{other} lacks our CA"
    assert found["trust: python"]["verdict"] == "fail"
    for client in CLIENTS[1:]:
        assert found[f"trust: {client}"]["verdict"] == "ok"


def test_what_swallows_hosts_is_named(proxy):
    code, found = ask(proxy, {**environment(proxy), "NO_PROXY": "anthropic.com", "no_proxy": ""})
    assert code == 1
    assert found["NO_PROXY"]["seen"] == "'anthropic.com' keeps api.anthropic.com from the proxy"
    for client in CLIENTS:  # the tries go through the proxy all the same
        assert found[f"trust: {client}"]["verdict"] == "ok"


def test_variables_that_lead_elsewhere_are_named(proxy):
    other = f"http://127.0.0.1:{free_port()}"
    environ = {**environment(proxy), "HTTPS_PROXY": other, "https_proxy": other}
    code, found = ask(proxy, environ, "--port", str(proxy.port))
    assert code == 1
    assert found["HTTPS_PROXY"]["seen"] == (
        f"leads to {other}, but the proxy is on port {proxy.port}"
    )


def test_a_port_that_another_program_has_is_told_with_its_name(proxy, mock):
    port = mock.http_url.rpartition(":")[2]
    code, found = ask(proxy, environment(proxy), "--port", port)
    assert code == 1
    assert found["proxy"]["seen"].startswith(f"none runs: port {port} is taken by python")
    assert f"(process {mock.process.pid})" in found["proxy"]["seen"]
    assert found["trust"]["verdict"] == "skipped"


def test_a_ca_that_was_made_anew_is_told(tmp_path):
    with running_proxy(tmp_path) as proxy:
        environ = environment(proxy)
        new = server_context(tmp_path / "new")[1]
        proxy.ca.write_bytes(new.read_bytes())
        code, found = ask(proxy, environ)
    assert code == 1
    assert found["SSL_CERT_FILE"]["seen"].endswith(" lacks our CA")
    assert found["certificate"]["verdict"] == "fail"
    assert found["certificate"]["advice"] == "hivemind down; hivemind up"
    assert found["trust"]["verdict"] == "skipped"


def test_a_proxy_with_a_password(tmp_path):
    with running_proxy(tmp_path, "", "--proxyauth", "lit:s@cret") as proxy:
        environ = environment(proxy)
        code, found = ask(proxy, environ)
        assert code == 1
        assert found["certificate"]["seen"] == "the proxy asks for a user and password (proxyauth)"
        url = f"http://lit:s%40cret@127.0.0.1:{proxy.port}"
        code, found = ask(proxy, {**environ, "HTTPS_PROXY": url, "https_proxy": url})
    assert code == 0
    for client in CLIENTS:
        assert found[f"trust: {client}"]["seen"] == "trusts our CA in this shell"
    assert "cret" not in json.dumps(found)


def test_a_host_that_mitmproxy_was_told_to_ignore(tmp_path):
    with running_proxy(
        tmp_path, "", "--ignore-hosts", "api.anthropic.com", "--set", "connect_addr=127.0.0.1"
    ) as proxy:
        code, found = ask(proxy, environment(proxy))
    assert code == 1
    assert found["certificate"]["verdict"] == "fail"
    assert found["trust"]["verdict"] == "skipped"


def test_a_host_of_the_users_own_profile_is_tried_if_anthropics_is_not_served(tmp_path):
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "anthropic.yaml").write_text(
        "name: anthropic\nhosts: ['llm\\.example']\ndialect: anthropic\n"
    )
    with running_proxy(tmp_path, f"profiles: {profiles}\n") as proxy:
        code, found = ask(proxy, environment(proxy))
    assert code == 0
    assert found["certificate"]["seen"] == "llm.example shows one of our CA"
    for client in CLIENTS:
        assert found[f"trust: {client}"]["verdict"] == "ok"


def test_a_dead_proxy_is_not_taken_for_a_running_one(tmp_path):
    with running_proxy(tmp_path) as proxy:
        environ = environment(proxy)
        proxy.process.kill()
        proxy.process.wait()
        code, found = ask(proxy, environ, "--port", str(proxy.port))
    assert code == 1
    assert found["proxy"]["seen"] == f"none runs on port {proxy.port}"
    assert found["state file"]["seen"] == (
        f"removed proxy-{proxy.port}.json: the proxy had been killed"
    )
    assert found["HTTPS_PROXY"]["verdict"] == "fail"


def test_the_report_says_all_is_well(proxy):
    done = subprocess.run(
        [HIVEMIND, "doctor", "-v"], env=environment(proxy), capture_output=True, text=True,
        timeout=90, check=False, cwd=proxy.home,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n\nAll is well.\n")
    assert f"| {proxy.ca}" in done.stdout


def test_nothing_of_it_leaves_the_proxy(proxy, mock):
    mock.reset()
    ask(proxy, environment(proxy))
    assert proxy.status()["totals"]["calls"] == 0
    assert mock.requests() == []
    assert "error establishing server connection" not in proxy.logged()
