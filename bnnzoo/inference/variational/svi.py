"""Stochastic variational inference with any Pyro guide, run by Pyro itself."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyro
import torch
from pyro import poutine
from pyro.infer import ELBO, Trace_ELBO, TraceEnum_ELBO, autoguide
from pyro.infer import SVI as PyroSVI
from pyro.infer.autoguide import AutoContinuous, AutoDiagonalNormal, AutoGuide
from pyro.optim import ClippedAdam, PyroOptim
from pyro.poutine.messenger import Messenger
from torch import Tensor

from bnnzoo.core.data.minibatch import has_rows
from bnnzoo.core.discrete.enumeration import continuous, enumerated, marked
from bnnzoo.core.method import Declared, FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.learnable import refuse_shared_names, trainable, with_learned
from bnnzoo.core.model.replay import Node
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import DEFAULT_DRAWS
from bnnzoo.core.posterior.saving import StoredPosterior
from bnnzoo.core.posterior.stored import Owner
from bnnzoo.core.program.sites import ModelError, is_subsample
from bnnzoo.core.program.surroundings import alone, isolated
from bnnzoo.core.reading.streamed import num_held
from bnnzoo.core.settings import Count, Positive
from bnnzoo.core.types import Model, Whole
from bnnzoo.engine.failures import is_numerical
from bnnzoo.engine.reports import first_line
from bnnzoo.inference.optimise.batches import batches_of
from bnnzoo.inference.optimise.observers import StepProgress
from bnnzoo.inference.optimise.streams import MemberStreams

__all__ = ["SVI", "GuidePosterior"]

type Guide = Callable[..., Any]


@dataclass(frozen=True, repr=False)
class GuidePosterior(StoredPosterior):
    """A fitted Pyro guide as a posterior over ``theta[P]``.

    Attributes
    ----------
    density : LogDensity
    info : FitInfo
    guide : callable
        The fitted guide.
    params : mapping
        State of the parameter store after the fit, with which the guide is called; the global store is left alone.
    """

    density: LogDensity
    info: FitInfo
    guide: Guide
    params: Any

    def draws(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor:
        """Return independent draws ``[1, S, P]``; the same for the same seed, which is the fit's by default."""
        with isolated(self.info.seed if seed is None else seed, self.density.device), self._store(), torch.no_grad():
            return torch.stack([self._draw() for _ in range(num_draws or DEFAULT_DRAWS)])[None]

    def log_prob(self, theta: Tensor) -> Tensor | None:
        """Return the log density ``[...]`` of ``theta[..., P]``; None for guides with auxiliary sites."""
        with isolated(0, self.density.device), self._store(), torch.no_grad():
            if isinstance(self.guide, AutoContinuous):
                # Its unconstrained vector has the sites in the order of the model's trace, as theta has.
                value: Tensor = self.guide.get_posterior().log_prob(theta)
                return value
            rows = theta.reshape(-1, theta.shape[-1])
            found = [self._log_prob(row) for row in rows]
        if any(value is None for value in found):
            return None
        return torch.stack([value for value in found if value is not None]).reshape(theta.shape[:-1])

    def as_guide(self) -> Guide:
        """Return the guide, which finds its fitted parameters whatever the global parameter store holds."""

        def guide(*args: Any, **kwargs: Any) -> Any:
            with self._store():
                return self.guide(*args, **kwargs)

        return guide

    def state(self) -> dict[str, Any]:
        """Return the guide's name, and the values of its unconstrained parameters and buffers."""
        name = getattr(self.guide, "__name__", type(self.guide).__name__)
        return {"guide": name, "params": self.params["params"], "buffers": _buffers(self.guide)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], owner: Owner) -> "GuidePosterior":
        """Return the posterior of which :meth:`state` was stored, with the guide built anew.

        Raises
        ------
        ValueError
            If the guide must be passed, or is another one.
        """
        density = owner.density
        validation = nullcontext() if density.has_data else pyro.validation_enabled(False)
        with alone(), isolated(owner.info.seed, density.device), validation:
            model = trainable(density.model)
            guide = SVI(guide=_guide_to_rebuild(state["guide"], owner)).guide_of(continuous(model))
            guide(*density.data)
            if model is not density.model:
                model(*density.data)  # which makes its own parameters
            params = pyro.get_param_store().get_state()
            _restore(params["params"], state["params"], "parameter")
            density = _with_learned(density)
            _restore(_buffers(guide), state["buffers"], "buffer")
            return cls(density, owner.info, guide, copy.deepcopy(params))

    @contextmanager
    def _store(self) -> Iterator[None]:
        with alone(), pyro.get_param_store().scope(self.params):
            yield

    def _draw(self) -> Tensor:
        nodes: Mapping[str, Any] = poutine.trace(self.guide).get_trace(*self.density.data).nodes
        return self.density.unconstrain({site.name: nodes[site.name]["value"] for site in self.density.sites})

    def _log_prob(self, theta: Tensor) -> Tensor | None:
        values = self.density.constrain(theta)
        trace = poutine.trace(poutine.condition(self.guide, values)).get_trace(*self.density.data)
        nodes: Mapping[str, Any] = trace.nodes
        sampled = {name for name, node in nodes.items() if node["type"] == "sample" and not is_subsample(node)}
        if sampled != values.keys():
            return None
        free = self.density.unconstrained(theta)
        jacobian = [s.transform.log_abs_det_jacobian(free[s.name], values[s.name]).sum() for s in self.density.sites]
        total: Tensor = trace.log_prob_sum() + torch.stack(jacobian).sum()
        return total


