"""Made-up records for the tests of charts; times are given in milliseconds after an arrival."""

from __future__ import annotations

from jupyter_infer.records import RequestRecord, SampleRecord, TokenEvent

MS = 1_000_000
START = 7_000_000_000_123  # a monotonic clock that has run for a while


def make_record(
    request_id: str = "r0",
    *,
    prompt: str = "Why is the sky blue?",
    arrival: float = 0,
    queued: float | None = 12,
    prefill: float | None = 320,
    itl: float | list[float] = 26,
    tokens: int = 64,
    prompt_tokens: int = 24,
    cached: int | None = 0,
    finish: str = "stop",
    load: float | None = None,
    stalled: float = 0,
    preemptions: int = 0,
    shared: float | None = 400,
    abort_after: float | None = None,
    model: str = "demo/tiny",
    error: str | None = None,
) -> RequestRecord:
    """Return a record; without `queued` it never started, without `prefill` it never gave a token."""
    arrival_ns = START + round(arrival * MS)
    started = None if queued is None else arrival_ns + round(queued * MS)
    first = None if started is None or prefill is None else started + round(prefill * MS)
    gaps = itl if isinstance(itl, list) else [itl] * (tokens - 1)
    times: list[int] = [] if first is None else [first]
    for gap in gaps:
        if times:
            times.append(times[-1] + round(gap * MS))
    events = tuple(
        TokenEvent(request_id, 0, step, time, (step,), f"w{step} ", finish if step == len(times) - 1 else None)
        for step, time in enumerate(times)
    )
    last = times[-1] if times else None
    ended = (last if last is not None else arrival_ns) if abort_after is None else arrival_ns + round(abort_after * MS)
    return RequestRecord(
        request_id=request_id,
        model=model,
        label=prompt,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached,
        sampling={"max_tokens": tokens},
        samples=(SampleRecord(0, events, finish),),
        load_ns=None if load is None else round(load * MS),
        arrival_ns=arrival_ns,
        enqueued_ns=arrival_ns + 1000,
        started_ns=started,
        first_token_ns=first,
        last_token_ns=last,
        finished_ns=ended,
        stalled_ns=round(stalled * MS),
        preemptions=preemptions,
        shared_prefill_ns=None if shared is None else round(shared * MS) // 4,
        shared_decode_ns=None if shared is None else round(shared * MS) - round(shared * MS) // 4,
        shared_stalled_ns=None if shared is None else 0,
        fit=None,
        error=error,
    )


def make_batch(count: int, tokens: int = 200, *, apart: float = 40) -> list[RequestRecord]:
    """Return `count` requests that arrive `apart` ms after each other, differ a little and all end well."""
    prompts = ("Why is the sky blue?", "Write a haiku about schedulers & queues.", "Summarise: " + "lorem ipsum " * 30)
    return [
        make_record(
            f"r{i}",
            prompt=prompts[i % len(prompts)],
            arrival=i * apart,
            queued=5 + 17 * (i % 7) + 3 * i,
            prefill=180 + 11.5 * (i % 5),
            itl=[22 + (i * 7 + step * 3) % 11 for step in range(tokens - 1)],
            tokens=tokens,
            cached=16 * (i % 2),
            shared=90 + i,
        )
        for i in range(count)
    ]


def aborted_in_queue(request_id: str = "q") -> RequestRecord:
    """Return a request that was aborted before a step computed anything of it."""
    return make_record(request_id, queued=None, finish="abort", abort_after=900, shared=None)


def aborted_in_prefill(request_id: str = "p") -> RequestRecord:
    """Return a request that was aborted before its first token."""
    return make_record(request_id, prefill=None, finish="abort", abort_after=700, shared=120)


def aborted_in_decode(request_id: str = "d") -> RequestRecord:
    """Return a request that was aborted while it answered."""
    return make_record(request_id, tokens=20, finish="abort", abort_after=850)


def one_token(request_id: str = "o") -> RequestRecord:
    """Return a request that asked for one token."""
    return make_record(request_id, tokens=1, finish="length")
