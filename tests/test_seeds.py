"""The scenarios written by hand train the same, and what was measured of them is shown."""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from equivalence import RunResult, run_script

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import seeds  # noqa: E402
import seeds_frameworks  # noqa: E402
import seeds_report  # noqa: E402

from gpulint.bench.runs import Children, Run, Variant  # noqa: E402
from gpulint.registry import all_rules  # noqa: E402

# Less data; the losses then do not depend on which samples come first.
SMALLER = {
    "ionosphere": (('"tracks": 24', '"tracks": 4'),),
    "faces": (
        ('"train_images": 128', '"train_images": 32'),
        ('"val_images": 48', '"val_images": 24'),
        ('"crops": 160', '"crops": 64'),
    ),
    "pm25": (
        ("make_series(4200", "make_series(1400"),
        ("[:3000]", "[:1000]"),
        ("[3000:3600]", "[1000:1200]"),
        ("[3600:]", "[1200:]"),
    ),
}
# The same network gives the same losses for the same samples, in both scripts.
SAME = {
    "ionosphere": """
import json, tempfile
from pathlib import Path
import numpy as np, torch
import before, expert
from torch.utils.data import DataLoader
device = torch.device("cpu")
config = before.CONFIG
tracks = before.make_tracks(2, config["track_length"], np.random.default_rng(1))
table = expert.make_table(tracks, config, device)
fast = expert.Trainer(config, table, table, device)
loader = DataLoader(before.SlidingTrackDataset(tracks, config["window"]), 128)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "bank.npy"
    before.write_gradient_maps(path, config["grid"])
    bank = before.GradientBank(path, config["grid"], device)
    slow = before.Trainer(config, loader, loader, bank, device)
    slow.model.load_state_dict(fast.model.state_dict())
    losses = [slow.validate(), fast.validate()]
    slow.train_loader = [torch.stack([loader.dataset[i] for i in range(128)])]
    fast.train_loader = [table[:128]]
    losses += [slow.train_epoch(), fast.train_epoch()]
    losses += [slow.validate(), fast.validate()]
print(json.dumps({"losses": losses}))
""",
    "faces": """
import contextlib, json
import numpy as np, torch
import before, expert
device = torch.device("cpu")
config = before.CONFIG
images, masks, _ = before.draw_faces(16, config["image_size"], np.random.default_rng(1))
rows = expert.make_rows(images, masks, device)
model = before.UNet(3)
preparation = expert.Preparation(config, device)
fast = expert.Trainer(model, rows, rows, preparation, config, device)
dataset = before.FacePartsDataset(images, masks, config, augment=False)
loader = torch.utils.data.DataLoader(dataset, 16)
slow = before.Trainer.__new__(before.Trainer)  # its scaler has an old spelling
slow.model, slow.val_loader, slow.device, slow.use_amp = model, loader, device, False
slow.criterion = before.DiceCELoss([0.5, 1.0, 1.5])
torch.cuda.amp.autocast = lambda enabled: contextlib.nullcontext()
losses = [x for pair in zip(slow.validate(), fast.validate()) for x in pair]
# a turn of each image by its own angle, flipped first, as the dataset does it
torch.manual_seed(0)
flip, turn, where = torch.rand(3, 16, 1, 1)
torch.manual_seed(0)
moved, moved_masks = preparation.moved(*rows.tensors)
for i in range(16):
    image, mask = images[i], masks[i]
    if flip[i].item() < 0.5:
        image, mask = image[:, ::-1], mask[:, ::-1]
    if turn[i].item() < 0.5:
        degrees = 15 * (2 * where[i].item() - 1)
        image, mask = before.rotate(image, degrees), before.rotate(mask, degrees)
    # float32 places: a few lie between two pixels
    assert (moved_masks[i].numpy() != mask).mean() < 0.01
    assert (moved[i].permute(1, 2, 0).numpy() != image).mean() < 0.01
print(json.dumps({"losses": losses}))
""",
    "pm25": """
import json
import numpy as np, torch
import before, expert
from torch.utils.data import DataLoader
device = torch.device("cpu")
features, pm25 = before.make_series(400, np.random.default_rng(1))
rows = expert.make_rows(features, pm25, device)
windows, targets, levels = before.make_windows(features, pm25)
fast = expert.Trainer(device)
loader = DataLoader(before.WindowDataset(windows, targets, levels), 376)
criterion = torch.nn.SmoothL1Loss(reduction="none")
fast.model.head[3].p = 0.0  # dropout draws
losses = [before.validate(fast.model, loader, criterion, device), fast.validate(rows)]
still = torch.optim.SGD(fast.model.parameters(), lr=0.0)
fast.optimizer = still
losses += [
    before.train_epoch(fast.model, loader, criterion, still, device),
    fast.train_epoch(DataLoader(rows, batch_size=376, collate_fn=lambda batch: batch)),
]
print(json.dumps({"losses": losses}))
""",
}


