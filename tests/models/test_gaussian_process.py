"""Gaussian processes agree with gpytorch, are trees like a network's, and refuse what they cannot do."""

import importlib.util
import math
import warnings

import arviz as az
import numpy as np
import pyro.distributions as dist
import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.reading.conditioned import predictive_density

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # of torch, about what gpytorch compiles
    import gpytorch
    from gpytorch import kernels

NOISE, VALUE = 0.3, 0.8
KERNELS = {
    "ard": lambda: kernels.ScaleKernel(kernels.RBFKernel(ard_num_dims=2)),
    "matern": lambda: kernels.ScaleKernel(kernels.MaternKernel(1.5)),
    "sum": lambda: kernels.ScaleKernel(kernels.RBFKernel(active_dims=[1])) + kernels.LinearKernel(),
    "product": lambda: kernels.RQKernel() * kernels.PeriodicKernel(),
}


def _data(num_rows=25, num_inputs=2):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, num_inputs, generator=generator)
    return x, x.sin().sum(-1) + 0.1 * torch.randn(num_rows, generator=generator)


def _model(kernel=None, **settings):
    kernel = kernels.ScaleKernel(kernels.RBFKernel()) if kernel is None else kernel
    return bz.models.gaussian_process(kernel, bz.likelihoods.gaussian(NOISE), **settings)


def _at_values(density):
    return density.unconstrain({site.name: torch.full(site.shape, VALUE) for site in density.sites})


def _theirs(kernel, x, y):
    for _, parameter, constraint in kernel.named_parameters_and_constraints():
        parameter.data = constraint.inverse_transform(torch.full(parameter.shape, VALUE))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = NOISE**2

    class Exact(gpytorch.models.ExactGP):
        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(torch.zeros(len(x)), kernel(x))

    return Exact(x, y, likelihood), likelihood


@pytest.mark.filterwarnings("ignore:A not p.d., added jitter")  # of gpytorch, about 1e-8 of its own
@pytest.mark.parametrize("name", KERNELS)
def test_agrees_with_gpytorch_at_fixed_hyperparameters(name):
    (x, y), new = _data(), torch.randn(6, 2, generator=torch.Generator().manual_seed(1))
    density = build_density(_model(KERNELS[name]()), x, y)
    theta = _at_values(density)
    process, likelihood = _theirs(KERNELS[name]().double(), x, y)
    process.train()
    evidence = gpytorch.ExactMarginalLogLikelihood(likelihood, process)(process(x), y) * len(y)
    torch.testing.assert_close(density.log_likelihood(theta, x, y).sum(), evidence.detach(), rtol=0, atol=1e-6)
    process.eval()
    expected = process(new)
    nodes = predictive_density(density, "new").nodes(theta, new)
    torch.testing.assert_close(nodes["f"]["fn"].loc, expected.mean.detach(), rtol=0, atol=1e-6)
    torch.testing.assert_close(
        nodes["f"]["fn"].covariance_matrix, expected.covariance_matrix.detach(), rtol=0, atol=1e-6
    )
    integrated = nodes["y"]["fn"].integrated
    torch.testing.assert_close(integrated.scale**2, expected.variance.detach() + NOISE**2, rtol=0, atol=1e-6)


def test_log_density_of_a_training_row_leaves_it_out():
    x, y = _data(8)
    density = build_density(_model(), x, y)
    theta = _at_values(density)
    found = predictive_density(density, "training").log_likelihood(theta, x, y)
    for row in range(8):
        others = torch.arange(8) != row
        without = build_density(density.model, x[others], y[others])
        alone = predictive_density(without, "new").log_likelihood(theta, x[row : row + 1], y[row : row + 1])
        torch.testing.assert_close(found[row : row + 1], alone)


