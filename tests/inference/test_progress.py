"""Progress: silent away from a terminal, and with the numbers that matter on one."""

import io

import pytest
from rich.console import Console

from bnnzoo.core.method import FitContext, Silent
from bnnzoo.core.model.density import build_density
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.fit import fit
from bnnzoo.inference.markov.hamiltonian.adaptive_chains import AdaptiveChains
from bnnzoo.inference.markov.hamiltonian.nuts import NUTS
from bnnzoo.inference.progress import Bar, considerate, progress_for
from bnnzoo.testing import linear_gaussian


class Recorder:
    """A progress that remembers what it is told."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int]] = []
        self.steps: list[int] = []
        self.fields: set[str] = set()

    def start(self, description: str, total: int) -> None:
        self.stages.append((description, total))

    def update(self, step: int, **fields: float) -> None:
        self.steps.append(step)
        self.fields |= set(fields)

    def stop(self) -> None:
        self.stages.append(("stopped", 0))


def test_chains_report_draws_and_acceptance() -> None:
    target, recorder = linear_gaussian(), Recorder()
    density = build_density(target.model, *target.data)
    NUTS(num_chains=2, num_warmup=20, num_draws=10).run(density, FitContext(progress=recorder))
    assert recorder.stages == [("Compiling", 1), ("Warm-up, 2 chains", 20), ("Sampling, 2 chains", 10)]
    turn = recorder.steps.index(20) + 1
    for stage, last in ((recorder.steps[:turn], 20), (recorder.steps[turn:], 10)):
        assert stage == sorted(stage) and stage[-1] == last
    assert recorder.fields == {"acceptance", "step size"}


def test_optimisation_reports_compiling_and_then_steps() -> None:
    target, recorder = linear_gaussian(), Recorder()
    density = build_density(target.model, *target.data)
    MAP(num_steps=30, polish_steps=0).run(density, FitContext(progress=recorder))
    assert recorder.stages == [("Compiling", 1), ("Optimising", 30)]
    assert recorder.fields == {"loss"}


@pytest.mark.parametrize(
    ("in_notebook", "has_widgets", "kind"), [(True, True, Bar), (True, False, Silent), (False, True, Silent)]
)
def test_notebooks_show_a_bar_where_they_can(in_notebook, has_widgets, kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: in_notebook)
    monkeypatch.setattr(Console, "is_terminal", property(lambda console: False))
    monkeypatch.setattr("bnnzoo.inference.progress.find_spec", lambda name: object() if has_widgets else None)
    assert isinstance(progress_for(True), kind)
    assert isinstance(progress_for(False), Silent)


def test_nothing_is_written_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    target = linear_gaussian()
    assert isinstance(progress_for(True), Silent)
    fit(target.model, NUTS(num_chains=1, num_warmup=20, num_draws=5), *target.data)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == ""


def test_where_nobody_looks_others_get_their_turn_and_no_numbers_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[bool] = []
    monkeypatch.setattr("bnnzoo.inference.progress.let_others", lambda: turns.append(True))
    monkeypatch.setattr(AdaptiveChains, "progress_fields", lambda chains: pytest.fail("nobody looks"))
    target = linear_gaussian()
    fit(target.model, NUTS(num_chains=1, num_warmup=20, num_draws=5), *target.data)
    assert turns
    watched = considerate(Recorder())
    watched.update(1, loss=2.0)
    assert not isinstance(watched, Silent) and isinstance(considerate(Silent()), Silent)


def test_bar_shows_stage_steps_and_numbers() -> None:
    stream = io.StringIO()
    bar = Bar(Console(file=stream, force_terminal=True, width=100))
    bar.start("warm-up", 10)
    bar.update(4, elbo=-12.3456)
    bar.start("draws", 20)
    bar.update(20, acceptance=0.81)
    bar.stop()
    assert "draws" in stream.getvalue() and "20/20" in stream.getvalue() and "acceptance 0.81" in stream.getvalue()
