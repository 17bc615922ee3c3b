"""`gpulint monitor`: a view of a training that runs, and what keeps the GPU idle."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from gpulint.cli import complain
from gpulint.cli.interrupts import terminated

if TYPE_CHECKING:
    from gpulint.monitor.command import Command
    from gpulint.monitor.outputs import Output
    from gpulint.monitor.watch import Sample
    from gpulint.nvml.sampler import Sampler

STDOUT = "-"
LOCAL = "127.0.0.1"
WINDOW = 30  # samples that a diagnosis looks at
LONGEST = 3600  # of a command that is watched to its end
FRAMES = 4  # a second


def _numbers(
    _: click.Context, __: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Numbers of GPUs, each once. BadParameter: something else."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise click.BadParameter(f"{text!r} is not a list of numbers like 0,1")
    return tuple(sorted({int(word) for word in words}))


def _address(
    _: click.Context, __: click.Parameter, text: str | None
) -> tuple[str, int] | None:
    """A host, this machine alone by default, and a port. BadParameter: no port."""
    if text is None:
        return None
    *front, port = text.rsplit(":", 1)
    if not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not a port, or HOST:PORT")
    return (front or [""])[0] or LOCAL, int(port)


class Trailing(click.Command):
    """What stands behind `--` is the command to run, with its own options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what stands behind the first `--`."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["command"] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.command(cls=Trailing, options_metavar="[OPTIONS] [-- COMMAND...]")
@click.option(
    "--pid",
    type=click.IntRange(1),
    help="The training's first process; its workers are found.  [default: all "
    "processes that have CUDA open]",
)
@click.option(
    "--cmd",
    metavar="COMMAND",
    help="Start this training and watch it, as COMMAND behind `--` does.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.1),
    default=1.0,
    metavar="SECONDS",
    show_default=True,
    help="The time between two samples.",
)
@click.option(
    "--gpus",
    callback=_numbers,
    metavar="0,1",
    help="These GPUs, by their numbers in nvidia-smi.  [default: all]",
)
@click.option("--once", is_flag=True, help="Show one sample and end.")
@click.option(
    "--diagnose",
    is_flag=True,
    help=f"Watch for {WINDOW} samples, or a command to its end, and say what is wrong.",
)
@click.option("--json", "as_json", is_flag=True, help="--once or --diagnose as JSON.")
@click.option("--json-lines", is_flag=True, help="A JSON object a sample.")
@click.option(
    "--csv",
    "csv_file",
    metavar="FILE",
    help="Write a row a sample too; `-` shows nothing else.",
)
@click.option(
    "--prometheus",
    callback=_address,
    metavar="[HOST:]PORT",
    help="Serve the last sample at /metrics, to this machine alone unless HOST says "
    "otherwise.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=10,
    metavar="SECONDS",
    show_default=True,
    help="The longest to wait for the driver before going on without.",
)
@click.pass_context
def monitor(
    ctx: click.Context,
    /,
    pid: int | None,
    cmd: str | None,
    interval: float,
    gpus: tuple[int, ...] | None,
    once: bool,
    diagnose: bool,
    as_json: bool,
    json_lines: bool,
    csv_file: str | None,
    prometheus: tuple[str, int] | None,
    timeout: float,
) -> None:
    """Watch a training: its GPUs, its processes, and what keeps the GPUs idle.

    Runs until the training ends or Ctrl-C; a command that it has started gets the
    Ctrl-C too. On a terminal the view is drawn anew, elsewhere each sample is some
    lines. Without a driver the processes are shown all the same.

    Exit codes: 0; 1 where the command has failed; 2 where there is no such process, GPU
    or program, or a file or port cannot be used; 130 interrupted.
    """
    from gpulint.cli.run import tolerant_output
    from gpulint.monitor.command import Command
    from gpulint.monitor.host import Host, is_alive
    from gpulint.monitor.watch import samples
    from gpulint.nvml.sampler import Sampler

    if os.name != "posix":
        raise click.ClickException("monitor runs on Linux and macOS; use WSL")
    words = _command(ctx.meta["command"], cmd, pid)
    mode = _mode(once, diagnose, json_lines, as_json, csv_file, bool(words))
    if pid is not None and not is_alive(pid):
        raise click.ClickException(f"there is no process {pid}")
    tolerant_output()
    code = 0
    with terminated(), contextlib.ExitStack() as stack:
        sinks = list(_sinks(stack, csv_file, prometheus))
        sampler = stack.enter_context(Sampler(interval, timeout, gpus))
        _check_gpus(sampler, gpus)
        if mode == "nothing" and sampler.latest().trouble:
            complain(f"GPUs: {sampler.latest().trouble}", "note")
        output = _output(stack, mode, as_json, _title(pid, words))
        most = {"diagnose": None if words else WINDOW, "once": 1}.get(mode)
        window: deque[Sample] = deque(maxlen=LONGEST if mode == "diagnose" else WINDOW)
        command = Command(words, output.say) if words else None
        if command is not None:
            stack.callback(command.close)
        try:
            runs: Callable[[], bool] = _for_ever
            if command is not None:
                _start(command)
                pid, runs = command.pid, command.runs
            elif pid is not None:
                runs = partial(is_alive, pid)
            every = samples(sampler, Host(pid), interval, runs)
            with _waiting(f"watching {most} samples …" if most == WINDOW else ""):
                for sample in islice(every, most):
                    window.append(sample)
                    for sink in sinks:
                        sink(sample)
                    output.show(list(window))
        except KeyboardInterrupt:
            if command is not None:
                command.interrupt()
            output.end(list(window))
            raise
        output.end(list(window))
        if command is not None:
            code = command.close()
    if command is None and pid is not None and not is_alive(pid):
        if mode == "once" and not window:
            raise click.ClickException(f"process {pid} has ended")
        complain(f"process {pid} has ended", "note")
    if code:
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        complain(f"the command ended {how}", "note")
    ctx.exit(int(code != 0))