def test_draws_of_the_tree_have_the_moments_of_the_process():
    x, y = _data(20, 1)
    model, new = _model(kernels.RBFKernel()), torch.linspace(-3, 3, 5)[:, None]
    posterior = bz.fit(model, bz.MAP(num_steps=50), x, y, progress=False)
    tree = bz.predict(posterior, new, torch.zeros(5), num_draws=4000)
    fn = predictive_density(posterior.density, "new").nodes(posterior.theta[0, 0], new)["f"]["fn"]
    drawn = tree["conditional"]["mean"].to_numpy()[0]
    spread = fn.covariance_matrix.diagonal().detach().sqrt().numpy()
    assert (abs(drawn.mean(0) - fn.loc.detach().numpy()) < 4 * spread / math.sqrt(4000)).all()
    np.testing.assert_allclose(drawn.std(0), spread, rtol=0.06)  # 5 standard errors, 1 / sqrt(2 * 4000) each
    parts = bz.uncertainty.decompose(tree)
    np.testing.assert_allclose(parts["aleatoric"], NOISE**2, rtol=1e-9)
    np.testing.assert_allclose(parts["epistemic"], spread**2, rtol=0.12)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(bz.NUTS(num_chains=2, num_warmup=30, num_draws=50), marks=pytest.mark.slow),
        bz.MeanFieldVI(num_steps=30),
        bz.Laplace(),
        bz.MAP(num_steps=30),
    ],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")  # so few draws are bound to
def test_every_method_takes_it_and_gives_a_network_s_tree(method):
    x, y = _data(12)
    posterior = bz.fit(_model(_ard_kernel()), method, x, y, progress=False)
    train = bz.posterior_predictive(posterior, x, y, num_draws=50)
    test = bz.predict(posterior, x[:3], y[:3], num_draws=20)
    assert set(train["posterior"]) == {"kernel.outputscale", "kernel.base_kernel.lengthscale"}
    assert train["posterior"]["kernel.base_kernel.lengthscale"].shape[2:] == (2,)
    assert test["conditional"]["mean"].dims == ("chain", "draw", "obs_id")
    assert float(test["conditional"]["mean"].std("draw").min()) > 0
    assert {"predictions", "predictions_log_likelihood", "conditional"} <= set(test.children)
    assert test.attrs["linearized"] == "no"
    if not isinstance(method, bz.MAP):  # whose one point has one log density, and no weights to smooth
        assert np.isfinite(az.loo(train, var_name="y").elpd)


def _ard_kernel():
    return kernels.ScaleKernel(kernels.RBFKernel(ard_num_dims=2))


def test_registered_priors_and_fixed_hyperparameters_are_kept():
    kernel = kernels.ScaleKernel(kernels.RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(3.0, 6.0)))
    kernel.raw_outputscale.requires_grad_(False)
    density = build_density(_model(kernel), *_data())
    (site,) = density.sites
    assert site.name == "kernel.base_kernel.lengthscale" and site.shape == ()
    value = torch.tensor(0.7)
    found = density.log_prior(density.unconstrain({site.name: value}))
    torch.testing.assert_close(found, dist.Gamma(3.0, 6.0).log_prob(value) + value.log())


def test_bounded_hyperparameters_and_the_mean_have_priors_on_their_support():
    kernel = kernels.RBFKernel(lengthscale_constraint=gpytorch.constraints.Interval(0.2, 0.9))
    model = bz.models.gaussian_process(kernel, mean=dist.Normal(0.0, 2.0))
    density = build_density(model, *_data())
    assert [site.name for site in density.sites] == ["kernel.lengthscale", "sigma", "mean"]
    lengths = bz.prior_predictive(model, *_data(), num_draws=200)["prior"]["kernel.lengthscale"]
    assert float(lengths.min()) > 0.2 and float(lengths.max()) < 0.9


