"""Laplace over some sites, against the blocks of the dense one."""

import pytest
import torch

from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference import (
    MAP,
    Laplace,
    LastLayerLaplace,
    SubsetLaplace,
    fit,
    log_marginal_likelihood,
)
from bnnzoo.inference.laplace.family import LaplaceError
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.predictive import predict
from bnnzoo.testing.targets import linear_gaussian

SHORT = MAP(num_steps=300)
X, Y = torch.randn(30, 2, generator=torch.Generator().manual_seed(1)), torch.randint(3, (30,))
NETWORK = supervised(mlp(2, (4,), 3), priors.normal(1.0), likelihoods.categorical())


def test_last_layer_equals_the_dense_one_restricted() -> None:
    dense = fit(NETWORK, Laplace(SHORT), X, Y)
    last = fit(NETWORK, LastLayerLaplace(SHORT), X, Y)
    index = last.covariance.index
    sites = [site.name for site in dense.density.sites if site.span.start in index]
    assert sites == ["net.2.weight", "net.2.bias"]
    precision = torch.linalg.inv(dense.covariance.dense())[index[:, None], index]
    torch.testing.assert_close(last.covariance.covariance.dense(), torch.linalg.inv(precision), rtol=1e-6, atol=1e-6)
    drawn = last.draws(5)
    others = torch.ones(dense.density.num_params, dtype=torch.bool)
    others[index] = False
    torch.testing.assert_close(drawn[0, :, others], last.loc[others].expand(5, -1))


def test_linearised_and_network_predictions_agree_for_a_last_layer() -> None:
    last = fit(NETWORK, LastLayerLaplace(SHORT), X, Y)
    line, network = (
        predict(last, X, num_draws=10, linearized=wanted)["conditional"]["probs"] for wanted in (True, False)
    )
    torch.testing.assert_close(torch.from_numpy(line.to_numpy()), torch.from_numpy(network.to_numpy()))


def test_noise_scale_varies_with_the_last_layer() -> None:
    model = supervised(mlp(2, (4,), 1), priors.normal(1.0), likelihoods.gaussian())
    posterior = fit(model, LastLayerLaplace(SHORT), X, X[:, 0].clone())
    draws = posterior.density.constrain(posterior.draws(5))
    assert draws["sigma"].std() > 0
    assert draws["net.0.weight"].std(1).max() == 0


def test_subset_of_sites_by_name_and_prefix() -> None:
    posterior = fit(NETWORK, SubsetLaplace(("net.0.*",), SHORT), X, Y)
    assert posterior.covariance.rank == 4 * 2 + 4
    target = linear_gaussian()
    whole = fit(target.model, SubsetLaplace(("w",)), *target.data)
    torch.testing.assert_close(whole.covariance.dense(), target.covariance, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(log_marginal_likelihood(whole), target.log_evidence, rtol=1e-6, atol=1e-6)
    layer = supervised(torch.nn.Linear(3, 1, bias=False), priors.normal(1.0), likelihoods.gaussian(scale=target.noise))
    single = fit(layer, LastLayerLaplace(), *target.data)
    torch.testing.assert_close(single.covariance.dense(), target.covariance, rtol=1e-6, atol=1e-6)


def test_refusals() -> None:
    with pytest.raises(
        ModelError, match=r"sites='net.9.\*' fits no latent site of the model \(latent sites: net.0.weight"
    ):
        fit(NETWORK, SubsetLaplace(("net.9.*",), SHORT), X, Y)
    target = linear_gaussian()
    with pytest.raises(ModelError, match=r"LastLayerLaplace needs the layers of a network.*or use Laplace"):
        fit(target.model, LastLayerLaplace(), *target.data)
    with pytest.raises(LaplaceError, match=r"3 parameters needs 288 bytes"):
        fit(target.model, SubsetLaplace(("w",), max_bytes=100), *target.data)
