"""What rules of TensorFlow say depends on the releases that a project allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path, check_source, fix_source
from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index import Projects
from gpulint.registry import select_rules
from gpulint.releases import Range
from gpulint.source import Source

REMOVED = """\
import tensorflow as tf

optimizer = tf.keras.optimizers.Adam(lr=1e-3)
model.fit_generator(train, 100)
model.fit(train, workers=4)
tf.keras.mixed_precision.experimental.set_policy("mixed_float16")
"""
OF_KERAS_2 = "from keras.preprocessing.image import ImageDataGenerator\n"
MAP = """\
import tensorflow as tf

data = tf.data.Dataset.range(9).map(lambda x: x * 2)
"""
Packages = tuple[tuple[str, Range], ...]


def found(text: str, packages: Packages, *rules: str) -> list[Finding]:
    options = Options(select_rules(rules), packages=packages)
    return list(check_source(Source(Path("script.py"), text), options).findings)


@pytest.mark.parametrize(
    "package, highest", [("keras", (2, 999)), ("tensorflow", (2, 15))]
)
def test_nothing_is_gone_where_the_newest_keras_is_2(
    package: str, highest: tuple[int, int]
) -> None:
    packages = ((package, Range(None, highest)),)
    assert found(REMOVED, packages, "GPU274", "GPU573") == []


@pytest.mark.parametrize(
    "package, lowest, withheld",
    [
        ("tensorflow", (2, 16), []),
        ("keras", (3, 0), []),
        ("tensorflow", (2, 4), [5]),
        ("tensorflow", (2, 3), [5, 6]),
        ("keras", (2, 3), [4, 5, 6]),
        ("tensorflow", (1, 15), [3, 4, 5, 6]),
    ],
)
def test_no_fix_where_an_older_release_may_run_it(
    package: str, lowest: tuple[int, int], withheld: list[int]
) -> None:
    its = found(REMOVED, ((package, Range(lowest)),), "GPU274", "GPU573")
    assert [f.place.start.row for f in its] == [3, 4, 5, 6]
    assert [f.place.start.row for f in its if f.fix is None] == withheld
    assert all(f.fix_withheld for f in its if f.fix is None)


@pytest.mark.parametrize(
    "packages, line, sure",
    [
        ((), "", False),
        ((("tensorflow", Range((2, 4))),), "", False),
        ((("tensorflow", Range((2, 16))),), "", True),
        ((("keras", Range((3, 0))),), "", True),
        ((), "y = tf.keras.ops.sum(x)\n", True),
        ((("keras", Range((3, 0))),), OF_KERAS_2, False),
    ],
)
def test_what_is_gone_is_of_low_confidence_where_an_older_keras_may_run_it(
    packages: Packages, line: str, sure: bool
) -> None:
    its = found(REMOVED + line, packages, "GPU274", "GPU573")
    its = [f for f in its if not (line == OF_KERAS_2 and f.code == "GPU274")]
    assert {f.confidence is not Confidence.LOW for f in its} == {sure}


def test_autotune_of_an_older_release() -> None:
    packages = (("tensorflow", Range((2, 3))),)
    options = Options(select_rules(("GPU271",)), frozenset(Effect), packages=packages)
    text = fix_source(Source(Path("script.py"), MAP), options).text
    assert "num_parallel_calls=tf.data.experimental.AUTOTUNE" in text


def test_a_release_without_autotune() -> None:
    packages = (("tensorflow", Range((1, 12), (1, 12))),)
    its = found(MAP, packages, "GPU271", "GPU272", "GPU273")
    assert its
    assert {f.fix for f in its} == {None}
    assert all("TensorFlow 1.13" in (f.fix_withheld or "") for f in its)


DATA = """\
import tensorflow as tf


def make(paths):
    data = tf.data.Dataset.from_tensor_slices(paths)
    return data.map(lambda x: x * 2, tf.data.AUTOTUNE).batch(8)
"""
TRAIN = """\
import tensorflow as tf
from data import make

