"""Where the packages from npm are: `just npm` and `.ci/run` install what `clients/package.json` lists."""

import os
import shutil
from pathlib import Path

import pytest

USUAL = Path.home() / ".cache" / "hivemind-test-npm"


def npm_folder(package: str) -> Path:
    """The folder whose `node_modules` has the package; without it the test is skipped.

    Who names the folder, as CI does, wants no test left out: then it fails.
    """
    named = os.environ.get("HIVEMIND_TEST_NPM")
    folder = Path(named or USUAL)
    if (folder / "node_modules" / package).is_dir() and shutil.which("node"):
        return folder
    reason = f"node is missing, or {package} in {folder}/node_modules: `just npm` installs it"
    if named:
        pytest.fail(reason)
    pytest.skip(reason)