def test_prior_predictive_does_not_depend_on_the_observations():
    x, y = _data()
    first, second = (
        bz.prior_predictive(_model(), x, shift + y, num_draws=20)["prior_predictive"]["y"] for shift in (0, 50)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_row_and_single_precision(dtype):
    x, y = (v.to(dtype) for v in _data(1))
    posterior = bz.fit(_model(), bz.MAP(num_steps=20), x, y, dtype=dtype, progress=False)
    tree = bz.predict(posterior, torch.randn(40, 2), num_draws=10)
    assert np.isfinite(tree["predictions"]["y"]).all()


def test_sparse_form_with_all_inputs_as_inducing_points_is_the_exact_one():
    x, y = _data(10)
    exact, sparse = _model(), _model(inducing=x)
    density, other = build_density(exact, x, y), build_density(sparse, x, y)
    values = {site.name: torch.full(site.shape, VALUE) for site in density.sites}

    def evidence_terms(v):
        theta = other.unconstrain({**values, "inducing": v})
        return other.log_likelihood(theta, x, y).sum() - 0.5 * v.square().sum()

    # log p(y, v) is quadratic in v, so its integral has a closed form
    hessian = -torch.func.hessian(evidence_terms)(torch.zeros(10))
    gradient = torch.func.grad(evidence_terms)(torch.zeros(10))
    step = torch.linalg.solve(hessian, gradient)
    found = evidence_terms(torch.zeros(10)) + 0.5 * gradient @ step - 0.5 * torch.logdet(hessian)
    expected = density.log_likelihood(density.unconstrain(values), x, y).sum()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_sparse_form_takes_mini_batches_of_many_rows():
    x, y = _data(2500, 1)
    points = bz.models.inducing_points(x, 8)
    model = _model(inducing=points)
    posterior = bz.fit(model, bz.MeanFieldVI(num_steps=20, batch_size=100), x, y, progress=False)
    assert bz.predict(posterior, x[:4], num_draws=5)["predictions"]["y"].shape == (1, 5, 4)


def test_save_and_load(tmp_path):
    x, y = _data(10)
    model = _model()
    posterior = bz.fit(model, bz.MAP(num_steps=20), x, y, progress=False)
    posterior.save(tmp_path / "process")
    loaded = bz.load(tmp_path / "process", model, x, y)
    trees = [bz.predict(each, x[:3], num_draws=10) for each in (posterior, loaded)]
    np.testing.assert_array_equal(*(tree["conditional"]["mean"] for tree in trees))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "rbf"}, "kernel must be a kernel of gpytorch"),
        ({"kernel": kernels.RBFKernel(batch_shape=torch.Size([2]))}, "leave batch_shape= out"),
        ({"likelihood": bz.likelihoods.poisson()}, "integrates out in closed form under Gaussian noise alone"),
        ({"mean": "zero"}, "mean must be a number or a Pyro distribution"),
        ({"mean": dist.Normal(torch.zeros(2), 1.0)}, "must be one scalar distribution"),
        ({"inducing": torch.zeros(3)}, r"of shape \[N, inputs\]"),
    ],
)
def test_arguments_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        bz.models.gaussian_process(**{"kernel": kernels.RBFKernel(), **arguments})


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(4), torch.zeros(4), r"Write x\[:, None\]"),
        (torch.zeros(4, 1), torch.zeros(4, 2), "fit one process to each column of y"),
        (torch.zeros(4, 1), torch.zeros(4, 1), r"write y\[:, 0\]"),
        (torch.zeros(2001, 1), torch.zeros(2001), "takes up to 2000 rows"),
    ],
)
def test_data_are_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        _model()(x, y)


def test_inducing_points_are_refused():
    with pytest.raises(ValueError, match="a whole number from 1 to 3"):
        bz.models.inducing_points(torch.arange(3.0)[:, None], 4)
    with pytest.raises(ValueError, match="x has 2 columns, but the inducing points have 1"):
        _model(inducing=torch.zeros(3, 1))(*_data())


def test_mini_batches_and_linearised_predictions_are_refused():
    x, y = _data(10)
    with pytest.raises(ValueError, match="rows of this model depend on one another"):
        bz.fit(_model(), bz.MAP(num_steps=5, batch_size=5), x, y, progress=False)
    with pytest.raises(ValueError, match="rows of this model depend on one another"):
        bz.fit(_model(), bz.SGHMC(num_chains=1, num_warmup=5, num_draws=5, batch_size=5), x, y, progress=False)
    posterior = bz.fit(_model(), bz.MAP(num_steps=5), x, y, progress=False)
    with pytest.raises(ValueError, match="this model draws a function"):
        bz.predict(posterior, x, linearized=True)


