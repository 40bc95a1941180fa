from __future__ import annotations

import sys
from types import ModuleType

import pytest

from jupyter_infer import hardware
from jupyter_infer.doctor import machine
from jupyter_infer.doctor.finding import Finding
from jupyter_infer.kernelspec import kernel_env

KERNEL_THAT_SPINS = machine._kernel_that_spins


@pytest.fixture(autouse=True)
def computer(monkeypatch):
    """Eight CPUs of which a quota lets four be used, no OpenMP setting, and no kernel that has one."""
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hardware, "cpu_affinity", lambda: 8)
    monkeypatch.setattr(hardware, "cpu_quota", lambda: 3.5)
    monkeypatch.setattr(hardware, "cpu_threads", lambda: 4)
    monkeypatch.setattr(machine, "_kernel_that_spins", lambda: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def found(findings, name):
    return next(finding for finding in findings if finding.name == name)


@pytest.mark.parametrize("bf16", [True, False])
def test_cpu_says_which_precision_is_fast(monkeypatch, bf16):
    monkeypatch.setattr(hardware, "has_bf16_matmul", lambda: bf16)
    (finding,) = machine.cpu()
    assert finding.state == "ok"
    assert ("float32" in finding.found) is not bf16


def test_threads_that_will_be_used():
    assert found(machine.threads(), "threads") == Finding("threads", "ok", "4 (8 CPUs visible, CPU quota 3.5)")


def test_one_core_is_a_warning(monkeypatch):
    monkeypatch.setattr(hardware, "cpu_threads", lambda: 1)
    assert found(machine.threads(), "threads").state == "warn"


@pytest.mark.parametrize(
    ("asked", "state"), [("2", "ok"), ("4", "ok"), ("16", "warn"), ("16,2", "warn"), ("lots", "ok")]
)
def test_more_threads_than_cores_are_a_warning(monkeypatch, asked, state):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    finding = found(machine.threads(), "threads")
    assert finding.state == state
    assert finding.fix == ("export OMP_NUM_THREADS=4" if state == "warn" else None)


@pytest.mark.parametrize(
    ("rounds", "state"), [("10000", "ok"), ("5000", "ok"), ("0", "warn"), ("300000", "warn"), ("x", "warn")]
)
def test_threads_that_spin_for_a_moment_are_well(monkeypatch, rounds, state):
    monkeypatch.setenv("GOMP_SPINCOUNT", rounds)
    assert found(machine.threads(), "waiting threads").state == state


@pytest.mark.parametrize(
    ("policy", "how"),
    [(None, "spin, and slow"), ("", "spin, and slow"), ("ACTIVE", "spin, and slow"), ("passive", "sleep at once")],
)
def test_after_torch_it_is_too_late(monkeypatch, policy, how):
    if policy is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    finding = found(machine.threads(), "waiting threads")
    assert (finding.state, finding.fix) == ("warn", "jupyter infer kernel install")
    assert "a load sets it to 10000" in finding.found
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert found(machine.threads(), "waiting threads").found.startswith(how)


def test_a_kernel_that_sets_it_is_well_until_torch_is_there(monkeypatch):
    monkeypatch.setattr(machine, "_kernel_that_spins", lambda: "mine")
    assert found(machine.threads(), "waiting threads").state == "ok"
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    finding = found(machine.threads(), "waiting threads")
    assert (finding.state, finding.fix) == ("warn", "# run the notebook in the kernel mine")


def test_a_kernel_that_sets_it_is_found_under_any_name(monkeypatch):
    specs = {"python3": {"spec": {}}, "quiet": {"spec": {"env": kernel_env()}}}
    monkeypatch.setattr("jupyter_client.kernelspec.KernelSpecManager.get_all_specs", lambda _: specs)
    assert KERNEL_THAT_SPINS() == "quiet"
    specs["quiet"]["spec"]["env"]["GOMP_SPINCOUNT"] = "300000"  # no moment
    assert KERNEL_THAT_SPINS() is None
    del specs["quiet"]
    assert KERNEL_THAT_SPINS() is None


@pytest.mark.parametrize(("free", "state"), [(1.1e9, "fail"), (1.9e9, "warn"), (2.1e9, "ok")])
def test_memory_is_shown_with_its_limits(monkeypatch, free, state):
    monkeypatch.setattr(hardware, "memory_available", lambda: int(free))
    monkeypatch.setattr(hardware, "memory_limits", lambda: {"host": 16 * 10**9, "cgroup": 4 * 10**9})
    (finding,) = machine.memory()
    assert finding.state == state
    assert finding.found.startswith(f"{free / 1e9:.1f} GB free (host 16.0 GB, cgroup 4.0 GB)")
    assert (finding.fix is None) is (state == "ok")


def test_memory_without_a_cgroup(monkeypatch):
    monkeypatch.setattr(hardware, "memory_limits", lambda: {"host": 16 * 10**9})
    (finding,) = machine.memory()
    assert "(host 16.0 GB, no cgroup limit)" in finding.found


def test_no_gpu_is_no_fault():
    (finding,) = machine.gpu()
    assert finding.state == "ok"


@pytest.mark.usefixtures("h200")
def test_a_gpu_is_named():
    (finding,) = machine.gpu()
    assert finding == Finding("GPU", "ok", "NVIDIA H200, 150.0 GB")
