"""A thousand chains of a network in one batch, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import re, torch
from pathlib import Path
import bnnzoo as bz
x = torch.randn(600, 8, generator=torch.Generator().manual_seed(0))
net = bz.models.mlp(8, (50,), 1, activation="tanh")
model = bz.models.supervised(net, prior=bz.priors.fan_in(), likelihood=bz.likelihoods.gaussian())
method = bz.NUTS(num_chains=1000, num_warmup=2, num_draws=2, max_tree_depth=4, step_size=0.01)
posterior = bz.fit(model, method, x, x[:, 0].sin())
assert posterior.density.num_params > 500
assert posterior.draws().shape[:2] == (1000, 2)
assert int(posterior.info.sample_stats["n_steps"].max()) > 5
status = Path("/proc/self/status").read_text()  # ru_maxrss is that of the process that started this one, if larger
print(int(re.search(r"VmHWM:\\s*(\\d+) kB", status)[1]) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
def test_a_thousand_chains_of_a_network_fit_in_two_gib() -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert float(run.stdout.split()[-1]) < 2.0
