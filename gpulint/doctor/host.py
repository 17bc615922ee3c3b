"""Describe the machine around the GPU: CPUs, memory, disk, launcher, packages."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpulint.doctor.probes import Facts
from gpulint.runtime._cgroups import cpu_quota, memory_limit
from gpulint.runtime._environment import detect_environment
from gpulint.runtime._hardware import _cpu_name
from gpulint.runtime._limits import (
    SYSTEM_ROOT,
    available_cpus,
    free_memory,
    ram_limit,
    shm_free,
)
from gpulint.runtime._ranks import WORLD_SIZE_VARIABLES, env_count, local_world_size

PACKAGES = (
    "accelerate kornia lightning mindspore mindspore-gpu numpy nvidia-ml-py pynvml "
    "pytorch-lightning tensorflow torch torchvision transformers triton"
).split()
CONTAINER_FILES = {".dockerenv": "docker", "run/.containerenv": "podman"}
CONTAINER_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "APPTAINER_CONTAINER": "apptainer",
    "SINGULARITY_CONTAINER": "singularity",
}
LAUNCHERS = {
    "TORCHELASTIC_RUN_ID": "torchrun",
    "ACCELERATE_MIXED_PRECISION": "accelerate",
    "OMPI_COMM_WORLD_SIZE": "Open MPI",
    "SLURM_PROCID": "SLURM",
    "PMI_SIZE": "MPI",
}
SWITCHES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS")


def probe_host(_: Facts) -> Iterator[str | Facts]:
    """What `gpulint doctor` asks about the machine."""
    yield from host_facts(SYSTEM_ROOT, os.environ)


def probe_data(options: Facts) -> Iterator[str | Facts]:
    """Look at the folder of the data, which may lie on a disk that does not answer."""
    yield "looking at the data"
    path = Path(options["data"])
    yield {"exists": path.exists()}
    if path.exists():
        yield {"disk": _disk(path), "network": _on_network(path, SYSTEM_ROOT)}


def host_facts(root: Path, variables: Mapping[str, str]) -> Iterator[str | Facts]:
    """Yield the facts part by part; sizes are in bytes, None is unknown.

    `root` stands for `/`. `identity` alone names the machine and its user.
    """
    yield "reading the system"
    yield {"system": _system(root, variables), "identity": _identity()}
    yield {"cpus": _cpus(root), "memory": _memory(root), "shm": _shm(root)}
    yield {"limits": {"locked_memory": _locked_memory()}}
    yield {"launcher": _launcher(variables), "environment": _place(variables, root)}
    kept = {k: v for k, v in variables.items() if k.startswith("GPULINT_")}
    seen = {name: variables[name] for name in SWITCHES if name in variables}
    yield {"variables": kept | seen}
    yield "reading the installed packages"
    yield {"packages": _packages(), "mindspore_plugins": _plugins()}
    yield "looking at the disk"
    here = _here()
    yield {"disk": _disk(here) if here else None}


def _system(root: Path, variables: Mapping[str, str]) -> Facts:
    conda = variables.get("CONDA_DEFAULT_ENV")
    prefix = variables.get("CONDA_PREFIX")
    return {
        "name": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "container": _container(root, variables),
        "wsl": "microsoft" in platform.release().lower(),
        "conda": conda,
        "conda_is_used": Path(prefix) == Path(sys.prefix) if prefix else None,
    }


def _identity() -> Facts:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user without a name, as in containers
        user = ""
    return {
        "hostname": platform.node(),
        "user": user,
        "folder": str(_here() or ""),
        "python": sys.executable,
    }


def _here() -> Path | None:
    """The current folder; None where it has been deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _container(root: Path, variables: Mapping[str, str]) -> str | None:
    for name, kind in CONTAINER_VARIABLES.items():
        if variables.get(name):
            return kind
    for file, kind in CONTAINER_FILES.items():
        if (root / file).exists():
            return kind
    return variables.get("container") or None


def _cpus(root: Path) -> Facts:
    return {
        "name": _cpu_name(root),
        "usable": available_cpus(root=root),
        "machine": os.cpu_count(),
        "quota": cpu_quota(root),
        "slurm": env_count("SLURM_CPUS_PER_TASK"),
    }


def _memory(root: Path) -> Facts:
    usable, limit = ram_limit(root=root), memory_limit(root)
    return {
        "usable": usable,
        "limit": limit if limit == usable else None,  # else the machine has less
        "free": free_memory(root=root),
    }


def _shm(root: Path) -> Facts | None:
    free = shm_free(root=root)
    if free is None:
        return None
    status = os.statvfs(root / "dev/shm")
    return {"total": status.f_blocks * status.f_frsize, "free": free}


def _locked_memory() -> int | str | None:
    """`ulimit -l` in bytes, or "unlimited"; None where there is no such limit."""
    try:
        import resource
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return "unlimited" if limit == resource.RLIM_INFINITY else limit


def _launcher(variables: Mapping[str, str]) -> Facts:
    found = (kind for name, kind in LAUNCHERS.items() if variables.get(name))
    sizes = (env_count(name) for name in WORLD_SIZE_VARIABLES)
    return {
        "name": next(found, None),
        "world_size": next((n for n in sizes if n is not None), None),
        "local_world_size": local_world_size(),
    }


def _place(variables: Mapping[str, str], root: Path) -> Facts:
    try:
        place = detect_environment(variables, root)
    except ValueError as error:
        return {"kind": None, "label": None, "evidence": str(error)}
    return {"kind": place.kind, "label": place.label, "evidence": place.evidence}


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            version = importlib.metadata.version(name)
        # Half an installation has metadata that cannot be read, in various ways.
        except (importlib.metadata.PackageNotFoundError, KeyError, OSError, ValueError):
            continue
        found[name] = str(version)
    return found


def _plugins() -> list[str] | None:
    """The devices that the installed MindSpore has a plugin for; None without it."""
    for name in ("mindspore", "mindspore-gpu"):
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        folder = Path(str(package.locate_file("mindspore/lib/plugin")))
        return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    return None


def _disk(path: Path) -> Facts | None:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return {"path": str(path), "total": usage.total, "free": usage.free}


def _on_network(path: Path, root: Path) -> bool | None:
    """Whether the path lies on a file system of the network; None: not known."""
    try:
        text = (root / "proc/mounts").read_text("utf-8", errors="replace")
    except OSError:
        return None
    mounts = [line.split()[1:3] for line in text.splitlines()]
    target = path.resolve()
    holding = [
        (point, kind)
        for point, kind in mounts
        if point == "/" or target.is_relative_to(point)
    ]
    kind = max(holding, key=lambda mount: len(mount[0]), default=("", ""))[1]
    return kind.startswith(("nfs", "cifs", "smb", "fuse.s", "lustre", "ceph", "9p"))
