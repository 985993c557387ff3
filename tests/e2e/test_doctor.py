"""The doctor beside a real proxy, with real clients."""

import json
import subprocess

import pytest

from hivemind_addon.cli.environment import Caller, agent_environment
from hivemind_addon.rundir import ProxyInfo
from tests.e2e.harness import free_port, running_proxy
from tests.e2e.test_command_line import HIVEMIND

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    with running_proxy(tmp_path_factory.mktemp("doctor")) as running:
        yield running


def environment(proxy) -> dict[str, str]:
    """What `hivemind run` gives, on a plain shell."""
    state = json.loads((proxy.home / "hive" / "run" / f"proxy-{proxy.port}.json").read_text())
    plain = {"PATH": proxy.client_env()["PATH"], "HOME": str(proxy.home)}
    plain["HIVEMIND_HOME"] = str(proxy.home / "hive")
    return {**plain, **agent_environment(plain, ProxyInfo(**state), Caller(), proxy.home / "ca")}


def ask(proxy, environ, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
    words = [HIVEMIND, "doctor", "--port", str(proxy.port), "--json", *options]
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
    for client in ("python", "node", "curl"):
        if f"trust: {client}" in found:
            assert found[f"trust: {client}"]["verdict"] == "ok"
    assert "trust: python" in found


def test_a_shell_without_variables_is_tried_as_hivemind_run_would_set_it(proxy):
    environ = environment(proxy)
    plain = {name: environ[name] for name in ("PATH", "HOME", "HIVEMIND_HOME")}
    code, found = ask(proxy, plain)
    assert code == 0
    assert found["HTTPS_PROXY"]["verdict"] == "warn"
    assert found["trust: python"]["seen"] == "trusts our CA (under hivemind run)"


def test_a_shell_without_ca_variables_is_told_which_clients_fail(proxy):
    environ = environment(proxy)
    ca_names = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CODEX_CA_CERTIFICATE")
    code, found = ask(proxy, {k: v for k, v in environ.items() if k not in ca_names})
    assert code == 1
    for client in ("python", "node", "curl"):
        if f"trust: {client}" in found:
            assert found[f"trust: {client}"]["verdict"] == "fail"
            assert "hivemind run -- CMD" in found[f"trust: {client}"]["advice"]


def test_what_swallows_hosts_or_leads_elsewhere_is_named(proxy):
    environ = environment(proxy)
    code, found = ask(proxy, {**environ, "NO_PROXY": "anthropic.com"})
    assert code == 1
    assert "'anthropic.com' swallows api.anthropic.com" in found["NO_PROXY"]["seen"]
    other = f"http://127.0.0.1:{free_port()}"
    code, found = ask(proxy, {**environ, "HTTPS_PROXY": other, "https_proxy": other})
    assert code == 1
    assert f"the proxy is on port {proxy.port}" in found["HTTPS_PROXY"]["seen"]


def test_nothing_of_it_is_an_llm_call(proxy):
    ask(proxy, environment(proxy))
    assert proxy.status()["totals"]["calls"] == 0