def test_rows_of_a_function_are_drawn_together_or_refused(tmp_path):
    x, y = _data(12, 1)
    posterior = bz.fit(_model(), bz.MAP(num_steps=5), x, y, progress=False)
    new = torch.linspace(-8, 8, 600)[:, None]
    whole = bz.predict(posterior, new, num_draws=3)["conditional"]["mean"]
    assert float(abs(whole.diff("obs_id")).max()) < 0.2  # blocks of rows would make it jump by standard deviations
    np.testing.assert_array_equal(bz.predict(posterior, new, num_draws=3, chunk_size=7)["conditional"]["mean"], whole)
    with pytest.raises(ValueError, match="draws one function jointly for all of them: leave store= out"):
        bz.predict(posterior, new, num_draws=3, store=tmp_path / "run.zarr")
    with pytest.raises(ValueError, match="call the measure on the tree of predict"):
        bz.measure_predictions(posterior, bz.uncertainty.decompose, new, num_draws=3)
    assert not list(tmp_path.iterdir())


def test_without_gpytorch(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'bnnzoo\[gp\]'"):
        bz.models.gaussian_process(kernels.RBFKernel())


class _ArcCosine(kernels.Kernel):
    """Of a network with one hidden layer of H rectified linear units (Cho and Saul 2009), and its output's bias."""

    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, x1, x2, diag=False, **_):
        a, b = (torch.cat([x, torch.ones_like(x[..., :1])], -1) for x in (x1, x2))
        lengths = (a.norm(dim=-1)[..., :, None], b.norm(dim=-1)[..., None, :])
        cosine = (a @ b.mT / (lengths[0] * lengths[1])).clamp(-1, 1)
        angle = torch.arccos(cosine)
        found = lengths[0] * lengths[1] * (angle.sin() + (torch.pi - angle) * cosine) / (2 * torch.pi) + 1 / self.width
        return found.diagonal(dim1=-2, dim2=-1) if diag else found


@pytest.mark.slow
def test_a_wide_network_has_the_same_posterior_of_functions():
    width, generator = 128, torch.Generator().manual_seed(1)
    x = torch.linspace(-2, 2, 8)[:, None]
    y, new = torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(8, generator=generator), torch.linspace(-3, 3, 13)[:, None]
    likelihood = bz.likelihoods.gaussian(dist.LogNormal(-1.5, 0.3))
    process = bz.models.gaussian_process(_ArcCosine(width), likelihood)

    def prior(site, parameter, fan_in):
        return dist.Normal(torch.zeros(parameter.shape), fan_in**-0.5).to_event(parameter.ndim)

    network = bz.models.supervised(bz.models.mlp(1, (width,), activation="relu"), prior, likelihood)
    trees = {}
    for name, model, draws in (("process", process, 1000), ("network", network, 500)):
        posterior = bz.fit(model, bz.NUTS(num_chains=4, num_warmup=300, num_draws=draws), x, y, seed=2, progress=False)
        trees[name] = bz.predict(posterior, new)
    values = {name: tree["conditional"]["mean"] for name, tree in trees.items()}
    summaries = {name: az.summary(v, kind="all", round_to="none") for name, v in values.items()}
    assert min(float(s["ess_bulk"].min()) for s in summaries.values()) > 300
    error = np.hypot(summaries["process"]["mcse_mean"], summaries["network"]["mcse_mean"])
    deviates = (summaries["network"]["mean"] - summaries["process"]["mean"]) / error
    ratio = summaries["network"]["sd"] / summaries["process"]["sd"]
    print(f"mean: largest deviate {abs(deviates).max():.2f}; sd ratio {ratio.min():.3f} to {ratio.max():.3f}")
    assert abs(deviates).max() < 4
    spread = np.hypot(*(s["mcse_sd"] / s["sd"] for s in summaries.values()))
    assert (abs(ratio - 1) < 4 * spread).all()
