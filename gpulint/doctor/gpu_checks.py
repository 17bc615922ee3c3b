"""Judge the driver, each GPU, and torch against both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpulint.doctor.check import Check, Status, dotted, ok, size
from gpulint.doctor.probes import Answer, Facts
from gpulint.nvml.library import IMPORTING, MISMATCH, NO_DRIVER

OLDEST_DRIVER = 460
LEAST_MEMORY = 8 * 10**9
HOT = 80  # degrees Celsius
CAPPED = 0.95  # of the power that the maker provides for
BUSY = 0.1  # of the memory: more than a display needs
OLDEST_TORCH = (2, 3)  # of the helpers in `gpulint.runtime`
ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([a-z]?)")


def driver_check(answer: Answer, torch: Facts) -> Check:
    """Judge the driver; one for NVIDIA's GPUs is missing only where torch has none."""
    facts, subject = answer.facts, "driver"
    error, driver = facts.get("error"), facts.get("driver")
    if answer.trouble:
        advice = "the driver is stuck or broken: look for Xid errors in `dmesg`"
        if answer.stage == IMPORTING and "no answer" not in answer.trouble:
            advice = "pip install --force-reinstall nvidia-ml-py"
        return Check("driver", subject, Status.ERROR, answer.story, driver, advice)
    if error == NO_DRIVER:
        other = torch.get("accelerator")
        if other and (torch.get("hip") or other != "cuda"):
            used = "ROCm" if torch.get("hip") else other
            return ok("driver", subject, f"not NVIDIA's, torch uses {used}")
        if other == "cuda":  # Jetson, or a container that may compute and not look
            text = "NVML is not to be found, though torch uses CUDA"
            advice = (
                "nothing says here how the GPU is; in a container: -e "
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            )
            return Check("driver", subject, Status.NOTE, text, None, advice)
        advice = "training runs on the CPU; in a container: docker run --gpus all"
        text = "no NVIDIA driver"
        return Check("driver", subject, Status.WARN, text, None, advice)
    if error == MISMATCH:
        text = "the driver's library and its kernel module are of different versions"
        advice = "restart the machine; in a container, the container"
        return Check("driver", subject, Status.ERROR, text, None, advice)
    if error:
        advice = "`nvidia-smi` should work before anything else does"
        return Check("driver", subject, Status.ERROR, error, None, advice)
    text = f"NVIDIA {driver or 'n/a'} ({facts.get('source')})"
    major = (driver or "").partition(".")[0]
    if major.isdecimal() and int(major) < OLDEST_DRIVER:
        advice = f"too old for CUDA 11.2 and later: install {OLDEST_DRIVER} or newer"
        return Check("driver", subject, Status.WARN, text, driver, advice)
    return ok("driver", subject, text, driver)


def gpu_checks(gpu: Facts) -> Iterator[Check]:
    """Judge one GPU; what could not be read is n/a and never a finding."""
    name, subject = f"gpu{gpu['index']}", f"GPU {gpu['index']}"
    if gpu.get("lost"):
        advice = "the driver knows it and does not reach it: look at `dmesg`"
        yield Check(name, subject, Status.ERROR, "lost", None, advice)
        return

    def warn(what: str, text: str, advice: str, status: Status = Status.WARN) -> Check:
        return Check(f"{name}-{what}", subject, status, text, None, advice)

    yield ok(name, subject, _describe(gpu), gpu["name"])
    total, used = gpu.get("memory_total"), gpu.get("memory_used")
    if total and total < LEAST_MEMORY and not gpu.get("mig"):
        text = f"{size(total)} of memory"
        yield warn("memory", text, "small batches, mixed precision, or another GPU")
    if total and used and used > BUSY * total:
        text = f"{size(used)} of {size(total)} in use by {_users(gpu)}"
        yield warn("busy", text, "wait for them, or choose with CUDA_VISIBLE_DEVICES")
    width, widest = gpu.get("pcie_width"), gpu.get("pcie_width_max")
    if width and widest and width < widest:
        text = f"{width} of {widest} PCIe lanes"
        advice = "copies are slower: is it in the right slot, and firmly?"
        yield warn("pcie", text, advice, Status.NOTE)
    power, usual = gpu.get("power_limit_watts"), gpu.get("power_default_watts")
    if power and usual and power < CAPPED * usual:
        text = f"power capped to {power:.0f} of {usual:.0f} W"
        advice = f"nvidia-smi -pl {usual:.0f}, if it is not meant to be"
        yield warn("power", text, advice, Status.NOTE)
    yield from _slowed(gpu, warn)
    if gpu.get("mig"):
        count = len(gpu.get("mig_slices") or ())
        text = f"divided (MIG): {count} slice{'' if count == 1 else 's'}"
        advice = "a process uses one slice, and its utilisation cannot be read"
        if not count:
            advice = "no slice can be used: nvidia-smi mig -cgi, or nvidia-smi -mig 0"
        yield warn("mig", text, advice, Status.NOTE if count else Status.ERROR)


