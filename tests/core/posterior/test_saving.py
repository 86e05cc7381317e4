import copy
import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, fields
from importlib.metadata import version

import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from pyro.infer.autoguide import AutoLowRankMultivariateNormal, AutoMultivariateNormal, AutoNormal
from safetensors import safe_open
from safetensors.torch import save_file

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.archive import read_archive, write_archive
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws, Gaussian, Mixture
from bnnzoo.core.posterior.saving import StoredPosterior
from bnnzoo.core.posterior.stored import encode, stored_kinds
from bnnzoo.inference.variational.flow import FlowPosterior
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.testing import linear_gaussian
from tests.conftest import REPOSITORY
from tests.helpers.exact import exact_posterior, narrow_posterior
from tests.helpers.saved import METHODS, MODELS, by_hand, fitted, predicted

TARGET = linear_gaussian()


IN_ANOTHER_PROCESS = """
import sys, torch
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
from tests.helpers.saved import changed
print(*changed(sys.argv[1]))
"""


def save(posterior, name, folder):
    posterior.save(folder / f"{name}.bnn")
    predicted(posterior).to_netcdf(folder / f"{name}.nc", engine="h5netcdf")


def changed_in_another_process(folder):
    command = [sys.executable, "-W", "ignore", "-c", IN_ANOTHER_PROCESS, str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_posteriors_of_every_kind_predict_the_same_in_another_process(tmp_path):
    posteriors = by_hand()
    for name, posterior in posteriors.items():
        save(posterior, f"{name}-regression", tmp_path)
    kinds = {type(posterior) for posterior in posteriors.values()}
    kinds |= {type(posterior.covariance) for posterior in posteriors.values() if isinstance(posterior, Gaussian)}
    kinds |= {type(posterior.flow.base) for posterior in posteriors.values() if isinstance(posterior, FlowPosterior)}
    own = {name: kind for name, kind in stored_kinds().items() if kind.__module__.startswith("bnnzoo.")}
    assert kinds == {*own.values()} - {FitInfo, StoredPosterior}
    assert changed_in_another_process(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_method_predicts_the_same_in_another_process(tmp_path, model):
    for name in METHODS:
        save(fitted(name, model), f"{name}-{model}", tmp_path)
    assert changed_in_another_process(tmp_path) == []


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "fit.bnn"
    exact_posterior(TARGET).save(path)
    return path


def test_the_record_of_the_fit_comes_back(path):
    before, after = exact_posterior(TARGET).info, bz.load(path, TARGET.model, *TARGET.data).info
    assert torch.equal(before.fit_stats["loss"], after.fit_stats["loss"])
    plain = ("sampling", "num_gradients", "complete", "config", "method", "seed", "seconds")
    assert [getattr(before, name) for name in plain] == [getattr(after, name) for name in plain]


def test_a_weighted_mixture_comes_back(tmp_path):
    one = exact_posterior(TARGET)
    other = Gaussian(one.density, one.info, one.loc + 1.0, one.covariance, linearize_at=one.loc)
    mixture = Mixture(one.density, one.info, (one, other), torch.tensor([0.3, 0.7]).log())
    mixture.save(tmp_path / "mixture.bnn")
    found = bz.load(tmp_path / "mixture.bnn", TARGET.model, *TARGET.data)
    assert torch.equal(found.draws(50), mixture.draws(50))
    assert torch.equal(found.log_prob(one.loc), mixture.log_prob(one.loc))
    assert found.components[0].linearize_at is None
    assert torch.equal(found.components[1].linearize_at, one.loc)


def test_a_file_holds_no_data_and_no_pickle(path):
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["header"])
        numbers = {file.get_tensor(name).numel() for name in file.keys()}  # noqa: SIM118
    assert header["arguments"] == [{"shape": [40, 3], "dtype": "float64"}, {"shape": [40], "dtype": "float64"}]
    assert numbers == {3, 9, 5}  # mean, Cholesky factor, loss trace
    assert header["versions"]["torch"] == torch.__version__.partition("+")[0]


def test_a_tensor_keeps_its_order_in_memory():
    tensors = {}
    tree = encode(torch.arange(6.0).reshape(2, 3).mT, tensors)
    assert tree == {"tensor": "0", "dims": [1, 0]}
    assert tensors["0"].shape == (2, 3)


def test_what_cannot_be_saved_is_refused():
    with pytest.raises(TypeError, match=r"A set cannot be saved\. Let state\(\) return tensors, numbers, strings"):
        encode({1, 2}, {})


@pytest.mark.parametrize("place", [0.0, 0.02, 0.3, 0.6, 0.9, 1.0])
def test_a_flipped_byte_is_found(path, place):
    raw = bytearray(path.read_bytes())
    raw[int(place * (len(raw) - 1))] ^= 255
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"fit\.bnn is damaged.* Restore it from a copy"):
        bz.load(path, TARGET.model, *TARGET.data)