@dataclass(frozen=True)
class SVI(Declared):
    """Stochastic variational inference with any Pyro guide, bound and optimiser, run by Pyro's own machinery.

    Parameters without a prior (``pyro.param``, ``pyro.module``, parameters of a ``PyroModule``) are learned with those of the
    guide, and predictions use what was learned. The weights of a network that ``pyro.module`` registers are those of the
    network itself, as in Pyro: it holds those of the posterior that was used last.

    For guides without a method of their own in bnnzoo. It is slower than :class:`bnnzoo.inference.MeanFieldVI`, which runs the
    family of AutoDiagonalNormal on the compiled density.

    Parameters
    ----------
    guide : callable
        A guide ``guide(*data)`` with ``pyro.param``, an autoguide class such as ``AutoMultivariateNormal``, or a fresh
        autoguide object, which is copied and not changed, such as ``AutoDelta(poutine.block(model, hide=["z"]))``.
    elbo : pyro.infer.ELBO, optional
        The bound, such as ``RenyiELBO(alpha=0.5)``; default: ``Trace_ELBO``, or ``TraceEnum_ELBO`` for a model with discrete
        latent sites, which are summed out.
    optimiser : pyro.optim.PyroOptim, optional
        Default: ClippedAdam with a learning rate that falls to a hundredth of ``learning_rate``.
    num_steps : int
    learning_rate : float
        Of the default optimiser's first step.
    batch_size : int, optional
        Rows of a mini-batch, whose likelihood counts N/B times; default: all rows. The guide must not have local
        sites.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> from pyro.infer.autoguide import AutoMultivariateNormal
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.SVI(AutoMultivariateNormal, num_steps=200), *target.data)
    >>> posterior.draws(10).shape
    torch.Size([1, 10, 3])
    """

    guide: Guide = AutoDiagonalNormal
    elbo: ELBO | None = None
    optimiser: PyroOptim | None = None
    num_steps: Count = 3000
    learning_rate: Positive = 0.03
    batch_size: Count | None = None

    needs: ClassVar[frozenset[Need]] = frozenset()
    in_batches: ClassVar[Mapping[str, object] | None] = {}
    learns_parameters: ClassVar[bool] = True

    def run(self, density: LogDensity, context: FitContext) -> GuidePosterior:
        """Fit the guide; see :func:`bnnzoo.fit`.

        Raises
        ------
        ModelError
            If the guide does not sample every latent site.
        ValueError
            If mini-batches are asked for of a model without rows.
        FloatingPointError
            If the model cannot be evaluated at what the guide draws.
        """
        try:
            return self._fitted(density, context)
        except Exception as error:
            if not is_numerical(error):
                raise
            raise FloatingPointError(
                f"The model cannot be evaluated at values that SVI tried ({first_line(error).rstrip('.')}), which Pyro's steps "
                f"cannot take back. Use MeanFieldVI() or FullRankVI(), whose steps can, fit in double precision with "
                f"dtype=torch.float64, or write a larger jitter on a diagonal."
            ) from error

    def _fitted(self, density: LogDensity, context: FitContext) -> GuidePosterior:
        with alone(), isolated(context.seed, density.device):
            guide = self.guide_of(continuous(trainable(density.model)))
            guide(*density.data)
            nodes = poutine.trace(guide).get_trace(*density.data).nodes
            missing = [site.name for site in density.sites if site.name not in nodes]
            if missing:
                raise ModelError(
                    f"The guide has no site {missing[0]!r}, which the model samples. Sample it in the guide, or use an autoguide "
                    f"such as AutoNormal."
                )
            refuse_shared_names(density.model, dict(pyro.get_param_store().items()))
            if self.optimiser is not None:
                optimiser = copy.deepcopy(self.optimiser)
            else:
                optimiser = ClippedAdam({"lr": self.learning_rate, "lrd": 0.01 ** (1 / self.num_steps)})
            own = enumerated(density.model)
            if self.elbo is not None or own is None:
                elbo = self.elbo or Trace_ELBO()
            else:
                elbo = TraceEnum_ELBO(max_plate_nesting=own.depth)
            svi = PyroSVI(_ScaledModel(density), guide, optimiser, elbo)
            losses, complete = self._loop(svi, density, context)
            params = copy.deepcopy(pyro.get_param_store().get_state())
            density = _with_learned(density)
        info = FitInfo(
            sampling="iid",
            num_gradients=len(losses) * getattr(self.elbo, "num_particles", 1),
            complete=complete,
            fit_stats={"elbo": -torch.tensor([losses], dtype=density.dtype)},
        )
        return GuidePosterior(density, info, guide, params)

    def _loop(self, svi: PyroSVI, density: LogDensity, context: FitContext) -> tuple[list[float], bool]:
        batches = batches_of(self.batch_size).stream(density, MemberStreams(context.seed, range(1)))
        show = StepProgress(context.progress, "Fitting the guide", self.num_steps, "elbo")
        losses: list[float] = []
        try:
            for step in range(1, self.num_steps + 1):
                losses.append(float(svi.step(*next(batches).data)))
                show(step, -losses[-1])
        except KeyboardInterrupt:
            if not losses:
                raise
            return losses, False
        return losses, True

    def guide_of(self, model: Model) -> Guide:
        """Return the guide of a model: made for it, or a copy of the one that was given."""
        if isinstance(self.guide, type):
            guide: Guide = self.guide(model)
            return guide
        return _copied(self.guide) if isinstance(self.guide, torch.nn.Module) else self.guide


