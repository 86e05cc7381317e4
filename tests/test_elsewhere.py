"""Everything works on another device: tests/elsewhere has one for machines without an accelerator.

A whole GPU run of the conformance suite is ``pytest tests/test_conformance.py --device=cuda``.
"""

import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.predictive import features, function_moments, marginal_predictive
from bnnzoo.testing import check_method, check_model
from tests.elsewhere import register_elsewhere
from tests.helpers.methods import ACCURACY, AS_GOOD_AS_EXACT, METHODS, TARGETS, method_named
from tests.helpers.oracle import Oracle

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::bnnzoo.engine.torch_private.LoweringWarning"),  # no compiler knows that device
    # results of operations borrowed from the CPU begin without a shape
    pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning"),
]

X = torch.randn(30, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X[:, 0] + 0.1 * torch.randn(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
IMAGES = torch.randn(30, 1, 6, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def regression(prior=None):
    return supervised(mlp(3, (4,)), prior or priors.normal(), likelihoods.gaussian(scale=0.1))


def convolutional():
    layers = torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32, 3)
    return supervised(torch.nn.Sequential(*layers), priors.normal(), likelihoods.categorical())


def plain(x, y=None):
    """A model with transforms of every kind, and tensors of its own."""
    tau = pyro.sample("tau", dist.HalfCauchy(1.0))
    with pyro.plate("inputs", 3):
        slope = pyro.sample("slope", dist.Normal(torch.zeros(()), tau))
    share = pyro.sample("share", dist.Dirichlet(torch.ones(3)))
    factor = pyro.sample("factor", dist.LKJCholesky(2, 1.0))
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(x @ (slope + share) + factor[1, 0], 1.0), obs=y)


def untraceable(x, y=None):
    w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    scale = 1.0 if w.detach()[0].item() > 100 else 2.0
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(x @ w, scale), obs=y)


@pytest.fixture(scope="module")
def elsewhere() -> torch.device:
    return register_elsewhere()


def test_tensors_on_two_devices_are_refused(elsewhere):
    here, there = torch.ones(3), torch.ones(3, device=elsewhere)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        here + there
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.cat([here, there])
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device"):
        here[torch.arange(2, device=elsewhere)]


def test_generators_of_the_cpu_are_refused(elsewhere):
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(RuntimeError, match="Expected a 'elsewhere' device type for generator but found 'cpu'"):
        torch.randn(3, generator=generator, device=elsewhere)
    with pytest.raises(RuntimeError, match="Expected a 'elsewhere' device type for generator but found 'cpu'"):
        torch.ones(3, device=elsewhere).multinomial(1, generator=generator)


def test_torchs_default_device_is_that_of_a_fit_and_of_nothing_else_inside(elsewhere):
    method = bz.MeanFieldVI(num_steps=5, num_averaged=1)
    expected = bz.fit(plain, method, X, Y, progress=False, device=elsewhere)
    with elsewhere:
        posterior = bz.fit(plain, method, X.to(elsewhere), Y.tolist(), dtype=torch.float64, progress=False)
        tree = bz.posterior_predictive(posterior, X, Y, num_draws=5)
        assert torch.get_default_device().type == "elsewhere"
    assert posterior.loc.device.type == "elsewhere"
    torch.testing.assert_close(posterior.loc.cpu(), expected.loc.cpu())
    xr.testing.assert_allclose(tree, bz.posterior_predictive(expected, X, Y, num_draws=5))


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # as short runs may
@pytest.mark.parametrize("name", METHODS)
def test_method_keeps_its_promises(name, elsewhere):
    accuracy = ACCURACY.get(name, AS_GOOD_AS_EXACT)
    check_method(method_named(name), accuracy=accuracy, device=elsewhere, target=TARGETS.get(name))


def test_draws_in_the_wrong_place_are_seen(elsewhere):
    with pytest.raises(AssertionError, match="Oracle: draws are on cpu, not on elsewhere"):
        check_method(Oracle(), device=elsewhere)


def test_a_model_that_makes_tensors_in_the_wrong_place_is_seen(elsewhere):
    def model(x, y):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w + torch.ones(len(x), device="cpu"), 1.0), obs=y)

    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        check_model(model, X, Y, device=elsewhere)


MODELS = {
    "layerwise": (regression(priors.layerwise()), (X, Y)),
    "ard": (regression(priors.ard(priors.gamma_precision(0.5, 0.1))), (X, Y)),
    "horseshoe": (supervised(mlp(3, (4,)), priors.horseshoe(), likelihoods.student_t()), (X, Y)),
    "student-t": (supervised(mlp(3, (4,)), priors.student_t(), likelihoods.laplace()), (X, Y)),
    "scales": (supervised(mlp(3, (4,), 2), priors.fan_in(), likelihoods.heteroscedastic_gaussian()), (X, Y)),
    "widths": (supervised(mlp(3, (4,), 2), priors.laplace(), likelihoods.heteroscedastic_laplace()), (X, Y)),
    "classes": (supervised(mlp(3, (4,), 3), priors.normal(), likelihoods.categorical()), (X, LABELS)),
    "two classes": (supervised(mlp(3, (4,)), priors.normal(), likelihoods.bernoulli()), (X, (LABELS > 0).double())),
    "counts": (supervised(mlp(3, (4,)), priors.normal(), likelihoods.poisson()), (X, LABELS.double())),
    "images": (convolutional(), (IMAGES, LABELS)),
    "plain": (plain, (X, Y)),
}


