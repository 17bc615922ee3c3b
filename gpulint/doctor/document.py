"""Put the answers together: the facts, the checks, and this machine as a target."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gpulint import __version__
from gpulint.doctor.check import Check, Status
from gpulint.doctor.gpu_checks import driver_check, gpu_checks, torch_checks
from gpulint.doctor.host_checks import data_checks, host_checks
from gpulint.doctor.probes import Answer, Facts
from gpulint.doctor.redact import redact

SCHEMA = 1
LOST = Answer()


def document(answers: Mapping[str, Answer], *, redacted: bool) -> dict[str, Any]:
    """Return the report as `schema.json` describes it."""
    answers = _redacted(answers) if redacted else answers
    host, gpus = answers.get("host", LOST), answers.get("gpus", LOST)
    torch = answers.get("torch", LOST)
    checks = judge(answers)
    driver = {key: gpus.facts.get(key) for key in ("driver", "cuda_driver", "source")}
    return {
        "schema": SCHEMA,
        "gpulint": __version__,
        "date": datetime.datetime.now().astimezone().date().isoformat(),
        "redacted": redacted,
        "host": host.facts,
        "driver": driver,
        "gpus": gpus.facts.get("gpus", []),
        "torch": torch.facts or None,
        "data": answers["data"].facts if "data" in answers else None,
        "checks": [{**asdict(check), "status": check.status.value} for check in checks],
        "target": target(host.facts, gpus.facts, torch.facts),
    }


def judge(answers: Mapping[str, Answer]) -> list[Check]:
    """All checks, in the order of the report."""
    host, driver = answers.get("host", LOST), answers.get("gpus", LOST)
    torch = answers.get("torch", LOST)
    gpus = driver.facts.get("gpus", [])
    seen = gpus or torch.facts.get("devices") or []
    variables = host.facts.get("variables") or {}
    installed = "torch" in (host.facts.get("packages") or {})
    checks = [*host_checks(host, len(seen))]
    if "data" in answers:
        checks += data_checks(answers["data"])
    checks.append(driver_check(driver, torch.facts))
    for gpu in gpus:
        checks += gpu_checks(gpu)
    checks += torch_checks(torch, gpus, installed, variables)
    return checks


def target(host: Facts, driver: Facts, torch: Facts) -> dict[str, Any]:
    """This machine as one to write code for; None is what is not known."""
    machine = (torch.get("runtime") or {}).get("hardware") or {}
    gpus = driver.get("gpus", [])
    first = gpus[0] if gpus else {}
    capability = machine.get("capability") or first.get("capability")
    cpus = host.get("cpus") or {}
    return {
        "schema": SCHEMA,
        "name": machine.get("name") or first.get("name") or cpus.get("name"),
        "kind": machine.get("kind") or ("cuda" if gpus else "cpu"),
        "capability": list(capability) if capability else None,
        "memory": machine.get("memory_total") or first.get("memory_total"),
        "gpus": torch.get("device_count") or len(gpus),
        "bf16": machine.get("bf16"),
        "tf32": machine.get("tf32"),
        "mig": machine.get("mig", first.get("mig")),
        "cpus": cpus.get("usable"),
        "ram": (host.get("memory") or {}).get("usable"),
        "shm": (host.get("shm") or {}).get("total"),
        "torch": torch.get("version"),
    }


def worst(report: Mapping[str, Any]) -> Status:
    """The gravest status of a report's checks."""
    found = {check["status"] for check in report["checks"]}
    return next((s for s in reversed(Status) if s.value in found), Status.OK)


def _redacted(answers: Mapping[str, Answer]) -> dict[str, Answer]:
    """The answers without names; who and where this is, `host` alone knows."""
    identity = answers.get("host", LOST).facts.get("identity")
    whole = {
        name: {"facts": a.facts, "trouble": a.trouble, "stage": a.stage}
        for name, a in answers.items()
    }
    if "host" in whole:
        facts = answers["host"].facts
        whole["host"]["facts"] = {k: v for k, v in facts.items() if k != "identity"}
    clean = redact({**whole, "identity": identity})
    return {name: Answer(**parts) for name, parts in clean.items()}
