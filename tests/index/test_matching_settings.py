"""Settings files whose path is not known, chosen by the keys that a script reads."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.index import FileIndex, Project, Projects, Values
from gpulint.index.resolve import Resolver
from gpulint.index.values import Evaluator
from gpulint.index.words import MAX_JSON
from gpulint.registry import all_rules

READ = """
def main(path):
    with open(path) as file:
        config = {load}(file)
    train(config["rate"], config["epochs"], config["data"]["workers"], config.get("x"))
"""
LOADED = {"rate": 0.1, "epochs": 3, "data": {"workers": 2, "batch": 8}}


def values_of(root: Path, script: str) -> Values:
    """What `config["data"]["workers"]` may be."""
    (root / "main.py").write_text(script)
    project = Project(root, lambda folder: folder.rglob("*.py"))
    index = project.index(root / "main.py")
    assert index is not None
    return Evaluator(Resolver(index)).values(read(index))


def workers(root: Path, script: str) -> list[tuple[object, bool]]:
    """The same, if it is all known, and whether it is replaceable."""
    values = values_of(root, script)
    return [(v.constant, v.default) for v in values.known] if values.complete else []


def read(index: FileIndex) -> ast.expr:
    """The expression that reads the workers."""
    kinds = (ast.Subscript, ast.Attribute)
    reads = [n for kind in kinds for n in index.all(kind)]
    return next(
        n for n in reads if ast.unparse(n).endswith(("['workers']", ".workers"))
    )


@pytest.mark.parametrize(
    "load, name",
    [
        ("json.load", "settings/a.json"),
        ("yaml.safe_load", "a.yaml"),
        ("yaml.load", "settings/inner/a.yml"),
    ],
)
def test_one_file_with_all_keys(tmp_path: Path, load: str, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(LOADED))
    script = f"import json, yaml\n{READ.format(load=load)}"
    assert workers(tmp_path, script) == [(2, True)]


def test_attributes_of_omegaconf(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(json.dumps(LOADED))
    script = (
        "import sys\nfrom omegaconf import OmegaConf\n"
        "c = OmegaConf.load(sys.argv[1])\ntrain(c.rate, c['epochs'], c.data.workers)\n"
    )
    assert workers(tmp_path, script) == [(2, True)]


@pytest.mark.parametrize(
    "merged, known",
    [
        ("OmegaConf.merge(loaded, OmegaConf.from_cli())", [2]),
        ("OmegaConf.unsafe_merge(loaded, given)", [2]),
        ("OmegaConf.merge(OmegaConf.merge(loaded, given), given)", []),
        ("OmegaConf.create(given)", []),
        ("OmegaConf.merge(loaded, OmegaConf.load(sys.argv[2]))", []),
        ("OmegaConf.merge(loaded, parse())", []),
    ],
)
def test_what_is_merged_with_a_command_line(
    tmp_path: Path, merged: str, known: list[int]
) -> None:
    """It may have any other value, but its keys tell which file is loaded."""
    (tmp_path / "a.yaml").write_text(json.dumps({**LOADED, "workers": 2}))
    script = (
        "import sys\nfrom omegaconf import OmegaConf\ngiven = OmegaConf.from_cli()\n"
        f"loaded = OmegaConf.load(given.config)\nc = {merged}\n"
        "train(c.rate, c['epochs'], c.workers)\n"
    )
    values = values_of(tmp_path, script)
    assert [v.constant for v in values.known] == known
    assert not values.complete


def test_methods_of_what_is_read_are_no_keys(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(json.dumps({**LOADED, "name": "Net"}))
    script = (
        "import sys\nfrom omegaconf import OmegaConf\n"
        "c = OmegaConf.load(sys.argv[1])\ntrain(c.rate, c.epochs, c.data.workers)\n"
        "print(c.name.lower())\n"
    )
    assert workers(tmp_path, script) == [(2, True)]
    assert workers(tmp_path, f"{script}print(c.name.gone)\n") == []


def test_any_of_several_files(tmp_path: Path) -> None:
    for number in (0, 4):
        loaded = {**LOADED, "data": {"workers": number}}
        (tmp_path / f"{number}.yaml").write_text(json.dumps(loaded))
    script = f"import yaml\n{READ.format(load='yaml.safe_load')}"
    assert workers(tmp_path, script) == [(0, True), (4, True)]


@pytest.mark.parametrize(
    "name, loaded",
    [
        ("a.yaml", {**LOADED, "data": {"batch": 8}}),  # stands elsewhere
        ("a.yaml", {"rate": 0.1, "epochs": 3, "workers": 2, "data": 1}),
        ("a.json", LOADED),  # of another kind
        ("venv/a.yaml", LOADED),  # of another project
        ("a.yaml", [LOADED]),
    ],
)
def test_a_file_without_the_keys(tmp_path: Path, name: str, loaded: object) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(loaded))
    script = f"import yaml\n{READ.format(load='yaml.safe_load')}"
    assert workers(tmp_path, script) == []


def test_few_keys_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(json.dumps(LOADED))
    script = READ.format(load="yaml.safe_load").replace('config["epochs"], ', "")
    assert workers(tmp_path, f"import yaml\n{script}") == []


def test_many_json_files_are_data(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(LOADED))
    script = f"import json\n{READ.format(load='json.load')}"
    for number in range(MAX_JSON - 1):
        (tmp_path / f"{number}.json").write_text("{}")
    assert workers(tmp_path, script) == [(2, True)]
    for number in range(MAX_JSON):
        (tmp_path / f"more{number}.json").write_text("{}")
    assert workers(tmp_path, script) == []


def test_a_long_text_is_no_path(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        f"import json\nTEXT = '{json.dumps({'layers': 'a' * 400})}'\n"
        "config = json.loads(TEXT)\nprint(config['layers'], config.get('amp', False))\n"
    )
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(tuple(all_rules()), projects=projects)
    assert check_path(path, options).findings == ()


@pytest.mark.parametrize("name", ["a" * 300, "a" * 300 + "/b", "a/" * 3000, "a\n: b/c"])
def test_a_text_of_settings_is_no_path(tmp_path: Path, name: str) -> None:
    script = f"import yaml\nc = yaml.safe_load({name!r})\ntrain(c['workers'])\n"
    assert workers(tmp_path, script) == []