@pytest.mark.parametrize("name", MODELS)
def test_model_has_the_same_density_and_predictions(name, elsewhere):
    model, data = MODELS[name]
    check_model(model, *data, device=elsewhere)
    method = bz.MeanFieldVI(num_steps=5, num_averaged=1)
    here, there = (bz.fit(model, method, *data, progress=False, device=d) for d in ("cpu", elsewhere))
    torch.testing.assert_close(there.loc.cpu(), here.loc)
    found = bz.predict(there, data[0][:5], num_draws=3)
    assert found["predictions"].sizes["obs_id"] == 5
    assert bz.posterior_predictive(there, *data, num_draws=3)["log_likelihood"].sizes["obs_id"] == 30


@pytest.mark.parametrize("kind", ["Laplace", "KFACLaplace", "DiagonalLaplace", "LowRankLaplace", "LastLayerLaplace"])
def test_closed_forms_are_the_same(kind, elsewhere):
    here, there = (
        bz.fit(regression(), getattr(bz, kind)(), X, Y, progress=False, device=d) for d in ("cpu", elsewhere)
    )
    close = 1e-3  # in units of the posterior's: a climb ends 1e-4 of them from the mode
    (mean, covariance), (m, c) = function_moments(here, X[:5]), function_moments(there, X[:5])
    sd = covariance.reshape(5, 5).diagonal().sqrt()
    assert ((m.cpu() - mean)[:, 0].abs() < close * sd).all()
    assert ((c.cpu() - covariance).reshape(5, 5).abs() < close * sd.outer(sd)).all()
    expected, found = (marginal_predictive(posterior, X[:5])["marginal"].dataset for posterior in (here, there))
    xr.testing.assert_allclose(found, expected, rtol=close, atol=close * float(sd.min()))
    xr.testing.assert_allclose(features(there, X[:5], num_draws=1), features(there, X[:5].to(elsewhere), num_draws=1))


def test_scales_are_climbed_elsewhere(elsewhere):
    posterior = bz.fit(regression(priors.layerwise()), bz.HierarchicalLaplace(), X, Y, progress=False, device=elsewhere)
    assert posterior.draws(5).device.type == elsewhere.type
    assert bz.predict(posterior, X[:5], num_draws=3)["predictions"].sizes["obs_id"] == 5


TINY = {"num_chains": 2, "num_warmup": 12, "num_draws": 4}


@pytest.mark.parametrize("kind", ["NUTS", "MAMS", "MCLMC"])
def test_a_run_is_resumed_there(kind, elsewhere, tmp_path):
    method, store = getattr(bz, kind)(**TINY), tmp_path / "run.zarr"
    whole = bz.fit(regression(), method, X, Y, progress=False, device=elsewhere)
    first, again = (
        bz.fit(regression(), method, X, Y, progress=False, device=elsewhere, checkpoint=store) for _ in range(2)
    )
    assert torch.equal(first.draws(), whole.draws())
    assert torch.equal(again.draws(), whole.draws())


@pytest.mark.parametrize("init", ["method", "posterior", "tensor"])
def test_chains_start_where_they_are_told(init, elsewhere):
    members = bz.MAP(num_members=2, num_steps=20)
    found = bz.fit(regression(), members, X, Y, progress=False, device=elsewhere)
    start = {"method": members, "posterior": found, "tensor": found.draws().flatten(0, 1).cpu()}[init]
    method = bz.NUTS(**TINY, max_tree_depth=3, mass_matrix="dense", init=start)
    draws = bz.fit(regression(), method, X, Y, progress=False, device=elsewhere).draws()
    assert draws.device.type == elsewhere.type and draws.isfinite().all()


@pytest.mark.parametrize("method", [bz.NUTS(**TINY), bz.MAP(num_steps=5), bz.MeanFieldVI(num_steps=5)])
def test_a_model_that_cannot_be_traced_runs_there_too(method, elsewhere):
    posterior = bz.fit(untraceable, method, X, Y, progress=False, device=elsewhere)
    assert posterior.draws().isfinite().all()
    assert bz.predict(posterior, X[:5])["predictions"].sizes["obs_id"] == 5


@pytest.mark.filterwarnings("ignore:The draws of the approximation do not fit")  # after five steps
def test_mini_batches_are_taken_there(elsewhere):
    method = bz.MeanFieldVI(num_steps=5, num_averaged=1, batch_size=10)
    here, there = (bz.fit(regression(), method, X, Y, progress=False, device=d) for d in ("cpu", elsewhere))
    torch.testing.assert_close(there.loc.cpu(), here.loc)
