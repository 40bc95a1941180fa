from __future__ import annotations

import base64
import struct

import pytest

from jupyter_infer.charts.packed import pack


def test_pack_is_a_typed_array_with_nan_for_unknown() -> None:
    made = pack([1.5, None, 2e-9])
    assert made["dtype"] == "f4"
    first, unknown, last = struct.unpack("<3f", base64.b64decode(made["bdata"]))
    assert first == 1.5
    assert unknown != unknown  # NaN
    assert last == pytest.approx(2e-9)


def test_pack_keeps_fifteen_digits_where_it_is_asked_to() -> None:
    made = pack([36_000.004, None], exact=True)
    assert made["dtype"] == "f8"
    first, unknown = struct.unpack("<2d", base64.b64decode(made["bdata"]))
    assert first == 36_000.004
    assert unknown != unknown
