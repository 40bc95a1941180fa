from __future__ import annotations

import json

from jupyter_infer.doctor import Finding, examine, render
from jupyter_infer.records import from_json, to_json

GOOD = Finding("Python", "ok", "3.12.1 on Linux x86_64")
POOR = Finding("threads", "warn", "1 " + "and one is not many " * 10, "export OMP_NUM_THREADS=2")
BAD = Finding("torch add-ons", "fail", "torchvision does not fit", "pip uninstall -y torchvision")


def test_a_table_with_marks_and_what_to_type():
    assert render([GOOD, BAD]).splitlines() == [
        "✓ Python         3.12.1 on Linux x86_64",
        "✗ torch add-ons  torchvision does not fit",
        "",
        "What to type:",
        "  # torch add-ons",
        "  pip uninstall -y torchvision",
    ]


def test_nothing_to_type_when_all_is_well():
    assert render([GOOD]) == "✓ Python  3.12.1 on Linux x86_64"
    assert render([]) == ""


def test_everything_fits_the_width():
    long = Finding("vLLM", "fail", "x" * 300, "pip install " + " ".join(f"package-{i}==1.0" for i in range(20)))
    assert all(len(line) <= 100 for line in render([GOOD, POOR, BAD, long]).splitlines())


def test_a_long_command_can_still_be_pasted():
    packages = [f"package-{i}==1.0" for i in range(20)]
    lines = render([Finding("vLLM", "fail", "broken", f"pip install {' '.join(packages)}")]).splitlines()
    command = "\n".join(lines[lines.index("  # vLLM") + 1 :])
    assert command.count("\\\n") == command.count("\n") > 0
    assert command.replace("\\\n", " ").split() == ["pip", "install", *packages]


def test_one_fix_for_two_findings_is_shown_once():
    other = Finding("vLLM import", "fail", "RuntimeError", BAD.fix)
    lines = render([BAD, other]).splitlines()
    assert lines[-2:] == ["  # torch add-ons, vLLM import", "  pip uninstall -y torchvision"]


def test_findings_are_json():
    findings = (GOOD, POOR, BAD)
    assert json.loads(to_json(findings))[0] == {
        "name": "Python",
        "state": "ok",
        "found": "3.12.1 on Linux x86_64",
        "fix": None,
    }
    assert from_json(to_json(findings), tuple[Finding, ...]) == findings


def test_a_check_that_raises_is_a_finding_beside_what_it_found_and_the_others_run():
    def raising():
        yield GOOD
        raise LookupError("no such\nthing")

    assert examine({"first": raising, "second": lambda: [BAD]}) == (
        GOOD,
        Finding("first", "fail", "could not be examined: LookupError: no such thing"),
        BAD,
    )
