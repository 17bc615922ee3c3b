"""What GPU301 makes of the scenarios computes what it should, in half precision too."""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from equivalence import assert_same_losses, run_script

from gpulint import runtime
from gpulint.engine import Options, fix_source
from gpulint.finding import Effect
from gpulint.registry import find_rule
from gpulint.script.numerics.half import SAFE_LOSSES
from gpulint.source import read_source

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

SCRIPTS = Path(__file__).parent.parent / "fixtures" / "scripts"
STEPS = 4
# Losses that cannot be run on tensors without data where torch has no CUDA.
NEED_A_GPU = {"CosineEmbedding", "MarginRanking", "MultiLabelMargin"}


def rewritten(name: str) -> str:
    """A scenario after the fix of GPU301 alone."""
    rule = find_rule("GPU301")
    assert rule is not None
    source = read_source(SCRIPTS / name / "before.py")
    fixed = fix_source(source, Options((rule,), frozenset(Effect)))
    assert [f.code for f in fixed.applied] == ["GPU301"]
    assert fixed.remaining == ()
    return fixed.text


def load(text: str, folder: Path) -> ModuleType:
    """Import a script without running it."""
    path = folder / "rewritten.py"
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location("rewritten", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ionosphere(text: str, folder: Path) -> Any:
    """The trainer of the ionosphere script with a small network and few steps."""
    module = load(text, folder)
    config = {**module.CONFIG, "tracks": 4, "hidden": 16}
    torch.manual_seed(0)
    device = torch.device("cpu")
    train, validation = module.build_loaders(config, np.random.default_rng(0))
    path = folder / "bank.npy"
    module.write_gradient_maps(path, config["grid"])
    bank = module.GradientBank(path, config["grid"], device)
    trainer = module.Trainer(config, train, validation, bank, device)
    trainer.train_loader = [
        batch for batch, _ in zip(train, range(STEPS), strict=False)
    ]
    return trainer


def record_norms(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The gradient norms that clipping sees from now on."""
    norms: list[float] = []
    clip = torch.nn.utils.clip_grad_norm_

    def recorded(parameters: Any, max_norm: float) -> Any:
        norm = clip(parameters, max_norm)
        norms.append(norm.item())
        return norm

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", recorded)
    return norms


def use_amp(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    """Make the runtime decide on mixed precision on the CPU."""
    monkeypatch.setattr(runtime, "amp_dtype", lambda device, prefer="auto": dtype)


@pytest.mark.parametrize("name", ["ionosphere", "pm25"])
def test_without_a_gpu_the_losses_are_the_same(name: str) -> None:
    before = run_script(SCRIPTS / name / "before.py", args=["--epochs", "1"])
    after = run_script(rewritten(name), args=["--epochs", "1"])
    assert_same_losses(before, after)


def test_second_derivatives_stay_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_amp(monkeypatch, torch.bfloat16)
    trainer = ionosphere(rewritten("ionosphere"), tmp_path)
    formats: list[Any] = []
    trainer.model.register_forward_hook(lambda m, i, out: formats.append(out.dtype))
    loss = trainer.train_epoch()
    assert formats == [torch.bfloat16, torch.float32] * STEPS
    assert np.isfinite(loss)


def test_clipping_sees_gradients_that_are_not_scaled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms = record_norms(monkeypatch)
    before = (SCRIPTS / "ionosphere" / "before.py").read_text("utf-8")
    ionosphere(before, tmp_path).train_epoch()
    plain = norms.copy()
    norms.clear()
    use_amp(monkeypatch, torch.float16)
    scaler = functools.partial(torch.amp.GradScaler, init_scale=1024.0)
    monkeypatch.setattr(torch.amp, "GradScaler", scaler)
    trainer = ionosphere(rewritten("ionosphere"), tmp_path)
    trainer.train_epoch()
    assert trainer.scaler.get_scale() == 1024.0
    assert norms == pytest.approx(plain, rel=0.05)


def test_one_scaler_serves_all_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_amp(monkeypatch, torch.float16)
    made: list[Any] = []
    scaler = torch.amp.GradScaler

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(scaler(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(torch.amp, "GradScaler", counted)
    module = load(rewritten("pm25"), tmp_path)
    monkeypatch.setattr("sys.argv", ["pm25", "--epochs", "2", "--device", "cpu"])
    module.main()
    assert len(made) == 1
    # it counts the steps since the last that overflowed, on from epoch to epoch
    assert made[0].state_dict()["_growth_tracker"] > math.ceil(
        (3000 - 24) / module.BATCH_SIZE
    )


@contextmanager
def cuda_autocast(dtype: Any) -> Iterator[None]:
    """CUDA autocast on tensors without data, where there is no GPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    before = torch.get_autocast_dtype("cuda")
    with FakeTensorMode(allow_non_fake_inputs=True):
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", dtype)
        torch.autocast_increment_nesting()
        try:
            yield
        finally:
            torch.autocast_decrement_nesting()
            torch.clear_autocast_cache()
            torch.set_autocast_enabled("cuda", False)
            torch.set_autocast_dtype("cuda", before)


def predicted() -> tuple[Any, Any, Any]:
    """Half-precision predictions, float32 targets, class numbers."""
    x = torch.empty(8, 16, device="cuda")
    p = torch.nn.functional.linear(x, torch.empty(10, 16, device="cuda"))
    classes = torch.empty(8, dtype=torch.long, device="cuda")
    return p, torch.empty(8, 10, device="cuda"), classes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", sorted(SAFE_LOSSES - NEED_A_GPU))
def test_known_losses_are_float32_under_cuda_autocast(name: str, dtype: str) -> None:
    options = {"reduction": "batchmean"} if name == "KLDiv" else {}
    loss = getattr(torch.nn, f"{name}Loss")(**options)
    with cuda_autocast(getattr(torch, dtype)):
        p, target, classes = predicted()
        assert p.dtype is getattr(torch, dtype)
        if name in ("CrossEntropy", "NLL", "MultiMargin"):
            result = loss(p, classes)
        elif name == "TripletMargin":
            result = loss(p, p, p)
        else:
            result = loss(p, target)
        assert result.dtype is torch.float32


def test_bce_loss_raises_under_cuda_autocast() -> None:
    loss = torch.nn.BCELoss()
    with cuda_autocast(torch.float16):
        p, target, _ = predicted()
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            loss(torch.sigmoid(p), target)


# Fixtures that train on data made here

FIXED = Path(__file__).parent.parent / "fixtures" / "gpu301_missing_amp"
BATCHES = 6
BATCH = 8


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A module that a fixture imports, made of what it takes from it."""
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


class FewImages(torch.utils.data.Dataset):  # type: ignore[misc]
    """Small pictures with class numbers, the same for each run."""

    def __init__(self, part: str) -> None:
        made = torch.Generator().manual_seed(0)
        self.images = torch.randn(BATCH * BATCHES, 3, 7, 7, generator=made)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return self.images[number], number % 10


class FlatNet(torch.nn.Sequential):
    """Takes the place of the vision transformer."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(3 * 7 * 7, 10))


def adversarial(monkeypatch: pytest.MonkeyPatch, path: Path) -> list[Any]:
    """The pictures that one epoch and its beginning leave, for a script of two nets."""
    saved: list[Any] = []
    stand_in(monkeypatch, "data", Images=FewImages)
    stand_in(monkeypatch, "torchvision")
    stand_in(
        monkeypatch,
        "torchvision.utils",
        save_image=lambda images, path: saved.append(images.clone()),
    )
    text = path.read_text("utf-8").replace("range(20)", "range(2)")
    text = text.replace("batch_size=64", f"batch_size={BATCH}")
    torch.manual_seed(0)
    namespace: dict[str, Any] = {"__name__": "adversarial"}
    exec(compile(text, str(path), "exec"), namespace)
    namespace["main"]()
    return saved


def counted_scalers(monkeypatch: pytest.MonkeyPatch, scale: float) -> list[Any]:
    """The scalers that are made from now on, which note the scale of each update."""
    made: list[Any] = []

    class Counted(torch.amp.GradScaler):  # type: ignore[misc]
        def __init__(self, device: str, **options: Any) -> None:
            super().__init__(device, init_scale=scale, **options)
            self.scales: list[float] = []
            made.append(self)

        def update(self, new_scale: Any = None) -> None:
            super().update(new_scale)
            self.scales.append(self.get_scale())

    monkeypatch.setattr(torch.amp, "GradScaler", Counted)
    return made


def test_adversarial_networks_train_as_before_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = adversarial(monkeypatch, FIXED / "adversarial_networks.py")
    after = adversarial(monkeypatch, FIXED / "adversarial_networks.fixed.py")
    for was, now in zip(before, after, strict=True):
        assert torch.equal(was, now)


def test_one_scaler_serves_two_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = adversarial(monkeypatch, FIXED / "adversarial_networks.py")
    use_amp(monkeypatch, torch.float16)
    made = counted_scalers(monkeypatch, 256.0)
    after = adversarial(monkeypatch, FIXED / "adversarial_networks.fixed.py")
    assert [scaler.scales for scaler in made] == [[256.0] * (2 * BATCHES)]
    for was, now in zip(before, after, strict=True):
        assert now.dtype is torch.float32
        assert torch.allclose(was, now, atol=0.05)


def test_two_optimizers_leave_out_steps_that_overflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_amp(monkeypatch, torch.float16)
    made = counted_scalers(monkeypatch, 2.0**30)
    pictures = adversarial(monkeypatch, FIXED / "adversarial_networks.fixed.py")
    scales = made[0].scales
    assert len(scales) == 2 * BATCHES
    assert scales[:3] == [2.0**29, 2.0**28, 2.0**27]
    assert all(bool(torch.isfinite(picture).all()) for picture in pictures)


def checkpointed(monkeypatch: pytest.MonkeyPatch, path: Path) -> Any:
    """The trainer of a fixture with a small model, on the CPU."""
    stand_in(monkeypatch, "data", Images=FewImages, ViT=FlatNet)
    namespace: dict[str, Any] = {"__name__": "checkpointed"}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), namespace)
    loader = torch.utils.data.DataLoader(FewImages("train"), BATCH)
    return namespace["Trainer"](FlatNet(), loader, torch.device("cpu"))


