"""What the map of the KV pool shows: every block at one moment, with what is not known of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_infer.gaps import name_of
from jupyter_infer.pool import Owner, PoolState
from jupyter_infer.records import REPLAY_OF, EngineInfo, RequestRecord

__all__ = ["Shown", "asked_blocks", "caches"]


@dataclass(frozen=True, slots=True)
class Shown:
    """The pool at one moment, of one engine. Its blocks are called 1 … total, since vLLM keeps block 0 to itself."""

    info: EngineInfo
    state: PoolState
    unknown: int = 0  # blocks in use that no table has: of samples that began before the remembered steps
    unseen: frozenset[int] = frozenset()  # blocks that these may be; empty if there are none
    evicted: tuple[int, ...] = ()  # whose cached content was just given up
    preempted: tuple[Owner, ...] = ()  # that just lost their blocks
    step: int | None = None  # index of the step that was planned last
    since_ns: int | None = None  # from the plan of the first remembered step to its plan
    asked: int | None = None  # blocks that prompt and max_tokens of all tables would take; None if not known of all

    @property
    def total(self) -> int:
        """Blocks of the pool."""
        return self.info.kv_blocks_total

    @property
    def used(self) -> int:
        """Blocks in use, those of unknown owners included."""
        return min(self.state.moment.held + self.unknown, max(self.total, self.state.moment.held))

    @property
    def whole(self) -> int:
        """Blocks that reserving the whole context for each table would take."""
        return len(self.state.tables) * -(-self.info.max_model_len // self.state.block_size)

    @property
    def sharers(self) -> tuple[int, int]:
        """Requests, and samples, that hold a shared block."""
        refs = self.state.refs
        owners = [owner for owner, table in self.state.tables.items() if any(refs[block] > 1 for block in table)]
        return len({name for name, _ in owners}), len(owners)

    def names(self) -> dict[Owner, str]:
        """Return what people call each owner of a table."""
        owners = list(self.state.tables)
        several = {name for name, sample in owners if sample} | _twice(name for name, _ in owners)
        return {owner: name_of(owner[0], owner[1] if owner[0] in several else None) for owner in owners}

    def missing(self, owner: Owner) -> int:
        """Return the blocks at the beginning of a table that are not known, since they came before the first step."""
        if owner not in self.state.partial:
            return 0
        needed = -(-self.state.tokens.get(owner, 0) // self.state.block_size)
        return max(0, needed - len(self.state.tables[owner]))


def caches(info: EngineInfo) -> bool:
    """Return whether full blocks keep their content when they are free."""
    # The scripted engine plays a cache of prompts, which has no blocks; a replay has those of what it plays again.
    engine = info.engine.removeprefix(REPLAY_OF)
    return engine.startswith("vllm") and info.settings.get("enable_prefix_caching") is not False


def asked_blocks(state: PoolState, info: EngineInfo, records: Iterable[RequestRecord]) -> int | None:
    """Return the blocks that prompt and `max_tokens` of each table would take; None if one is not known."""
    by_name = {record.request_id: record for record in records}
    total = 0
    for name, _ in state.tables:
        record = by_name.get(name)
        limit = record.sampling.get("max_tokens") if record else None
        if record is None or not isinstance(limit, int):
            return None
        total += -(-min(record.prompt_tokens + limit, info.max_model_len) // state.block_size)
    return total


def _twice(names: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    return {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]
