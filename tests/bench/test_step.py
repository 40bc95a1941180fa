from __future__ import annotations

from jupyter_infer.bench.step import PARTS, step_text


def test_the_table_has_a_column_for_each_part():
    parts = {f"{part}_ms": 0.25 * number for number, part in enumerate(PARTS)}
    text = step_text(
        {"model": "m", "tokens": 8, "steps": {"bf16": {"step_ms": 7.0, **parts}}, "failed": {"int8": "why"}}
    )
    head, row, failed = text.splitlines()[-3:]
    assert head.split() == ["step", *PARTS]
    assert failed == "int8: why"
    assert row.split() == ["bf16", "7.00", *(f"{0.25 * number:.2f}" for number in range(len(PARTS)))]
