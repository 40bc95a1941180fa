"""A soak: many mixed requests from several threads, some aborted, some refused, and what is left behind afterwards.

What is counted as lost is found from two sides: the events that a handle got against those of its record, and the
output tokens of its record against those that the scheduler reported for it, step by step.
"""

from __future__ import annotations

import gc
import itertools
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from jupyter_infer import hardware
from jupyter_infer.errors import InferError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.numbers import format_count, format_share
from jupyter_infer.records import RequestRecord
from jupyter_infer.session import Session

__all__ = ["SETTINGS", "as_it_must_be", "measure_soak", "soak_text"]

CLIENTS = 24  # threads, each with one call under way: more than the pool has room for
ROUND = 100  # requests after which all are waited for and accounted; their steps are still remembered
STEP_SIZES = 128
WARM_UP = 0.5  # of the requests, before the memory is looked at: what libraries keep for each shape fills meanwhile
ABORTED, REFUSED = 0.2, 0.05
LONGEST = 16  # output tokens
SETTINGS: dict[str, Any] = {"kv_cache_memory_bytes": 12 << 20, "max_num_batched_tokens": STEP_SIZES}
"""Of the engine: a pool in which the clients' requests do not all find room, and steps of sizes that were all met."""
PATIENCE_S = 300.0  # for one request; a soak that hangs has failed
GROWTH = 0.03

WORDS = ("rain", "bread", "{x}", "émigré", "🚲", "$5", "</b>")

SPECIAL: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"n": 2, "temperature": 0.8},
    {"stop": ["e", "\n"]},
    {"structured_outputs": {"choice": ["yes", "no"]}},
)
"""What some of the requests that run ask for."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Ask:
    """One request of the soak."""

    prompt: str
    options: dict[str, Any]
    abort_after: int | None = None  # events
    refused: bool = False


@dataclass(slots=True)
class _Tally:
    """What the clients saw."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    counts: Counter[str] = field(default_factory=Counter)
    records: list[RequestRecord] = field(default_factory=list)  # of this round
    faults: list[str] = field(default_factory=list)

    def add(self, **counts: int) -> None:
        with self.lock:
            self.counts.update(counts)


def measure_soak(session: Session, *, requests: int, seed: int = 0, say: Say) -> dict[str, Any]:
    """Run a soak on a session whose model is loaded, and return what was counted and what was left.

    Parameters
    ----------
    session
        Any session; a small KV pool makes requests wait and be preempted.
    requests
        How many to run.
    seed
        Of the mix.
    say
        Told how far it is.

    Returns
    -------
    dict
        Counts of requests by how they ended, `leaked_blocks`, `lost_events`, `misordered_events`, `faults` (anything
        that a request did and should not), and `rss_bytes`, `threads` and `fds` after the warm-up and at the end.
    """
    info = session.info
    assert info is not None
    say("every size of a step once")
    _every_step_size(session)
    tally, begun = _Tally(), time.monotonic()
    asks = list(_mix(random.Random(seed), requests, info.max_model_len))
    starts = range(0, len(asks), ROUND)
    warm_up = next(start for start in starts if start >= WARM_UP * requests or start + ROUND >= requests)
    before = _footprint()
    for start in starts:
        if start == warm_up:
            before = _footprint()
        _run(session, asks[start : start + ROUND], tally)
        _account(session, tally)
        say(f"{min(start + ROUND, len(asks)):,} of {len(asks):,} requests, {time.monotonic() - begun:.0f} s")
    after = _footprint()
    free = session.status().kv_blocks_free
    counts = tally.counts
    return {
        "requests": len(asks),
        "finished": counts["finished"],
        "aborted": counts["aborted"],
        "refused": counts["refused"],
        "leaked_blocks": info.kv_blocks_total - (free or 0),
        "lost_events": counts["lost"],
        "misordered_events": counts["misordered"],
        "faults": tally.faults,
        "rss_growth": after["rss_bytes"] / before["rss_bytes"] - 1,
        **{name: [before[name], after[name]] for name in ("rss_bytes", "threads", "fds")},
        "warm_up_requests": warm_up,
        "events": counts["events"],
        "output_tokens": counts["output_tokens"],
        "preemptions": counts["preemptions"],
        "seconds": time.monotonic() - begun,
        "model": info.model,
        "engine": info.engine,
        "kv_blocks": info.kv_blocks_total,
        "seed": seed,
    }


def as_it_must_be(found: dict[str, Any]) -> bool:
    """Whether nothing leaked, was lost, out of order or grew."""
    nothing = not (found["leaked_blocks"] or found["lost_events"] or found["misordered_events"] or found["faults"])
    ends = found["finished"] + found["aborted"] + found["refused"] == found["requests"]
    same = all(found[name][1] <= found[name][0] for name in ("threads", "fds"))
    return nothing and ends and same and bool(found["rss_growth"] <= GROWTH)


