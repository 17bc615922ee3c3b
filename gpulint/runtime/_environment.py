"""Name the kind of place a script runs in, for reports and for a chosen policy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ._settings import read_choice

KINDS = ("local", "cloud")

# (kind, label, variables; a final * stands for any ending, files), the most specific
# first. The names are the platforms' own; they are labels, not measurements.
SIGNS: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("cloud", "colab", ("COLAB_*",), ()),
    ("cloud", "kaggle", ("KAGGLE_KERNEL_RUN_TYPE",), ()),
    (
        "cloud",
        "sagemaker",
        (
            "SM_TRAINING_ENV",
            "SM_HOSTS",
            "SAGEMAKER_INTERNAL_IMAGE_URI",
            "TRAINING_JOB_NAME",
        ),
        ("opt/ml/input",),
    ),
    (
        "cloud",
        "vertex",
        ("CLOUD_ML_JOB_ID", "CLOUD_ML_PROJECT_ID", "AIP_MODEL_DIR"),
        (),
    ),
    ("cloud", "azureml", ("AZUREML_RUN_ID", "AZUREML_ROOT_RUN_ID"), ()),
    ("cloud", "databricks", ("DATABRICKS_RUNTIME_VERSION",), ()),
    ("cloud", "aliyun", ("PAI_*",), ()),
    ("cloud", "cloud shell", ("CLOUD_SHELL", "GOOGLE_CLOUD_SHELL"), ()),
    ("cloud", "runpod", ("RUNPOD_POD_ID",), ()),
    ("cloud", "vast", ("VAST_CONTAINERLABEL",), ()),
    (
        "cloud",
        "kubernetes",
        ("KUBERNETES_SERVICE_HOST",),
        ("run/secrets/kubernetes.io", "var/run/secrets/kubernetes.io"),
    ),
)
LOCAL_SIGNS: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("local", "slurm", ("SLURM_JOB_ID",), ()),
    (
        "local",
        "container",
        ("container", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"),
        (".dockerenv", "run/.containerenv"),
    ),
)
# What a virtual machine's firmware says of its maker and of itself.
FIRMWARE = {
    "sys/class/dmi/id/sys_vendor": {"Alibaba Cloud": "aliyun", "Amazon EC2": "aws"},
    "sys/class/dmi/id/product_name": {"Google Compute Engine": "google cloud"},
}


@dataclass(frozen=True)
class Environment:
    """Where the script runs: `kind` is "local" or "cloud", `evidence` says why."""

    kind: str
    label: str
    evidence: str


def environment() -> Environment:
    """Return where this process runs.

    A name says little about a machine, so no helper decides by it. `GPULINT_ENV`
    (`local` or `cloud`) sets the kind and wins over `FORCE_ENV_TYPE`; another value
    of either raises ValueError.
    """
    return detect_environment(os.environ, Path("/"))


def detect_environment(variables: Mapping[str, str], root: Path) -> Environment:
    """Return what the variables and the files under `root` say."""
    found = next(_detected(variables, root))
    for name in ("GPULINT_ENV", "FORCE_ENV_TYPE"):
        forced = read_choice(name, KINDS, variables)
        if forced is not None:
            return Environment(forced, found.label, f"{name}={forced}")
    return found


def _detected(variables: Mapping[str, str], root: Path) -> Iterator[Environment]:
    yield from _signed(SIGNS, variables, root)
    yield from _vendor(root)
    yield from _signed(LOCAL_SIGNS, variables, root)
    yield Environment("local", "workstation", "no sign of a platform")


def _signed(
    signs: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...],
    variables: Mapping[str, str],
    root: Path,
) -> Iterator[Environment]:
    for kind, label, names, files in signs:
        for name in names:
            variable = _set_variable(name, variables)
            if variable is not None:
                yield Environment(kind, label, f"{variable} is set")
        for file in files:
            if (root / file).exists():
                yield Environment(kind, label, f"/{file} exists")


def _set_variable(name: str, variables: Mapping[str, str]) -> str | None:
    if not name.endswith("*"):
        return name if variables.get(name) else None
    prefix = name.removesuffix("*")
    return next((v for v in sorted(variables) if v.startswith(prefix)), None)


def _vendor(root: Path) -> Iterator[Environment]:
    for file, names in FIRMWARE.items():
        try:
            name = (root / file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if name in names:
            yield Environment("cloud", names[name], f"the machine's maker is {name}")