def _command(
    trailing: Sequence[str], cmd: str | None, pid: int | None
) -> tuple[str, ...]:
    """The words of the command to start; none: a training that runs is watched."""
    if trailing and cmd is not None:
        raise click.UsageError("--cmd and a command behind `--` are two commands")
    words = tuple(trailing)
    if cmd is not None:
        try:
            words = tuple(shlex.split(cmd))
        except ValueError as error:
            raise click.UsageError(f"--cmd {cmd!r}: {error}") from None
        if not words:
            raise click.UsageError("--cmd names no command")
    if words and pid is not None:
        raise click.UsageError("--pid and a command cannot both be watched")
    return words


def _mode(
    once: bool,
    diagnose: bool,
    json_lines: bool,
    as_json: bool,
    csv_file: str | None,
    starts: bool,
) -> str:
    """What is shown: `once`, `diagnose`, `json`, `nothing`, or `view`."""
    asked = {
        "--once": once,
        "--diagnose": diagnose,
        "--json-lines": json_lines,
        "--csv -": csv_file == STDOUT,
    }
    names = [name for name, given in asked.items() if given]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(names)} write to the same place")
    if as_json and not (once or diagnose):
        raise click.UsageError(
            "--json goes with --once or --diagnose, else --json-lines"
        )
    if once and starts:
        raise click.UsageError("--once watches a training that runs already")
    words = {"--json-lines": "json", "--csv -": "nothing"}
    return words.get(names[0], names[0].strip("-")) if names else "view"


def _check_gpus(sampler: Sampler, wanted: Sequence[int] | None) -> None:
    """Wait for the driver. ClickException: a GPU that was named is not there."""
    with _waiting("asking the driver …"):
        latest = sampler.wait()
    if wanted is None:
        return
    if latest.trouble:
        raise click.ClickException(f"--gpus: {latest.trouble}")
    lacking = [str(i) for i in wanted if i >= (latest.count or 0)]
    if lacking:
        there = "none" if not latest.count else f"0 to {latest.count - 1}"
        raise click.ClickException(f"no GPU {', '.join(lacking)}; there are {there}")


@contextlib.contextmanager
def _waiting(what: str) -> Iterator[None]:
    """Say on a terminal that something goes on; nothing for an empty text."""
    if not what or not sys.stderr.isatty():
        yield
        return
    from gpulint.report.full import console

    with console(sys.stderr).status(what):
        yield


def _sinks(
    stack: contextlib.ExitStack,
    csv_file: str | None,
    prometheus: tuple[str, int] | None,
) -> Iterator[Callable[[Sample], None]]:
    """What else takes each sample."""
    if csv_file is not None:
        from gpulint.monitor.columns import Rows

        yield Rows(_opened(stack, csv_file)).write
    if prometheus is not None:
        from gpulint.monitor.prometheus import Exporter

        exporter, (host, port) = Exporter(), prometheus
        try:
            port = stack.enter_context(exporter.serving(host, port))
        except OSError as error:
            text = f"--prometheus {host}:{port}: {error.strerror or error}"
            raise click.ClickException(text) from None
        complain(f"serving http://{host}:{port}/metrics", "note")
        yield exporter.write


def _opened(stack: contextlib.ExitStack, name: str) -> TextIO:
    if name == STDOUT:
        return sys.stdout
    try:
        return stack.enter_context(Path(name).open("w", encoding="utf-8", newline=""))
    except OSError as error:
        raise click.ClickException(f"{name}: {error.strerror or error}") from None


def _output(
    stack: contextlib.ExitStack, mode: str, as_json: bool, title: str
) -> Output:
    """What suits the mode and the stream."""
    from gpulint.monitor import outputs
    from gpulint.report.full import console

    if mode == "once":
        return outputs.Once(as_json)
    if mode == "diagnose":
        return outputs.Verdict(as_json)
    if mode == "json":
        return outputs.JsonLines()
    if mode == "nothing":
        return outputs.Quiet()
    screen = console(sys.stdout)
    if not screen.is_terminal or screen.is_dumb_terminal:
        return outputs.Lines()
    from rich.live import Live

    from gpulint.monitor.view import View

    shown = View(title)
    live = Live(
        shown,
        console=screen,
        refresh_per_second=FRAMES,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    return outputs.Screen(screen, stack.enter_context(live), shown)


def _title(pid: int | None, words: Sequence[str]) -> str:
    if words:
        return f"gpulint monitor: {' '.join(shlex.join(words).split())}"
    return "gpulint monitor" if pid is None else f"gpulint monitor: process {pid}"


def _start(command: Command) -> None:
    """Start the training. ClickException: there is no such program."""
    try:
        command.start()
    except OSError as error:
        reason = error.strerror or error
        raise click.ClickException(f"{command.words[0]}: {reason}") from None


def _for_ever() -> bool:
    return True