EXPERTS = sorted(path.parent.name for path in seeds.SCRIPTS.glob("*/expert.py"))


def script(name: str, file: str, smaller: bool = False) -> str:
    text = (seeds.SCRIPTS / name / file).read_text("utf-8")
    for old, new in SMALLER[name] if smaller else ():
        text = text.replace(old, new)
    return text


def test_each_expert_has_a_benchmark() -> None:
    assert sorted([*seeds.SCENARIOS, *seeds_frameworks.SCENARIOS]) == EXPERTS


@pytest.mark.parametrize("name", EXPERTS)
def test_the_expert_says_what_it_does_and_what_not(name: str) -> None:
    tree = ast.parse(script(name, "expert.py"))
    head = ast.get_docstring(tree) or ""
    text = " ".join(head.split())
    assert text.startswith("The training of before.py, written by hand to be as fast")
    assert re.search(r"Same [^.]* of samples", text)
    assert "What is done, by what it saves: - " in text
    assert len(re.findall(r"^- .", head, re.MULTILINE)) >= 5
    assert " Not done: " in text
    imports = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert "before" in imports, "the data and the model are those of before.py"


@pytest.mark.parametrize("name", SAME)
def test_the_expert_computes_the_same_losses(name: str) -> None:
    files = {f"{each}.py": script(name, f"{each}.py") for each in ("before", "expert")}
    losses = run_script(SAME[name], beside=files).losses
    assert losses[::2] == pytest.approx(losses[1::2], rel=1e-4)


@pytest.mark.parametrize("name", SAME)
def test_the_expert_trains_on_as_many_samples(name: str) -> None:
    def run(file: str) -> RunResult:
        before = {"before.py": script(name, "before.py", smaller=True)}
        return run_script(script(name, file, smaller=True), beside=before)

    before, expert = run("before.py"), run("expert.py")
    assert expert.samples == before.samples
    assert len(expert.losses) == len(before.losses)
    assert all(map(math.isfinite, expert.losses))
    assert expert.losses[-2] < expert.losses[-4]
    # pm25 takes an eighth of the steps; else only the random draws differ
    room = {"pm25": 12.0}.get(name, 1.5)
    assert before.losses[-1] / room < expert.losses[-1] < before.losses[-1] * room


@pytest.mark.parametrize("name", seeds.SCENARIOS)
def test_sizes_are_those_of_the_scripts(name: str) -> None:
    size = seeds.SCENARIOS[name].sizes["seed"]
    texts = [script(name, file) for file in ("before.py", "expert.py")]
    for old, _ in size.edits:
        assert any(old in text for text in texts), old
    assert size.samples > seeds.SCENARIOS[name].sizes["small"].samples


