"""A file of runs: read back equal, whole or as it was, and refused in one line that says where."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from builders import make_record, make_step, make_work
from hypothesis import given, settings
from hypothesis import strategies as st
from test_records import TEXT, WHOLE, values

from jupyter_infer import jsonl
from jupyter_infer.engine.scripted import ScriptedEngine
from jupyter_infer.errors import ConfigError
from jupyter_infer.jsonl import read_file, read_files, write_file
from jupyter_infer.pricing import ApiPrice, MachinePrice
from jupyter_infer.records import EngineInfo, RequestRecord, SampleRecord, StepRecord, TokenEvent
from jupyter_infer.run import Machine, Run, RunHeader

DOLLARS = st.floats(0, 1e9)
PRICES = st.builds(MachinePrice, DOLLARS, assumed=st.booleans(), source=TEXT) | st.builds(
    MachinePrice, DOLLARS, DOLLARS, DOLLARS
)
API_PRICES = st.builds(ApiPrice, TEXT, st.none() | TEXT, DOLLARS, st.none() | DOLLARS, DOLLARS, TEXT)
MACHINES = st.builds(Machine, **{name: values(hint) for name, hint in get_type_hints(Machine).items()})
HEADERS = st.builds(
    RunHeader,
    created=TEXT,
    engine=st.none() | values(EngineInfo),
    price=st.none() | PRICES,
    api_price=st.none() | API_PRICES,
    machine=st.none() | MACHINES,
    versions=st.dictionaries(TEXT, TEXT, max_size=2),
    seeds=st.dictionaries(TEXT, WHOLE, max_size=2),
)


TIMES = st.lists(st.integers(0, jsonl.LATEST_NS - 1), min_size=6, max_size=6, unique=True).map(sorted)


@st.composite
def any_request(draw: Callable[..., Any]) -> RequestRecord:
    """Any record whose times are in an order."""
    record, times = draw(values(RequestRecord)), draw(TIMES)
    names = ("arrival_ns", "started_ns", "first_token_ns", "last_token_ns", "finished_ns")
    known = {name: None if getattr(record, name) is None else time for name, time in zip(names, times, strict=False)}
    samples = tuple(
        replace(sample, events=tuple(msgspec.structs.replace(event, time_ns=times[5]) for event in sample.events))
        for sample in record.samples
    )
    return replace(record, samples=samples, **known)


@st.composite
def any_steps(draw: Callable[..., Any]) -> tuple[StepRecord, ...]:
    """Any steps, one after the other."""
    first, second = draw(values(StepRecord)), draw(values(StepRecord))
    index, times = draw(st.integers(0, 2**62)), draw(TIMES)
    made = []
    for number, step in enumerate((first, second)):
        begun, computed, ended = times[3 * number : 3 * number + 3]
        clock = {"scheduled_ns": begun, "planned_ns": begun, "start_ns": begun, "computed_ns": computed}
        made.append(replace(step, index=index + number, end_ns=ended, **clock))
    return tuple(made[: draw(st.integers(0, 2))])


@st.composite
def any_run(draw: Callable[..., Any]) -> Run:
    requests = sorted(draw(st.lists(any_request(), max_size=2)), key=lambda record: record.arrival_ns)
    shown = {record.request_id: draw(WHOLE) for record in requests if draw(st.booleans())}
    unique = tuple({record.request_id: record for record in requests}.values())
    return Run(draw(HEADERS), unique, draw(any_steps()), shown)


def a_run(**facts: Any) -> Run:
    step = make_step(make_work(tokens=10, prefill_tokens=10), start=100, end=300)
    return Run(
        RunHeader("now", ScriptedEngine().info, MachinePrice(1.0)), (make_record(**facts),), (step,), {"r1": 305}
    )


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


# There and back.


def test_any_runs_are_equal_after_a_round_trip(tmp_path: Path) -> None:
    @settings(max_examples=40)
    @given(st.lists(any_run(), min_size=1, max_size=2))
    def check(runs: list[Run]) -> None:
        path = write_file(tmp_path / "x.jsonl", runs)
        again = read_file(path)
        assert again == runs
        first = path.read_bytes()
        assert write_file(path, again).read_bytes() == first

    check()
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def test_a_line_is_a_header_a_request_or_a_step(tmp_path: Path) -> None:
    header, request, step = lines_of(write_file(tmp_path / "x.jsonl", [a_run()]))
    assert set(header) == {"schema", "version", "header"}
    assert (header["schema"], header["version"]) == ("jupyter-infer/run", 1)
    assert set(request) == {"request", "first_shown_ns"}
    assert request["first_shown_ns"] == 305
    assert set(step) == {"step"}


def test_what_is_not_known_stays_so(tmp_path: Path) -> None:
    run = replace(
        a_run(cached_tokens=None, first_token_ns=None), header=RunHeader("now", None, None), first_shown_ns={}
    )
    [again] = read_file(write_file(tmp_path / "x.jsonl", [run]))
    assert again == run
    assert again.requests[0].cached_tokens is None
    assert (again.engine, again.price, again.steps[0].kv_blocks_free, again.first_shown_ns) == (None, None, None, {})


@pytest.mark.parametrize(
    "text", ["a\u2028b\u2029\x85", "\x00\x1f", "line\nline\r\n", "🙂 e\u0301 \u202eabc", '"\\', ""]
)
def test_a_text_is_one_line_of_the_file_whatever_is_in_it(tmp_path: Path, text: str) -> None:
    sample = SampleRecord(0, (TokenEvent("r1", 0, 0, 300, (1,), text),), "stop")
    run = replace(a_run(), requests=(make_record(sample, prompt=text, label=text),))
    path = write_file(tmp_path / "x.jsonl", [run])
    assert path.read_bytes().count(b"\n") == 3
    assert read_file(path) == [run]


def test_half_a_surrogate_pair_is_written_by_nobody_and_nothing_is_lost(tmp_path: Path) -> None:
    """No prompt has one (`Session` refuses it), and no tokenizer gives one."""
    path = write_file(tmp_path / "x.jsonl", [a_run()])
    before = path.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        write_file(path, [a_run(label="\ud800")])
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_an_empty_line_and_a_windows_end_of_line_are_no_fault(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.jsonl", [a_run()])
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n\r\n"))
    assert read_file(path) == [a_run()]


# Several runs.


def test_several_runs_are_numbered_and_one_is_called_as_its_file(tmp_path: Path) -> None:
    other = a_run(prompt_tokens=99)
    assert [run.name for run in read_file(write_file(tmp_path / "one.jsonl", [a_run()]))] == ["one"]
    again = read_file(write_file(tmp_path / "two.jsonl", [a_run(), other]))
    assert again == [a_run(), other]
    assert [run.name for run in again] == ["two 1", "two 2"]


def test_runs_are_put_behind_those_of_a_file(tmp_path: Path) -> None:
    path, other = tmp_path / "x.jsonl", a_run(prompt_tokens=99)
    write_file(path, [a_run()], append=True)  # there is none yet
    write_file(path, [other, a_run()], append=True)
    assert read_file(path) == [a_run(), other, a_run()]
    write_file(path, [other])
    assert read_file(path) == [other]


@pytest.mark.parametrize("before", [b"", b"\n\n"])
def test_runs_are_put_into_an_empty_file(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(before)
    assert read_file(write_file(path, [a_run()], append=True)) == [a_run()]


def test_a_last_line_without_an_end_is_no_reason_to_lose_the_next_run(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.jsonl", [a_run()])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert read_file(write_file(path, [a_run()], append=True)) == [a_run(), a_run()]


def test_nothing_is_put_behind_what_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("milk\n")
    with pytest.raises(ConfigError, match=r"notes\.txt, line 1 is no line of a recorded run"):
        write_file(path, [a_run()], append=True)
    assert path.read_text() == "milk\n"


# Whole, or as it was.


def test_a_full_disk_leaves_the_file_as_it_was_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_file(tmp_path / "x.jsonl", [a_run()])
    before, opened = path.read_bytes(), Path.open

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> None:
            self.file.write(data)

        def writelines(self, lines: Any) -> None:
            self.file.write(next(iter(lines)))
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        Path,
        "open",
        lambda self, mode="r", **options: (
            Full(opened(self, mode, **options)) if "w" in mode else opened(self, mode, **options)
        ),
    )
    for append in (False, True):
        with pytest.raises(OSError, match="No space left"):
            write_file(path, [a_run(prompt_tokens=99)], append=append)
        assert path.read_bytes() == before
        assert [found.name for found in tmp_path.iterdir()] == ["x.jsonl"]
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "new.jsonl", [a_run()])
    assert [found.name for found in tmp_path.iterdir()] == ["x.jsonl"]


def test_runs_that_cannot_be_made_leave_the_file_as_it_was(tmp_path: Path) -> None:
    def broken() -> Any:
        yield a_run()
        raise KeyboardInterrupt

    path = write_file(tmp_path / "x.jsonl", [a_run()])
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_file(path, broken())
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_link_names_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    real, link = tmp_path / "data" / "x.jsonl", tmp_path / "link.jsonl"
    write_file(real, [a_run()])
    link.symlink_to(real)
    other = a_run(prompt_tokens=99)
    assert write_file(link, [other]) == link
    assert link.is_symlink()
    assert read_file(real) == [other]


def test_a_place_that_takes_no_file_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no folder '.*missing' to write 'x\.jsonl' into"):
        write_file(tmp_path / "missing" / "x.jsonl", [a_run()])
    with pytest.raises(ConfigError, match="is no file"):
        write_file(tmp_path, [a_run()])
    with pytest.raises(ConfigError, match="is no file"):  # root could replace it
        write_file(os.devnull, [a_run()])
    assert not Path(os.devnull).is_file()


def test_a_tilde_is_the_home_folder(own_home: Path) -> None:
    path = write_file("~/x.jsonl", [a_run()])
    assert path == own_home / "x.jsonl"
    assert read_file("~/x.jsonl") == read_files("~/x.jsonl") == read_files("~/*.jsonl") == [a_run()]


# What is no recording.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "x.jsonl holds no run"),
        ("\n", "x.jsonl holds no run"),
        ("hello\n", "x.jsonl, line 1 is no line of a recorded run: JSON is malformed"),
        ("[1]\n", "x.jsonl, line 1 is no line of a recorded run: Expected `object`, got `array`"),
        ("\x00", "x.jsonl, line 1 is no line of a recorded run"),
        ("{}\n", "x.jsonl, line 1: a recorded run begins with its header; this file does not"),
        ('{"prompt": "a", "answer": "b"}\n', "x.jsonl, line 1: a recorded run begins with its header"),
        ('{"header": {"kind": "log"}}\n', "x.jsonl, line 1 has the schema None, and a recorded run has"),
        (
            '{"schema": "other/run", "version": 1, "header": {}}\n',
            "x.jsonl, line 1 has the schema 'other/run', and a recorded run has 'jupyter-infer/run'",
        ),
        ('{"request": {"sampling": {"a": ' + "[" * 100_000, "x.jsonl, line 1 is no line of a recorded run"),
    ],
)
def test_what_is_no_recording_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_file(tmp_path / "x.jsonl")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"schema": "\xff\xfe"}\n\x80')
    with pytest.raises(ConfigError, match="line 1 is no line of a recorded run"):
        read_file(tmp_path / "x.jsonl")


def test_a_file_that_was_cut_off_says_in_which_line(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.jsonl", [a_run()])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConfigError, match=r"x\.jsonl, line 3 is no line of a recorded run: Input data was truncated"):
        read_file(path)


@pytest.mark.parametrize("header", ["{}", '{"created": "now", "engine": 5, "price": null}'])
def test_another_version_of_the_schema_is_named_before_anything_in_it_is_called_wrong(
    tmp_path: Path, header: str
) -> None:
    (tmp_path / "x.jsonl").write_text(f'{{"schema": "jupyter-infer/run", "version": 2, "header": {header}}}\n')
    with pytest.raises(ConfigError) as caught:
        read_file(tmp_path / "x.jsonl")
    assert str(caught.value) == "x.jsonl, line 1 has version 2 of the schema, and this jupyter-infer reads 1"


def test_a_run_of_another_version_behind_one_of_ours_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.jsonl", [a_run(), a_run()])
    text = path.read_text()
    path.write_text('"version":3'.join(text.rsplit('"version":1', 1)))
    with pytest.raises(ConfigError, match=r"x\.jsonl, line 4 has version 3 of the schema"):
        read_file(path)


def test_what_a_newer_release_adds_within_the_version_is_left_out(tmp_path: Path) -> None:
    """A key that is new and can be missed is no new version; a reader that does not know it reads the rest."""
    path = write_file(tmp_path / "x.jsonl", [a_run()])
    header, request, step = lines_of(path)
    header["note"], header["header"]["color"] = "mine", "blue"
    request["request"]["watts"] = step["step"]["watts"] = 5
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, request, step)))
    assert read_file(path) == [a_run()]


def test_a_line_of_a_kind_that_is_not_known_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.jsonl", [a_run()])
    with path.open("a") as file:
        file.write('{"widget": {"x": 1}}\n')
    with pytest.raises(ConfigError, match=r"x\.jsonl, line 4 is neither a header nor a request nor a step"):
        read_file(path)


def test_a_value_that_is_out_of_range_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.jsonl", [a_run()])
    path.write_text(path.read_text().replace('"usd_per_hour":1.0', '"usd_per_hour":-1.0'))
    with pytest.raises(ConfigError, match=r"line 1 is no line of a recorded run: a machine price is dollars an hour"):
        read_file(path)


def test_a_file_that_is_not_there_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "x.jsonl")


# Patterns.


def test_patterns_name_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    for index, name in enumerate(("b", "a", "c")):
        write_file(tmp_path / f"{name}.jsonl", [a_run(prompt_tokens=index)])
    (tmp_path / "folder.jsonl").mkdir()
    assert [run.name for run in read_files(tmp_path / "*.jsonl")] == ["a", "b", "c"]
    assert [run.name for run in read_files(tmp_path / "c.jsonl", str(tmp_path / "[ab].jsonl"))] == ["c", "a", "b"]


def test_a_name_that_looks_like_a_pattern_is_a_name_if_there_is_such_a_file(tmp_path: Path) -> None:
    write_file(tmp_path / "run[1].jsonl", [a_run()])
    assert [run.name for run in read_files(tmp_path / "run[1].jsonl")] == ["run[1]"]


def test_files_of_the_same_name_are_called_after_their_paths(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_file(tmp_path / folder / "run.jsonl", [a_run(), a_run()])
    write_file(tmp_path / "c.jsonl", [a_run()])
    names = [run.name for run in read_files(tmp_path / "**" / "*.jsonl")]
    ends = [(name or "").removeprefix(str(tmp_path)) for name in names]
    assert ends == ["/a/run 1", "/a/run 2", "/b/run 1", "/b/run 2", "c"]


def test_a_pattern_that_names_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file is called '.*/\*\.jsonl'"):
        read_files(tmp_path / "*.jsonl")
    with pytest.raises(ConfigError, match=r"is a folder; name the files in it: '.*/\*\.jsonl'"):
        read_files(tmp_path)
    assert read_files() == []


def test_all_public_names_are_there() -> None:
    assert all(hasattr(jsonl, name) for name in jsonl.__all__)


# What cannot have happened.


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda run: replace(run, requests=run.requests * 2), "line 3: the request 'r1' stands twice"),
        (lambda run: replace(run, steps=run.steps * 2), "line 4: step 0 does not come after step 0"),
        (
            lambda run: replace(run, steps=(replace(run.steps[0], end_ns=-5),)),
            "line 3: the times of step 0 are in no order",
        ),
        (
            lambda run: replace(run, requests=(replace(run.requests[0], started_ns=10**19),)),
            "line 2: the times of the request 'r1' are in no order",
        ),
        (
            lambda run: replace(run, requests=(replace(run.requests[0], arrival_ns=2**62),)),
            "line 2: the times of the request 'r1' are in no order",
        ),
    ],
    ids=["twice", "a step twice", "before it began", "before it came", "in another age"],
)
def test_what_cannot_have_happened_is_refused(tmp_path: Path, change: Callable[[Run], Run], says: str) -> None:
    path = write_file(tmp_path / "x.jsonl", [change(a_run())])
    with pytest.raises(ConfigError) as caught:
        read_file(path)
    assert says in str(caught.value)


def test_requests_are_read_in_the_order_of_their_arrival(tmp_path: Path) -> None:
    run = a_run()
    later = replace(run.requests[0], request_id="r2", arrival_ns=50)
    path = write_file(tmp_path / "x.jsonl", [replace(run, requests=(later, *run.requests))])
    assert [record.request_id for record in read_file(path)[0].requests] == ["r1", "r2"]


def test_a_file_that_others_may_not_read_stays_so(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.jsonl", [a_run()])
    path.chmod(0o600)
    write_file(path, [a_run()])
    assert path.stat().st_mode & 0o777 == 0o600
