from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_infer import hardware
from jupyter_infer.hardware import Gpu, Roots

GB = 10**9
UNLIMITED_V1 = 9223372036854771712


@pytest.fixture(autouse=True)
def host(monkeypatch):
    """A host of 8 CPUs and 16 GB, 10 GB of it available, without limits of its own."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(hardware.psutil, "virtual_memory", lambda: SimpleNamespace(total=16 * GB, available=10 * GB))
    monkeypatch.setattr(hardware, "_address_space_limit", lambda: None)


@pytest.fixture
def tree(tmp_path):
    """Return a function that writes files, ``proc/…`` and ``cgroup/…``, and returns their roots."""

    def write(files: dict[str, str | int | bytes]) -> Roots:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())
        return Roots(tmp_path / "proc", tmp_path / "cgroup")

    return write


# CPUs


@pytest.mark.parametrize(
    ("files", "quota", "threads"),
    [
        pytest.param({}, None, 8, id="no-files"),
        pytest.param({"proc/self/cgroup": "0::/", "cgroup/cpu.max": "max 100000"}, None, 8, id="v2-max"),
        pytest.param({"proc/self/cgroup": "0::/", "cgroup/cpu.max": "200000 100000"}, 2.0, 2, id="v2-own-namespace"),
        pytest.param({"proc/self/cgroup": "0::/", "cgroup/cpu.max": "150000 100000"}, 1.5, 2, id="rounded-up"),
        pytest.param({"proc/self/cgroup": "0::/", "cgroup/cpu.max": "5000 100000"}, 0.05, 1, id="at-least-1"),
        pytest.param({"proc/self/cgroup": "0::/", "cgroup/cpu.max": "6400000 100000"}, 64.0, 8, id="above-affinity"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/pod/box/leaf",
                "cgroup/cpu.max": "",
                "cgroup/pod/cpu.max": "300000 100000",
                "cgroup/pod/box/cpu.max": "max 100000",
                "cgroup/pod/box/leaf/cpu.max": "400000 100000",
            },
            3.0,
            3,
            id="v2-a-parent-limits",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/a/b", "cgroup/unified/a/cpu.max": "100000 100000"}, 1.0, 1, id="v2-beside-v1"
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/../../other", "cgroup/cpu.max": "200000 100000", "other/cpu.max": "1 1"},
            2.0,
            2,
            id="outside-the-namespace",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/docker/1f\n1:name=systemd:/",
                "cgroup/cpu/cpu.cfs_quota_us": -1,
                "cgroup/cpu/cpu.cfs_period_us": 100000,
                "cgroup/cpu/docker/1f/cpu.cfs_quota_us": 250000,
                "cgroup/cpu/docker/1f/cpu.cfs_period_us": 100000,
            },
            2.5,
            3,
            id="v1-nested",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/docker/1f",
                "cgroup/cpu,cpuacct/cpu.cfs_quota_us": 50000,
                "cgroup/cpu,cpuacct/cpu.cfs_period_us": 50000,
            },
            1.0,
            1,
            id="v1-host-path-in-a-container",
        ),
        pytest.param(
            {"proc/self/cgroup": b"\xff\x00::garbage", "cgroup/cpu.max": b"\xfe\xff zwei"}, None, 8, id="bytes"
        ),
        pytest.param({"proc/self/cgroup": "0::/", "cgroup/cpu.max": "200000 0"}, None, 8, id="period-0"),
        pytest.param({"proc/self/cgroup": "0::/", "cgroup/cpu.max": "1 2 3"}, None, 8, id="too-many-words"),
        pytest.param({"proc/self/cgroup": "0::/", "cgroup/cpu.max/is": "a folder"}, None, 8, id="folder-for-a-file"),
    ],
)
def test_cpu_quota_of_every_level_and_version(tree, files, quota, threads):
    roots = tree(files)
    assert hardware.cpu_quota(roots=roots) == quota
    assert hardware.cpu_threads(roots=roots) == threads


def test_without_an_affinity_call_the_cpu_count_holds(tree, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert hardware.cpu_threads(roots=tree({})) == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert hardware.cpu_threads(roots=tree({})) == 1


# memory


@pytest.mark.parametrize(
    ("files", "limit", "available"),
    [
        pytest.param({}, 16 * GB, 10 * GB, id="no-files"),
        pytest.param(
            {"proc/self/cgroup": "0::/", "cgroup/memory.max": "max", "cgroup/memory.current": 9 * GB},
            16 * GB,
            10 * GB,
            id="v2-max",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/",
                "cgroup/memory.max": 2 * GB,
                "cgroup/memory.current": GB,
                "cgroup/memory.stat": f"anon 7\ninactive_anon 5\ninactive_file {GB // 4}\nactive_file {GB // 8}",
            },
            2 * GB,
            GB + GB // 4,
            id="v2-file-pages-are-free",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/pod/box",
                "cgroup/pod/memory.max": 4 * GB,
                "cgroup/pod/memory.current": 3 * GB + GB // 2,
                "cgroup/pod/box/memory.max": 3 * GB,
                "cgroup/pod/box/memory.current": GB,
            },
            3 * GB,
            GB // 2,
            id="v2-a-neighbour-fills-the-parent",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/", "cgroup/memory.max": 14 * GB, "cgroup/memory.current": GB},
            14 * GB,
            10 * GB,
            id="the-host-has-less",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/", "cgroup/memory.max": GB, "cgroup/memory.current": 2 * GB},
            GB,
            0,
            id="above-its-limit",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "9:memory:/box",
                "cgroup/memory/memory.limit_in_bytes": UNLIMITED_V1,
                "cgroup/memory/memory.usage_in_bytes": 5 * GB,
                "cgroup/memory/box/memory.limit_in_bytes": 2 * GB,
                "cgroup/memory/box/memory.usage_in_bytes": GB,
                "cgroup/memory/box/memory.stat": f"inactive_file 1\ntotal_inactive_file {GB // 2}",
            },
            2 * GB,
            GB + GB // 2,
            id="v1",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/", "cgroup/memory.max": b"\x00\xff\n", "cgroup/memory.stat": b"\xff"},
            16 * GB,
            10 * GB,
            id="bytes",
        ),
    ],
)
def test_memory_of_every_level_and_version(tree, files, limit, available):
    roots = tree(files)
    assert hardware.memory_limit(roots=roots) == limit
    assert hardware.memory_available(roots=roots) == available


def test_a_limit_without_a_usage_file_counts_this_process(tree, monkeypatch):
    monkeypatch.setattr(hardware, "rss_bytes", lambda: GB)
    roots = tree({"proc/self/cgroup": "0::/", "cgroup/memory.max": 3 * GB})
    assert hardware.memory_available(roots=roots) == 2 * GB


def test_memory_limits_name_only_what_limits(tree):
    assert hardware.memory_limits(roots=tree({"cgroup/memory/memory.limit_in_bytes": UNLIMITED_V1})) == {
        "host": 16 * GB
    }
    roots = tree({"cgroup/memory.max": 2 * GB})
    assert hardware.memory_limits(roots=roots) == {"host": 16 * GB, "cgroup": 2 * GB}


def test_the_address_space_limits_too(tree, monkeypatch):
    vms = hardware.psutil.Process().memory_info().vms
    monkeypatch.setattr(hardware, "_address_space_limit", lambda: vms + GB)
    roots = tree({})
    assert hardware.memory_limit(roots=roots) == vms + GB
    assert 0 < hardware.memory_available(roots=roots) <= GB
    assert set(hardware.memory_limits(roots=roots)) == {"host", "address space"}


def test_the_address_space_limit_is_the_process_s_own():
    soft = 64 * 2**30
    program = "from jupyter_infer import hardware; print(hardware._address_space_limit())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(hardware.__file__).parents[1],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (soft, resource.RLIM_INFINITY)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == soft


def test_this_machine_has_sensible_values(monkeypatch):
    monkeypatch.undo()
    assert 1 <= hardware.cpu_threads() <= (os.cpu_count() or 1)
    assert 0 < hardware.memory_available() <= hardware.memory_limit()
    assert 10**6 < hardware.rss_bytes() < hardware.memory_limit()
    hardware.release_memory()
    assert hardware.has_bf16_matmul() in (True, False)


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_do_not_crash(tmp_path, monkeypatch, platform):
    monkeypatch.undo()
    monkeypatch.setattr(sys, "platform", platform)
    nowhere = Roots(tmp_path / "proc", tmp_path / "cgroup")
    hardware.release_memory()
    assert hardware.cpu_threads(roots=nowhere) >= 1
    assert 0 < hardware.memory_available(roots=nowhere) <= hardware.memory_limit(roots=nowhere)
    assert not hardware.has_bf16_matmul(roots=nowhere)


# bfloat16


@pytest.mark.parametrize(
    ("cpuinfo", "bf16"),
    [
        ("processor : 0\nflags\t\t: fpu avx avx2 f16c fma", False),
        ("flags : avx2 avx512f avx512cd avx512er avx512pf", False),  # Knights Landing: no "core" subset
        ("flags : avx2 avx512f avx512dq avx512bw avx512vl", True),
        ("flags : avx2 avx512f avx512dq avx512bw avx512vl avx512_bf16 amx_bf16 amx_tile", True),
        ("processor\t: 0\nFeatures\t: fp asimd sve bf16 i8mm", True),
        ("processor\t: 0\nFeatures\t: fp asimd atomics", False),
        ("bugs : avx512f avx512dq avx512bw avx512vl", False),
        ("", False),
    ],
)
def test_bf16_matmul_is_read_from_the_flags(tree, cpuinfo, bf16):
    assert hardware.has_bf16_matmul(roots=tree({"proc/cpuinfo": cpuinfo})) is bf16


# GPU

TWO_GPUS = "0, GPU-aaaa, NVIDIA L4, 23034\n1, GPU-bbbb, NVIDIA H200, 143771\n"


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Return a function that puts an ``nvidia-smi`` with the given shell body in the only folder of the path."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    hardware.gpu.cache_clear()

    def write(body: str) -> Path:
        script = folder / "nvidia-smi"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return script

    yield write
    hardware.gpu.cache_clear()


@pytest.mark.usefixtures("smi")
def test_no_driver_is_no_gpu():
    assert hardware.gpu() is None


def test_the_driver_is_asked_once(smi):
    script = smi("echo '0, GPU-aaaa, NVIDIA H200, 143771'")
    assert hardware.gpu() == Gpu("NVIDIA H200", 143771 * 2**20)
    script.unlink()
    assert hardware.gpu() == Gpu("NVIDIA H200", 143771 * 2**20)


@pytest.mark.parametrize(
    "body",
    [
        "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver'; exit 9",
        "echo nonsense",
        "",
    ],
)
def test_a_driver_that_fails_is_no_gpu(smi, body):
    smi(body)
    assert hardware.gpu() is None


def test_a_driver_that_hangs_is_no_gpu(smi, monkeypatch):
    monkeypatch.setattr(hardware, "_SMI_TIMEOUT_S", 0.2)
    smi("exec /bin/sleep 60")
    assert hardware.gpu() is None


def test_a_driver_that_is_not_for_this_machine_is_no_gpu(smi):
    smi("").write_bytes(b"\x7fELF not really")
    assert hardware.gpu() is None


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, Gpu("NVIDIA L4", 23034 * 2**20)),
        ("1,0", Gpu("NVIDIA H200", 143771 * 2**20)),
        ("GPU-bb", Gpu("NVIDIA H200", 143771 * 2**20)),
        ("MIG-1234", Gpu("NVIDIA L4", None)),
        ("", None),
        ("-1", None),
        ("7", None),
    ],
)
def test_the_gpu_is_the_first_that_cuda_sees(visible, expected):
    assert hardware._first_visible(TWO_GPUS, visible) == expected


def test_a_gpu_without_memory_of_its_own():
    assert hardware._first_visible("0, GPU-cccc, NVIDIA GB10, [N/A]", None) == Gpu("NVIDIA GB10", None)


def test_the_module_is_light():
    heavy = "('torch', 'vllm', 'ipykernel', 'jupyter_client')"
    program = (
        "import sys, jupyter_infer.hardware, jupyter_infer.kernelspec; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    root = Path(hardware.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
