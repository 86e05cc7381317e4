"""Metadata recorded by every fit."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from bnnzoo.core.posterior.stored import Owner, Stored
from bnnzoo.engine.reports import EngineReport

__all__ = ["FitInfo"]

SHORT = 0.05
"""Share of the wall time below which compiling is not worth a word."""


@dataclass(frozen=True, repr=False)
class FitInfo(Stored):
    """How a posterior came about: what the method reports, and what :func:`bnnzoo.fit` adds.

    Attributes
    ----------
    sampling : {"mcmc", "iid", "ensemble"}
        What the draws are: correlated draws of a Markov chain, independent ones, or members of an ensemble.
    num_gradients : int
        Gradients of the log density over all observations of the batch, summed over chains.
    complete : bool
        False if the run was interrupted.
    num_rejected : int
        Points that a sampler or an optimiser proposed and rejected because the log density cannot be computed there, warm-up
        included: a factorisation fails, an argument leaves its support, a number overflows.
    rejected_at : str
        The site at which the model fails near the posterior, and how; empty if nothing was rejected or no site is known.
    config : mapping
        The method's hyperparameters, ready for JSON; a method reports those that it chose itself, ``fit`` adds the others.
    sample_stats : mapping of str to Tensor
        One value ``[C, S]`` for each draw, under ArviZ's names.
    tuning : mapping of str to Tensor
        What a sampler tuned during warm-up, a row ``[C, ...]`` for each chain: step sizes, mass matrices and the like.
    fit_stats : mapping of str to Tensor
        Traces ``[C, num_steps]`` of the optimisation: ``elbo`` or ``loss``.
    method : str
        Class name of the method. Added by ``fit``, as are the next three.
    seed : int
    seconds : float
        Wall time of the fit.
    compiling : float
        How much of it went into tracing and compiling the model, which another fit of it in the same process does without.
    columns : mapping of str to tuple of str
        Names of the columns of frames, of series, and of the dimensions of labelled arrays, which are put in the same order
        by name at a prediction.
    engine : EngineReport, optional
        How the arithmetic was run: in native code, as graphs or as Python, why, and how long tracing, compiling and running took.
    has_atoms : bool
        Whether the posterior has point masses, as that of dropout does, and hence no density.
    unadjusted : bool
        Whether the method's draws have a bias that no acceptance step corrects. Added by ``fit``.
    """

    sampling: Literal["mcmc", "iid", "ensemble"]
    num_gradients: int = 0
    complete: bool = True
    num_rejected: int = 0
    rejected_at: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    sample_stats: Mapping[str, Tensor] = field(default_factory=dict)
    fit_stats: Mapping[str, Tensor] = field(default_factory=dict)
    method: str = ""
    seed: int = 0
    seconds: float = 0.0
    compiling: float = 0.0
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    has_atoms: bool = False
    unadjusted: bool = False
    tuning: Mapping[str, Tensor] = field(default_factory=dict)
    engine: EngineReport | None = None

    def state(self) -> dict[str, Any]:
        """Return what to store: the report of the engine as JSON."""
        return {**super().state(), "engine": None if self.engine is None else self.engine.to_json()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], owner: Owner) -> "FitInfo":
        """Return the record of which :meth:`state` was stored."""
        engine = state.get("engine")
        return cls(**{**state, "engine": None if engine is None else EngineReport.from_json(dict(engine))})

    def followed_by(self, more: "FitInfo") -> "FitInfo":
        """Return the record of this run and one that went on from it: sums of what they cost, statistics one after the other."""
        common = [name for name in self.sample_stats if name in more.sample_stats]
        return replace(
            more,
            num_gradients=self.num_gradients + more.num_gradients,
            num_rejected=self.num_rejected + more.num_rejected,
            rejected_at=more.rejected_at or self.rejected_at,
            seconds=self.seconds + more.seconds,
            compiling=self.compiling + more.compiling,
            complete=self.complete and more.complete,
            config={**self.config},
            tuning={**more.tuning, **self._warm_up_with(more)},
            sample_stats={name: torch.cat([self.sample_stats[name], more.sample_stats[name]], 1) for name in common},
        )

    def num_superchains(self, num_chains: int) -> int | None:
        """Return how many superchains so many chains are, None without: also where an interrupted run ended within one."""
        number = self.config.get("num_superchains")
        if number is None:
            return None
        found, rest = divmod(num_chains, int(self.config["num_chains"]) // int(number))
        return found if found > 1 and not rest else None

    def _warm_up_with(self, more: "FitInfo") -> dict[str, Tensor]:
        """Return the iterations of warm-up of both runs, nothing if either did not count them."""
        ours, theirs = (info.tuning.get("num_warmup") for info in (self, more))
        return {} if ours is None or theirs is None else {"num_warmup": ours + theirs}

    @property
    def num_gradients_of_draws(self) -> int | None:
        """Number of gradients that the draws took, without warm-up: the sum of ``n_steps``.

        None where that is not their number: methods other than chains, several temperatures, control variates.
        """
        steps = self.sample_stats.get("n_steps")
        is_another_number = "tempering" in self.config or self.config.get("control_variates") is not None
        return None if self.sampling != "mcmc" or steps is None or is_another_number else int(steps.sum())

    @property
    def is_tempered(self) -> bool:
        """Whether the draws are of a power of the posterior other than one."""
        return bool(self.config.get("temperature", 1.0) != 1.0)

    def duration(self) -> str:
        """Return the wall time of the fit, and what of it was compiling, in words."""
        compiling = f", {self.compiling:.2g} of them compiling" if self.compiling >= SHORT * self.seconds > 0 else ""
        return f"{self.seconds:.3g} s{compiling}"

    def warm_up(self) -> str:
        """Return how many iterations of warm-up the chains took, in words; nothing where they took all of them."""
        taken, most = self.tuning.get("num_warmup"), self.config.get("num_warmup")
        if taken is None or most is None or int(taken.min()) >= int(most):
            return ""
        least, longest = int(taken.min()), int(taken.max())
        number = f"{least}" if least == longest else f"{least} to {longest}"
        return f"{number} of {most} iterations of warm-up"

    def __repr__(self) -> str:
        """Name the method, what its draws are, what the fit cost and how it ran; no tensor is printed."""
        parts = [
            self.method or "no method",
            self.sampling,
            f"seed {self.seed}",
            f"{self.num_gradients} gradients",
            *([] if self.num_gradients_of_draws is None else [f"{self.num_gradients_of_draws} of them of the draws"]),
            *filter(None, [self.warm_up()]),
            self.duration(),
            *([] if self.engine is None else [f"engine {self.engine.engine}"]),
            *([] if self.complete else ["interrupted"]),
            *(
                [f"{self.num_rejected} points rejected ({self.rejected_at or 'no site known'})"]
                if self.num_rejected
                else []
            ),
            *(
                [f"statistics: {', '.join((*self.sample_stats, *self.fit_stats))}"]
                if bool(self.sample_stats or self.fit_stats)
                else []
            ),
        ]
        return f"FitInfo({', '.join(parts)})"
