"""A thousand chains of a network in one batch, in a process of its own."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
import bnnzoo as bz
x = torch.randn(600, 8, generator=torch.Generator().manual_seed(0))
net = bz.models.mlp(8, (50,), 1, activation="tanh")
model = bz.models.supervised(net, prior=bz.priors.fan_in(), likelihood=bz.likelihoods.gaussian())
method = bz.NUTS(num_chains=1000, num_warmup=2, num_draws=2, max_tree_depth=4, step_size=0.01)
posterior = bz.fit(model, method, x, x[:, 0].sin())
assert posterior.density.num_params > 500
assert posterior.draws().shape[:2] == (1000, 2)
assert int(posterior.info.sample_stats["n_steps"].max()) > 5
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.slow
def test_a_thousand_chains_of_a_network_fit_in_two_gib() -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert float(run.stdout.split()[-1]) < 2.0