AHEAD
model.fit(data, epochs=3)
"""


@pytest.mark.parametrize(
    "ahead, codes",
    [
        ("data = make(paths)", {"GPU273", "GPU275", "GPU471"}),
        ("data = make(paths).prefetch(1)", {"GPU275", "GPU471"}),
        ("data, other = load(paths), make(paths)", {"GPU275"}),
    ],
)
def test_a_dataset_is_followed_into_other_files(
    ahead: str, codes: set[str], tmp_path: Path
) -> None:
    (tmp_path / "data.py").write_text(DATA, "utf-8")
    (tmp_path / "train.py").write_text(TRAIN.replace("AHEAD", ahead), "utf-8")
    options = Options(
        select_rules(("GPU27", "GPU471")),
        projects=Projects(lambda root: root.rglob("*.py")),
    )
    findings = check_source(Source(tmp_path / "data.py", DATA), options).findings
    assert {f.code for f in findings} == codes


def test_a_map_without_state_is_parallel_by_default() -> None:
    (finding,) = found(MAP, (), "GPU271")
    assert finding.severity is Severity.NOTE
    draws = MAP.replace("x * 2", "tf.random.uniform(()) * x")
    (finding,) = found(draws, (), "GPU271")
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    "line, rows",
    [
        ("from keras.utils import np_utils", []),
        ("from tensorflow.keras.layers.experimental import preprocessing", []),
        ("import keras_contrib", []),
        ("from keras.utils import to_categorical", [4]),
        ("def old():\n    from keras.utils import np_utils", [5]),
    ],
)
def test_imports_that_keras_3_does_not_have(line: str, rows: list[int]) -> None:
    text = f"{line}\nfrom keras.optimizers import Adam\n\nadam = Adam(lr=0.1)\n"
    options = Options(select_rules(("GPU573",)))
    findings = check_source(Source(Path("a.py"), text), options).findings
    assert [f.place.start.row for f in findings] == rows


OF_FIRST_KERAS = """\
import keras

model = keras.Sequential([keras.layers.Conv2D(256, 3), keras.layers.Dense(2)])
model.fit(pictures, labels)
for picture in more:
    scores = model.predict(picture)
"""


@pytest.mark.parametrize(
    "old, new, highest, first",
    [
        ("", "", None, False),
        ("", "", (2, 3), True),
        ("", "", (2, 4), False),
        (
            "import keras\n",
            "import keras\nfrom keras.legacy import layers\n",
            None,
            True,
        ),
        ("labels)", "labels, nb_epoch=3)", None, True),
        ("model.fit", "other = Model(input=x, output=y)\nmodel.fit", None, True),
        ("model.fit", "other = Model(inputs=x, outputs=y)\nmodel.fit", None, False),
        ("import keras", "from tensorflow import keras", (2, 3), False),
    ],
)
def test_a_keras_before_that_of_tensorflow(
    old: str, new: str, highest: tuple[int, int] | None, first: bool
) -> None:
    text = OF_FIRST_KERAS.replace(old, new, 1)
    packages = (("keras", Range(None, highest)),) if highest else ()
    for rule in ("GPU371", "GPU572"):
        [finding] = found(text, packages, rule)
        assert (finding.confidence is Confidence.LOW) is first, rule


@pytest.mark.parametrize(
    "line, first",
    [
        ("import tensorflow as tf\ntf.Session()", True),
        ("import tensorflow as tf\ntf.set_random_seed(3)", True),
        ("import tensorflow.compat.v1 as tf\ntf.Session()", False),
        ("import tensorflow as tf\ntf.compat.v1.Session()", False),
    ],
)
def test_a_keras_of_the_first_tensorflow(line: str, first: bool) -> None:
    text = OF_FIRST_KERAS.replace("import keras\n", f"import keras\n{line}\n", 1)
    [finding] = found(text, (), "GPU572")
    assert (finding.confidence is Confidence.LOW) is first


PICTURES = """\
import keras
from keras.preprocessing.image import ImageDataGenerator

made = ImageDataGenerator(horizontal_flip=True)
model.fit_generator(made.flow_from_directory("photos"), steps_per_epoch=9)
"""


@pytest.mark.parametrize(
    "steps, first", [("steps_per_epoch", False), ("samples_per_epoch", True)]
)
def test_generators_of_a_keras_before_that_of_tensorflow(
    steps: str, first: bool
) -> None:
    text = PICTURES.replace("steps_per_epoch", steps)
    [finding] = found(text, (), "GPU277")
    assert (finding.confidence is Confidence.LOW) is first


FLOWS = """\
from keras.preprocessing.image import ImageDataGenerator


