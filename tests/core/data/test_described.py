"""Attributes of a user's model mean what the user means by them."""

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule

import bnnzoo as bz
from bnnzoo.core.data.described import Described, described

X, Y = torch.linspace(-1.0, 1.0, 12), torch.linspace(0.0, 1.0, 12)


class NamedLikeOurs(PyroModule):
    """A module whose attributes have the names by which bnnzoo's own models describe themselves."""

    observes = "z"
    needed_at_new_rows = ("x",)
    dims, coords, levels, frame, outcome, takes_frames = 3, "there", 7, object(), None, True

    def __init__(self) -> None:
        super().__init__()
        self.auxiliary = torch.nn.Linear(2, 2)

    def from_data(self, path: str) -> str:
        return path

    def forward(self, x, y=None):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(w * x, 0.5), obs=y)


def test_attributes_of_a_users_model_describe_nothing() -> None:
    model = NamedLikeOurs()
    assert vars(described(model)) == vars(Described())
    posterior = bz.fit(model, bz.MAP(num_steps=5, polish_steps=0), X, Y, dtype=torch.float64, progress=False)
    assert dict(bz.posterior_predictive(posterior, X, Y)["log_likelihood"]["y"].sizes)["obs_id"] == 12
    assert bz.predict(posterior, X[:3])["predictions"].sizes["obs_id"] == 3


def test_models_of_the_package_describe_themselves() -> None:
    model = bz.models.supervised(bz.models.mlp(1, (3,)), bz.priors.normal(1.0), bz.likelihoods.gaussian())
    assert (described(model).observes, *described(model).needed_at_new_rows) == ("y", "offset")
