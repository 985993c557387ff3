"""Lenient readers of JSON values."""

import pytest

from hivemind_addon.wire import fields


@pytest.mark.parametrize(
    ("value", "size"), [({"a": [1, "é"]}, 14), ({}, 0), (None, 0), ("x", 3), (0, 0), ("\ud800", 5)]
)
def test_a_value_has_the_size_of_its_shortest_json(value, size):
    assert fields.dumped_size(value) == size


def test_a_value_too_deep_to_be_written_has_no_size():
    deep: list[object] = []
    for _ in range(200_000):
        deep = [deep]
    assert fields.dumped_size(deep) == 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"eval_count": 12}', 12),
        (b'{"eval_count":1,"eval_count" : 2}', 2),
        (b'{"text": "\\"eval_count\\": 7"}', None),
        (b'{"eval_count": "7"}', None),
        (b'{"prompt_eval_count": 7}', None),
        (b'{"eval_count": 7}' + b" " * 5000, None),
    ],
)
def test_the_last_count_is_found_near_the_end(body, expected):
    assert fields.last_count(body, b"eval_count") == expected


@pytest.mark.parametrize(
    ("data", "expected"), [(b"[1]", [1]), (b'"x"', "x"), (b"{", None), (b"[" * 200_000, None)]
)
def test_any_json_value_is_loaded(data, expected):
    assert fields.load_any(data) == expected
    assert fields.load(data) == {}
