"""What this process may use of the machine: CPUs, memory, a GPU.

A container sees the host's totals in the usual places; its own limits are in the cgroup files. Each level of the cgroup
tree limits the ones below it, so all levels up to the root that can be seen are read, of both cgroup versions. What is
missing or unreadable limits nothing, so on systems without these files the host's figures hold.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

__all__ = [
    "Gpu",
    "Roots",
    "cpu_affinity",
    "cpu_flags",
    "cpu_quota",
    "cpu_threads",
    "gpu",
    "has_bf16_matmul",
    "memory_available",
    "memory_limit",
    "memory_limits",
    "release_memory",
    "rss_bytes",
]

_SMI_TIMEOUT_S = 10  # without persistence mode the driver starts first, which takes seconds
_AVX512_CORE = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the kernel's files are."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")


LINUX = Roots()


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU; `memory_bytes` is None where it has no memory of its own or where a slice of it is used (MIG)."""

    name: str
    memory_bytes: int | None


def cpu_threads(*, roots: Roots = LINUX) -> int:
    """Return the number of threads that can compute at once: CPUs of the affinity mask or of the quota, at least 1."""
    quota = cpu_quota(roots=roots)
    return cpu_affinity() if quota is None else max(1, min(cpu_affinity(), math.ceil(quota)))


def cpu_affinity() -> int:
    """Return the number of CPUs that this process may run on, quotas aside."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def cpu_quota(*, roots: Roots = LINUX) -> float | None:
    """Return the CPU time that the cgroup grants, in CPUs (1.5 is 150 ms in each 100 ms), or None without a limit."""
    return min((quota for folder in _cgroups("cpu", roots) if (quota := _quota(folder))), default=None)


def memory_limit(*, roots: Roots = LINUX) -> int:
    """Return the bytes that this process may use in all: the least of `memory_limits`."""
    return min(memory_limits(roots=roots).values())


def memory_limits(*, roots: Roots = LINUX) -> dict[str, int]:
    """Return the limits that hold, in bytes: ``host``, and where there are any, ``cgroup`` and ``address space``."""
    host = psutil.virtual_memory().total
    cgroup = min((limit for limit, _ in _cgroup_memory(roots)), default=host)
    address_space = _address_space_limit()
    limits = {"host": host}
    if cgroup < host:  # cgroup v1 writes "no limit" as a number near 2**63
        limits["cgroup"] = cgroup
    if address_space is not None:
        limits["address space"] = address_space
    return limits


def memory_available(*, roots: Roots = LINUX) -> int:
    """Return the bytes that this process can still take before it meets a limit.

    File pages that the kernel would drop first (``inactive_file``) count as free, as the out-of-memory killer does.
    """
    free = [psutil.virtual_memory().available]
    free += [limit - used for limit, used in _cgroup_memory(roots)]
    address_space = _address_space_limit()
    if address_space is not None:
        free.append(address_space - psutil.Process().memory_info().vms)
    return max(0, min(free))


def rss_bytes() -> int:
    """Return the resident memory of this process, in bytes."""
    return psutil.Process().memory_info().rss


def release_memory() -> None:
    """Give freed heap back to the system where the C library can (glibc); collecting garbage first is the caller's."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def has_bf16_matmul(*, roots: Roots = LINUX) -> bool:
    """Return whether oneDNN multiplies bfloat16 matrices on this CPU: x86 with AVX-512 (AMX included), ARM with BF16.

    It is the test of PyTorch itself (``torch.ops.mkldnn._is_mkldnn_bf16_supported``). With AVX2 alone oneDNN refuses,
    and PyTorch's own loops run prefill several times slower than in float32.
    """
    flags = cpu_flags(roots=roots)
    return flags >= _AVX512_CORE or "bf16" in flags


def cpu_flags(*, roots: Roots = LINUX) -> frozenset[str]:
    """Return what this CPU can do, in the kernel's words; nothing where they are not to be had."""
    for line in _read(roots.proc / "cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):  # x86, ARM
            return frozenset(value.split())
    return frozenset()


@functools.cache
def gpu() -> Gpu | None:
    """Return the NVIDIA GPU that CUDA would use first, or None if there is none or its driver does not answer."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    command = [smi, "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_SMI_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else _first_visible(done.stdout, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _first_visible(listing: str, visible: str | None) -> Gpu | None:
    rows = [row for line in listing.splitlines() if len(row := [word.strip() for word in line.split(",")]) == 4]
    first = None if visible is None else visible.split(",")[0].strip()
    for index, uuid, name, mebibytes in rows:
        is_slice = first is not None and first.startswith("MIG-")
        if first is None or is_slice or first == index or (first.startswith("GPU-") and uuid.startswith(first)):
            memory = None if is_slice else _number(mebibytes)
            return Gpu(name, None if memory is None else memory * 2**20)
    return None


def _cgroups(controller: str, roots: Roots) -> Iterator[Path]:
    """Yield the folders of this process's cgroup for `controller`, each with its parents, of both versions.

    A container may see its own cgroup mounted at the root while its path is the host's: folders that do not exist are
    harmless, and the root is always among those yielded.
    """
    places = {roots.cgroup: "/", roots.cgroup / controller: "/"}
    for line in _read(roots.proc / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if not names:
            places[roots.cgroup] = places[roots.cgroup / "unified"] = path
        elif controller in names.split(","):
            places[roots.cgroup / controller] = places[roots.cgroup / names] = path
    for base, path in places.items():
        parts = [part for part in PurePosixPath(path).parts if part != "/"]
        if ".." in parts:  # the process was moved out of its cgroup namespace: only the root can be seen
            parts = []
        for depth in range(len(parts), -1, -1):
            yield base.joinpath(*parts[:depth])


def _quota(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    if not words:
        words = [_read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip()]
    quota, period = (_number(word) for word in words) if len(words) == 2 else (None, None)
    return quota / period if quota and period else None


def _cgroup_memory(roots: Roots) -> Iterator[tuple[int, int]]:
    """Yield (limit, used) in bytes for each cgroup level that has a limit."""
    for folder in _cgroups("memory", roots):
        for limit_file, usage_file, reclaimable in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit = _number(_read(folder / limit_file))
            if limit:
                usage = _number(_read(folder / usage_file))
                stat = dict(line.partition(" ")[::2] for line in _read(folder / "memory.stat").splitlines())
                free = _number(stat.get(reclaimable, "")) or 0
                yield limit, rss_bytes() if usage is None else max(0, usage - free)


def _address_space_limit() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _number(text: str) -> int | None:
    """Return `text` as a whole number, or None for anything else (``max``, ``-1``, ``[N/A]``)."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