def test_a_changed_header_is_found(path):
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"Laplace", b"laplacE", 1))
    with pytest.raises(ValueError, match=r"is damaged: its checksum does not match its contents"):
        bz.load(path, TARGET.model, *TARGET.data)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(path, share):
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    with pytest.raises(ValueError, match=r"fit\.bnn is damaged, or was not saved by bnnzoo: it cannot be read"):
        bz.load(path, TARGET.model, *TARGET.data)


def test_a_tree_is_told_from_a_posterior(tmp_path):
    bz.save_tree(xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": 0.0})}), tmp_path / "tree.nc")
    with pytest.raises(
        ValueError, match=r"tree\.nc is a netCDF file, .* no posterior: open it with xarray\.open_datatree"
    ):
        bz.load(tmp_path / "tree.nc", TARGET.model, *TARGET.data)


def test_a_newer_format_is_refused(path, monkeypatch):
    monkeypatch.setattr("bnnzoo.core.posterior.archive.FORMAT", 3)
    exact_posterior(TARGET).save(path)
    monkeypatch.undo()
    with pytest.raises(
        ValueError,
        match=rf"has format 3 of bnnzoo {version('bnnzoo')}, and this version of bnnzoo reads format 2\. Load it with",
    ):
        bz.load(path, TARGET.model, *TARGET.data)


@pytest.mark.parametrize("header", ["no JSON", "[]", "{}", '{"versions": {"bnnzoo": "unknown"}}'])
def test_a_format_of_an_unknown_version_is_refused(header, tmp_path):
    save_file({"a": torch.zeros(2)}, tmp_path / "old", {"bnnzoo": "1", "header": header, "sha256": ""})
    with pytest.raises(ValueError, match=r"has format 1, and this version of bnnzoo reads format 2\."):
        bz.load(tmp_path / "old", TARGET.model, *TARGET.data)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*nowhere"):
        bz.load(tmp_path / "nowhere", TARGET.model)
    save_file({"a": torch.zeros(2)}, tmp_path / "other")
    with pytest.raises(ValueError, match=r"is a safetensors file, but no posterior saved by bnnzoo"):
        bz.load(tmp_path / "other", TARGET.model)


def regression(hidden=3, prior=None, likelihood=None):
    return supervised(mlp(2, (hidden,)), prior or priors.normal(1.0), likelihood or likelihoods.gaussian())


OTHER_MODELS = {
    "width": (
        regression(hidden=4),
        r"latent site 'net.0.weight' is \[3, 2\] Real in the file and \[4, 2\] Real in this",
    ),
    "missing": (
        regression(likelihood=likelihoods.gaussian(scale=0.1)),
        r"it has a latent site '.*', which this model lacks",
    ),
    "more": (regression(prior=priors.layerwise()), r"this model has a latent site '.*', which the file lacks"),
    "prior": (
        regression(prior=priors.normal(2.0)),
        r"the log prior at a random point was .* and is .*, so a prior differs",
    ),
}


@pytest.fixture(scope="module")
def of_a_network(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "laplace.bnn"
    fitted("Laplace", "regression").save(path)
    return path


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_another_model_is_refused(of_a_network, name):
    model, sentence = OTHER_MODELS[name]
    with pytest.raises(ValueError, match=rf"laplace\.bnn holds another fit: {sentence}"):
        bz.load(of_a_network, model, *MODELS["regression"][1])


def test_another_support_is_refused(tmp_path):
    def model(prior):
        def run(y):
            mu = pyro.sample("mu", prior)
            with pyro.plate("data", len(y)):
                pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

        return run

    y = torch.tensor([1.0, 2.0])
    bz.fit(model(dist.Normal(0.0, 1.0)), bz.Laplace(), y, progress=False).save(tmp_path / "fit.bnn")
    with pytest.raises(
        ValueError, match=r"latent site 'mu' is \[\] Real in the file and \[\] GreaterThan\w* in this model"
    ):
        bz.load(tmp_path / "fit.bnn", model(dist.Gamma(2.0, 1.0)), y)


def test_other_data_are_refused(path):
    x, y = TARGET.data
    with pytest.raises(
        ValueError, match=r"argument 2 of the model, float64 \[40\], has other values than it had in the fit"
    ):
        bz.load(path, TARGET.model, x, y + 1e-12)
    with pytest.raises(
        ValueError, match=r"argument 1 of the model was float64 \[40, 3\], and float64 \[39, 3\] is given"
    ):
        bz.load(path, TARGET.model, x[1:], y[1:])
    with pytest.raises(ValueError, match="the model was fitted to 2 arguments, and 1 are given"):
        bz.load(path, TARGET.model, x)


def test_without_data_a_posterior_predicts_and_what_needs_them_is_refused(path):
    found = bz.load(path, TARGET.model)
    tree = bz.predict(found, TARGET.data[0][:4])
    assert tree["conditional"].identical(bz.predict(exact_posterior(TARGET), TARGET.data[0][:4])["conditional"])
    assert "lp" not in tree["sample_stats"]
    with pytest.raises(ValueError, match=r"posterior_predictive is about the training data, .* loaded without them"):
        bz.posterior_predictive(found, *TARGET.data)
    with pytest.raises(ValueError, match=r"log_joint needs the training data, .* Pass them: bnnzoo\.load"):
        found.density.log_joint(found.loc, *TARGET.data)
    with pytest.raises(ValueError, match=r"log_prior needs the training data"):
        found.density.log_prior(found.loc)
    with pytest.raises(ValueError, match=r"loaded without its training data, so its file cannot be written again"):
        found.save(path)


class Design:
    """An argument that is no tensor."""


def test_data_cannot_be_left_out_where_they_are_not_plain(tmp_path):
    def model(design, y):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    y = torch.tensor([1.0, 2.0])
    bz.fit(model, bz.Laplace(), Design(), y, progress=False).save(tmp_path / "fit.bnn")
    bz.load(tmp_path / "fit.bnn", model, Design(), y)
    with pytest.raises(
        ValueError, match=r"Argument 1 of the model was a Design, which is not saved, so the training data"
    ):
        bz.load(tmp_path / "fit.bnn", model)


def test_a_model_that_fails_on_zeros_cannot_be_traced_without_data(tmp_path):
    def model(y):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, 1 / float(y.max())), obs=y)

    narrow_posterior(model, torch.tensor([1.0, 2.0])).save(tmp_path / "fit.bnn")
    with pytest.raises(
        ValueError,
        match=r"cannot be traced without its training data \(ModelError: .*ZeroDivisionError: .*\)\. Pass them",
    ):
        bz.load(tmp_path / "fit.bnn", model)


