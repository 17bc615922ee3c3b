"""Judge the machine around the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.doctor.check import Check, Status, ok, size
from gpulint.doctor.probes import Answer, Facts
from gpulint.runtime._hardware import in_units

GIB = 1024**3
LEAST_RAM = 16 * 10**9
LEAST_DISK = 20 * 10**9
LEAST_SHM = GIB
LEAST_LOCKED = 64 * 1024**2
FRAMEWORKS = (
    "torch torchvision lightning pytorch-lightning transformers accelerate tensorflow "
    "mindspore mindspore-gpu kornia numpy"
).split()


def host_checks(answer: Answer, gpus: int) -> Iterator[Check]:
    """Judge what the probe `host` has found, for a machine with so many GPUs."""
    facts = answer.facts
    if "system" in facts:
        yield from _system(facts["system"])
        yield _place(facts.get("environment") or {}, facts.get("launcher") or {})
    if "cpus" in facts:
        yield _cpus(facts["cpus"], gpus)
        yield _memory(facts["memory"])
        yield _shm(facts["shm"])
    if gpus > 1 and "limits" in facts:
        yield _locked(facts["limits"]["locked_memory"])
    if "disk" in facts:
        yield _disk("disk", "disk", facts["disk"])
    if "packages" in facts:
        yield from _packages(facts["packages"], facts.get("mindspore_plugins"))
    yield from _switches(facts.get("variables") or {})
    if answer.trouble:
        advice = "what was not read is missing here; a network disk may be down"
        yield Check("host", "machine", Status.ERROR, answer.story, None, advice)


def data_checks(answer: Answer) -> Iterator[Check]:
    """Judge what the probe `data` has found."""
    if answer.trouble:
        advice = "the disk that holds the data does not answer"
        yield Check("data", "data", Status.ERROR, answer.story, None, advice)
    elif not answer.facts.get("exists"):
        text, advice = "the folder is not there", "look at the path given to --data"
        yield Check("data", "data", Status.ERROR, text, None, advice)
    elif answer.facts.get("network"):
        advice = "read it once to a local disk before training (see GPU603)"
        yield Check("data", "data", Status.NOTE, "on a network disk", None, advice)
    else:
        disk = answer.facts.get("disk") or {}
        yield ok("data", "data", f"there, {size(disk.get('free'))} free beside it")


def _system(system: Facts) -> Iterator[Check]:
    text = f"{system['name']} {system['release']} {system['architecture']}"
    if system["container"]:
        text += f", in a container ({system['container']})"
    if system["wsl"]:
        text += ", WSL"
    yield ok("system", "system", text, system["name"])
    conda, python = system["conda"], f"Python {system['python']}"
    if conda and system["conda_is_used"] is False:
        text = f"{python}, which is not that of the active conda environment {conda}"
        advice = f"run `python -m gpulint doctor` with the Python of {conda}"
        yield Check("python", "Python", Status.WARN, text, system["python"], advice)
        return
    text = f"{python}, conda environment {conda}" if conda else python
    yield ok("python", "Python", text, system["python"])


def _place(place: Facts, launcher: Facts) -> Check:
    if place.get("kind") is None:
        advice = "set GPULINT_ENV (or FORCE_ENV_TYPE) to local or cloud, or unset it"
        text = str(place.get("evidence") or "n/a")
        return Check("environment", "environment", Status.ERROR, text, None, advice)
    text = f"{place['kind']}, {place['label']} ({place['evidence']})"
    if launcher.get("name"):
        text += f"; started by {launcher['name']}"
    if (launcher.get("local_world_size") or 1) > 1:
        text += f", {launcher['local_world_size']} ranks on this machine"
    return ok("environment", "environment", text, place["label"])


def _cpus(cpus: Facts, gpus: int) -> Check:
    usable, machine = cpus["usable"], cpus["machine"]
    text = f"{usable} usable"
    if machine and usable < machine:
        text += f" of {machine} ({_cpu_limit(cpus)})"
    text += f", {cpus['name']}"
    if gpus and usable < 4 * gpus:
        each = "the GPU" if gpus == 1 else f"{gpus} GPUs"
        advice = f"ask for more CPUs: workers of {each} want about 4 to 8 each"
        if gpus == 1:
            advice = "ask for more CPUs: the workers that feed a GPU want about 4 to 8"
        return Check("cpus", "CPUs", Status.WARN, text, usable, advice)
    return ok("cpus", "CPUs", text, usable)


def _cpu_limit(cpus: Facts) -> str:
    if cpus["slurm"] == cpus["usable"]:
        return "SLURM_CPUS_PER_TASK"
    if cpus["quota"] is not None and cpus["quota"] <= cpus["usable"]:
        return f"the control group's quota of {cpus['quota']:g}"
    return "CPU affinity"


def _memory(memory: Facts) -> Check:
    usable, free = memory["usable"], memory["free"]
    text = f"{size(usable)}, {size(free)} free"
    if memory["limit"] is not None:
        text += " (limit of the control group)"
    if usable is not None and usable < LEAST_RAM:
        advice = "training with workers wants 16 GB or more; give them less to hold"
        return Check("ram", "memory", Status.WARN, text, usable, advice)
    return ok("ram", "memory", text, usable)


def _shm(shm: Facts | None) -> Check:
    if shm is None:
        return ok("shm-size", "shared memory", "n/a (no /dev/shm on this system)")
    free = shm["free"]
    text = f"{size(free)} free of {size(shm['total'])} in /dev/shm"
    if free < LEAST_SHM:
        advice = (
            "workers hand batches over through it and die without room: docker run "
            "--shm-size=8g, or an emptyDir of medium Memory on Kubernetes"
        )
        return Check("shm-size", "shared memory", Status.WARN, text, free, advice)
    return ok("shm-size", "shared memory", text, free)


def _locked(limit: int | str | None) -> Check:
    if isinstance(limit, int) and limit < LEAST_LOCKED:
        advice = "NCCL over InfiniBand needs more: docker run --ulimit memlock=-1"
        text = f"{in_units(limit)} (ulimit -l)"
        return Check("memlock", "locked memory", Status.NOTE, text, limit, advice)
    shown = in_units(limit) if isinstance(limit, int) else limit or "n/a"
    return ok("memlock", "locked memory", f"{shown} (ulimit -l)", limit)


def _disk(id: str, subject: str, disk: Facts | None) -> Check:
    if disk is None:
        return ok(id, subject, "n/a")
    text = f"{size(disk['free'])} free of {size(disk['total'])} here"
    if disk["free"] < LEAST_DISK:
        advice = "checkpoints and logs want 20 GB: make room, or write elsewhere"
        return Check(id, subject, Status.WARN, text, disk["free"], advice)
    return ok(id, subject, text, disk["free"])


def _packages(packages: dict[str, str], plugins: list[str] | None) -> Iterator[Check]:
    present = [f"{name} {packages[name]}" for name in FRAMEWORKS if name in packages]
    yield ok("packages", "packages", ", ".join(present) or "no framework is installed")
    old = packages.get("pynvml")
    if old and _major(old) < 12:
        advice = "pip uninstall pynvml && pip install nvidia-ml-py"
        text = f"pynvml {old} stands in the way of nvidia-ml-py"
        yield Check("nvml-package", "packages", Status.WARN, text, old, advice)
    mindspore = packages.get("mindspore") or packages.get("mindspore-gpu")
    if mindspore is None:
        return
    names = ", ".join(plugins or ()) or "none"
    text = f"MindSpore {mindspore}, device plugins: {names}"
    yield ok("mindspore", "packages", text, mindspore)
    if _major(packages.get("numpy", "0")) >= 2:
        advice = "return np.asarray(label), or pip install 'numpy<2'"
        text = "MindSpore's GeneratorDataset refuses scalars of NumPy 2"
        yield Check("numpy-2", "packages", Status.NOTE, text, None, advice)


def _major(version: str) -> int:
    word = version.partition(".")[0]
    return int(word) if word.isdecimal() else 0


def _switches(variables: dict[str, str]) -> Iterator[Check]:
    shown = " ".join(f"{name}={value}" for name, value in sorted(variables.items()))
    if shown:
        yield ok("variables", "variables", shown)
