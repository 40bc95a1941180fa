"""CPU, memory and GPU: what a model gets here."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator

from jupyter_infer import hardware
from jupyter_infer.doctor.finding import Finding
from jupyter_infer.kernelspec import SPIN, kernel_env

__all__ = ["cpu", "gpu", "memory", "threads"]

ENOUGH_BYTES = 1_200_000_000  # vLLM imported, the default model and its smallest KV pool
COMFORTABLE_BYTES = 2_000_000_000
INSTALL_KERNEL = "jupyter infer kernel install"
SHORT, LONG = 2_000, 50_000  # rounds that are a moment: below, threads sleep before they meet; above, others wait


def cpu() -> Iterator[Finding]:
    """Yield which precision is the fast one here."""
    bf16 = hardware.has_bf16_matmul()
    how = "multiplies bfloat16" if bf16 else "no bfloat16 multiplication, so float32 is used where memory allows"
    yield Finding("CPU", "ok", f"{platform.machine()}: {how}")


def threads() -> Iterator[Finding]:
    """Yield how many threads will compute, and how they wait for each other."""
    count, quota = hardware.cpu_threads(), hardware.cpu_quota()
    limit = "no CPU quota" if quota is None else f"CPU quota {quota:g}"
    found = f"{count} ({hardware.cpu_affinity()} CPUs visible, {limit})"
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked.isdecimal() and int(asked) > count:
        found = f"OMP_NUM_THREADS={asked} is more than can run at once: {found}"
        yield Finding("threads", "warn", found, f"export OMP_NUM_THREADS={count}")
    elif count == 1:
        found = f"{found}: the model and the notebook share one core; expect slow answers"
        yield Finding("threads", "warn", found, "# give the container two cores: docker run --cpus=2 …")
    else:
        yield Finding("threads", "ok", f"{found}; OMP_NUM_THREADS={asked}" if asked else found)
    yield _waiting()


def _waiting() -> Finding:
    kernel, wanted = _kernel_that_spins(), kernel_env()[SPIN]
    fix = f"# run the notebook in the kernel {kernel}" if kernel else INSTALL_KERNEL
    rounds, policy = os.environ.get(SPIN, "").strip(), os.environ.get("OMP_WAIT_POLICY", "").strip().upper()
    if _is_moment(rounds):
        return Finding("waiting threads", "ok", f"spin for a moment, then sleep ({SPIN}={rounds})")
    now = f"{SPIN}={rounds}" if rounds else f"OMP_WAIT_POLICY={policy}" if policy else f"{SPIN} is not set"
    if "torch" in sys.modules:
        sleeps = policy == "PASSIVE" if not rounds else rounds.isdecimal() and int(rounds) < SHORT
        how = "sleep at once, which makes steps slower" if sleeps else "spin, and slow everything beside them"
        return Finding("waiting threads", "warn", f"{how}: {now}, and torch is imported already", fix)
    if kernel:
        return Finding("waiting threads", "ok", f"spin for a moment in the kernel {kernel}; here {now}")
    found = f"{now}: a load sets it to {wanted}, which is too late if a cell imports torch before"
    return Finding("waiting threads", "warn", found, INSTALL_KERNEL)


def _kernel_that_spins() -> str | None:
    """Return the name of an installed kernel that sets the variable, ours or the user's own."""
    from jupyter_client.kernelspec import KernelSpecManager

    specs = KernelSpecManager().get_all_specs()
    return next((name for name, spec in specs.items() if _is_moment(spec["spec"].get("env", {}).get(SPIN, ""))), None)


def _is_moment(rounds: str) -> bool:
    return rounds.isdecimal() and SHORT <= int(rounds) <= LONG


def memory() -> Iterator[Finding]:
    """Yield whether the engine and the default model fit."""
    free = hardware.memory_available()
    limits = hardware.memory_limits()
    texts = [f"{name} {_gb(value)}" for name, value in limits.items()] + ["no cgroup limit"] * ("cgroup" not in limits)
    found = f"{_gb(free)} free ({', '.join(texts)})"
    fix = "# shut other kernels down, or give the container 3 GB: docker run --memory=3g …"
    if free < ENOUGH_BYTES:
        yield Finding("memory", "fail", f"{found}; the default model needs {_gb(ENOUGH_BYTES)}", fix)
    elif free < COMFORTABLE_BYTES:
        found = f"{found}; {_gb(ENOUGH_BYTES)} is just enough, {_gb(COMFORTABLE_BYTES)} is comfortable"
        yield Finding("memory", "warn", found, fix)
    else:
        yield Finding("memory", "ok", found)


def gpu() -> Iterator[Finding]:
    """Yield the GPU, if there is one."""
    card = hardware.gpu()
    if card is None:
        yield Finding("GPU", "ok", "none answers: models run on the CPU")
    else:
        size = "memory not reported" if card.memory_bytes is None else _gb(card.memory_bytes)
        yield Finding("GPU", "ok", f"{card.name}, {size}")


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