def test_a_model_that_needs_values_cannot_be_traced_without_them(tmp_path):
    def model(y):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0).expand([int(y.max())]).to_event(1))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu.sum(), 1.0), obs=y)

    y = torch.tensor([1.0, 2.0])
    narrow_posterior(model, y).save(tmp_path / "fit.bnn")
    with pytest.raises(ValueError, match=r"latent site 'mu' is \[2\] Real in the file and \[0\] Real in this model"):
        bz.load(tmp_path / "fit.bnn", model)


def test_a_file_is_written_whole_or_not_at_all(path, monkeypatch):
    before = path.read_bytes()

    def fail(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        exact_posterior(TARGET).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["fit.bnn"]


def own_guide(x, y=None):
    loc = pyro.param("loc", torch.zeros(3))
    scale = pyro.param("scale", torch.ones(3), constraint=dist.constraints.positive)
    pyro.sample("w", dist.Normal(loc, scale).to_event(1))


GUIDES = {
    "class": (AutoMultivariateNormal, None),
    "per site": (AutoNormal, None),
    "function": (own_guide, own_guide),
    "object": (
        AutoLowRankMultivariateNormal(TARGET.model, rank=2),
        AutoLowRankMultivariateNormal(TARGET.model, rank=2),
    ),
}


@pytest.mark.parametrize("name", GUIDES)
def test_guides_come_back(tmp_path, name):
    fitted_guide, passed = GUIDES[name]
    posterior = bz.fit(TARGET.model, bz.SVI(fitted_guide, num_steps=20), *TARGET.data, progress=False)
    posterior.save(tmp_path / "guide.bnn")
    found = bz.load(tmp_path / "guide.bnn", TARGET.model, *TARGET.data, guide=passed)
    assert torch.equal(found.draws(5), posterior.draws(5))
    theta = posterior.draws(2)[0]
    before, after = posterior.log_prob(theta), found.log_prob(theta)
    assert (before is None and after is None) or torch.equal(before, after)


def test_guides_that_are_missing_or_others_are_refused(tmp_path):
    bz.fit(TARGET.model, bz.SVI(own_guide, num_steps=2), *TARGET.data, progress=False).save(tmp_path / "own.bnn")
    with pytest.raises(
        ValueError, match=r"a fit of the guide 'own_guide', which is no autoguide class of Pyro\. Pass the"
    ):
        bz.load(tmp_path / "own.bnn", TARGET.model, *TARGET.data)
    with pytest.raises(
        ValueError, match=r"another guide: its parameters are loc\[3\], scale\[3\], and those of this guide are "
    ):
        bz.load(tmp_path / "own.bnn", TARGET.model, *TARGET.data, guide=AutoMultivariateNormal)
    with pytest.raises(ValueError, match=r"The guide 'own_guide' may depend on the training data\. Pass them"):
        bz.load(tmp_path / "own.bnn", TARGET.model, guide=own_guide)


def test_posteriors_are_printed_in_one_line(of_a_network):
    laplace = bz.load(of_a_network, MODELS["regression"][0], *MODELS["regression"][1])
    assert repr(laplace).startswith("Gaussian(Laplace, Dense covariance, ")
    assert repr(laplace).endswith("sites net (13 in 4 sites), sigma[])")
    mixture = Mixture(laplace.density, laplace.info, (laplace, laplace))
    assert repr(mixture).startswith("Mixture(Laplace, 2 Gaussian components, ")
    assert repr(laplace.info).startswith("FitInfo(Laplace, iid, seed 3, ")
    assert "\n" not in repr(laplace.info)


def test_draws_are_printed_with_their_divergences():
    info = FitInfo("mcmc", method="NUTS", seconds=1.25, complete=False, sample_stats={"diverging": torch.ones(2, 5)})
    density = build_density(TARGET.model, *TARGET.data)
    draws = Draws(density, info, torch.zeros(2, 5, 3))
    assert repr(draws) == "Draws(NUTS, 2 chains x 5 draws, 10 divergences, ESS 8, 1.25 s, interrupted, sites w[3])"
    assert repr(info) == "FitInfo(NUTS, mcmc, seed 0, 0 gradients, 1.25 s, interrupted, statistics: diverging)"
    assert repr(density) == "LogDensity(3 parameters in w[3]; 40 observations of y)"


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    posterior = exact_posterior(TARGET)
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*nowhere to write fit\.bnn into\. Make it"):
        posterior.save(tmp_path / "nowhere" / "fit.bnn")


FORGED = {
    "type": lambda header: header.update(dtype="nothing"),
    "no type of tensors": lambda header: header.update(dtype="matmul"),
    "fingerprint": lambda header: header["fingerprint"].clear(),
    "argument": lambda header: header["arguments"][0].update(dtype=3),
    "shape": lambda header: header["arguments"][1].update(shape=[-1]),
    "no dtype": lambda header: header["arguments"][1].pop("dtype"),
    "posterior": lambda header: header.update(posterior={"class": "Laplace"}),
    "info": lambda header: header.pop("info"),
    "no posterior": lambda header: header.update(posterior={"kind": "FitInfo", "state": {"dict": {"sampling": "iid"}}}),
}


@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("data", [TARGET.data, ()], ids=["data", "shapes"])
def test_a_forged_header_is_refused_whatever_its_checksum(path, what, data):
    tensors, header = read_archive(path)
    FORGED[what](header)
    write_archive(path, tensors, header)
    with pytest.raises(
        ValueError, match=r"fit\.bnn was not saved by bnnzoo, or was changed since: its header cannot be read"
    ):
        bz.load(path, TARGET.model, *data)


def shifted(shift: float) -> type[Draws]:
    """Return a user's kind of posterior, of a name of its own."""

    @dataclass(frozen=True, eq=False)
    class Shifted(Draws):
        def draws(self, num: int | None = None, seed: int | None = None) -> torch.Tensor:
            return super().draws(num, seed) + shift

    return Shifted


def test_a_users_kind_of_posterior_comes_back_as_its_latest_definition(path):
    old, new = shifted(1.0), shifted(2.0)  # as where a cell of a notebook is run again
    found = bz.fit(TARGET.model, bz.MAP(num_steps=5), *TARGET.data, progress=False)
    old(**{field.name: getattr(found, field.name) for field in fields(found)}).save(path)
    loaded = bz.load(path, TARGET.model, *TARGET.data)
    assert type(loaded) is new and torch.equal(loaded.draws(), found.draws() + 2.0)


def test_no_class_takes_the_place_of_the_librarys(path):
    own = type("Draws", (Draws,), {})
    bz.fit(TARGET.model, bz.MAP(num_steps=5), *TARGET.data, progress=False).save(path)
    assert type(bz.load(path, TARGET.model)) is Draws is not own


def test_a_kind_that_is_not_known_is_named(path):
    bz.fit(TARGET.model, bz.MAP(num_steps=5), *TARGET.data, progress=False).save(path)
    tensors, header = read_archive(path)
    header["posterior"]["kind"] = "Wavelets"
    write_archive(path, tensors, header)
    with pytest.raises(
        ValueError,
        match=r"holds a Wavelets, which this version of bnnzoo does not know\. Load it with the one that wrote it; for a class "
        r"of your own, import its module first\.",
    ):
        bz.load(path, TARGET.model, *TARGET.data)


def test_a_posterior_is_saved_and_not_pickled() -> None:
    posterior = bz.fit(TARGET.model, bz.MAP(num_steps=5), *TARGET.data, progress=False)
    with pytest.raises(
        TypeError, match=r"^A Draws posterior cannot be pickled: .* Write posterior\.save\('fit\.bnn'\)"
    ):
        pickle.dumps(posterior)
    assert copy.deepcopy(posterior) is posterior
