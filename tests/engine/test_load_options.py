"""What is ours of the settings of a load, and what goes on to vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_infer.engine.load_options import LoadOptions, split_options
from jupyter_infer.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "options", "rest"),
    [
        ({}, LoadOptions(), {}),
        ({"max_model_len": 2048}, LoadOptions(), {"max_model_len": 2048}),
        ({"bits": 8, "dtype": "bfloat16"}, LoadOptions(bits=8), {"dtype": "bfloat16"}),
        ({"bits": None, "compile": False}, LoadOptions(), {}),
        ({"bits": 8, "compile": True}, LoadOptions(bits=8, compile=True), {}),
        ({"enforce_eager": True}, LoadOptions(), {"enforce_eager": True}),
    ],
)
def test_ours_are_taken_out(settings: dict[str, Any], options: LoadOptions, rest: dict[str, Any]) -> None:
    before = dict(settings)
    assert split_options(settings) == (options, rest)
    assert settings == before


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"bits": 5}, "--bits takes 8, not 5"),
        ({"bits": True}, "--bits takes 8, not True"),
        ({"bits": 8.0}, "--bits takes 8, not 8.0"),
        ({"bits": "8 "}, "--bits takes 8, not '8 '"),
        ({"bits": [8]}, r"--bits takes 8, not \[8\]"),
        ({"compile": "yes"}, "--compile is true or false, not 'yes'"),
        ({"compile": True, "enforce_eager": True}, "exclude each other; leave one out"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        split_options(settings)
