"""CPU, memory and GPU: what a model gets here."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator

from jupyter_infer import hardware
from jupyter_infer.doctor.finding import Finding

__all__ = ["cpu", "gpu", "memory", "threads"]

ENOUGH_BYTES = 1_200_000_000  # vLLM imported, the default model and its smallest KV pool
COMFORTABLE_BYTES = 2_000_000_000
INSTALL_KERNEL = "jupyter infer kernel install"


def cpu() -> Iterator[Finding]:
    """Yield which precision is the fast one here."""
    bf16 = hardware.has_bf16_matmul()
    how = "multiplies bfloat16" if bf16 else "no bfloat16 multiplication, so float32 is used where memory allows"
    yield Finding("CPU", "ok", f"{platform.machine()}: {how}")


def threads() -> Iterator[Finding]:
    """Yield how many threads will compute, and whether they sleep while they wait."""
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
    policy = os.environ.get("OMP_WAIT_POLICY")
    if (policy or "").strip().upper() == "PASSIVE" or os.environ.get("GOMP_SPINCOUNT") == "0":
        return Finding(
            "idle threads", "ok", "sleep (OMP_WAIT_POLICY=PASSIVE)" if policy else "sleep (GOMP_SPINCOUNT=0)"
        )
    now = f"OMP_WAIT_POLICY is {policy or 'not set'}"
    kernel = _kernel_that_waits()
    if "torch" in sys.modules:
        fix = f"# run the notebook in the kernel {kernel}" if kernel else INSTALL_KERNEL
        return Finding("idle threads", "warn", f"spin: {now}, and torch is imported already", fix)
    if kernel:
        return Finding("idle threads", "ok", f"sleep in the kernel {kernel}; here {now}")
    found = f"{now}: they will spin, and slow everything beside them, if a cell imports torch before a model is loaded"
    return Finding("idle threads", "warn", found, INSTALL_KERNEL)


def _kernel_that_waits() -> str | None:
    """Return the name of an installed kernel that sets the variable, ours or the user's own."""
    from jupyter_client.kernelspec import KernelSpecManager

    specs = KernelSpecManager().get_all_specs()
    return next((name for name, spec in specs.items() if "OMP_WAIT_POLICY" in spec["spec"].get("env", {})), None)


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
