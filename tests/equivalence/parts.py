"""Pieces of generated training scripts: data, networks, devices."""

from __future__ import annotations

from .plan import Plan

ROWS = 80
VALIDATION_ROWS = 40

DATA = {
    "regression": """\
def make_data(rows, rng):
    x = rng.normal(size=(rows, 12)).astype(np.float32)
    y = np.tanh(x[:, :3].sum(axis=1, keepdims=True)) + 0.1 * x[:, 3:4]
    return x, y.astype(np.float32)
""",
    "images": """\
def make_data(rows, rng):
    y = rng.integers(0, 4, size=rows)
    x = rng.normal(0.0, 0.5, size=(rows, 1, 8, 8)).astype(np.float32)
    for i, label in enumerate(y):
        x[i, 0, 2 * label : 2 * label + 2] += 1.0
    return x, y.astype(np.int64)
""",
    "columns": """\
def make_data(rows, rng):
    table = rng.normal(size=(rows, 8)).astype(np.float32)
    table[:, 7] = np.sin(table[:, 0]) + 0.3 * table[:, 1] * table[:, 2]
    return table
""",
}

CLASSES = {
    "rows": """\
class SampleDataset(Dataset):
    def __init__(self, x, y):
        self.x = torch.from_numpy(x)
        self.y = torch.from_numpy(y)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return RETURNED
""",
    "arrays": """\
class SampleDataset(Dataset):
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return RETURNED
""",
    "work": """\
class SampleDataset(Dataset):
    def __init__(self, x, y):
        self.records = [row.tobytes() for row in x]
        self.shape = x.shape[1:]
        self.y = y

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        values = np.frombuffer(self.records[index], dtype=np.float32)
        values = values.reshape(self.shape)
        x = torch.from_numpy((values - values.mean()) / (values.std() + 1e-6))
        y = torch.as_tensor(self.y[index])
        return RETURNED
""",
    "augment": """\
class SampleDataset(Dataset):
    def __init__(self, x, y, train=True):
        self.records = [row.tobytes() for row in x]
        self.shape = x.shape[1:]
        self.y = y
        self.train = train

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        values = np.frombuffer(self.records[index], dtype=np.float32)
        values = values.reshape(self.shape).copy()
        if self.train:
            if random.random() < 0.5:
                values = values[..., ::-1].copy()
            values += np.random.normal(0.0, 0.05, size=values.shape)
        x = torch.from_numpy(values.astype(np.float32))
        y = torch.as_tensor(self.y[index])
        return RETURNED
""",
}

GAN_CLASSES = """\
def make_data(rows, rng):
    x = rng.normal(size=(rows, 12)).astype(np.float32)
    x[:, 1] = 0.5 * x[:, 0] + 0.1 * x[:, 1]
    return x, np.zeros((rows, 1), dtype=np.float32)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 12))

    def forward(self, z):
        return self.body(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(12, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)
        )

    def forward(self, x):
        return self.body(x)
"""


def dataset_class(plan: Plan) -> str:
    """The class of the dataset, empty where torch's own is taken."""
    text = CLASSES.get(plan.dataset, "")
    names = ("x", "y")
    if plan.dataset in ("rows", "arrays"):
        names = ("self.x[index]", "self.y[index]")
    as_dict = f'{{"x": {names[0]}, "y": {names[1]}}}'
    as_tuple = ", ".join(names)
    return text.replace("RETURNED", as_dict if plan.batch == "dict" else as_tuple)


def network(plan: Plan) -> str:
    """The class of the network."""
    if plan.task == "images":
        norm = ["nn.BatchNorm2d(16),"] if plan.model == "norm" else []
        drop = ["nn.Dropout(0.1),"] if plan.model == "dropout" else []
        layers = [
            "nn.Conv2d(1, 16, 3, padding=1),",
            *norm,
            "nn.ReLU(),",
            "nn.MaxPool2d(2),",
            "nn.Conv2d(16, 32, 3, padding=1),",
            "nn.ReLU(),",
            "nn.MaxPool2d(2),",
            "nn.Flatten(),",
            *drop,
            "nn.Linear(128, 64),",
            "nn.ReLU(),",
            "nn.Linear(64, 4),",
        ]
    else:
        width = 7 if plan.task == "columns" else 12
        norm = ["nn.BatchNorm1d(32),"] if plan.model == "norm" else []
        drop = ["nn.Dropout(0.1),"] if plan.model == "dropout" else []
        layers = [
            f"nn.Linear({width}, 32),",
            *norm,
            "nn.ReLU(),",
            *drop,
            "nn.Linear(32, 1),",
        ]
    inner = "\n".join(" " * 12 + layer for layer in layers)
    return f"""\
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
{inner}
        )

    def forward(self, x):
        return self.body(x)
"""


def build_dataset(plan: Plan, name: str, rows: int) -> list[str]:
    """Statements that make a dataset."""
    if plan.task == "columns":
        return [
            f"{name}_table = torch.from_numpy(make_data({rows}, rng))",
        ]
    made = [f"x, y = make_data({rows}, rng)"]
    if plan.dataset == "tensors":
        data = "TensorDataset(torch.from_numpy(x), torch.from_numpy(y))"
    elif plan.dataset == "split":
        made += ["full_set = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))"]
        sizes = f"[{rows - 8}, 8]"
        return [*made, f"{name}_set, _ = random_split(full_set, {sizes})"]
    elif plan.dataset == "augment" and name == "val":
        data = "SampleDataset(x, y, train=False)"
    else:
        data = "SampleDataset(x, y)"
    return [*made, f"{name}_set = {data}"]


def build_loader(plan: Plan, name: str) -> list[str]:
    """Statements that make a loader."""
    data = f"{name}_table" if plan.task == "columns" else f"{name}_set"
    train = name == "train"
    parts = [data, "batch_size=BATCH_SIZE", f"shuffle={train}"]
    before: list[str] = []
    if plan.shuffle == "generator" and train:
        before = ["order = torch.Generator().manual_seed(SEED)"]
        parts.append("generator=order")
    if plan.loader == "pinned":
        parts.append("pin_memory=True")
    elif plan.loader == "workers":
        parts.append("num_workers=1")
    elif plan.loader == "drop_last" and train:
        parts.append("drop_last=True")
    elif plan.loader == "options":
        before.append('options = {"num_workers": 0, "pin_memory": False}')
        parts.append("**options")
    return [*before, f"{name}_loader = DataLoader({', '.join(parts)})"]


def pick_device(plan: Plan) -> list[str]:
    """Statements that choose the device."""
    if plan.device == "string":
        return ['device = "cuda" if torch.cuda.is_available() else "cpu"']
    if plan.device == "cuda":
        return ["use_cuda = torch.cuda.is_available()"]
    return ['device = torch.device("cuda" if torch.cuda.is_available() else "cpu")']


OPTIMIZERS = {
    "sgd": "torch.optim.SGD({}, lr=0.05)",
    "momentum": "torch.optim.SGD({}, lr=0.02, momentum=0.9, weight_decay=1e-4)",
    "adam": "optim.Adam({}, lr=2e-3)",
    "adamw": "torch.optim.AdamW({}, lr=2e-3)",
    "rmsprop": "optim.RMSprop({}, lr=1e-3)",
}
SCHEDULERS = {
    "epoch": "StepLR(optimizer, step_size=2, gamma=0.5)",
    "step": "LinearLR(optimizer, start_factor=0.2, total_iters=6)",
    "plateau": "ReduceLROnPlateau(optimizer, patience=0)",
}