def _slowed(gpu: Facts, warn: object) -> Iterator[Check]:
    assert callable(warn)
    reasons = gpu.get("slowed_by") or []
    celsius = gpu.get("temperature")
    at = "" if celsius is None else f" at {celsius} °C"
    if reasons == ["power cap"]:
        text, advice = "slowed by its power cap", "usual under full load"
        yield warn("slowed", text, advice, Status.NOTE)
    elif reasons:
        text = f"slowed by: {', '.join(reasons)}{at}"
        yield warn("slowed", text, "look at cooling and power supply")
    elif celsius is not None and celsius >= HOT:
        text, advice = f"{celsius} °C", f"cooler than {HOT} °C is better: look at fans"
        yield warn("hot", text, advice, Status.NOTE)


def _describe(gpu: Facts) -> str:
    parts = [gpu.get("name") or "a GPU without a name"]
    if gpu.get("capability"):
        parts.append(f"cc {dotted(gpu['capability'])}")
    parts.append(f"{size(gpu.get('memory_total'))}")
    if gpu.get("pcie_generation_max"):
        width = gpu.get("pcie_width") or "n/a"
        parts.append(f"PCIe gen{gpu['pcie_generation_max']} x{width}")
    if gpu.get("mig") is False:
        parts.append("MIG off")
    utilisation = gpu.get("utilisation")
    parts.append(f"in use {'n/a' if utilisation is None else f'{utilisation} %'}")
    return ", ".join(parts)


def _users(gpu: Facts) -> str:
    count = gpu.get("processes")
    if not count:  # a container sees only its own
        return "processes that cannot be seen from here"
    return f"{count} process{'' if count == 1 else 'es'}"


def torch_checks(
    answer: Answer, gpus: Sequence[Facts], installed: bool, variables: Facts
) -> Iterator[Check]:
    """Judge torch: does it load, was it built for these GPUs, does it compute?"""
    facts, subject = answer.facts, "torch"
    if "version" not in facts:
        if not installed and "No module named 'torch'" in (answer.trouble or ""):
            advice = "pip install 'gpulint[runtime]' where scripts train with torch"
            text = "not installed for this Python"
            yield Check("torch", subject, Status.WARN, text, None, advice)
            return
        advice = "torch cannot be used here: install it anew (see pytorch.org)"
        if "no answer" in (answer.trouble or ""):
            advice = "a slow network disk, or a stuck driver; --timeout allows more"
        yield Check("torch", subject, Status.ERROR, answer.story, None, advice)
        return
    yield _version(facts)
    yield from _devices(facts, gpus, variables)
    # What torch does not see, such as an old GPU for the display, needs no kernels.
    yield from _architectures(facts, facts.get("devices") or gpus)
    compute = facts.get("compute") or {}
    if compute.get("error"):
        text = f"{compute['device']} does not compute: {compute['error']}"
        advice = "nothing can train there: driver, CUDA build and GPU must match"
        yield Check("compute", subject, Status.ERROR, text, None, advice)
    elif compute:
        yield ok("compute", subject, f"computes on {compute['device']}")
    yield from _formats(facts)
    chosen = facts.get("runtime") or {}
    if chosen.get("error"):
        advice = "scripts that import gpulint.runtime stop with this error"
        text = chosen["error"]
        yield Check("settings", "runtime", Status.ERROR, text, None, advice)
    if answer.trouble:
        advice = "training would hang or stop there too"
        yield Check("torch-probe", subject, Status.ERROR, answer.story, None, advice)


def _version(facts: Facts) -> Check:
    version = facts["version"]
    built = "the CPU"
    if facts.get("cuda"):
        built = f"CUDA {facts['cuda']}"
    elif facts.get("hip"):
        built = f"ROCm {facts['hip']}"
    elif facts.get("accelerator"):
        built = facts["accelerator"]
    text = f"{version}, built for {built}"
    if facts.get("cudnn"):
        text += f", cuDNN {facts['cudnn']}"
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_TORCH:
        advice = f"gpulint.runtime needs torch {dotted(OLDEST_TORCH)} or newer"
        return Check("torch", "torch", Status.WARN, text, version, advice)
    return ok("torch", "torch", text, version)