def measured(rates: dict[str, float], fixed: int = 128) -> Any:
    def run(children: Children, variant: Variant) -> Run:
        limits = children.limits
        batches = {"original": 32, "fixed": fixed, "expert": 256}
        batch, samples = batches[variant.label], 2976
        steps = [min(batch, samples - i) for i in range(0, samples, batch)] * 3
        assert (limits.steps, limits.warmup) == (len(steps), len(steps) // 3 + 1)
        text = Path(variant.script).read_text("utf-8")
        assert ("gpulint" in text) == (variant.label == "fixed")
        seconds = [size / rates[variant.label] for size in steps]
        waits = [0.0] * len(steps)
        return Run(seconds, waits, steps, [False] * len(steps), [], 0, None, None, None)

    return run


def test_the_columns_of_a_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    tuned = {"batch_size": {"train": 128}}
    rates = {"original": 100.0, "fixed": 180.0, "expert": 200.0}
    monkeypatch.setattr(Children, "__call__", measured(rates))
    monkeypatch.setattr(seeds, "tune", lambda script: tuned)
    monkeypatch.setattr(seeds, "train", lambda script: [0.5, 0.25])
    found = seeds.examine("pm25", "small", 2, gpu=False, tuning=True)
    assert found["tuned"] == tuned
    assert {c: its["batch_size"] for c, its in found["columns"].items()} == {
        "original": 32,
        "fixed": 128,
        "expert": 256,
    }
    speeds = {c: i["samples_per_second"]["value"] for c, i in found["columns"].items()}
    assert speeds == rates
    assert found["fixed_to_original"]["value"] == 1.8
    assert found["fixed_to_expert"]["value"] == 0.9
    assert "augmentation" not in found


def test_a_scenario_that_is_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    rates = {"original": 100.0, "fixed": 120.0, "expert": 200.0}
    monkeypatch.setattr(Children, "__call__", measured(rates, fixed=32))
    monkeypatch.delattr(seeds, "tune")
    monkeypatch.setattr(seeds, "train", lambda script: [0.5, 0.25])
    found = seeds.examine("pm25", "small", 2, gpu=False, tuning=False)
    assert found["tuned"] == {}
    assert found["columns"]["fixed"]["batch_size"] == 32


def test_measured_columns_are_gone_on_with() -> None:
    machine = {"gpu": "A GPU", "cpus": 8}
    head = {"size": "seed", "repeats": 4, "versions": {"torch": "2.11.0"}}
    old = {**head, "machine": {**machine, "load_before": 0.1}, "scenarios": [{}]}
    new = {**head, "machine": {**machine, "load_before": 0.3}, "scenarios": []}
    found = seeds.joined(old, new)
    assert found == {**old, "machine": {**machine, "load_before": 0.3}}
    for other in ({"repeats": 2}, {"machine": {"gpu": None, "load_before": 0.3}}):
        with pytest.raises(SystemExit, match="another machine"):
            seeds.joined(old, {**new, **other})


def test_columns_with_other_samples_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    short = Run([1.0], [0.0], [32], [False], [], 0, None, None, None)
    monkeypatch.setattr(Children, "__call__", lambda children, variant: short)
    scenario = seeds.SCENARIOS["pm25"]
    scripts = dict.fromkeys(seeds.COLUMNS, tmp_path / "train.py")
    batches = dict.fromkeys(seeds.COLUMNS, 32)
    with pytest.raises(SystemExit, match="original: 32 samples, not 3 times 2976"):
        seeds.measure(scripts, batches, scenario, scenario.sizes["small"], 2)


def test_augmentation_is_timed_in_workers_and_in_batches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for file, name in (("before.py", "before.py"), ("expert.py", "train.py")):
        (tmp_path / name).write_text(script("faces", file), "utf-8")
    program = str(ROOT / "benchmarks" / "seeds_augmentation.py")
    found = json.loads(seeds.call(tmp_path, program, "cpu", "--passes", "1"))
    assert found["batch_size"] == 16
    assert set(found["device_ms"]) == {"runtime", "expert"}
    least = min(found["workers_ms"].values())
    assert found["ratio"] == round(least / found["device_ms"]["runtime"], 2)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What trainings are said to have given, by column, instead of them."""
    marks = {"steps": {"original": 20, "fixed": 10, "expert": 10}}
    called: list[tuple[str, ...]] = []

    def call(folder: Path, *words: str, **options: Any) -> str:
        called.append((folder.name, *words))
        with_epochs = "before.py" if folder.name == "expert" else "train.py"
        text = (folder / with_epochs).read_text("utf-8")
        if words[0] == "train.py":
            assert "\nEPOCHS = 3\n" in text
            return "said\n[1.5, 1.25, 1.0, 0.5, 0.25]\n"
        assert "\nEPOCHS = 22\n" in text
        steps = marks["steps"][folder.name]
        each = {"original": 2.0, "fixed": 1.0, "expert": 0.25}[folder.name]
        # the first pass takes long; the last two belong to another training
        marked = [(0.0, 0), *((9.0 + n * each, (n + 1) * steps) for n in range(21))]
        marked += [(500.0, 22 * steps), (600.0, 22 * steps + 5)]
        said = {"marks": marked[: marks.get("most")], "device": "CPU", "versions": {}}
        return f"{{}}\n{json.dumps(said)}\n"

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(seeds_frameworks, "call", call)
    return {"marks": marks, "called": called}


def test_the_columns_of_a_framework(trained: dict[str, Any]) -> None:
    found = seeds_frameworks.examine("emsc", 2, "python")
    assert (found["framework"], found["device"]) == ("tensorflow", "CPU")
    columns = found["columns"]
    speeds = {c: its["samples_per_second"]["value"] for c, its in columns.items()}
    assert speeds == {"original": 160.0, "fixed": 320.0, "expert": 1280.0}
    assert {c: its["steps"] for c, its in columns.items()} == trained["marks"]["steps"]
    assert {c: its["batch_size"] for c, its in columns.items()} == {
        "original": 16,
        "fixed": 32,
        "expert": 32,
    }
    assert columns["fixed"]["last_losses"] == [1.0]
    assert columns["fixed"]["losses"] == [1.5, 1.25, 1.0, 0.5, 0.25]
    assert found["fixed_to_original"]["value"] == 2.0
    assert found["fixed_to_expert"]["value"] == 0.25
    child = next(words[1:] for words in trained["called"] if words[0] == "expert")
    assert child[1:] == ("tensorflow", "train.py", "Trainer.train_epoch")


def test_other_steps_than_the_samples_need_are_refused(
    trained: dict[str, Any],
) -> None:
    trained["marks"]["steps"]["expert"] = 11
    with pytest.raises(
        SystemExit, match=r"emsc, expert: \{11\} steps a pass, not \{10\}"
    ):
        seeds_frameworks.examine("emsc", 2, "python")


def test_a_training_that_ends_early_is_refused(trained: dict[str, Any]) -> None:
    trained["marks"]["most"] = 21
    with pytest.raises(SystemExit, match="21 passes begin, not enough"):
        seeds_frameworks.examine("emsc", 2, "python")


@pytest.mark.parametrize("name", seeds_frameworks.SCENARIOS)
def test_the_scripts_of_a_framework_are_laid_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    scenario = seeds_frameworks.SCENARIOS[name]
    whole, timed = seeds_frameworks.lay_out(tmp_path, name)
    before = script(name, "before.py")
    assert before.count(scenario.refused) == 1 or not scenario.refused
    assert whole["original"].read_text() == before.replace(scenario.refused, "")
    assert whole["fixed"].read_text("utf-8") == script(name, "after.all.py")
    assert whole["expert"].read_text("utf-8") == script(name, "expert.py")
    [(old, new)] = scenario.size.edits
    for column in seeds.COLUMNS:
        files = [p for p in timed[column].parent.iterdir() if p.is_file()]
        assert sum(new in file.read_text("utf-8") for file in files) == 1
        assert not any(old in file.read_text("utf-8") for file in files)


def test_losses_that_are_printed_by_the_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = "loss 1.23456\nloss 0.5\naccuracy 0.25 after 2 epochs\n"
    monkeypatch.setattr(seeds_frameworks, "call", lambda *_, **__: said)
    assert seeds_frameworks.losses(tmp_path / "train.py", "python") == [1.235, 0.5]


@pytest.mark.parametrize(
    "words, said",
    [
        (("--repeats", "1"), "an interval needs --repeats 2 and more"),
        (("--repeats", "many"), "argument --repeats: invalid int value: 'many'"),
        (("--scenarios", "pm25"), "argument --scenarios: invalid choice: 'pm25'"),
        (("--out", "no/such/file.json"), "--out: there is no folder no/such"),
        (("--environments", "."), "run `make test-frameworks FRAMEWORKS=tensorflow`"),
        (("--fast",), "unrecognized arguments: --fast"),
    ],
)
def test_what_is_wrong_is_one_line(words: tuple[str, ...], said: str) -> None:
    program = str(ROOT / "benchmarks" / "seeds_frameworks.py")
    done = subprocess.run(
        [sys.executable, program, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert said in line


def test_a_report_of_measured_columns(tmp_path: Path) -> None:
    def ratio(value: float) -> dict[str, float]:
        return {"value": value, "low": value / 2, "high": value * 2, "level": 0.95}

    def column(rate: float) -> dict[str, Any]:
        return {"samples_per_second": ratio(rate), "last_losses": [0.5, 100 / rate]}

    result = {
        "size": "seed",
        "repeats": 4,
        "machine": {"gpu": "A GPU", "cpus": 8, "threads": 8, "load_before": 5.0},
        "versions": {"torch": "2.9"},
        "scenarios": [
            {
                "name": "faces",
                "columns": {
                    "original": column(100.0),
                    "fixed": column(1500.0),
                    "expert": column(1600.0),
                },
                "fixed_to_original": ratio(15.0),
                "expert_to_original": ratio(16.0),
                "fixed_to_expert": ratio(0.9375),
                "augmentation": {
                    "batch_size": 32,
                    "workers_ms": {"4": 45.1, "8": 38.7},
                    "device_ms": {"runtime": 2.5, "expert": 2.0},
                    "ratio": 15.48,
                },
            }
        ],
    }
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    (folder / "seeds_gpu.json").write_text(json.dumps(result))
    frameworks = {
        "repeats": 6,
        "machine": {"cpus": 2, "load_before": 0.1},
        "scenarios": [
            {
                **result["scenarios"][0],  # type: ignore[index]
                "name": name,
                "device": "CPU",
                "versions": {**versions, "python": "3.11"},
            }
            for name, versions in (
                ("emsc", {"tensorflow": "2.21", "keras": "3.15"}),
                ("tfnet", {"mindspore": "2.10"}),
            )
        ],
    }
    for its in frameworks["scenarios"]:  # type: ignore[attr-defined]
        del its["augmentation"]
    (folder / "framework_seeds.json").write_text(json.dumps(frameworks))
    case = {
        "code": "GPU106",
        "what": "small: loss.item()",
        "found_us": 1500.0,
        "better_us": 1000.0,
        "ratio": 1.5,
        "ratio_low": 1.4,
        "ratio_high": 1.6,
    }
    costs = {"gpu": "A GPU", "cpus": 8, "versions": {"torch": "2.9"}, "cases": [case]}
    (folder / "gpu_costs.json").write_text(json.dumps(costs))
    readme = tmp_path / "README.md"
    parts = ("above", seeds_report.START, "old", seeds_report.END, "between")
    more = (seeds_report.FRAMEWORKS_START, "old", seeds_report.FRAMEWORKS_END)
    last = (seeds_report.COSTS_START, "old", seeds_report.COSTS_END, "below")
    readme.write_text("\n".join((*parts, *more, *last, "")))
    seeds_report.write(readme, folder)
    text = readme.read_text()
    rates = "| faces | 100 | 1 500 | 1 600 | 15.00 [7.50, 30.00] | 0.94 [0.47, 1.88] |"
    assert f"{rates} 1 / 0.0667 / 0.0625 |" in text
    assert "A GPU, 8 CPUs, torch 2.9 with 8 threads, the sizes of the write-ups" in text
    assert "busy with other work: load 5.0." in text
    assert "38.7 ms in 8 worker processes and 2.5 ms on the GPU (15.5 times)" in text
    assert "(benchmarks/results/seeds_gpu.svg)" in text
    assert (
        "2 CPUs, trained on the CPU, TensorFlow 2.21, Keras 3.15, MindSpore 2.10: "
        "samples a second, median of 6 runs of each in turns;"
    ) in text
    assert f"{rates.replace('faces', 'tfnet')} 1 / 0.0667 / 0.0625 |" in text
    assert "| GPU106 | small: loss.item() | 1.5 | 1 | 1.50 [1.40, 1.60] |" in text
    assert "A GPU, 8 CPUs, torch 2.9: medians of 5 rounds" in text
    assert text.startswith("above\n")
    assert f"{seeds_report.END}\nbetween\n{seeds_report.FRAMEWORKS_START}" in text
    assert text.endswith("below\n")
    assert "old" not in text
    drawn = (folder / "seeds_gpu.svg").read_text()
    assert drawn.count("<rect") == 6  # bars and their key
    seeds_report.write(readme, folder)
    assert readme.read_text() == text


def test_the_readme_shows_what_was_measured() -> None:
    found = list(seeds_report.results())
    assert found
    text = (ROOT / "README.md").read_text("utf-8")
    shown = text.split(seeds_report.START)[1].split(seeds_report.END)[0].strip()
    why = "run `python benchmarks/seeds_report.py`"
    assert shown == seeds_report.section(found), why
    for path, result in found:
        plot = path.with_suffix(".svg").read_text("utf-8")
        assert plot == seeds_report.plot(result), why
        for its in result["scenarios"]:
            total = its["samples"] * its["passes"]
            assert total > 0
            assert set(its["columns"]) == set(seeds.COLUMNS)


def test_the_readme_shows_what_findings_cost_on_a_gpu() -> None:
    result = json.loads((seeds_report.RESULTS / seeds_report.COSTS).read_text("utf-8"))
    text = (ROOT / "README.md").read_text("utf-8")
    shown = text.split(seeds_report.COSTS_START)[1].split(seeds_report.COSTS_END)[0]
    why = "run `python benchmarks/seeds_report.py`"
    assert shown.strip() == seeds_report.costs_section(result), why
    codes = {rule.code for rule in all_rules()}
    assert {case["code"] for case in result["cases"]} <= codes


def test_the_readme_shows_what_was_measured_of_frameworks() -> None:
    path = seeds_report.RESULTS / seeds_report.FRAMEWORKS
    result = json.loads(path.read_text("utf-8"))
    text = (ROOT / "README.md").read_text("utf-8")
    start, end = seeds_report.FRAMEWORKS_START, seeds_report.FRAMEWORKS_END
    shown = text.split(start)[1].split(end)[0].strip()
    why = "run `python benchmarks/seeds_report.py`"
    assert shown == seeds_report.frameworks_section(result), why
    its_names = [its["name"] for its in result["scenarios"]]
    assert its_names == list(seeds_frameworks.SCENARIOS)
    for its in result["scenarios"]:
        size = seeds_frameworks.SCENARIOS[its["name"]].size
        assert (its["samples"], its["passes"]) == (size.samples, size.passes)
        assert list(its["columns"]) == list(seeds.COLUMNS)
        assert its["columns"]["expert"]["batch_size"] == size.expert_batch
        assert all(math.isfinite(c["last_losses"][0]) for c in its["columns"].values())