def photos(batch_size):
    return ImageDataGenerator().flow_from_directory("photos", batch_size=batch_size)
"""


@pytest.mark.parametrize(
    "steps, number",
    [
        ("300", 0),
        ("len(names) // 2", 1),
        ("STEPS", 0),
        ("3306 // 2", 0),
        ("round(3306 / 2)", 0),
        ("EPOCH", 0),
        ("3306 // SIZE", 1),
    ],
)
def test_a_written_number_of_steps_in_another_file(
    tmp_path: Path, steps: str, number: int
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "data.py").write_text(FLOWS)
    (tmp_path / "main.py").write_text(
        "from data import photos\n\nSTEPS = 200\nSIZE = 2\nEPOCH = 3306 // 2\n"
        f"model.fit_generator(photos(2), steps_per_epoch={steps}, epochs=9)\n"
    )
    projects = Projects(lambda root: tuple(sorted(root.rglob("*.py"))))
    options = Options(select_rules(("GPU471",)), projects=projects)
    assert len(check_path(tmp_path / "data.py", options).findings) == number


FOLDERS = """\
from keras.preprocessing.image import ImageDataGenerator

photos = ImageDataGenerator().flow_from_directory("photos", batch_size=2)
faces = ImageDataGenerator().flow_from_directory("faces", batch_size=4)
model.fit_generator(photos, steps_per_epoch={photos}, epochs=9)
other.fit_generator(generator=faces, steps_per_epoch={faces}, epochs=9)
small.fit(x, y, epochs=3)
"""


@pytest.mark.parametrize(
    "photos, faces, rows",
    [
        ("80", "40", []),
        ("3306 // 2", "len(faces)", [4]),
        ("len(photos)", "80 // 4", [3]),
        ("len(photos)", "len(faces)", [3, 4]),
    ],
)
def test_steps_of_the_training_that_takes_a_generator(
    photos: str, faces: str, rows: list[int]
) -> None:
    its = found(FOLDERS.format(photos=photos, faces=faces), (), "GPU471")
    assert [finding.place.start.row for finding in its] == rows


STEP = """\
import tensorflow as tf
from parts import data, loss_function, model, optimizer, weights


def fit(model, dataset, optimizer):
    for x, y in dataset:
        with tf.GradientTape() as tape:
            {line}
            loss = loss_function(y, model(x))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
"""
GUARD = '\n\nif __name__ == "__main__":\n    fit(model, data, optimizer)\n'


@pytest.mark.parametrize(
    "line, more, packaged, sure",
    [
        ("pass", "", False, True),
        ("pass", "", True, False),
        ("pass", GUARD, True, True),
        ("model.set_weights(weights)", "", False, False),
    ],
)
def test_steps_that_may_be_compiled(
    tmp_path: Path, line: str, more: str, packaged: bool, sure: bool
) -> None:
    (tmp_path / ".git").mkdir()
    if packaged:
        (tmp_path / "setup.py").write_text("setup(packages=['net'])\n")
    (tmp_path / "net.py").write_text(STEP.format(line=line) + more)
    projects = Projects(lambda root: tuple(sorted(root.rglob("*.py"))))
    options = Options(select_rules(("GPU571",)), projects=projects)
    [finding] = check_path(tmp_path / "net.py", options).findings
    assert (finding.confidence is not Confidence.LOW) is sure


NUMBERS = """\
import tensorflow as tf

x = tf.Variable({first})
y = tf.Variable(-1)
for _ in range(100):
    with tf.GradientTape() as tape:
        loss = slope(x, y)
    gradients = tape.gradient(loss, [x, y])
    optimizer.apply_gradients(zip(gradients, [x, y]))
"""


@pytest.mark.parametrize(
    "first, sure", [("0.0", False), ("tf.zeros((9, 9))", True), ("start", True)]
)
def test_steps_that_move_single_numbers(first: str, sure: bool) -> None:
    [finding] = found(NUMBERS.format(first=first), (), "GPU571")
    assert (finding.confidence is not Confidence.LOW) is sure
