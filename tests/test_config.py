"""The settings file: what is read, and the one line per error that a user sees."""

import dataclasses
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivemind_addon.config import Settings, describe_settings, load_all, load_settings
from hivemind_addon.model import Operation
from hivemind_addon.schema import SettingsError

URL = "an http or https URL of host, optional port and path only"
CALLS = "a whole number from 1 to 10000"
LOOPBACK = "a loopback address: 127.0.0.1, ::1 or localhost"
LISTED = "HOST or *.DOMAIN, with or without :PORT"
SIZE = "a size from 1k to 4g, such as 128m"
GLOB = "a glob on PROVIDER/OWNER/FAMILY"
RETRY_KEYS = "max_retries, base, max_delay, write_retries, prelude_hold"
SERVER = "an http or https URL of host and optional port only"
TOP_KEYS = "upstreams, generic_hosts, local, websocket, heartbeat, retry, admission, profiles, control, max_body, log"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write `hivemind.yaml` in the current folder; answers its path."""
    monkeypatch.chdir(tmp_path)

    def write(content: str | bytes) -> Path:
        path = Path("hivemind.yaml")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def errors(path: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_all(path)
    return str(caught.value).splitlines()


def test_without_a_file_defaults_serve():
    found = load_settings(None)
    assert found == Settings()
    assert (found.retry.max_retries, found.retry.base, found.retry.max_delay) == (6, 0.5, 30)
    assert (found.retry.write_retries, found.retry.prelude_hold) == (3, None)
    assert (found.admission.max_concurrency, found.admission.max_wait) == (None, None)
    assert found.control == dataclasses.replace(found.control, host="127.0.0.1", port=8089)
    assert found.max_body == 128 * 2**20
    assert found.log.level == "info"


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n", "null\n", "{}", "\ufeff"])
def test_an_empty_file_is_defaults(write, content):
    assert load_settings(write(content)) == Settings()


@pytest.mark.parametrize("section", [f.name for f in dataclasses.fields(Settings)])
def test_a_null_section_is_its_default(write, section):
    assert load_settings(write(f"{section}:\n")) == Settings()


def test_a_full_file_is_read(write):
    Path("own").mkdir()
    found, profiles = load_all(
        write("""
upstreams: {API.Anthropic.com: "http://127.0.0.1:9080/mock/", llm.example: "https://[::1]:8443"}
generic_hosts: [gpu-1.lan, "*.Example.org:8000", "[::1]:1234"]
retry: {max_retries: 0, base: 1, max_delay: 0.01, write_retries: 100, prelude_hold: 0}
admission:
  max_concurrency: 10000
  max_wait: 86400
  buckets: {"anthropic/*/opus": 2, "openai/ab12cd34/gpt-5": 3}
