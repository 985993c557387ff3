# Recipes run inside the project's environment: `uv run just test`.

python := "python"

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
