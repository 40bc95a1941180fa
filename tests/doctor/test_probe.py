from __future__ import annotations

import sys

import pytest

from jupyter_infer.doctor import probe


def test_statements_that_run_are_no_failure():
    assert probe.failure("import json", 30) is None


def test_a_failure_is_the_last_line_of_the_error():
    statements = "import sys\nprint('noise', file=sys.stderr)\nraise ImportError('no libfoo')"
    assert probe.failure(statements, 30) == "ImportError: no libfoo"


def test_a_silent_failure_has_a_status():
    assert probe.failure("import os; os._exit(3)", 30) == "exit status 3"


def test_a_crash_names_the_signal():
    assert probe.failure("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 30) == "killed by SIGSEGV"
    assert "out-of-memory" in (probe.failure("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 30) or "")


def test_a_crash_at_the_end_does_not_count():
    assert probe.failure("import atexit, os; atexit.register(os.abort)", 30) is None


def test_what_hangs_is_stopped():
    with pytest.raises(TimeoutError, match=r"not done after 0 s"):
        probe.failure("import time; time.sleep(60)", 0.2)


def test_no_usage_statistics_are_sent():
    assert probe.failure("import os; assert os.environ['VLLM_NO_USAGE_STATS'] == '1'", 30) is None


def test_pip_is_named_plainly_only_where_it_is_this_environment_s(tmp_path, monkeypatch):
    for name in ("ours/pip", "theirs/pip"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "ours/python"))
    monkeypatch.setenv("PATH", str(tmp_path / "ours"))
    assert probe.pip("install x") == "pip install x"
    monkeypatch.setenv("PATH", str(tmp_path / "theirs"))
    assert probe.pip("install x") == f"{tmp_path}/ours/python -m pip install x"
    assert probe.pip("install x", "/a b/python") == '"/a b/python" -m pip install x'


def test_installed_is_a_version_or_none():
    assert probe.installed("psutil")
    assert probe.installed("surely-not-a-distribution") is None
