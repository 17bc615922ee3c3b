"""The label that a platform gives itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpulint.runtime import Environment, environment
from gpulint.runtime._environment import detect_environment

Files = Callable[[dict[str, str]], Path]


@pytest.mark.parametrize(
    "variables,kind,label",
    [
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "cloud", "kubernetes"),
        ({"COLAB_RELEASE_TAG": "x"}, "cloud", "colab"),
        ({"COLAB_GPU": "0"}, "cloud", "colab"),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Batch"}, "cloud", "kaggle"),
        ({"SM_HOSTS": "[]", "KUBERNETES_SERVICE_HOST": "h"}, "cloud", "sagemaker"),
        ({"CLOUD_ML_PROJECT_ID": "7"}, "cloud", "vertex"),
        ({"AZUREML_RUN_ID": "7"}, "cloud", "azureml"),
        ({"DATABRICKS_RUNTIME_VERSION": "15"}, "cloud", "databricks"),
        ({"PAI_TASK": "x"}, "cloud", "aliyun"),
        ({"CLOUD_SHELL": "true"}, "cloud", "cloud shell"),
        ({"RUNPOD_POD_ID": "x"}, "cloud", "runpod"),
        ({"SLURM_JOB_ID": "12"}, "local", "slurm"),
        ({"APPTAINER_CONTAINER": "x.sif"}, "local", "container"),
        ({"CLOUD_SHELL": ""}, "local", "workstation"),
        ({"TRAINING_JOB_NAME": "x"}, "cloud", "sagemaker"),
        ({"KUBERNETES_SERVICE_HOST": "h", "SLURM_JOB_ID": "1"}, "cloud", "kubernetes"),
        ({"SLURM_JOB_ID": "1", "container": "podman"}, "local", "slurm"),
        # torchrun, Open MPI and a name that starts like a platform's say nothing
        ({"TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "0"}, "local", "workstation"),
        ({"OMPI_COMM_WORLD_RANK": "0", "PAINT": "1"}, "local", "workstation"),
        ({}, "local", "workstation"),
    ],
)
def test_variables(
    variables: dict[str, str], kind: str, label: str, tmp_path: Path
) -> None:
    found = detect_environment(variables, tmp_path)
    assert (found.kind, found.label) == (kind, label)
    assert found.evidence


@pytest.mark.parametrize(
    "tree,kind,label,evidence",
    [
        ({".dockerenv": ""}, "local", "container", "/.dockerenv exists"),
        ({"run/.containerenv": ""}, "local", "container", "/run/.containerenv exists"),
        ({"opt/ml/input/x": ""}, "cloud", "sagemaker", "/opt/ml/input exists"),
        (
            {"sys/class/dmi/id/sys_vendor": "Alibaba Cloud\n"},
            "cloud",
            "aliyun",
            "the machine's maker is Alibaba Cloud",
        ),
        (
            {
                "sys/class/dmi/id/sys_vendor": "Google\n",
                "sys/class/dmi/id/product_name": "Google Compute Engine\n",
                "sys/fs/cgroup/cpu.max": "100000 100000",
            },
            "cloud",
            "google cloud",
            "the machine's maker is Google Compute Engine",
        ),
        (
            {"var/run/secrets/kubernetes.io/token": "", ".dockerenv": ""},
            "cloud",
            "kubernetes",
            "/var/run/secrets/kubernetes.io exists",
        ),
        (
            {"sys/class/dmi/id/sys_vendor": "Dell Inc.\n", "mnt/data/x": ""},
            "local",
            "workstation",
            "no sign of a platform",
        ),
    ],
)
def test_files(
    tree: dict[str, str], kind: str, label: str, evidence: str, files: Files
) -> None:
    assert detect_environment({}, files(tree)) == Environment(kind, label, evidence)


def test_override(tmp_path: Path) -> None:
    forced = {"FORCE_ENV_TYPE": "cloud"}
    assert detect_environment(forced, tmp_path) == Environment(
        "cloud", "workstation", "FORCE_ENV_TYPE=cloud"
    )
    both = {"FORCE_ENV_TYPE": "cloud", "GPULINT_ENV": "Local"}
    assert detect_environment(both, tmp_path).kind == "local"


@pytest.mark.parametrize("name", ["GPULINT_ENV", "FORCE_ENV_TYPE"])
def test_other_values_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "prod")
    with pytest.raises(ValueError, match=f"^{name}='prod' is not one of local, cloud$"):
        environment()


def test_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULINT_ENV", "local")
    assert environment().kind == "local"
