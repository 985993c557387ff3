"""The caching addon manager does what mitmproxy's own does, and sees every addon that comes and goes."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import exceptions
from mitmproxy.addonmanager import AddonManager
from mitmproxy.hooks import UpdateHook
from mitmproxy.master import Master
from mitmproxy.proxy.layers.http import HttpRequestHook, HttpResponseHook
from mitmproxy.proxy.server_hooks import ClientConnectedHook
from mitmproxy.test import taddons, tflow

from hivemind_addon.addons.manager import CachingAddonManager

Log = list[str]


class Recorder:
    """Notes its hooks in a shared log; may wait, fail or halt in `request`, and may have addons of its own."""

    def __init__(self, name: str, log: Log, behaviour: str = "ok", addons: Any = ()) -> None:
        self.name = name
        self.log = log
        self.behaviour = behaviour
        if addons:
            self.addons = list(addons)
        if behaviour != "silent":
            self.request = self._later if behaviour.startswith("async") else self._now

    def _now(self, flow: Any) -> object:
        self.log.append(f"{self.name}.request")
        if self.behaviour == "fail":
            raise RuntimeError("broken addon")
        if self.behaviour == "halt":
            raise exceptions.AddonHalt
        return "a result that nobody reads"

    async def _later(self, flow: Any) -> None:
        await asyncio.sleep(0)
        self.log.append(f"{self.name}.request")
        if self.behaviour == "async fail":
            raise RuntimeError("broken addon")
        if self.behaviour == "async halt":
            raise exceptions.AddonHalt

    def update(self, flows: Any) -> None:
        self.log.append(f"{self.name}.update")

    def configure(self, updated: set[str]) -> None:
        self.log.append(f"{self.name}.configure")

    def done(self) -> None:
        self.log.append(f"{self.name}.done")


@contextlib.contextmanager
def master_with(kind: type[AddonManager]) -> Iterator[Master]:
    with taddons.context(loadcore=False) as context:
        master = context.master
        if kind is CachingAddonManager:
            CachingAddonManager.take_over(master)
        assert type(master.addons) is kind
        try:
            yield master
        finally:
            master._legacy_log_events.uninstall()


@pytest.fixture
async def master() -> Any:
    with master_with(CachingAddonManager) as one:
        yield one


@pytest.fixture
def log() -> Log:
    return []


async def request(master: Master) -> None:
    await master.addons.trigger_event(HttpRequestHook(tflow.tflow()))


BEHAVIOURS = ["silent", "ok", "fail", "halt", "async ok", "async fail", "async halt"]
trees = st.recursive(
    st.tuples(st.sampled_from(BEHAVIOURS), st.just(())),
    lambda inner: st.tuples(
        st.sampled_from(BEHAVIOURS), st.lists(inner, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


def build(tree: Any, name: str, log: Log) -> Recorder:
    behaviour, inner = tree
    parts = [build(part, f"{name}{number}", log) for number, part in enumerate(inner)]
    return Recorder(name, log, behaviour, parts)


def heard(kind: type[AddonManager], chain: list[Any], removed: int) -> Log:
    """What the addons of a chain note in two flows, with one addon removed between them."""
    log: Log = []

    async def run() -> None:
        with master_with(kind) as master:
            addons = [build(tree, chr(97 + number), log) for number, tree in enumerate(chain)]
            master.addons.add(*addons)
            await master.addons.handle_lifecycle(HttpRequestHook(tflow.tflow()))
            if addons:
                master.addons.remove(addons[removed % len(addons)])
            await master.addons.handle_lifecycle(HttpRequestHook(tflow.tflow()))
            await master.addons.handle_lifecycle(HttpResponseHook(tflow.tflow()))

    asyncio.run(run())
    return log


@given(st.lists(trees, max_size=4), st.integers(0, 3))
def test_any_chain_is_called_as_the_stock_manager_calls_it(chain, removed):
    assert heard(CachingAddonManager, chain, removed) == heard(AddonManager, chain, removed)


async def test_addons_are_called_in_order_whether_they_wait_or_not(master, log):
    behaviours = {"a": "async ok", "b": "ok", "c": "silent", "d": "async ok"}
    master.addons.add(*(Recorder(name, log, how) for name, how in behaviours.items()))
    await request(master)
    assert log == ["a.request", "b.request", "d.request"]


@pytest.mark.parametrize("how", ["fail", "async fail"])
async def test_an_exception_is_logged_and_does_not_stop_the_next_addon(master, log, how, caplog):
    master.addons.add(Recorder("a", log, how), Recorder("b", log))
    await request(master)
    await request(master)
    assert log == ["a.request", "b.request"] * 2
    assert [r.getMessage() for r in caplog.records] == ["Addon error: broken addon"] * 2


@pytest.mark.parametrize("how", ["halt", "async halt"])
async def test_a_halt_ends_the_event_and_only_it(master, log, how):
    master.addons.add(Recorder("a", log), Recorder("b", log, how), Recorder("c", log))
    await master.addons.handle_lifecycle(HttpRequestHook(tflow.tflow()))
    assert log == ["a.request", "b.request", "a.update", "b.update", "c.update"]


async def test_a_cancelled_handler_cancels_the_event(master, log):
    class Waits:
        async def request(self, flow: Any) -> None:
            await asyncio.Event().wait()

    master.addons.add(Waits(), Recorder("b", log))
    task = asyncio.create_task(request(master))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == []


async def test_an_addon_that_is_added_later_is_seen(master, log):
    master.addons.add(Recorder("a", log))
    await request(master)
    master.addons.add(Recorder("b", log))
    await request(master)
    assert log == ["a.request", "a.request", "b.request"]


async def test_an_addon_that_was_removed_is_called_no_more(master, log):
    first, second = Recorder("a", log), Recorder("b", log)
    master.addons.add(first, second)
    await request(master)
    master.addons.remove(first)
    await request(master)
    assert log == ["a.request", "b.request", "a.done", "b.request"]
    assert master.addons.get("a") is None


async def test_an_addon_that_another_registers_later_is_seen(master, log):
    """A script is an addon whose own addons are replaced when its file changes."""
    script = Recorder("script", log, "silent", [Recorder("old", log)])
    master.addons.add(script, Recorder("z", log))
    await request(master)
    master.addons.remove(script.addons.pop())
    fresh = Recorder("new", log)
    master.addons.register(fresh)
    script.addons.append(fresh)
    log.clear()
    await request(master)
    assert log == ["new.request", "z.request"]


async def test_an_addon_that_is_visible_before_it_is_registered_is_seen(master, log):
    script = Recorder("script", log, "silent", [Recorder("old", log)])
    master.addons.add(script)
    await request(master)
    fresh = Recorder("new", log)
    script.addons.append(fresh)
    master.addons.register(fresh)
    log.clear()
    await request(master)
    assert log == ["old.request", "new.request"]


async def test_cleared_addons_are_called_no_more(master, log):
    master.addons.add(Recorder("a", log))
    await request(master)
    master.addons.clear()
    await request(master)
    assert log == ["a.request", "a.done"]
    assert len(master.addons) == 0


async def test_a_flow_event_is_followed_by_an_update_and_another_is_not(master, log):
    master.addons.add(Recorder("a", log))
    await master.addons.handle_lifecycle(HttpRequestHook(tflow.tflow()))
    await master.addons.handle_lifecycle(ClientConnectedHook(tflow.tclient_conn()))
    assert log == ["a.request", "a.update"]
    await master.addons.trigger_event(UpdateHook([tflow.tflow()]))
    assert log[2:] == ["a.update"]


async def test_a_handler_that_is_none_is_skipped_and_stops_nobody(master, log, caplog):
    odd = Recorder("odd", log, "silent")
    odd.request = 5  # type: ignore[assignment]
    master.addons.add(odd, Recorder("b", log))
    await request(master)
    assert log == ["b.request"]
    assert "not callable" in caplog.text


@pytest.mark.parametrize("kind", [AddonManager, CachingAddonManager])
async def test_a_changed_option_is_told_once(kind, log):
    with master_with(kind) as master:
        master.addons.add(Recorder("a", log))
        master.options.update(ssl_insecure=not master.options.ssl_insecure)
        assert log == ["a.configure"]


async def test_a_manager_takes_over_what_was_there():
    with taddons.context(loadcore=False) as context:
        master = context.master
        log: Log = []
        addon = Recorder("a", log)
        master.addons.add(addon)
        CachingAddonManager.take_over(master)
        try:
            assert master.addons.get("a") is addon
            await request(master)
            assert log == ["a.request"]
        finally:
            master._legacy_log_events.uninstall()
