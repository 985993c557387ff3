"""Shared set-up: Hypothesis profiles and the task factory that mitmproxy uses."""

import asyncio
import os

import hypothesis
import pytest

hypothesis.settings.register_profile("dev", max_examples=50, deadline=None)
hypothesis.settings.register_profile(
    "ci", max_examples=200, deadline=None, derandomize=True, print_blob=True
)
hypothesis.settings.register_profile("deep", max_examples=20_000, deadline=None)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
)


@pytest.fixture(autouse=True)
def _private_state_folder(tmp_path_factory, monkeypatch):
    """No test reads or writes the user's own state."""
    monkeypatch.setenv("HIVEMIND_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
async def eager_tasks():
    """Run tasks as mitmproxy does: up to their first await inside the call that makes them."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)
    yield
    loop.set_task_factory(None)