def soak_text(found: dict[str, Any]) -> str:
    """Return what was found as lines."""
    before, after = found["rss_bytes"]
    lines = [
        f"{format_count(found['requests'])} requests on {found['model']} ({found['engine']}, "
        f"{format_count(found['kv_blocks'])} KV blocks) in {found['seconds']:.0f} s",
        f"  finished {format_count(found['finished'])}, aborted {format_count(found['aborted'])}, "
        f"refused {format_count(found['refused'])}; {format_count(found['output_tokens'])} output tokens, "
        f"{format_count(found['preemptions'])} preemptions",
        f"  leaked blocks {found['leaked_blocks']}, lost events {found['lost_events']}, "
        f"misordered events {found['misordered_events']} (of {format_count(found['events'])})",
        f"  memory {before / 1e6:,.0f} → {after / 1e6:,.0f} MB, {format_share(after - before, before)} more; "
        f"threads {found['threads'][0]} → {found['threads'][1]}, "
        f"open files {found['fds'][0]} → {found['fds'][1]}, since the first {found['warm_up_requests']:,} requests",
        *(f"  ✗ {fault}" for fault in found["faults"][:20]),
        "✓ as it must be" if as_it_must_be(found) else "✗ not as it must be",
    ]
    return "\n".join(lines)


def _every_step_size(session: Session) -> None:
    """Run steps of every number of tokens: vLLM's matrix products on a CPU keep something for each size that they met,
    in every layer, up to so many of them. Memory that still grows afterwards is somebody else's.
    """
    info = session.info
    assert info is not None
    for size in range(1, min(STEP_SIZES, info.max_num_batched_tokens, info.max_model_len - 1) + 1):
        session.generate(" a" * size, template=False, max_tokens=1, skip_reading_prefix_cache=True)


def _mix(draw: random.Random, count: int, context: int) -> Iterator[_Ask]:
    """Yield requests of all kinds, in an order that a seed decides."""
    kinds = ["refuse"] * round(count * REFUSED) + ["abort"] * round(count * ABORTED)
    kinds += ["run"] * (count - len(kinds))
    draw.shuffle(kinds)
    for number, kind in enumerate(kinds):
        words = (draw.choice(WORDS) for _ in range(draw.choice((1, 6, 24))))
        prompt = f"{number}. {' '.join(words)}"
        options: dict[str, Any] = {
            "max_tokens": draw.randint(1, LONGEST),
            "temperature": draw.choice((0.0, 0.8)),
            "template": draw.choice((True, False)),
        }
        if kind == "refuse":
            yield draw.choice(
                (
                    _Ask(" ", options, refused=True),
                    _Ask(" a b c d" * context, options, refused=True),
                    _Ask("\ud83d", options, refused=True),
                    _Ask(prompt, options | {"max_token": 3}, refused=True),
                    _Ask(prompt, options | {"structured_outputs": {"choice": []}}, refused=True),
                )
            )
        elif kind == "abort":
            options |= {"ignore_eos": True, "max_tokens": LONGEST}
            yield _Ask(prompt, options, abort_after=draw.choice((0, 0, 1, 4, LONGEST // 2)))
        else:
            special = draw.choice(SPECIAL)
            yield _Ask(prompt, options | special)


def _run(session: Session, asks: Sequence[_Ask], tally: _Tally) -> None:
    """Run requests from several threads, and return when all are over."""
    waiting: queue.SimpleQueue[_Ask] = queue.SimpleQueue()
    for ask in asks:
        waiting.put(ask)

    def client() -> None:
        while True:
            try:
                ask = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                _one(session, ask, tally)
            except Exception as error:
                with tally.lock:
                    tally.faults.append(f"{ask.prompt[:40]!r} {ask.options}: {type(error).__name__}: {error}"[:300])

    threads = [threading.Thread(target=client, name="soak") for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _one(session: Session, ask: _Ask, tally: _Tally) -> None:
    try:
        handle = session.submit(ask.prompt, **ask.options)
    except InferError:
        if not ask.refused:
            raise
        tally.add(refused=1)
        return
    if ask.refused:
        raise AssertionError("it was not refused")
    if ask.abort_after is not None:
        list(itertools.islice(handle, ask.abort_after))
        handle.cancel()
    record = handle.record(PATIENCE_S)
    tally.add(aborted=int("abort" in record.finish_reason), finished=int("abort" not in record.finish_reason))
    _check(handle, record, tally)
    with tally.lock:
        tally.records.append(record)


def _check(handle: RequestHandle, record: RequestRecord, tally: _Tally) -> None:
    """Compare what a handle was told with the record, sample by sample."""
    events = handle.events_after(0)
    lost = misordered = 0
    for sample in record.samples:
        own = [event for event in events if event.sample == sample.index]
        lost += abs(len(sample.events) - len(own))
        misordered += sum(ours != theirs for ours, theirs in zip(own, sample.events, strict=False))
        misordered += sum(later.step <= event.step for event, later in itertools.pairwise(own))
    misordered += sum(event.request_id != handle.request_id for event in events)
    tally.add(lost=lost, misordered=misordered, events=len(events), preemptions=record.preemptions)


def _account(session: Session, tally: _Tally) -> None:
    """Compare the records of a round with the scheduler's own steps."""
    given: Counter[str] = Counter()
    for step in session.steps:
        for work in step.work:
            given[work.request_id] += work.output_tokens
    for record in tally.records:
        if "abort" not in record.finish_reason:  # tokens of a step that an abort came into are nobody's
            tally.add(lost=abs(given[record.request_id] - record.output_tokens))
        tally.add(output_tokens=record.output_tokens)
    tally.records.clear()


def _footprint() -> dict[str, int]:
    """Return memory, threads and open files of this process, after what can be given back was."""
    gc.collect()
    hardware.release_memory()
    process = psutil.Process()
    return {"rss_bytes": hardware.rss_bytes(), "threads": process.num_threads(), "fds": process.num_fds()}
