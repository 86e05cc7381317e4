"""Terms of formulas: splines, processes, networks, groups and covariates with gaps."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch
from scipy.integrate import quad
from scipy.interpolate import CubicSpline
from scipy.stats import kstest

import bnnzoo as bz
from bnnzoo.core.data.arguments import positional
from bnnzoo.core.data.minibatch import as_tensors
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.model.prior_terms import log_jacobian
from bnnzoo.models.formula.groups import at_levels, noise_of_draw
from bnnzoo.models.formula.smooths import root_spectral_density
from tests.models.formula.frames import kinds_of_columns

CPU = torch.device("cpu")


def density_of(model: Any, frame: Any) -> LogDensity:
    data = as_tensors(positional(model, (frame,), {}), torch.float64, CPU)
    return build_density(model, *data, dtype=torch.float64)


def test_splines_span_natural_cubic_splines_and_continue_as_lines() -> None:
    frame = kinds_of_columns()
    (encoder,) = [each for each in bz.formula("y ~ s(z, k=6)", frame).encoders if hasattr(each, "knots")]
    columns = np.asarray(encoder.arguments(frame, new=False)["s_z"])
    assert columns.shape == (60, 5)
    knots = np.array(encoder.knots)
    values = np.random.default_rng(0).normal(size=6)
    curve = CubicSpline(knots, values, bc_type="natural")(frame.z)
    residual = np.linalg.lstsq(np.column_stack([np.ones(60), columns]), curve, rcond=None)[1]
    assert float(residual[0]) < 1e-20
    far = encoder.arguments(pd.DataFrame({"z": [10.0, 11.0, 12.0, -5.0, -6.0, -7.0]}), new=True)["s_z"].to_numpy()
    np.testing.assert_allclose(np.diff(far[:3], 2, axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(np.diff(far[3:], 2, axis=0), 0.0, atol=1e-10)


def test_the_penalty_of_a_spline_is_its_integrated_curvature() -> None:
    frame = kinds_of_columns()
    (encoder,) = [each for each in bz.formula("y ~ s(z, k=6)", frame).encoders if hasattr(each, "knots")]
    knots, rotation = np.array(encoder.knots), encoder.rotation
    u, v = np.random.default_rng(1).normal(size=(2, 4))
    first, second = (CubicSpline(knots, rotation @ each, bc_type="natural") for each in (u, v))
    ratio = [
        sum(quad(lambda t, f=f, g=g: float(f(t, 2) * g(t, 2)), a, b)[0] for a, b in pairwise(knots))
        for f, g in ((first, first), (first, second))
    ]
    assert ratio[1] / ratio[0] == pytest.approx(float(u @ v) / float(u @ u), rel=1e-6)
    columns = np.asarray(encoder.arguments(frame, new=False)["s_z"])[:, 1:]
    assert (columns**2).sum(1).mean() == pytest.approx(1.0)  # the prior standard deviation of the wiggly part is sds


def test_eigenfunctions_have_the_covariance_of_the_kernel() -> None:
    frame = pd.DataFrame({"z": np.linspace(0.0, 10.0, 30), "y": np.arange(30.0)})
    (encoder,) = [each for each in bz.formula("y ~ gp(z, k=60)", frame).encoders if hasattr(each, "half_width")]
    basis = torch.tensor(np.asarray(encoder.arguments(frame, new=False)["gp_z"]))
    one = torch.tensor(1.0, dtype=torch.float64)
    root = root_spectral_density(2 * one, 1.2 * one, 60, encoder.half_width)
    z = torch.tensor(frame.z.to_numpy())
    exact = 4 * torch.exp(-0.5 * ((z[:, None] - z) / 1.2) ** 2)
    assert float(((basis * root) @ (basis * root).mT - exact).abs().max()) < 0.01


def test_networks_are_orthogonal_to_the_linear_effects_of_their_inputs() -> None:
    frame = kinds_of_columns()
    model = bz.formula("y ~ x + z + nn(x, z)", frame)
    density = density_of(model, frame)
    theta = density.init(1, 3)[0]
    others = dict(density.constrain(theta))
    others["sdnn_x,z"] = torch.zeros(())
    fitted, without = (
        density.conditional(t, *density.data)["mean"] for t in (theta, density.unconstrain(others_of(others)))
    )
    part = (fitted - without).numpy()
    design = np.column_stack([np.ones(60), frame.x, frame.z])
    assert np.abs(part).max() > 0.1
    np.testing.assert_allclose(np.linalg.lstsq(design, part, rcond=None)[0], 0.0, atol=1e-9)


def others_of(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.clamp(min=1e-300) if name.startswith("sdnn") else value for name, value in values.items()}


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_noise_of_a_draw_is_standard_normal_in_any_unit_and_shared_by_rows_of_a_level(unit: float) -> None:
    generator = torch.Generator().manual_seed(0)
    values = unit * torch.randn(4000, 7, dtype=torch.float64, generator=generator)
    found = torch.vmap(lambda v: noise_of_draw(v, torch.tensor([1, 4_000_000_000, 1]), 2))(values).numpy()
    np.testing.assert_array_equal(found[:, 0], found[:, 2])
    flat = found[:, :2].reshape(4000, 4)
    for column in flat.T:
        assert kstest(column, "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(flat.T) - np.eye(4)).max() < 4 / np.sqrt(4000)
    assert np.abs(np.corrcoef(flat.T, values.T.numpy())[:4, 4:]).max() < 4.5 / np.sqrt(4000)


def test_a_new_level_has_the_same_effect_in_every_call() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"g": np.repeat(np.arange(12), 5), "x": rng.normal(size=60)})
    frame["y"] = rng.normal(0.0, 3.0, 12)[frame.g] + frame.x + rng.normal(size=60)
    posterior = bz.fit(bz.formula("y ~ x + (x | g)", frame, new_levels="draw"), bz.Laplace(), frame, progress=False)

    def means(**columns: list[Any]) -> np.ndarray:
        return bz.predict(posterior, columns, num_draws=200)["conditional"]["mean"].to_numpy()[0]

    both, alone = means(g=["north", "south"], x=[1.0, 1.0]), means(g=["south"], x=[1.0])
    np.testing.assert_allclose(both[:, 1], alone[:, 0], rtol=1e-5)
    assert np.abs(both[:, 0] - both[:, 1]).mean() > 1.0


def test_linearised_predictions_of_new_levels_have_the_spread_of_the_group() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"g": np.repeat(np.arange(20), 6), "x": rng.normal(size=120)})
    frame["y"] = rng.normal(0.0, 3.0, 20)[frame.g] + np.sin(frame.x) + rng.normal(size=120)
    posterior = bz.fit(
        bz.formula("y ~ nn(x, hidden=(3,)) + (1 | g)", frame, new_levels="draw"), bz.Laplace(), frame, progress=False
    )
    tree = bz.predict(posterior, {"g": ["north", "south", "3"], "x": [0.0, 0.0, 0.0]}, num_draws=1000)
    assert tree.attrs["linearized"] == "yes"
    mean = tree["conditional"]["mean"].to_numpy().reshape(-1, 3)
    spread = float(posterior.density.constrain(posterior.loc)["sd_g"])
    np.testing.assert_allclose(mean[:, :2].std(0), spread, rtol=0.15)
    assert mean[:, 2].std() < 0.3 * spread and abs(np.corrcoef(mean[:, 0], mean[:, 1])[0, 1]) < 0.15


def test_effects_of_new_levels_have_the_covariance_of_the_known_ones() -> None:
    values, root = (
        torch.randn(8000, 5, 2, dtype=torch.float64),
        torch.tensor([[2.0, 0.0], [-1.0, 0.5]], dtype=torch.float64),
    )
    codes, new = torch.tensor([3, 0]), torch.tensor([0, 1])
    found = torch.vmap(lambda v: at_levels(v, codes, new, root))(values)
    torch.testing.assert_close(found[:, 0], values[:, 3])
    np.testing.assert_allclose(np.cov(found[:, 1].T.numpy()), (root @ root.mT).numpy(), atol=0.25)


@pytest.mark.slow
def test_new_levels_are_predicted_with_the_spread_of_the_group() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"g": np.repeat(np.arange(30), 5)})
    frame["y"] = rng.normal(0.0, 3.0, 30)[frame.g] + rng.normal(0.0, 2.0, 150)
    model = bz.formula("y ~ 1 + (1 | g)", frame, new_levels="draw")
    posterior = bz.fit(model, bz.NUTS(num_chains=4, num_warmup=500, num_draws=1000), frame, progress=False)
    tree = bz.predict(posterior, {"g": [500, 501, 500, 3]})
    mean = tree["conditional"]["mean"].to_numpy().reshape(-1, 4)
    sd = float(tree["posterior"]["sd_g"].mean())
    np.testing.assert_array_equal(mean[:, 0], mean[:, 2])
    assert mean[:, :2].std(0) == pytest.approx(sd, rel=0.15) and mean[:, 3].std() < 1.2
    assert abs(np.corrcoef(mean[:, 0], mean[:, 1])[0, 1]) < 0.15


def test_a_covariate_with_gaps_has_the_density_of_the_model_written_by_hand() -> None:
    frame = kinds_of_columns()
    density = density_of(bz.formula(["y ~ mi(gaps) + z", "gaps ~ z"], frame), frame)
    seen = torch.tensor(frame.gaps.notna().to_numpy())
    centre, spread = float(frame.gaps.mean()), float(frame.gaps.std())
    z = torch.tensor((frame.z - frame.z.mean()).to_numpy())
    y, sd, sd_z = torch.tensor(frame.y.to_numpy()), float(frame.y.std()), float(frame.z.std())
    x = torch.tensor(frame.gaps.fillna(0.0).to_numpy()) - centre

    def log_joint(v: dict[str, torch.Tensor]) -> torch.Tensor:
        mean = v["gaps_Intercept_c"] + v["b_gaps_z"] * z
        full = x.clone()
        full[~seen] = mean[~seen] + v["sigma_gaps"] * v["zmi_gaps"]
        fitted = v["Intercept_c"] + v["b_z"] * z + v["b_mi(gaps)"] * full
        return (
            dist.Normal(0.0, 2.5 * spread / sd_z).log_prob(v["b_gaps_z"])
            + dist.StudentT(3.0, 0.0, 2.5 * spread).log_prob(v["gaps_Intercept_c"])
            + dist.Exponential(1 / spread).log_prob(v["sigma_gaps"])
            + dist.Normal(0.0, 1.0).log_prob(v["zmi_gaps"]).sum()
            + dist.Normal(mean, v["sigma_gaps"]).log_prob(x)[seen].sum()
            + dist.Normal(0.0, 2.5 * sd / sd_z).log_prob(v["b_z"])
            + dist.Normal(0.0, 2.5 * sd / spread).log_prob(v["b_mi(gaps)"])
            + dist.StudentT(3.0, float(frame.y.median()), 2.5 * sd).log_prob(v["Intercept_c"])
            + dist.Exponential(1 / sd).log_prob(v["sigma"])
            + dist.Normal(fitted, v["sigma"]).log_prob(y).sum()
        )

    for theta in density.init(3, 1):
        ours = density.log_joint(theta, *density.data) - log_jacobian(density, theta)
        assert abs(ours - log_joint(density.constrain(theta))) < 2e-3 * len(density.sites)
        nodes = density.nodes(theta, *density.data)
        v = density.constrain(theta)
        mean = v["gaps_Intercept_c"] + v["b_gaps_z"] * z
        torch.testing.assert_close(nodes["mi_gaps"]["value"], centre + mean[~seen] + v["sigma_gaps"] * v["zmi_gaps"])


@pytest.mark.slow
def test_gaps_in_new_rows_are_drawn_from_the_covariates_own_formula() -> None:
    frame = kinds_of_columns(200)
    model = bz.formula(["y ~ mi(gaps) + z", "gaps ~ z"], frame)
    posterior = bz.fit(model, bz.NUTS(num_chains=4, num_warmup=500, num_draws=1000), frame, progress=False)
    tree = bz.predict(posterior, {"gaps": [np.nan, 10.0], "z": [2.0, 2.0]})
    mean = tree["conditional"]["mean"].to_numpy().reshape(-1, 2)
    group = tree["posterior"]
    expected = float((abs(group["b_mi(gaps)"]) * group["sigma_gaps"]).mean())
    assert mean[:, 0].std() == pytest.approx(expected, rel=0.15) and mean[:, 1].std() < 0.5
