"""The JSON of reports is what `schema.json` says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from doctor_helpers import driver, gpu, host, torch, whole

import gpulint
from gpulint.cli import main
from gpulint.doctor.document import document
from gpulint.doctor.probes import Answer

FILE = Path(gpulint.__file__).parent / "doctor" / "schema.json"
LOST = Answer({}, "no answer within 1 s")
SAMPLES: dict[str, dict[str, Answer]] = {
    "whole": whole(),
    "nothing": {"host": LOST, "gpus": LOST, "torch": LOST},
    "no gpu": whole(gpus=driver(error="no driver", driver=None, source=None)),
    "lost gpu": whole(gpus=driver({"index": 0, "name": None, "lost": True})),
    "mig": whole(
        gpus=driver(gpu(mig=True, mig_slices=[{"name": None, "memory_total": None}]))
    ),
    "settings": whole(torch=torch(runtime={"error": "GPULINT_AMP='x'"})),
    "data": whole(data=Answer({"exists": True, "disk": None, "network": None})),
    "no shm": whole(host=host(shm=None)),
}


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json.loads(FILE.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("redacted", [True, False])
def test_samples(name: str, redacted: bool, validator: Any) -> None:
    report = document(SAMPLES[name], redacted=redacted)
    validator.validate(json.loads(json.dumps(report)))


def test_this_machine(validator: Any, path_with: Any) -> None:
    path_with("mig")
    done = CliRunner().invoke(main, ["doctor", "--json", "--no-redact"])
    report = json.loads(done.stdout)
    validator.validate(report)
    assert report["gpus"][0]["name"] == "NVIDIA A100-SXM4-80GB"


def test_the_schema_refuses(validator: Any) -> None:
    report = document(whole(), redacted=True)
    for key, value in {"schema": 2, "gpus": [{"index": 0}], "extra": 1}.items():
        assert not validator.is_valid({**report, key: value})
