"""``distil``: one network that predicts what the draws of a posterior predict on average, and how far they are apart."""

import copy
import math
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor, nn

from bnnzoo.core.data.described import described
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.reading.outcomes import observed_places
from bnnzoo.core.settings import NonNegative, Range, check_argument
from bnnzoo.core.types import Whole
from bnnzoo.engine.reports import first_line
from bnnzoo.models import mlp
from bnnzoo.predictive import measure_predictions
from bnnzoo.predictive.prediction_arguments import refuse_no_posterior
from bnnzoo.serving.distillation_inputs import finite_rows, points_of
from bnnzoo.serving.distilled import Distilled, told_if_inexact
from bnnzoo.serving.student import Student, learn
from bnnzoo.serving.summaries import ROUNDING, Summaries, errors, moments_of_chains

__all__ = ["distil"]

SIZES = ((32, 32), (64, 64, 64))
"""Hidden units of the default networks, of which the first that learns to within a floor is taken: small ones answer sooner."""

type AtLeastHundred = Annotated[int, Range(100)]
FEWEST_ROWS = 10


def distil(
    posterior: Posterior,
    inputs: Any,
    network: nn.Module | None = None,
    *,
    reach: float = 0.5,
    num_points: int = 8192,
    num_steps: int = 4000,
    num_draws: int | None = None,
    dtype: torch.dtype = torch.float32,
    seed: Whole = 0,
) -> Distilled:
    """Fit one network to what the draws of a posterior predict together: the mean, and how uncertain it is and why.

    The student learns from predictions by all draws at the rows of ``inputs``, between them, and in a box that is wider than
    they are. Observations are not needed. How far it is from the draws is measured at points that it did not learn from, inside
    the data and beyond them, in Monte Carlo floors: one floor is how far two halves of the draws are apart.

    Parameters
    ----------
    posterior : Posterior
        From :func:`bnnzoo.fit`, of a model with one array of inputs and one outcome, which may have several dimensions.
    inputs : array_like [N, ...]
        Inputs from where the student will be used, such as those of the fit; at least ten rows.
    network : Module, optional
        From standardised inputs ``[N, ...]`` to ``[N, 3 Q]`` for Q real outcomes or counts, to ``[N, K + 1]`` for K classes. A
        copy of it learns. Default: two layers of 32 rectified linear units, or, if these do not suffice, three of 64.
    reach : float
        How far the box reaches beyond the inputs at either end, as a fraction of the range of each column.
    num_points : int
        Points to learn from.
    num_steps : int
        Steps of Adam, followed by up to a quarter as many iterations of L-BFGS. Up to a minute or two with the defaults.
    num_draws : int, optional
        As for :func:`bnnzoo.predict`.
    dtype : torch.dtype
        Of the student. It learns in double precision.
    seed : int
        Of the points, the weights and the mini-batches.

    Returns
    -------
    Distilled
        With ``module``, a plain torch module, and ``report``, the errors.

    Warns
    -----
    InexactStudentWarning
        If an error inside the data exceeds 1.5 floors.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as above, the model takes further arguments, or a predictive variance is infinite.

    References
    ----------
    A. Korattikara, V. Rathod, K. Murphy, M. Welling, Bayesian dark knowledge, NeurIPS 2015.

    Examples
    --------
    >>> import bnnzoo as bz, torch
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> model = bz.models.supervised(bz.models.mlp(1, ()), bz.priors.fan_in(1.0), bz.likelihoods.gaussian(scale=0.5))
    >>> posterior = bz.fit(model, bz.Laplace(), x, 2 * x[:, 0], progress=False)
    >>> network = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    >>> student = bz.distil(posterior, x, network, num_points=400, num_steps=400)
    >>> list(student.predict([[0.0], [0.5]]))
    ['mean', 'sd', 'total', 'aleatoric', 'epistemic', 'outside']
    """
    hints = {
        "num_points": AtLeastHundred,
        "num_steps": AtLeastHundred,
        "reach": NonNegative,
        "network": nn.Module | None,
    }
    given = {"num_points": num_points, "num_steps": num_steps, "reach": reach, "network": network}
    for name, value in given.items():
        check_argument("distil", name, value, hints[name])
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"distil(dtype={dtype}): write torch.float32 or torch.float64.")
    values = _checked(posterior, inputs)
    points = points_of(values, num_points, reach, int(seed))

    def moments(at: NDArray[np.floating]) -> xr.Dataset:
        x = torch.as_tensor(at, dtype=posterior.density.dtype)
        return measure_predictions(posterior, moments_of_chains, x, num_draws=num_draws, keep=("conditional",))

    drawn = moments(points.training)
    _refuse_infinite(drawn)
    training = Summaries.of(drawn)
    needed = Student.num_outputs(training.whole)
    for hidden in SIZES:
        with isolated(seed, torch.device("cpu")):
            chosen = copy.deepcopy(_default(values.shape[1:], hidden, needed) if network is None else network)
        _refuse_other_outputs(chosen.double(), values[:2], needed, training.whole)
        student = Student(chosen, (points.low, points.high), points.training, training.whole)
        if learn(student, points.training, training, num_steps, int(seed)) <= 1.0 or network is not None:
            break
    student.to(dtype).eval().requires_grad_(False)
    found = {"inside": Summaries.of(moments(points.inside)), "beyond": Summaries.of(moments(points.beyond))}
    report = xr.concat([_report(student, getattr(points, place), each) for place, each in found.items()], "place")
    dims = [str(dim) for dim in drawn["first"].dims if dim != "chain"]
    about = {"method": posterior.info.method, "reach": float(reach), "dims": dims}
    result = Distilled(student, report.assign_coords(place=list(found)), about)
    told_if_inexact(result)
    return result