def _with_learned(density: LogDensity) -> LogDensity:
    """Return a density whose model has the learnable parameters of the parameter store."""
    return replace(density, model=with_learned(density.model, dict(pyro.get_param_store().items())))


def _guide_to_rebuild(name: str, owner: Owner) -> Guide:
    """Return the guide that was passed, or Pyro's autoguide of the stored name."""
    if owner.guide is not None:
        if not (owner.density.has_data or isinstance(owner.guide, type)):
            raise ValueError(
                f"The guide {name!r} may depend on the training data. Pass them: bnnzoo.load(path, model, *data, guide=...)."
            )
        return owner.guide
    found = getattr(autoguide, name, None)
    if not (isinstance(found, type) and issubclass(found, autoguide.AutoGuide)):
        raise ValueError(
            f"The file holds a fit of the guide {name!r}, which is no autoguide class of Pyro. Pass the guide that was "
            f"fitted: bnnzoo.load(path, model, *data, guide=...)."
        )
    return found


def _buffers(guide: Guide) -> dict[str, Tensor]:
    return dict(guide.named_buffers()) if isinstance(guide, torch.nn.Module) else {}


def _restore(own: Mapping[str, Tensor], saved: Mapping[str, Tensor], what: str) -> None:
    """Copy saved values into a new guide's tensors in place, which its modules share with the parameter store."""
    if {name: value.shape for name, value in own.items()} != {name: value.shape for name, value in saved.items()}:
        shapes = [", ".join(f"{name}{list(value.shape)}" for name, value in values.items()) for values in (saved, own)]
        raise ValueError(
            f"The file holds a fit of another guide: its {what}s are {shapes[0] or 'none'}, and those of this guide are "
            f"{shapes[1] or 'none'}. Pass the guide that was fitted: bnnzoo.load(path, model, *data, guide=...)."
        )
    with torch.no_grad():
        for name, value in saved.items():
            own[name].copy_(value)


class _ScaledModel:
    """The model, with the likelihood of a mini-batch of B of the N rows counting N/B times."""

    def __init__(self, density: LogDensity) -> None:
        self._density = density

    def __call__(self, *batch: Any) -> Any:
        density = self._density
        pairs, count = zip(density.data, batch, strict=True), num_held(density)
        sizes = [len(part) for whole, part in pairs if has_rows(whole, count)]
        with _ScaleLikelihood({*density.observed, *density.factors}, density.num_data / sizes[0] if sizes else 1.0):
            return marked(trainable(density.model))(*batch)


class _ScaleLikelihood(Messenger):
    def __init__(self, names: set[str], factor: float) -> None:
        super().__init__()
        self._names, self._factor = names, factor

    def _pyro_sample(self, msg: Node) -> None:
        if msg["name"] in self._names:
            msg["scale"] = msg["scale"] * self._factor


def _copied(guide: Guide) -> Guide:
    """Copy a guide object; copying an autoguide drops its model and its list, from the original too, which get them back."""
    own = {name: part for name, part in guide.named_modules() if isinstance(part, AutoGuide)}  # type: ignore[attr-defined]
    dropped = {name: (part._model, part.master) for name, part in own.items()}
    copied = copy.deepcopy(guide)
    for name, part in copied.named_modules():  # type: ignore[attr-defined]
        if name in own:
            own[name]._model, own[name].master = dropped[name]
            part._model = dropped[name][0]
    return copied
