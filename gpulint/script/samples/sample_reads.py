"""Files and folders that a dataset reads anew for each sample."""

from __future__ import annotations

import ast

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.index.walk import walk, walk_scope
from gpulint.script.samples.per_sample import Frame, PerSample

_TABLES = frozenset(
    f"pandas.read_{n}"
    for n in "csv table excel parquet json pickle feather fwf stata orc".split()
)
_ARRAYS = frozenset(
    "numpy.load numpy.loadtxt numpy.genfromtxt numpy.fromfile torch.load joblib.load "
    "scipy.io.loadmat scipy.sparse.load_npz scipy.io.mmread".split()
)
_IMAGES = frozenset("cv2.imread PIL.Image.open imageio.imread".split())
_SOUNDS = frozenset("torchaudio.load librosa.load soundfile.read".split())
_ARCHIVES = frozenset("zipfile.ZipFile tarfile.open".split())
_FOLDERS = frozenset("os.listdir os.scandir os.walk".split())
_OPEN = frozenset("open io.open codecs.open gzip.open bz2.open".split())
_STORES = frozenset(["h5py.File", "pandas.HDFStore"])
# Options with which a part of a file is read, or none of it yet.
_PARTS = frozenset(
    "nrows skiprows chunksize iterator filters usecols mmap mmap_mode offset count "
    "num_frames frame_offset duration start stop frames max_rows".split()
)
_PARSERS = frozenset(
    "json.load pickle.load yaml.load yaml.safe_load csv.reader csv.DictReader list "
    "sorted numpy.load numpy.loadtxt torch.load enumerate xmltodict.parse".split()
)
_WHOLE = frozenset("read readlines".split())
_PART_OF_FILE = frozenset("seek tell readline truncate write fileno islice".split())


class SampleReads:
    """What the calls that run for each sample read, where it is always the same."""

    def __init__(self, every: PerSample) -> None:
        self.all = every
        self.script = every.script
        self.index = every.index
        self.resolver = every.resolver

    def of(self, call: ast.Call, frame: Frame) -> str:
        """What a call does with the same file or folder again; "" for nothing."""
        return self._reads(call, frame) or self._lists(call, frame)

    def _reads(self, call: ast.Call, frame: Frame) -> str:
        name = self.index.qualified(call.func) or ""
        path = _path(call)
        if path is None or any(k.arg in _PARTS or k.arg is None for k in call.keywords):
            return ""
        verb = self._verb(name, call, frame)
        if not verb or not self._is_path(path) or not self.all.is_fixed(path, frame):
            return ""
        return f"{verb} `{_short(self.script.text(path))}` again"

    def _verb(self, name: str, call: ast.Call, frame: Frame) -> str:
        written = f"`{self.script.text(call.func)}`"
        if name in _TABLES or name in _ARRAYS or name in _SOUNDS or name in _IMAGES:
            return f"{written} reads"
        if name in _ARCHIVES:
            return f"{written} reads the list of files in"
        if name in _FOLDERS:
            return f"{written} lists all files of"
        if name in _STORES:
            return f"{written} opens"
        if name in _OPEN and _reads_text(call) and self._takes_all(call, frame):
            return f"{written} opens and reads"
        return ""

    def _is_path(self, node: ast.expr) -> bool:
        """Whether nothing shows that it is a buffer, or an open file."""
        made = (o.call for o in self.resolver.origins(node) if o.call is not None)
        return not any(
            last_name(c) in ("BytesIO", "StringIO", "open", "get", "read") for c in made
        )

    def _takes_all(self, opened: ast.Call, frame: Frame) -> bool:
        """Whether an opened file is read from its start to its end."""
        above = self.index.parent(opened)
        if isinstance(above, ast.Attribute):
            return above.attr in _WHOLE and _is_called_bare(self.index.parent(above))
        if isinstance(above, (ast.Call, ast.For, ast.comprehension)):
            return self._parses(above, opened)
        bound = above.optional_vars if isinstance(above, ast.withitem) else None
        if isinstance(above, ast.Assign) and len(above.targets) == 1:
            bound = above.targets[0]
        if not isinstance(bound, ast.Name):
            return False
        uses = [
            node
            for node in walk_scope(*frame.function.body)
            if isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and any(d.node is bound for d in self.script.definitions(node))
        ]
        return bool(uses) and self._all_is_used(uses)

    def _all_is_used(self, uses: list[ast.Name]) -> bool:
        whole = False
        for use in uses:
            above = self.index.parent(use)
            if isinstance(above, ast.Attribute):
                if above.attr in _PART_OF_FILE:
                    return False
                whole = whole or (
                    above.attr in _WHOLE and _is_called_bare(self.index.parent(above))
                )
            elif above is not None:
                whole = whole or self._parses(above, use)
        return whole

    def _parses(self, above: ast.AST, file: ast.expr) -> bool:
        """`json.load(file)`, `for line in file` to its end."""
        if isinstance(above, ast.For):
            leaves = (ast.Break, ast.Return)
            return above.iter is file and not any(
                isinstance(n, leaves) for n in walk(*above.body)
            )
        if isinstance(above, ast.comprehension):
            return above.iter is file
        return (
            isinstance(above, ast.Call)
            and file in above.args
            and self.index.qualified(above.func) in _PARSERS
        )

    def _lists(self, call: ast.Call, frame: Frame) -> str:
        """`self.masks.glob(name + ".*")`: all files of a folder, to find one."""
        func = call.func
        if self.index.qualified(func) == "glob.glob":
            folder = _folder_of(self.index, call.args[0]) if call.args else []
        elif isinstance(func, ast.Attribute) and func.attr in ("glob", "rglob"):
            pattern = _folder_of(self.index, call.args[0]) if call.args else [func]
            folder = [func.value] if not pattern else []
        elif isinstance(func, ast.Attribute) and func.attr == "iterdir":
            folder = [func.value]
        else:
            return ""
        fixed = [self.all.is_fixed(part, frame) for part in folder]
        if not folder or not all(fixed):
            return ""
        return f"`{self.script.text(func)}` looks at all files of a folder"


def _path(call: ast.Call) -> ast.expr | None:
    if call.args:
        return call.args[0]
    names = ("path", "file", "filename", "name", "fp", "f", "filepath_or_buffer", "io")
    return next((k.value for k in call.keywords if k.arg in names), None)


def _folder_of(index: FileIndex, pattern: ast.expr) -> list[ast.expr]:
    """What stands before the last slash of a pattern for `glob`."""
    joins = index.qualified(getattr(pattern, "func", None)) == "os.path.join"
    if isinstance(pattern, ast.Call) and joins:
        return pattern.args[:-1]
    parts = _pieces(pattern)
    slashes = [
        number
        for number, part in enumerate(parts)
        if isinstance(part, ast.Constant) and "/" in str(part.value)
    ]
    return parts[: slashes[-1] + 1] if slashes else []


def _pieces(text: ast.expr) -> list[ast.expr]:
    """The parts of `folder + "/" + name` and `f"{folder}/{name}"`."""
    if isinstance(text, ast.BinOp):
        return [*_pieces(text.left), *_pieces(text.right)]
    if isinstance(text, ast.JoinedStr):
        return [part for value in text.values for part in _pieces(value)]
    return [text.value if isinstance(text, ast.FormattedValue) else text]


def _short(text: str) -> str:
    return " ".join(text.split())


def _reads_text(call: ast.Call) -> bool:
    """Whether a file is opened to be read."""
    modes = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "mode")]
    return all(isinstance(m, ast.Constant) and "r" in str(m.value) for m in modes)


def _is_called_bare(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and not node.args and not node.keywords
