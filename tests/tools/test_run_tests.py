from __future__ import annotations

from collections.abc import Sequence

import pytest
import run_tests


class Runner:
    """Answers each command with the next status."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.commands: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str]) -> int:
        self.commands.append(command)
        return self.statuses.pop(0) if self.statuses else 0


def test_all_parts_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    runner = Runner()
    assert run_tests.main([], runner) == 0
    assert len(runner.commands) == sum(len(commands) for commands in run_tests.PARTS.values())
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.endswith("passed")]
    assert rows == list(run_tests.PARTS)


def test_named_parts_run_alone() -> None:
    runner = Runner()
    run_tests.main(["mypy", "unit"], runner)
    assert len(runner.commands) == 2


def test_a_failure_fails_the_run_and_the_rest_still_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runner = Runner(0, 1)  # ruff's second command
    assert run_tests.main(["ruff", "mypy"], runner) == 1
    assert len(runner.commands) == 3
    printed = capsys.readouterr().out
    assert "ruff              0.0  FAILED\n" in printed
    assert "mypy              0.0  passed\n" in printed


def test_a_part_without_tests_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.main(["browser"], Runner(run_tests.NO_TESTS)) == 1
    assert "no test was found" in capsys.readouterr().out


def test_an_interrupt_fails_and_still_shows_the_times(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(command: Sequence[str]) -> int:
        raise KeyboardInterrupt

    assert run_tests.main(["unit"], interrupt) == 1
    assert "stopped" in capsys.readouterr().out


def test_an_unknown_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.main(["unti"], Runner()) == 2
    assert "'unti'; there is: ruff, mypy, js, unit" in capsys.readouterr().err