profiles: own
control: {host: "::1", port: 0, enabled: false}
max_body: 2M
log: {level: debug}
local: {generic: "http://gpu-2.lan:8000"}
websocket: pass
heartbeat: off
""")
    )
    assert found.upstreams == {
        "api.anthropic.com": "http://127.0.0.1:9080/mock/",
        "llm.example": "https://[::1]:8443",
    }
    assert found.generic_hosts == ("gpu-1.lan", "*.example.org:8000", "[::1]:1234")
    assert dataclasses.astuple(found.retry) == (0, 1.0, 0.01, 100, 0.0)
    assert isinstance(found.retry.base, float)
    assert list(found.admission.buckets.items()) == [
        ("anthropic/*/opus", 2),
        ("openai/ab12cd34/gpt-5", 3),
    ]
    assert found.profiles == Path("own")
    assert (found.control.host, found.control.port, found.control.enabled) == ("::1", 0, False)
    assert found.max_body == 2 * 2**20
    assert found.local == {"generic": "http://gpu-2.lan:8000"}
    assert (found.websocket, found.heartbeat) == ("pass", "off")
    assert found.log.level == "debug"
    for host, port in [
        ("gpu-1.lan", 80),
        ("a.b.example.org", 8000),
        ("::1", 1234),
        ("llm.example", 1),
    ]:
        profile = profiles.match_host(host, port)
        assert profile is not None
        assert profile.name == "generic"
    for host, port in [("example.org", 8000), ("a.example.org", 8001), ("::1", 1), ("lan", 80)]:
        assert profiles.match_host(host, port) is None


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_local_server_of_an_unknown_profile_is_refused(write):
    with pytest.raises(SettingsError) as caught:
        load_all(write("local: {vllms: 'http://127.0.0.1:8000'}"))
    line = str(caught.value)
    assert line.startswith("hivemind.yaml: local.vllms: got 'vllms', allowed: a profile: ")
    assert "anthropic" in line


ONE_LINE = [
    ("retry: {max_retries: six}", "retry.max_retries: got 'six', allowed: a whole number from 0 to 100"),
    ("retry: {max_retries: 101}", "retry.max_retries: got 101, allowed: a whole number from 0 to 100"),
    ("retry: {max_retries: -1}", "retry.max_retries: got -1, allowed: a whole number from 0 to 100"),
    ("retry: {max_retries: 6.0}", "retry.max_retries: got 6.0, allowed: a whole number from 0 to 100"),
    ("retry: {max_retries: true}", "retry.max_retries: got true, allowed: a whole number from 0 to 100"),
    ("retry: {base: yes}", "retry.base: got true, allowed: a number from 0.01 to 60"),
    ("retry: {base: .nan}", "retry.base: got nan, allowed: a number from 0.01 to 60"),
    ("retry: {max_delay: .inf}", "retry.max_delay: got inf, allowed: a number from 0.01 to 600"),
    ("retry: {base: [1, 2]}", "retry.base: got a list of 2, allowed: a number from 0.01 to 60"),
    ("retry: {prelude_hold: 61}", "retry.prelude_hold: got 61, allowed: a number from 0 to 60"),
    ("retry: 6", "retry: got 6, allowed: a mapping with keys"),
    (
        f"retry: {{max_retries: 0x{'f' * 4000}}}",
        "retry.max_retries: got a number of 16000 bits, allowed: a whole number from 0 to 100",
    ),
    (
        "retry: {max_retires: 6}",
        f"retry.max_retires: unknown key (did you mean max_retries?), allowed: {RETRY_KEYS}",
    ),
    ("zzz: 1", f"zzz: unknown key, allowed: {TOP_KEYS}"),
    ("7: 1", f"7: unknown key, allowed: {TOP_KEYS}"),
    ('"": 1', f"'': unknown key, allowed: {TOP_KEYS}"),
    ('"a\\nb": 1', f"a\\nb: unknown key, allowed: {TOP_KEYS}"),
    ("admission: {max_concurrency: 0}", f"admission.max_concurrency: got 0, allowed: {CALLS}"),
    ("admission: {max_wait: 0}", "admission.max_wait: got 0, allowed: a number from 0.1 to 86400"),
    ("admission: {buckets: {'*': many}}", f"admission.buckets.*: got 'many', allowed: {CALLS}"),
    ("admission: {buckets: {'*': null}}", f"admission.buckets.*: got null, allowed: {CALLS}"),
    ("admission: {buckets: {opus: 1}}", f"admission.buckets.opus: got 'opus', allowed: {GLOB}"),
    ("admission: {buckets: 3}", f"admission.buckets: got 3, allowed: a mapping from {GLOB} to {CALLS}"),
    ("upstreams: {api.anthropic.com: 9080}", f"upstreams.api.anthropic.com: got 9080, allowed: {URL}"),
    ("upstreams: {a.b: null}", f"upstreams.a.b: got null, allowed: {URL}"),
    ("upstreams: {a.b: 'ftp://c'}", f"upstreams.a.b: got 'ftp://c', allowed: {URL}"),
    ("upstreams: {a.b: 'http://'}", f"upstreams.a.b: got 'http://', allowed: {URL}"),
    ("upstreams: {a.b: 'http://c:0'}", f"upstreams.a.b: got 'http://c:0', allowed: {URL}"),
    ("upstreams: {a.b: 'http://c:'}", f"upstreams.a.b: got 'http://c:', allowed: {URL}"),
    ("upstreams: {a.b: 'http://c:65536'}", f"upstreams.a.b: got 'http://c:65536', allowed: {URL}"),
    ("upstreams: {a.b: 'http://c?d=e'}", f"upstreams.a.b: got 'http://c?d=e', allowed: {URL}"),
    ("upstreams: {a.b: 'http://c#d'}", f"upstreams.a.b: got 'http://c#d', allowed: {URL}"),
    ("upstreams: {a.b: 'http://c d'}", f"upstreams.a.b: got 'http://c d', allowed: {URL}"),
    ('upstreams: {a.b: "http://c\\nd"}', f"upstreams.a.b: got 'http://c\\nd', allowed: {URL}"),
    ("upstreams: {a.b: 'http://[::x]'}", f"upstreams.a.b: got 'http://[::x]', allowed: {URL}"),
    ("upstreams: {a.b: c.d}", f"upstreams.a.b: got 'c.d', allowed: {URL}"),
    (
        "upstreams: {'https://a.b': 'http://c'}",
        "upstreams.https://a.b: got 'https://a.b', allowed: a host name without scheme and port",
    ),
    (
        "upstreams: {'a.b:443': 'http://c'}",
        "upstreams.a.b:443: got 'a.b:443', allowed: a host name without scheme and port",
    ),
    ("upstreams: {a.b: 'http://c', A.B: 'http://d'}", "upstreams.a.b: got this key twice, allowed: once"),
    ("generic_hosts: a.b", f"generic_hosts: got 'a.b', allowed: a list, each {LISTED}"),
    ("generic_hosts: [a.b, 'http://c']", f"generic_hosts[1]: got 'http://c', allowed: {LISTED}"),
    ("generic_hosts: ['*']", f"generic_hosts[0]: got '*', allowed: {LISTED}"),
    ("generic_hosts: ['a.*.c']", f"generic_hosts[0]: got 'a.*.c', allowed: {LISTED}"),
    ("generic_hosts: ['a.b:0']", f"generic_hosts[0]: got 'a.b:0', allowed: {LISTED}"),
    ("generic_hosts: ['a.b:65536']", f"generic_hosts[0]: got 'a.b:65536', allowed: {LISTED}"),
    ("generic_hosts: [null]", f"generic_hosts[0]: got null, allowed: {LISTED}"),
    ("websocket: maybe", "websocket: got 'maybe', allowed: one of refuse, pass"),
    ("heartbeat: on", "heartbeat: got true, allowed: off or auto"),
    ("local: {Generic: 'http://c'}", "local.Generic: got 'Generic', allowed: the name of a profile"),
    ("local: {generic: gpu}", f"local.generic: got 'gpu', allowed: {SERVER}"),
    ("local: {generic: 'http://c/v1'}", f"local.generic: got 'http://c/v1', allowed: {SERVER}"),
    ("control: {host: 0.0.0.0}", f"control.host: got '0.0.0.0', allowed: {LOOPBACK}"),
    ("control: {host: example.com}", f"control.host: got 'example.com', allowed: {LOOPBACK}"),
    ("control: {port: 65536}", "control.port: got 65536, allowed: a whole number from 0 to 65535"),
    ("control: {enabled: 1}", "control.enabled: got 1, allowed: true or false"),
    ("max_body: 1023", f"max_body: got 1023, allowed: {SIZE}"),
    ("max_body: 5g", f"max_body: got '5g', allowed: {SIZE}"),
    ("max_body: lots", f"max_body: got 'lots', allowed: {SIZE}"),
    ("max_body: true", f"max_body: got true, allowed: {SIZE}"),
    ("log: {level: loud}", "log.level: got 'loud', allowed: one of debug, info, warning, error"),
    ("profiles: nowhere", "profiles: got 'nowhere', allowed: a folder that exists"),
    ("profiles: [a]", "profiles: got a list of 1, allowed: a folder that exists"),
    ("[1, 2]", "got a list of 2, allowed: a mapping with keys"),
    ("words", "got 'words', allowed: a mapping with keys"),
    ("retry: {base: 1}\nretry: {base: 2}", "retry: got this key twice (line 2), allowed: once"),
    ("retry:\n  base: 1\n  base: 2", "retry.base: got this key twice (line 3), allowed: once"),
    ("? [a]\n: 1", "got a list or mapping as a key, allowed: text"),
    ("&a [*a]", "[0]: got a value that contains itself, allowed: plain values"),
    ("retry: !!python/name:os.system x", "retry: got tag:yaml.org,2002:python/name:os.system, allowed: plain YAML values"),
    ("retry: {base: !!float x}", "retry.base: got 'x', allowed: what YAML reads as float"),
    ("retry: {base: !!int ''}", "retry.base: got '', allowed: what YAML reads as int"),
    ("retry: {base: !!bool x}", "retry.base: got 'x', allowed: what YAML reads as bool"),
    ("retry: [", "line 1, column 9: not valid YAML: while parsing a flow node, expected the node content, but found '<stream end>'"),
    ("retry: *a", "line 1, column 8: not valid YAML: found undefined alias 'a'"),
    ("a: 1\n---\nb: 2", "line 2, column 1: not valid YAML: expected a single document in the stream, but found another document"),
    ("a: \x07", "not valid YAML: special characters are not allowed"),
    ("[" * 700, "not valid YAML: nested too deeply"),
    (b"a: \xff", "not UTF-8 text (byte 3)"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "line"), ONE_LINE, ids=[repr(c)[:60] for c, _ in ONE_LINE])
def test_each_error_is_one_line_that_says_where_what_and_what_is_allowed(write, content, line):
    assert errors(write(content)) == [f"hivemind.yaml: {line}"]


def test_a_user_of_nobody_is_no_folder(write):
    (line,) = errors(write("profiles: ~no-such-user/x"))
    assert line.startswith(
        "hivemind.yaml: profiles: got '~no-such-user/x', allowed: a folder that exists"
    )


def test_a_credential_in_a_base_url_is_refused_and_not_shown(write):
    (line,) = errors(write("upstreams: {a.b: 'https://user:secret@c.d/e'}"))
    assert line == f"hivemind.yaml: upstreams.a.b: got 'https://***@c.d/e', allowed: {URL}"


def test_a_file_that_is_not_there_or_no_file_is_one_line(tmp_path):
    assert errors(Path("none.yaml")) == ["none.yaml: cannot be read: No such file or directory"]
    assert errors(Path()) == [".: cannot be read: Is a directory"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_one_line(write):
    path = write("")
    path.chmod(0)
    assert errors(path) == ["hivemind.yaml: cannot be read: Permission denied"]


def test_all_errors_come_at_once_in_the_order_of_the_keys(write):
    Path("own").mkdir()
    Path("own/x.yaml").write_text("name: x\n")
    path = write("{log: {level: 1}, retry: {base: a, nope: 1}, profiles: own, control: 1}")
    assert [line.partition(": got")[0] for line in errors(path)] == [
        "hivemind.yaml: retry.base",
        f"hivemind.yaml: retry.nope: unknown key, allowed: {RETRY_KEYS}",
        "hivemind.yaml: control",
        "hivemind.yaml: log.level",
        "own/x.yaml: hosts",
    ]


@pytest.mark.parametrize(("count", "last"), [(10, "generic_hosts[9]"), (11, "and 2 more errors")])
def test_at_most_ten_lines_are_shown(write, count, last):
    lines = errors(write(f"generic_hosts: {[1] * count}"))
    assert len(lines) == 10
    assert lines[-1].startswith(f"hivemind.yaml: {last}")


def test_a_file_that_would_unfold_to_a_huge_tree_is_cheap(write):
    rows = ["a0: &a0 [x, x, x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 40)
    ]
    lines = errors(write("\n".join([*rows, "max_body: *a39"])))
    assert len(lines) == 10


def test_dates_and_words_like_on_are_text(write):
    assert load_settings(write("generic_hosts: [2026-01-01, on.example]")).generic_hosts == (
        "2026-01-01",
        "on.example",
    )


def test_the_profiles_folder_is_relative_to_the_file(tmp_path):
    folder = tmp_path / "deep" / "own"
    folder.mkdir(parents=True)
    (folder / "local.yml").write_text("{name: local, hosts: ['llm\\.lan']}")
    (folder.parent / "h.yaml").write_text("profiles: own\n")
    found, profiles = load_all(folder.parent / "h.yaml")
    assert found.profiles == folder
    assert profiles.match_host("llm.lan") is profiles.get("local")


def test_an_upstream_of_a_known_host_keeps_its_profile(write):
    _, profiles = load_all(write("upstreams: {api.openai.com: 'http://c', llm.lan: 'http://d'}"))
    assert profiles.match_host("api.openai.com") is profiles.get("openai")
    llm = profiles.match_host("llm.lan")
    assert llm is not None
    assert llm.route("POST", "/v1/messages").operation is Operation.GENERATION


def test_listed_hosts_need_a_profile_that_takes_them(write):
    Path("own").mkdir()
    Path("own/generic.yaml").write_text("{name: generic, hosts: [a]}")
    assert errors(write("{profiles: own, generic_hosts: [b.c]}")) == [
        "hivemind.yaml: generic_hosts: got 'b.c', allowed: hosts that a profile knows, since none has listed_hosts: true"
    ]


def test_each_key_is_described_with_range_default_and_help():
    docs = describe_settings()
    assert len({doc.key for doc in docs}) == len(docs)
    assert all(doc.allowed and doc.default and doc.help for doc in docs)
    assert ("retry.max_retries", "a whole number from 0 to 100", "6") in {doc[:3] for doc in docs}
    sections = {doc.key.partition(".")[0] for doc in docs}
    assert sections == {field.name for field in dataclasses.fields(Settings)}


def test_the_described_defaults_are_what_an_empty_file_means(write):
    plain = [
        d
        for d in describe_settings()
        if d.default[0] in "0123456789" or d.default in ("true", "info")
    ]
    assert len(plain) >= 9
    for doc in plain:
        section, _, key = doc.key.rpartition(".")
        text = f"{section}: {{{key}: {doc.default}}}" if section else f"{key}: {doc.default}"
        assert load_settings(write(text)) == Settings(), doc.key


NAMES = [f.name for f in dataclasses.fields(Settings)]
INNER = [d.key.rpartition(".")[2] for d in describe_settings()]
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.dates(),
    st.binary(max_size=9),
)
keys = st.one_of(st.sampled_from(NAMES + INNER), st.text(), st.integers(), st.none(), st.booleans())
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=20,
)


def only_settings_errors(path: Path) -> None:
    text = ""
    try:
        load_all(path)
    except SettingsError as error:
        text = str(error)
    lines = text.split("\n") if text else []
    assert lines == text.splitlines()
    assert len(lines) <= 10
    assert all(line.startswith(str(path)) and line.isprintable() for line in lines)


@given(tree=st.dictionaries(keys, trees, max_size=6) | trees)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_tree_raises_anything_but_a_settings_error(tmp_path, tree):
    path = tmp_path / "h.yaml"
    path.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8", errors="replace")
    only_settings_errors(path)


@given(content=st.binary() | st.text("{}[]:,&*!|>-?'\"#%@\n\t <=.0aé\u2028\x00").map(str.encode))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_file_raises_anything_but_a_settings_error(tmp_path, content):
    path = tmp_path / "h.yaml"
    path.write_bytes(content)
    only_settings_errors(path)