def _default(shape: tuple[int, ...], hidden: tuple[int, ...], outputs: int) -> nn.Module:
    layers = mlp(math.prod(shape), hidden, outputs, partial(nn.ReLU, inplace=True))
    return layers if len(shape) == 1 else nn.Sequential(nn.Flatten(), *layers)


def _report(student: Student, at: NDArray[np.floating], drawn: Summaries) -> xr.Dataset:
    """Return error and floor of each measure, averaged over rows."""
    with torch.no_grad():
        found = student(torch.as_tensor(at).to(student.low))
    own = {name: found[name].double().numpy() for name in drawn.whole}
    apart, floors = errors(own, drawn.whole, drawn.whole), drawn.floors()
    values = np.array([[apart[name].mean(), max(float(floors[name].mean()), ROUNDING)] for name in apart]).T
    parts = {"error": values[0], "floor": values[1], "ratio": values[0] / values[1]}
    return xr.Dataset({name: ("measure", each) for name, each in parts.items()}, {"measure": list(apart)})


def _checked(posterior: Posterior, inputs: Any) -> NDArray[np.floating]:
    """Return the inputs as an array, after refusing what cannot be distilled."""
    refuse_no_posterior("distil", posterior, "posterior, x")
    density = posterior.density
    if described(density.model).takes_frames:
        raise ValueError(
            "distil takes models of one array of inputs, and this model, of a formula, takes a data frame."
        )
    if len(density.observed) != 1:
        raise ValueError(
            f"distil takes models of one observed site, and this one has {', '.join(density.observed) or 'none'}."
        )
    if density.has_data:
        outcomes = observed_places(density)
        others = [place for place, value in enumerate(density.data) if place not in outcomes and value is not None]
        if others != [0] or not isinstance(density.data[0], Tensor):
            raise ValueError(
                f"distil takes models of one array of inputs, and this one was fitted to {len(others)} arguments besides its "
                f"outcome, the first of type {type(density.data[0]).__name__}: put the inputs into one array, whose columns the "
                "model takes apart."
            )
    values = finite_rows(inputs)
    if values.ndim < 2 or len(values) < FEWEST_ROWS:
        raise ValueError(
            f"inputs have shape {values.shape}: pass at least {FEWEST_ROWS} rows [N, ...], such as those of the fit."
        )
    shape = tuple(density.data[0].shape[1:]) if density.has_data else values.shape[1:]
    if values.shape[1:] != shape:
        raise ValueError(
            f"inputs have rows of shape {values.shape[1:]}, but the model was fitted to rows of shape {shape}."
        )
    return values.astype(float)


def _refuse_infinite(moments: xr.Dataset) -> None:
    parts = [
        np.isfinite(each.to_numpy()).reshape(moments.sizes["obs_id"], -1).all(1) for each in moments.data_vars.values()
    ]
    if (share := float(np.all(parts, axis=0).mean())) < 1.0:
        raise ValueError(
            f"The predictive moments are infinite or undefined in {1 - share:.0%} of the points, as those of a "
            "Student-t distribution of at most two degrees of freedom: they cannot be distilled; use the draws."
        )


def _refuse_other_outputs(network: nn.Module, rows: NDArray[np.floating], needed: int, whole: Any) -> None:
    try:
        with torch.no_grad():
            out = network(torch.as_tensor(rows))
    except RuntimeError as error:
        raise ValueError(
            f"distil(network=...) fails at two rows of inputs, {tuple(rows.shape)} ({first_line(error)}): change its first layer."
        ) from error
    kind = "one more than there are classes" if "probs" in whole else "three for each outcome"
    if not isinstance(out, Tensor) or out.shape != (len(rows), needed):
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(
            f"distil(network=...) makes {shape} of two rows of inputs, but must make ({len(rows)}, {needed}), {kind}: change its "
            "last layer."
        )