def test_a_scaler_goes_on_where_its_checkpoint_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = FIXED / "checkpoint_of_trainer.fixed.py"
    use_amp(monkeypatch, torch.float16)
    trainer = checkpointed(monkeypatch, fixed)
    trainer.train_epoch()
    trainer.save(tmp_path / "new.pt", 3)
    resumed = checkpointed(monkeypatch, fixed)
    assert resumed.load(tmp_path / "new.pt") == 3
    assert resumed.scaler.state_dict() == trainer.scaler.state_dict()
    assert resumed.scaler.state_dict()["_growth_tracker"] == BATCHES


def test_a_checkpoint_without_a_scaler_still_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = FIXED / "checkpoint_of_trainer.fixed.py"
    old = checkpointed(monkeypatch, FIXED / "checkpoint_of_trainer.py")
    old.save(tmp_path / "old.pt", 1)
    off = checkpointed(monkeypatch, fixed)
    off.save(tmp_path / "off.pt", 2)
    assert torch.load(tmp_path / "off.pt")["scaler"] == {}
    use_amp(monkeypatch, torch.float16)
    for name, epoch in (("old.pt", 1), ("off.pt", 2)):
        trainer = checkpointed(monkeypatch, fixed)
        assert trainer.load(tmp_path / name) == epoch
        trainer.train_epoch()


