"""Releases of torch without one of the private parts that the engine knows: models run as Python, after one warning."""

import os
import subprocess
import sys
import textwrap

import pytest

from bnnzoo.engine import torch_private

CANARY = textwrap.dedent(
    """
    import operator, os, sys, warnings
    from importlib import import_module
    import pyro, torch, torch.utils.flop_counter, arviz_base, matplotlib, pandas, sklearn, scipy.stats, xarray

    def without(name):
        module, _, path = name.partition(":")
        *owners, last = path.split(".")
        found = import_module(module)
        for owner in owners:
            found = getattr(found, owner)
        if not path.startswith("ops."):
            delattr(found, last)
            return
        def guarded(before):
            def get(self, attribute):  # torch itself goes on
                caller = sys._getframe(1).f_globals.get("__name__", "")
                if attribute == last and caller == "bnnzoo.engine.torch_private":
                    raise AttributeError(attribute)
                return before(self, attribute)
            return get
        for each in ("__getattribute__", "__getattr__"):
            if hasattr(type(found), each):
                setattr(type(found), each, guarded(getattr(type(found), each)))

    def model(x, y):
        w = pyro.sample("w", pyro.distributions.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            return pyro.sample("y", pyro.distributions.Normal(x @ w, 0.5), obs=y)

    def fitted(compiles):
        import bnnzoo as bz
        from bnnzoo.engine.lowered import Lowered
        torch.manual_seed(0)
        x = torch.randn(20, 2)
        posterior = bz.fit(model, bz.MAP(num_steps=30), x, x @ torch.tensor([1.0, -1.0]), seed=0, progress=False)
        theta = posterior.draws().reshape(-1)
        assert theta.isfinite().all(), theta
        if compiles:
            assert Lowered(torch.sin).specialize(theta).compiled([theta]).how == "traced"

    def run(name, compiles):
        without(name)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            fitted(compiles)
        lines = [str(each.message) for each in told if "has no" in str(each.message)]
        assert len([line for line in lines if line.startswith("torch ")]) == 1, lines
        assert name.replace(":", ".") in lines[0], lines

    for name in sys.argv[2:]:
        if name.startswith(("torch._inductor", "torch._functorch", "torch.fx.experimental")):
            import_module(name.partition(":")[0])
    for name in sys.argv[2:]:
        child = os.fork()
        if not child:
            try:
                run(name, sys.argv[1] == "compiles")
            except BaseException as error:
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                os._exit(1)
            os._exit(0)
        os.waitpid(child, 0)
    """
)

IN_PYTHON = [*torch_private.GRAPHS, *torch_private.LOOPS, *torch_private.LAZY_GRAPHS, *torch_private.TRANSFORMS]
OF_LOOPS = ("select_decomp_table", "rand_ops", "_aoti")
COMPILER = [name for name in torch_private.COMPILER if not any(part in name for part in OF_LOOPS)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize(
    ("names", "how"),
    [
        (IN_PYTHON[::5], "runs"),
        pytest.param(IN_PYTHON, "runs", marks=pytest.mark.slow),
        pytest.param(COMPILER, "compiles", marks=pytest.mark.slow),
    ],
)
def test_a_canary_for_each_private_part(names: list[str], how: str) -> None:
    """Each is removed in turn, in a process of its own: the package is imported, warns once, and fits."""
    command = [sys.executable, "-c", CANARY, how, *names]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0 and not found.stdout.strip(), found.stdout + found.stderr[-2000:]


def test_every_part_is_there() -> None:
    """With the torch that is installed nothing is missing, the compiler's parts included."""
    for name in torch_private.COMPILER:
        assert torch_private._fetched(name) is not None, name
    torch_private.require_loops()


def test_what_is_missing_is_named() -> None:
    with (
        pytest.warns(
            torch_private.LoweringWarning, match=r"torch .* has no torch\.nothing, so that models run as Python"
        ),
        pytest.raises(torch_private.Missing, match=r"torch .* has no torch\.nothing$"),
    ):
        torch_private._needed("torch:nothing")
    torch_private._GONE.pop("torch:nothing")
