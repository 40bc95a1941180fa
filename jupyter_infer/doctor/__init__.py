"""What is wrong with this installation, and what to type: ``jupyter infer doctor``.

Nothing is changed, downloaded or loaded, and what takes long or could break is imported in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from jupyter_infer.doctor import frontend, machine, model, packages
from jupyter_infer.doctor.finding import Finding, State, render

__all__ = ["Finding", "State", "examine", "render"]

Check = Callable[[], Iterable[Finding]]

CHECKS: Mapping[str, Check] = {
    "Python": packages.python,
    "vLLM": packages.vllm,
    "torch": packages.torch,
    "torch add-ons": packages.add_ons,
    "vLLM import": packages.vllm_import,
    "CPU": machine.cpu,
    "threads": machine.threads,
    "memory": machine.memory,
    "GPU": machine.gpu,
    "model": model.default,
    "ipykernel": frontend.ipykernel,
    "widgets": frontend.widgets,
    "JupyterLab": frontend.jupyterlab,
}


def examine(checks: Mapping[str, Check] = CHECKS) -> tuple[Finding, ...]:
    """Return what every check found, in order; takes about half a minute, most of it importing vLLM elsewhere.

    A check that raises is a finding, too: it fails with the exception's name and message.
    """
    findings: list[Finding] = []
    for name, check in checks.items():
        try:
            findings += check()
        except Exception as error:
            message = " ".join(str(error).split())
            findings.append(Finding(name, "fail", f"could not be examined: {type(error).__name__}: {message}"))
    return tuple(findings)
