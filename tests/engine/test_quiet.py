"""A load inside somebody's process leaves no trace in it, and nothing of what it printed in a cell."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from jupyter_infer.engine import quiet as quiet_module
from jupyter_infer.engine.quiet import LOGS, attach_logs, detach_logs, quiet


@pytest.fixture(autouse=True)
def empty_logs() -> Iterator[None]:
    """Begin with empty logs, and give the engine's logger back as it was."""
    LOGS.clear()
    yield
    detach_logs()
    LOGS.clear()


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, whose standard streams are real descriptors."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


# Streams.


def test_what_the_loading_thread_prints_is_in_the_logs_and_nowhere_else(capsys: pytest.CaptureFixture[str]) -> None:
    with quiet({}):
        print("to stdout")
        print("to stderr", file=sys.stderr)
        sys.stdout.write("bar 10 %\rbar 90 %\n\n")
        sys.stdout.flush()
    assert capsys.readouterr() == ("", "")
    assert list(LOGS) == ["to stdout", "to stderr", "bar 10 %", "bar 90 %"]


def test_streams_are_the_same_objects_afterwards() -> None:
    before = sys.stdout, sys.stderr, sys.excepthook
    with quiet({}):
        assert sys.stdout is not before[0]
        sys.excepthook = lambda *_: None
    assert (sys.stdout, sys.stderr, sys.excepthook) == before


def test_other_threads_print_where_they_always_do(capsys: pytest.CaptureFixture[str]) -> None:
    def other() -> None:
        print("from a cell")
        print("and its errors", file=sys.stderr)

    with quiet({}):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        print("from the load")
    assert capsys.readouterr() == ("from a cell\n", "and its errors\n")
    assert list(LOGS) == ["from the load"]


def test_a_handler_that_was_made_inside_still_writes_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    """Libraries make handlers when they are imported, and those keep the stream of that moment."""
    logger = logging.getLogger("a library")
    logger.propagate = False
    with quiet({}):
        handler = logging.StreamHandler()
        logger.addHandler(handler)
        logger.error("while it loads")
    try:
        logger.error("long after")
        handler.flush()
    finally:
        logger.removeHandler(handler)
    assert list(LOGS) == ["while it loads"]
    assert capsys.readouterr().err == "long after\n"


def test_a_progress_bar_sees_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with quiet({}):
        assert not sys.stderr.isatty()
        assert sys.stderr.encoding
        assert sys.stderr.writable()


def test_what_native_code_writes_to_descriptor_2_is_in_the_logs() -> None:
    done = run(
        "import os, sys\n"
        "from jupyter_infer.engine.quiet import LOGS, quiet\n"
        "with quiet({}):\n"
        "    os.write(2, b'NUMA note\\n')\n"
        "    print('python', file=sys.stderr)\n"
        "os.write(2, b'after\\n')\n"
        "print(list(LOGS))\n"
    )
    assert done.stdout == "['python', 'NUMA note']\n"
    assert done.stderr == "after\n"


def test_another_thread_still_has_its_stderr_while_descriptor_2_is_caught() -> None:
    done = run(
        "import sys, threading\n"
        "from jupyter_infer.engine.quiet import LOGS, quiet\n"
        "say = lambda: print('from a cell', file=sys.stderr)\n"
        "with quiet({}):\n"
        "    thread = threading.Thread(target=say); thread.start(); thread.join()\n"
        "say()\n"
        "print(list(LOGS))\n"
    )
    assert done.stderr == "from a cell\nfrom a cell\n"
    assert done.stdout == "[]\n"


def test_no_descriptor_is_left_open() -> None:
    done = run(
        "import os\n"
        "from jupyter_infer.engine.quiet import quiet\n"
        "with quiet({}): pass\n"
        "before = set(os.listdir('/proc/self/fd'))\n"
        "for _ in range(5):\n"
        "    with quiet({}): pass\n"
        "print(set(os.listdir('/proc/self/fd')) - before)\n"
    )
    assert done.stdout == "set()\n"


def test_a_process_without_descriptor_2_can_load() -> None:
    done = run(
        "import os\n"
        "from jupyter_infer.engine.quiet import LOGS, quiet\n"
        "os.close(2)\n"
        "with quiet({}): print('loaded')\n"
        "print(list(LOGS))\n"
    )
    assert done.stdout == "['loaded']\n"


# The process.


def test_the_environment_is_set_inside_and_the_same_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_MINE", "1")
    monkeypatch.setenv("OMP_CHANGED", "before")
    before = dict(os.environ)
    with quiet({"VLLM_NO_USAGE_STATS": "1", "ANYTHING": "1"}):
        assert os.environ["VLLM_NO_USAGE_STATS"] == "1"
        os.environ["LD_PRELOAD"] = "something.so"
        os.environ["OMP_CHANGED"] = "inside"
        del os.environ["VLLM_MINE"]
    assert dict(os.environ) == before


def test_what_the_user_set_during_a_load_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted load goes on behind the next cell."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with quiet({"VLLM_NO_USAGE_STATS": "1"}):
        os.environ["HF_TOKEN"] = "mine"
    assert os.environ.pop("HF_TOKEN") == "mine"


def test_warning_filters_are_the_same_afterwards() -> None:
    before = list(warnings.filters)
    with quiet({}):
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="x")
    assert list(warnings.filters) == before


def test_a_failed_load_puts_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(os.environ), sys.stdout, sys.stderr, list(warnings.filters)
    logger = logging.getLogger("vllm")

    def load() -> None:
        with quiet({"A": "1"}):
            warnings.simplefilter("ignore")
            print("half way")
            raise MemoryError

    with pytest.raises(MemoryError):
        load()
    assert (dict(os.environ), sys.stdout, sys.stderr, list(warnings.filters)) == before
    assert list(LOGS) == ["half way"]  # what it said is there to read
    assert (logger.propagate, logger.level, logger.handlers) == (True, logging.NOTSET, [])


# The engine's log records.


def test_records_of_the_engine_go_to_the_logs_alone(caplog: pytest.LogCaptureFixture) -> None:
    attach_logs()
    attach_logs()
    logging.getLogger("vllm.v1.engine").info("two\nlines")
    assert [line.split(": ")[-1] for line in LOGS] == ["two", "lines"]
    assert LOGS[0].startswith("INFO ")
    assert caplog.records == []  # the root logger, and what the user hung on it, saw nothing


def test_the_users_root_logger_is_as_it_was() -> None:
    root = logging.getLogger()
    before = list(root.handlers), root.level
    with quiet({}):
        pass
    assert (list(root.handlers), root.level) == before


def test_a_level_that_the_user_set_is_kept_and_given_back() -> None:
    logger = logging.getLogger("vllm")
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        attach_logs()
        logging.getLogger("vllm.x").info("not wanted")
        assert list(LOGS) == []
        detach_logs()
        assert (logger.level, logger.propagate) == (logging.ERROR, False)
    finally:
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def test_detaching_what_is_not_attached_does_nothing() -> None:
    logger = logging.getLogger("vllm")
    detach_logs()
    assert (logger.level, logger.propagate, logger.handlers) == (logging.NOTSET, True, [])


def test_a_record_that_cannot_be_formatted_breaks_nothing() -> None:
    attach_logs()
    logging.getLogger("vllm").info("%d tokens", "many")
    assert list(LOGS) == []


def test_the_logs_forget_the_oldest_lines() -> None:
    LOGS.extend(f"line {number}" for number in range(5000))
    assert len(LOGS) == quiet_module.LOGS.maxlen == 2000
    assert LOGS[-1] == "line 4999"
