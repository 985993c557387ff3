# Recipes run inside the project's environment: `uv run just test`.

python := "python"
npm_folder := env("HIVEMIND_TEST_NPM", home_directory() / ".cache/hivemind-test-npm")

default:
    @just --list

# everything that only reads: lint, format, types, imports
check:
    ruff check .
    ruff format --check .
    mypy
    lint-imports

# rewrite what can be rewritten
fix:
    ruff check --fix .
    ruff format .

# all tests; extra arguments go to pytest
test *args:
    pytest {{ args }}

# tests without the ones that start processes
quick *args:
    pytest -m "not e2e" {{ args }}

# what the tests of Claude Code, Codex and undici take from npm: 0.8 GB, outside the repository
npm:
    mkdir -p "{{ npm_folder }}"
    cp tests/e2e/clients/package.json "{{ npm_folder }}"
    npm install --prefix "{{ npm_folder }}" --no-audit --no-fund --no-update-notifier --loglevel=error

# measure against bare mitmdump and no proxy, in one run
bench *args:
    {{ python }} -m hivemind_addon.evaluation.bench {{ args }}

# agents against a model server on this machine, direct and managed
local *args:
    {{ python }} -m hivemind_addon.evaluation.local {{ args }}

# minutes of steady traffic: does anything grow?
soak *args:
    {{ python }} -m hivemind_addon.evaluation.soak {{ args }}

# what runs before a change lands
ci: check test
