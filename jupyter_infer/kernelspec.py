"""A Jupyter kernel whose environment is right before Python starts.

OpenMP reads its variables once, when the first library that brings it is loaded. A notebook that imports torch before
it loads the engine is too late to set them; a kernelspec is not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from jupyter_infer import hardware
from jupyter_infer.errors import ConfigError

__all__ = ["DISPLAY_NAME", "KERNEL_NAME", "SPIN", "install_kernel", "kernel_env"]

KERNEL_NAME = "jupyter-infer"
DISPLAY_NAME = "Python 3 (jupyter-infer)"

SPIN = "GOMP_SPINCOUNT"
"""The variable that says how long OpenMP's threads spin."""


def kernel_env() -> dict[str, str]:
    """Return the environment variables that have to be set before torch is first imported.

    ``OMP_NUM_THREADS`` is among them only where a CPU quota grants less than the affinity mask shows, because torch
    sees the mask and not the quota.
    """
    env = {
        # For how many rounds OpenMP's threads spin before they sleep: a fraction of a millisecond. They wait for each
        # other some hundred times a step. If they slept at once (OMP_WAIT_POLICY=PASSIVE), decode would be a
        # third slower, and with OpenMP's own 3 ms they take the CPUs from everyone else (docs/speed.md).
        SPIN: "10000",
        "VLLM_NO_USAGE_STATS": "1",
    }
    threads = hardware.cpu_threads()
    if threads < hardware.cpu_affinity():
        env["OMP_NUM_THREADS"] = str(threads)
    return env


def install_kernel(
    *, user: bool = True, prefix: str | None = None, name: str = KERNEL_NAME, display_name: str = DISPLAY_NAME
) -> Path:
    """Install a kernelspec that starts this Python with `kernel_env`, in place of an older one of that name.

    A CPU quota is read now and written down: install again where the quota has changed.

    Parameters
    ----------
    user
        Install for this user; False is for all users. Without effect when `prefix` is given.
    prefix
        Install under this folder, ``sys.prefix`` for a virtual environment.
    name
        Name of the kernelspec: ASCII letters, digits, ``-``, ``.`` and ``_``; lower-cased by Jupyter.
    display_name
        What the launcher shows.

    Returns
    -------
    pathlib.Path
        The folder of the kernelspec.

    Raises
    ------
    ConfigError
        The name is not a kernel name, or the place cannot be written.
    """
    from ipykernel.kernelspec import write_kernel_spec
    from jupyter_client.kernelspec import KernelSpecManager

    # Not ipykernel's `install`, which leaves a folder in the temporary files each time.
    with tempfile.TemporaryDirectory() as folder:
        source = write_kernel_spec(
            Path(folder) / "kernel",
            overrides={"display_name": display_name, "env": kernel_env()},
            # As ipykernel's own kernelspecs do: the debugger cannot stop in frozen modules.
            python_arguments=["-Xfrozen_modules=off"] if sys.implementation.name == "cpython" else None,
        )
        try:
            return Path(
                KernelSpecManager().install_kernel_spec(
                    source, kernel_name=name, user=user and prefix is None, prefix=prefix
                )
            )
        except ValueError as error:
            raise ConfigError(f"{name!r} is no kernel name: use letters, digits, '-', '.' and '_'") from error
        except OSError as error:
            place = error.filename or prefix or "the folder of Jupyter's kernels"
            why = error.strerror or error
            raise ConfigError(
                f"cannot write {place} ({why}); install for this user, or under a prefix of yours: {sys.prefix}"
            ) from error
