"""Where the packages from npm are: what `.ci/run` installs, or a developer (`just npm`)."""

import os
import shutil
from pathlib import Path

import pytest


def npm_folder(package: str) -> Path:
    """The folder whose `node_modules` has the package; skips the test if there is none.

    With `CI` set a missing package is a failure: nothing may be left out in silence there.
    """
    folder = Path(os.environ.get("HIVEMIND_TEST_NPM", Path.home() / ".cache/hivemind-test-npm"))
    if (folder / "node_modules" / package).is_dir() and shutil.which("node"):
        return folder
    reason = f"{package} is not in {folder}/node_modules, or node is missing: run `just npm`"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
