"""From a Pyro model to pure functions of one flat unconstrained vector."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from pyro.distributions import ImproperUniform
from torch import Tensor
from torch.func import grad_and_value, vmap

from bnnzoo.core.data.gaps import with_gaps
from bnnzoo.core.discrete.discrete_sites import summing
from bnnzoo.core.discrete.enumeration import enumerated
from bnnzoo.core.likelihood.general_readout import UnreadableLikelihood
from bnnzoo.core.model.learnable import learning, refuse_learnable
from bnnzoo.core.model.misfits import explaining_misfits
from bnnzoo.core.model.replay import Node, discover, drawn_from, log_prob, replay
from bnnzoo.core.model.terms import (
    active_coordinates,
    first_failure,
    is_constant,
    log_prior_of,
    moments_of,
    networks_of,
    pointwise_of,
    scaled_likelihood_of,
    static_priors,
    summed_by_row,
)
from bnnzoo.core.program.filling import FillingModel, fills_in_place
from bnnzoo.core.program.network import Network
from bnnzoo.core.program.numerics import Failure, NumericalFailure
from bnnzoo.core.program.sites import (
    ModelError,
    innermost,
    is_deterministic,
    is_factor,
    is_observation,
    latent_sites,
    refuse_other_sites,
    refuse_unsupported,
    row_plates,
)
from bnnzoo.core.program.space import ParameterSpace
from bnnzoo.core.program.surroundings import isolated, refuse_handlers
from bnnzoo.core.types import Data, Model
from bnnzoo.engine import pytree
from bnnzoo.engine.choose import CALLS_OF_A_SEARCH, MAX_ENTRIES_TO_PAD, POINTS_OF_A_SEARCH
from bnnzoo.engine.decisive import may_decide
from bnnzoo.engine.fits import Kind
from bnnzoo.engine.lowered import Same
from bnnzoo.engine.points import Points
from bnnzoo.engine.value_and_grad import looped_value_and_grad, single_value_and_grad

__all__ = ["LogDensity", "build_density", "first_run", "made_of"]


@dataclass(frozen=True, repr=False)
class LogDensity(ParameterSpace):
    """Log density of a Pyro model given its data, as pure functions of one flat unconstrained vector ``theta[P]``.

    Every function of a single ``theta`` can be batched with :func:`torch.func.vmap` and traced; ``*batch`` are the
    model's own positional arguments, all rows or some.

    Attributes
    ----------
    sites, num_params, dtype, device
        See :class:`bnnzoo.core.program.space.ParameterSpace`.
    model, data
        The Pyro model, and its arguments: the data that it is conditioned on.
    observed : tuple of str
        Names of the observed sites.
    factors : tuple of str
        ``pyro.factor`` sites inside a plate: they count as likelihood, row by row, but cannot be predicted.
    num_data : int
    networks : tuple of Network
        One record for each :func:`bnnzoo.random_module` in the model.
    priors : mapping of str to node, optional
        Nodes of the latent sites without their values; None if the prior of one depends on another.
    row_plates : tuple of str
        Plates of the rows of the data.
    kind : Kind, optional
        What fits of this model to other data of the same shapes share; see :mod:`bnnzoo.core.model.kinds`.
    """

    model: Model
    data: Data
    observed: tuple[str, ...]
    factors: tuple[str, ...]
    num_data: int
    networks: tuple[Network, ...]
    priors: Mapping[str, Node] | None
    row_plates: tuple[str, ...]
    kind: Kind | None = field(default=None, compare=False, kw_only=True)

    def __repr__(self) -> str:
        """Count parameters and observations and name the sites; neither the model nor a tensor is printed."""
        observed = f"{self.num_data} observations of {', '.join(self.likelihood) or 'nothing'}"
        return f"{type(self).__name__}({self.num_params} parameters in {self.sites_in_short()}; {observed})"

    @property
    def likelihood(self) -> tuple[str, ...]:
        """Names of observed sites and factors whose terms are the likelihood; one of them where discrete sites join several."""
        own = enumerated(self.model)
        return tuple(name for name in (*self.observed, *self.factors) if own is None or name not in own.absorbed)

    @property
    def has_data(self) -> bool:
        """Whether ``data`` are the values of the data, and not placeholders of their shapes."""
        return True

    def log_prior(self, theta: Tensor) -> Tensor:
        """Return the log prior density ``[]`` at ``theta[P]``, log-Jacobian of the constraining transforms included."""
        if self.priors is None:
            return log_prior_of(self, theta, self.nodes(theta, *self.data), self.likelihood)
        values = self.constrain(theta)  # and the model need not run, which is most of the work
        nodes = {name: {**node, "value": values[name]} for name, node in self.priors.items()}
        return log_prior_of(self, theta, nodes, self.likelihood)

    def log_likelihood(self, theta: Tensor, *batch: Any) -> Tensor:
        """Return the unscaled log likelihood ``[B]`` of each observation, summed over the observed sites."""
        return summed_by_row(list(self.pointwise(theta, *batch).values()), theta)

    def pointwise(self, theta: Tensor, *batch: Any) -> dict[str, Tensor]:
        """Return the unscaled log likelihood ``[B, ...]`` of each observed site."""
        return pointwise_of(self.observed_nodes(theta, *batch), self.likelihood)

    def log_joint(self, theta: Tensor, *batch: Any) -> Tensor:
        """Return log prior plus log likelihood ``[]``; a mini-batch of B of the N observations counts N/B times."""
        return torch.add(*self.terms_of(theta, self.nodes(theta, *batch))).to(theta.dtype)

    def terms_of(self, theta: Tensor, nodes: Mapping[str, Node]) -> tuple[Tensor, Tensor]:
        """Return log prior and log likelihood, ``[]`` each, of a run of the model at ``theta[P]``; refuse other latent sites."""
        refuse_other_sites(nodes.values(), (site.name for site in self.sites), self.observed)
        likelihood = scaled_likelihood_of(nodes, self.likelihood, self.num_data, theta)
        return log_prior_of(self, theta, nodes, self.likelihood), likelihood

    def conditional(self, theta: Tensor, *inputs: Any) -> dict[str, Tensor]:
        """Return the moments of p(y | x, theta), ``mean[B, ...]`` and the like; ``"<site>.mean"`` if sites are several."""
        return moments_of(self.observed_nodes(theta, *inputs), self.observed)

    def predictive(self, theta: Tensor, *inputs: Any) -> dict[str, Tensor]:
        """Return one draw of every observed site from p(y | x, theta), using torch's global random stream."""
        nodes = self.observed_nodes(theta, *inputs, draw=True)
        return {name: nodes[name]["value"] for name in self.observed}

    def deterministics(self, theta: Tensor, *data: Any) -> dict[str, Tensor]:
        """Return the values of the model's ``pyro.deterministic`` sites."""
        return {name: node["value"] for name, node in self.nodes(theta, *data).items() if is_deterministic(node)}

    def nodes(self, theta: Tensor, *batch: Any, draw: bool = False) -> dict[str, Node]:
        """Run the model at ``theta[P]`` and return the nodes of its trace by name.

        Parameters
        ----------
        theta : Tensor [P]
        *batch
            Arguments of the model.
        draw : bool
            Draw the observed sites from the model, using torch's global random stream, also where data are given.
        """
        return replay(self.model, self.constrain(theta), batch, self.observed, self.device, draw=draw)

    def observed_nodes(self, theta: Tensor, *batch: Any, draw: bool = False) -> dict[str, Node]:
        """Return at least the nodes of observed sites and factors, with which the likelihood is evaluated."""
        return self.nodes(theta, *batch, draw=draw)

    def prior_draw(self, given: Mapping[str, Tensor], *batch: Any) -> Tensor:
        """Return ``theta[P]`` with all sites but the given ones drawn from their prior, by torch's global random stream."""
        if self.priors is not None and [*map(id, batch)] == [*map(id, self.data)]:  # and the model need not run
            return self.unconstrain(drawn_from(self.priors, given))
        nodes = replay(self.model, given, batch, self.observed, self.device, dtype=self.dtype)
        return self.unconstrain({site.name: nodes[site.name]["value"] for site in self.sites})

    @cached_property
    def active(self) -> dict[str, tuple[bool, ...]]:
        """Which coordinates of each observed site's readout depend on theta; an `UnreadableLikelihood` if that is not known."""
        if self.factors:
            raise UnreadableLikelihood(
                f"the likelihood has the pyro.factor site {self.factors[0]!r}, which has no family."
            )
        with torch.enable_grad():
            theta = torch.zeros(self.num_params, dtype=self.dtype, device=self.device, requires_grad=True)
            nodes = self.nodes(theta, *self.data)
            return {name: active_coordinates(nodes[name]) for name in self.observed}

    @cached_property
    def value_and_grad(self) -> Points:
        """``(theta[C, P], *batch) -> ([C], [C, P])``: log joint density and its gradient, batched and lowered."""
        calls = CALLS_OF_A_SEARCH if self.is_one_of_many else 0  # too few in one fit for compiling to pay
        rows = POINTS_OF_A_SEARCH if self.num_data * self.num_params <= MAX_ENTRIES_TO_PAD else 1
        alone, looped = single_value_and_grad(self.log_joint), looped_value_and_grad(self.log_joint)
        return self.shared(
            "value and gradient", lambda: Points(alone, self.batched_value_and_grad, calls, looped, rows)
        )

    @property
    def is_one_of_many(self) -> bool:
        """Whether what is made of the model's function is shared with other fits."""
        return self.kind is not None and type(self) is LogDensity  # others may hold values of one fit

    def shared[T](self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is made of the model's function once for this density, or for all of the same kind.

        What is made takes the data as arguments: those of this density are those of one fit.

        Parameters
        ----------
        key : hashable
            What, besides model and number of observations, it depends on.
        make : callable
        """
        if self.kind is None or not self.is_one_of_many:
            return made_of(self).shared(key, make)
        return self.kind.shared((Same(self.model), self.dtype, self.device, self.num_data, key), make)

    def over_points[T](
        self, key: Hashable, function: Callable[..., T], *, num_calls: int = 1, most: int = 0, **settings: Any
    ) -> Callable[..., T]:
        """Return ``(theta[M, P], *data)`` of a function of ``(theta[P], *data)``: by ``vmap``, for many fits by :class:`Points`.

        Parameters
        ----------
        key : hashable
            See :meth:`shared`.
        function : callable
            A pure function; it takes all that differs between fits as arguments.
        num_calls, most : int
            How often a fit calls it, and at how many points at most if one fit repays a graph; 0: it does not.
        **settings
            Of :func:`torch.func.vmap`.
        """

        def batched(theta: Tensor, *data: Any) -> T:
            found: T = vmap(function, in_dims=(0, *(None for _ in data)), **settings)(theta, *data)
            return found

        if not (most or self.is_one_of_many):
            return batched
        return self.shared(key, lambda: Points(function, batched, num_calls, at_least=max(1, most)))

    def batched_value_and_grad(self, theta: Tensor, *batch: Any) -> tuple[Tensor, Tensor]:
        """Return the log joint density ``[C]`` and its gradient ``[C, P]`` at ``theta[C, P]``, not yet lowered."""
        gradient, value = vmap(grad_and_value(self.log_joint), in_dims=(0, *(None for _ in batch)))(theta, *batch)
        return value, gradient

    def init(self, num_chains: int, seed: int) -> Tensor:
        """Return starting points ``theta[C, P]``: network weights from their prior, whose scale depends on a layer's width.

        All else is uniform on (-2, 2), the convention of Stan and its relatives, which spreads chains widely.
        """
        with isolated(seed, self.device):
            theta = torch.empty(num_chains, self.num_params, dtype=self.dtype).uniform_(-2.0, 2.0)
            return _with_prior_weights(self, theta) if self.networks else theta

    def failure(self, theta: Tensor, *batch: Any) -> Failure | None:
        """Return the site at which the model cannot be evaluated at ``theta[P]``, and how it fails; None if it can be."""
        return first_failure(lambda: self.nodes(theta, *batch))


def made_of(density: LogDensity, taken: Kind | None = None) -> Kind:
    """Return what is made of a density's function, ``taken`` from another of the same function if nothing is made yet."""
    made: Kind = vars(density).setdefault("_made", taken or Kind())  # no field, which copies would share
    return made


def build_density(
    model: Model, *data: Any, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> LogDensity:
    """Trace a Pyro model once and return its log density as pure functions of ``theta[P]``.

    Parameters
    ----------
    model : callable
        Any Pyro model with continuous latent variables.
    *data
        Its positional arguments, tensors on ``device`` and anything else the model takes.
    dtype : torch.dtype, optional
        Of ``theta``. Default: torch's default dtype.
    device : torch.device or str
        Of ``theta``.

    Returns
    -------
    LogDensity

    Raises
    ------
    ModelError
        If the model has no latent sites, one of infinitely many discrete values, subsamples inside, or is not finite
        in the way :func:`bnnzoo.core.program.sites.refuse_unsupported` describes.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> def model(y):
    ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with pyro.plate("data", len(y)):
    ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> density = build_density(model, torch.tensor([1.0, 2.0]))
    >>> density.num_params, density.num_data, density.observed
    (1, 2, ('y',))
    """
    return first_run(model, *data, dtype=dtype, device=device)[0]


def first_run(
    model: Model, *data: Any, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> tuple[LogDensity, dict[str, Node]]:
    """Return what :func:`build_density` does, and the nodes of the run of the model from which it was read."""
    refuse_handlers()
    may_decide(pytree.tree_leaves(data))
    device, dtype = torch.device(device), dtype or torch.get_default_dtype()
    with explaining_misfits(model, data):
        with fills_in_place() as fills:
            model = with_gaps(model, data, {})
            nodes = discover(model, data, device, dtype, check=_check_observations)
            if (whole := with_gaps(model, data, nodes)) is not model:
                model, nodes = whole, discover(whole, data, device, dtype, check=_check_observations)
        model = FillingModel(model) if fills() and not isinstance(model, FillingModel) else model
        model = learning(model, nodes.values())
        if (summed := summing(model, nodes)) is not None:
            model, nodes = summed, discover(summed, data, device, dtype, check=_check_observations)
        return _density_of(model, data, nodes, dtype, device), nodes


def _density_of(
    model: Model, data: Data, nodes: Mapping[str, Node], dtype: torch.dtype, device: torch.device
) -> LogDensity:
    refuse_unsupported(nodes.values())
    samples = [node for node in nodes.values() if node["type"] == "sample"]
    observed = tuple(node["name"] for node in samples if is_observation(node) and not is_constant(node, samples))
    factors = tuple(node["name"] for node in samples if is_factor(node) and node["cond_indep_stack"])
    own = enumerated(model)
    counted = [name for name in (*observed, *factors) if own is None or name not in own.absorbed]
    terms = [log_prob(nodes[name]).detach() for name in counted]
    sites = latent_sites(samples)
    if not sites:
        refuse_learnable(model)
        raise ModelError(
            "The model has no latent sites: there is nothing to infer. Sample its unknowns with pyro.sample(...)."
        )
    flat = [site.name for site in sites if isinstance(innermost(nodes[site.name]["fn"]), ImproperUniform)]
    if flat and not any(is_observation(node) or is_factor(node) for node in samples):
        raise ModelError(
            f"Site {flat[0]!r} has an improper prior and the model observes nothing, so that there is no posterior: pass the "
            f"observations, or give {flat[0]!r} a proper prior such as dist.Normal(0.0, 10.0)."
        )
    return LogDensity(
        model=model,
        data=data,
        sites=sites,
        observed=observed,
        factors=factors,
        num_params=sites[-1].span.stop,
        num_data=summed_by_row(terms, torch.empty(0)).numel(),
        networks=networks_of(samples),
        priors=static_priors([node for node in samples if node["name"] not in (*observed, *factors)]),
        row_plates=row_plates(samples),
        dtype=dtype,
        device=device,
    )


def _check_observations(nodes: Mapping[str, Node]) -> None:
    """Evaluate the likelihood, which raises where observations are outside the support that latent values give it."""
    for node in nodes.values():
        if node["type"] == "sample" and is_observation(node):
            log_prob(node)


def _with_prior_weights(density: LogDensity, theta: Tensor) -> Tensor:
    """Replace the network weights in ``theta[C, P]`` by draws from their prior."""

    def one(theta: Tensor) -> Tensor:
        values = density.constrain(theta)
        others = {site.name: values[site.name] for site in density.sites if not site.is_weight}
        return density.prior_draw(others, *density.data)

    try:
        return vmap(one, randomness="different")(theta)
    except (RuntimeError, NumericalFailure):  # vmap refuses in-place random numbers, by which some distributions draw
        found = []
        for chain in theta:
            try:
                found.append(one(chain))
            except NumericalFailure:  # the start stays as it is where the model fails at weights from their prior
                found.append(chain)
        return torch.stack(found)
