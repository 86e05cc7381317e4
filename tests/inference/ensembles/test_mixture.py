"""Mixtures of approximations around members: weights against known masses, and what is refused."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.fit_warnings import DegenerateWeightsWarning
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.inference import MAP, NUTS, SWAG, DeepEnsemble, Laplace, MeanFieldVI, MixtureOf, fit
from bnnzoo.inference.ensembles.mixture import log_evidence, overlaps
from bnnzoo.testing import linear_gaussian

TARGET = linear_gaussian()
MASSES = torch.tensor([0.2, 0.8])
LOCS, SCALES = torch.tensor([-4.0, 5.0]), torch.tensor([0.4, 1.0])


def two_masses() -> None:
    """Two Gaussians far apart, of known masses; the model has no data."""
    mixing = dist.Categorical(probs=MASSES)
    pyro.sample("x", dist.MixtureSameFamily(mixing, dist.Normal(LOCS, SCALES)))


def mass_on_the_left(posterior: Mixture) -> float:
    left = torch.tensor([float(each.loc) < 0 for each in posterior.components])
    assert 0 < int(left.sum()) < len(left)  # both modes are among the members, some of them several times
    return float(posterior.weights[left].sum())


@pytest.mark.parametrize("seed", [0, 1])
def test_evidence_weights_of_laplace_approximations_are_the_known_masses(seed: int) -> None:
    start = torch.tensor([[-5.0], [-3.0], [4.0], [3.5], [7.0]])
    method = MixtureOf(Laplace(MAP(init=start), curvature="hessian"), 5, weights="evidence")
    posterior = fit(two_masses, method, seed=seed)
    assert isinstance(posterior, Mixture)
    assert mass_on_the_left(posterior) == pytest.approx(0.2, abs=1e-6)
    found = posterior.draws(1000)[0, :, 0]
    assert float((found < 0).double().mean()) == pytest.approx(0.2, abs=1e-3)
    assert sum(posterior.info.config["member_weights"]) == pytest.approx(1.0)


@pytest.mark.slow
def test_evidence_weights_of_variational_fits_are_the_known_masses() -> None:
    start = torch.tensor([[-5.0], [-3.0], [4.0], [7.0]])
    method = MixtureOf(MeanFieldVI(num_steps=1500), 4, weights="evidence", ensemble=MAP(init=start))
    posterior = fit(two_masses, method)
    assert mass_on_the_left(posterior) == pytest.approx(0.2, abs=0.01)


def test_the_evidence_of_a_component_is_that_of_the_model_where_it_is_exact() -> None:
    posterior = fit(TARGET.model, Laplace(), *TARGET.data)
    assert log_evidence(Laplace(), posterior) == pytest.approx(float(TARGET.log_evidence), abs=1e-6)
    bound = log_evidence(bz.FullRankVI(), posterior)  # the bound of an exact posterior is tight
    assert bound == pytest.approx(float(TARGET.log_evidence), abs=1e-6)


def test_overlap_is_one_for_the_same_component_and_the_bhattacharyya_coefficient_for_others() -> None:
    one = fit(TARGET.model, Laplace(), *TARGET.data)
    shift = torch.tensor([0.3, 0.0, -0.2])
    other = Gaussian(one.density, one.info, one.loc + shift, one.covariance)
    found = overlaps([one, other])
    expected = torch.exp(-shift @ torch.linalg.solve(TARGET.covariance, shift) / 8)
    torch.testing.assert_close(
        found, torch.stack([torch.stack([expected * 0 + 1, expected]), torch.stack([expected, expected * 0 + 1])])
    )


def test_components_that_fix_other_values_do_not_overlap() -> None:
    x, y = TARGET.data
    model = bz.models.supervised(bz.models.mlp(3, (3,)), bz.priors.normal(1.0), bz.likelihoods.gaussian(0.5))
    posterior = fit(model, MixtureOf(bz.LastLayerLaplace(), 2, weights="evidence"), x, y)
    torch.testing.assert_close(overlaps(list(posterior.components)), torch.eye(2))
    assert bz.predict(posterior, x[:3])["conditional"]["mean"].sizes["obs_id"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("method", [Laplace(), MeanFieldVI(num_steps=2000), SWAG(num_steps=100)])
def test_one_component_of_a_unimodal_posterior_is_what_the_method_finds(method) -> None:
    mixture = fit(TARGET.model, MixtureOf(method, 1), *TARGET.data)
    alone = fit(TARGET.model, method, *TARGET.data)
    component = mixture.components[0]
    assert float(((component.loc - alone.loc) / TARGET.sd["w"]).abs().max()) < 0.05
    torch.testing.assert_close(component.covariance.diagonal(), alone.covariance.diagonal(), rtol=0.1, atol=0)


def test_components_stand_at_the_members_of_a_deep_ensemble() -> None:
    x, y = TARGET.data
    model = bz.models.supervised(bz.models.mlp(3, (3,)), bz.priors.normal(1.0), bz.likelihoods.gaussian(0.5))
    ensemble = DeepEnsemble(num_steps=500, learning_rate=0.03)
    posterior = fit(model, MixtureOf(MeanFieldVI(num_steps=200), 3, ensemble=ensemble), x, y, seed=2)
    members = fit(model, DeepEnsemble(3, num_steps=500, learning_rate=0.03), x, y, seed=2).theta[0]
    nearest = [int((members - each.loc).norm(dim=1).argmin()) for each in posterior.components]
    assert nearest == [0, 1, 2]
    assert posterior.log_weights is None


def test_stacking_gives_no_weight_to_a_component_that_predicts_badly() -> None:
    def two_slopes(x: Tensor, y: Tensor | None = None) -> None:
        a = pyro.sample(
            "a", dist.MixtureSameFamily(dist.Categorical(torch.ones(2)), dist.Normal(torch.tensor([-3.0, 3.0]), 0.05))
        )
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(a * x, 2.0), obs=y)

    x = torch.linspace(-1, 1, 40)
    y = 3 * x + 2 * torch.randn(40, generator=torch.Generator().manual_seed(0))
    map_ = MAP(init=torch.tensor([[-3.0], [3.0]]))
    with pytest.warns(
        DegenerateWeightsWarning, match=r"Stacking gives number 1 of 2 members a weight of 0\.9.* larger held_out"
    ):
        posterior = fit(two_slopes, MixtureOf(Laplace(map_, curvature="hessian"), 2, weights="stacking"), x, y)
    assert posterior.density.num_data == 40
    assert float(posterior.weights[1]) > 0.9


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (MixtureOf(Laplace(), 0), r"MixtureOf\(num_members=0\): write 1 or more"),
        (MixtureOf(Laplace(), held_out=0.0), r"MixtureOf\(held_out=0\.0\): write a number between 0 and 1"),
        (
            MixtureOf(SWAG(), weights="evidence"),
            r"is that of gradient noise and says nothing of the evidence\. Write weights=",
        ),
        (MixtureOf(NUTS(num_chains=1, num_warmup=2, num_draws=2)), r"MixtureOf mixes Gaussians, but NUTS gave Draws"),
        (MixtureOf(bz.SVI()), r"MixtureOf\(SVI\(\)\): the method cannot start at a given point"),
        (
            MixtureOf(bz.LastLayerLaplace()),
            r"MixtureOf\(LastLayerLaplace\(\)\) needs the layers of a network.*sites: w\)",
        ),
        (MixtureOf(MixtureOf()), r"MixtureOf\(MixtureOf\(\)\) would be a mixture of mixtures"),
        (
            MixtureOf(Laplace(), ensemble=Laplace()),
            r"MixtureOf\(ensemble=Laplace\(\)\): write MAP\(\) or DeepEnsemble\(\)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_impossible_settings(method: MixtureOf, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fit(TARGET.model, method, *TARGET.data)