# Mended uses of a scaler, and fences, as they run on the CPU

MISUSE = FIXED.parent / "gpu304_amp_misuse"


def trained(monkeypatch: pytest.MonkeyPatch, path: Path, **replaced: str) -> Any:
    """The weights after one epoch of a fixture, on the CPU."""
    models: list[Any] = []

    class Kept(FlatNet):
        def __init__(self) -> None:
            super().__init__()
            models.append(self)

    stand_in(monkeypatch, "data", Images=FewImages, ViT=Kept)
    text = path.read_text("utf-8").replace('"cuda"', '"cpu"')
    for old, new in {"range(20)": "range(1)", "=64": f"={BATCH}", **replaced}.items():
        text = text.replace(old, new)
    torch.manual_seed(0)
    namespace: dict[str, Any] = {"__name__": "trained"}
    exec(compile(text, str(path), "exec"), namespace)
    namespace["main"]()
    return models[0][1].weight.detach()


def test_clipping_after_unscale_moves_the_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = {'GradScaler("cpu")': 'GradScaler("cpu", enabled=False)'}
    small = {"1e-3": "1e-1", "AdamW": "SGD"}
    wanted = trained(monkeypatch, MISUSE / "bad.py", **plain, **small)
    lost = trained(monkeypatch, MISUSE / "bad.py", **small)
    mended = trained(monkeypatch, MISUSE / "bad.fixed.py", **small)
    assert torch.allclose(mended, wanted, atol=1e-3)
    assert (lost - wanted).abs().max() > 0.01


@pytest.mark.parametrize("name", ["optimizer_steps", "optimizer_steps_and_update"])
def test_a_step_by_the_scaler_is_that_of_plain_training(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sgd = {"1e-3": "1e-1", "AdamW": "SGD"}
    off = {'GradScaler("cpu")': 'GradScaler("cpu", enabled=False)'}
    mended = MISUSE / f"{name}.fixed.py"
    wanted = trained(monkeypatch, mended, **sgd, **off)
    assert torch.allclose(trained(monkeypatch, mended, **sgd), wanted, atol=1e-3)


def test_a_scaler_that_is_never_updated_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="since the last update"):
        trained(monkeypatch, MISUSE / "never_updated.py")
    trained(monkeypatch, MISUSE / "never_updated.fixed.py")


def test_an_autocast_object_entered_in_itself_stays_on() -> None:
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    try:
        with autocast, autocast:
            pass
        assert torch.is_autocast_enabled("cpu")
    finally:
        torch.set_autocast_enabled("cpu", False)


def test_fenced_derivatives_are_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    path = FIXED.parent / "gpu305_amp_over_second_derivatives" / "residual.fixed.py"
    formats: list[Any] = []
    grad = torch.autograd.grad

    def recorded(*args: Any, **kwargs: Any) -> Any:
        found = grad(*args, **kwargs)
        formats.append((args[0].dtype, torch.is_autocast_enabled("cpu")))
        return found

    monkeypatch.setattr(torch.autograd, "grad", recorded)
    text = path.read_text("utf-8").replace("torch.cuda.amp.autocast()", "autocast()")
    text = text.replace('"cuda"', '"cpu"')
    namespace: dict[str, Any] = {
        "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16)
    }
    exec(compile(text, str(path), "exec"), namespace)
    batches = [(torch.rand(8, 2), torch.rand(8, 2)) for _ in range(2)]
    namespace["train"](batches, torch.device("cpu"))
    assert formats == [(torch.float32, False)] * 2