def _devices(facts: Facts, gpus: Sequence[Facts], variables: Facts) -> Iterator[Check]:
    """Compare what torch sees with what the driver has."""
    subject, visible = "torch", variables.get("CUDA_VISIBLE_DEVICES")
    count = facts.get("device_count")
    if not gpus or count is None or facts.get("hip"):
        return
    if not facts.get("cuda"):
        text = "it is a build without CUDA, and there is an NVIDIA GPU"
        advice = "training runs on the CPU: install a CUDA build (see pytorch.org)"
        yield Check("torch-cuda", subject, Status.ERROR, text, None, advice)
    elif not count and visible is not None:
        text = f"it sees no GPU: CUDA_VISIBLE_DEVICES={visible!r}"
        advice = "unset the variable, or name a GPU that there is"
        yield Check("torch-cuda", subject, Status.ERROR, text, 0, advice)
    elif not count:
        text = f"it sees no GPU, though the driver has {len(gpus)}"
        advice = f"the driver may be too old for CUDA {facts['cuda']}: install a newer"
        yield Check("torch-cuda", subject, Status.ERROR, text, 0, advice)
    elif count != len(gpus) and not any(gpu.get("mig") for gpu in gpus):
        why = f" (CUDA_VISIBLE_DEVICES={visible})" if visible is not None else ""
        text = f"it sees {count} of {len(gpus)} GPUs{why}"
        advice = "the others stay idle, if that is not meant"
        yield Check("torch-cuda", subject, Status.NOTE, text, count, advice)


def _architectures(facts: Facts, gpus: Sequence[Facts]) -> Iterator[Check]:
    """Say whether torch's kernels run on each kind of GPU there is."""
    built = facts.get("arch_list")
    if not built or facts.get("hip"):
        return
    kinds = {tuple(gpu["capability"]): gpu for gpu in gpus if gpu.get("capability")}
    for capability, gpu in sorted(kinds.items()):
        how = kernels_for(capability, built)
        name = f"sm_{capability[0]}{capability[1]}"
        if how == "binary":
            text = f"has kernels for {name}"
            yield ok("torch-arch", "torch", text, name)
        elif how == "ptx":
            text = f"has no kernels for {name}, only code that the driver compiles"
            advice = "the first steps take minutes: install a build for this GPU"
            yield Check("torch-arch", "torch", Status.WARN, text, name, advice)
        else:
            text = f"has no kernels for {name} ({gpu.get('name')})"
            advice = f"it was built for {', '.join(built)}: install another build"
            yield Check("torch-arch", "torch", Status.ERROR, text, name, advice)


def kernels_for(capability: tuple[int, ...], built: Sequence[str]) -> str | None:
    """Return "binary", "ptx" (compiled by the driver) or None, by NVIDIA's rules.

    A binary runs on its own major version from its minor one on, PTX on everything
    newer; with a letter behind it, either runs on that one version alone.
    """
    how = None
    for word in built:
        match = ARCHITECTURE.fullmatch(word)
        if match is None:
            continue
        kind, version, letter = match[1], (int(match[2]), int(match[3])), match[4]
        exact = version == capability
        # sm_100f: the family, which shares the major version
        same = version[0] == capability[0] and version <= capability
        fits = exact or (same and letter in ("", "f"))
        if kind == "sm" and fits:
            return "binary"
        if kind == "compute" and (exact or (version <= capability and not letter)):
            how = "ptx"
    return how


def _formats(facts: Facts) -> Iterator[Check]:
    """Say what number formats the device has, and which torch would use."""
    machine = (facts.get("runtime") or {}).get("hardware") or {}
    if machine.get("kind") not in ("cuda", "rocm"):
        return
    amp = (facts.get("runtime") or {}).get("amp")
    text = "bfloat16 in hardware" if machine.get("bf16") else "no bfloat16 in hardware"
    yield ok("bf16", "precision", f"{text}, autocast in {amp or 'nothing'}", amp)
    precision = facts.get("matmul_precision")
    if machine.get("tf32") and precision == "highest":
        text = "TF32 is off for matrix products, on for convolutions"
        if not facts.get("cudnn_tf32"):
            text = "TF32 is off"
        advice = "torch.set_float32_matmul_precision('high') in scripts (see GPU302)"
        yield Check("tf32", "precision", Status.NOTE, text, precision, advice)
    elif machine.get("tf32"):
        yield ok("tf32", "precision", f"TF32 is on ({precision})", precision)
