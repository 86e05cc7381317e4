"""Settings of samplers: defaults, what is refused and in which words, and groups of chains."""

import dataclasses
from typing import Any

import pytest
import torch

from bnnzoo.core.method import Method
from bnnzoo.inference import HMC, MAMS, MCLMC, NUTS, ChEESHMC, fit
from bnnzoo.inference.config import config_of
from bnnzoo.inference.markov.chain_settings import even_groups, typical_num_steps, without_init
from bnnzoo.testing import linear_gaussian

SHARED = {
    "num_chains": 4,
    "num_warmup": 1000,
    "num_draws": 1000,
    "step_size": None,
    "init": None,
    "mass_matrix": "auto",
    "num_superchains": None,
}
HAMILTONIAN = SHARED | {"num_groups": None, "target_accept": 0.8}
LOCKSTEP = SHARED | {"num_groups": 1, "target_accept": 0.7, "trajectory_length": None, "max_steps": 1000}
DEFAULTS: dict[Any, dict[str, Any]] = {
    NUTS: HAMILTONIAN | {"max_tree_depth": 10},
    HMC: HAMILTONIAN | {"trajectory_length": 1.5, "jitter": 0.5, "max_steps": 1000},
    ChEESHMC: LOCKSTEP | {"num_chains": 16},
    MAMS: LOCKSTEP,
    MCLMC: SHARED | {"num_groups": 1, "steps_per_draw": None, "energy_variance": 5e-4, "decoherence_length": None},
}


@pytest.mark.parametrize("kind", DEFAULTS, ids=lambda kind: kind.__name__)
def test_defaults(kind: Any) -> None:
    assert dataclasses.asdict(kind()) == DEFAULTS[kind]
    assert "num_superchains" not in config_of(kind()) and config_of(kind(num_superchains=2))["num_superchains"] == 2
    assert kind.needs == frozenset() and kind.resumable
    with pytest.raises(TypeError, match="positional argument"):
        kind(4)


def spoilt(method: Method, **settings: Any) -> Method:
    """Return the method with settings that the type checks of these tests would not let pass."""
    for name, value in settings.items():
        object.__setattr__(method, name, value)
    return method


REFUSED: list[tuple[Method, str]] = [
    (NUTS(num_groups=0), r"NUTS\(num_groups=0\): write 1 or more or None\."),
    (MAMS(num_groups=0), r"MAMS\(num_groups=0\): write 1 or more\."),
    (NUTS(num_superchains=1), r"NUTS\(num_superchains=1\): write 2 or more or None\."),
    (NUTS(num_chains=0), r"NUTS\(num_chains=0\): write 1 or more\."),
    (HMC(num_draws=0), r"HMC\(num_draws=0\): write 1 or more\."),
    (HMC(num_warmup=-1), r"HMC\(num_warmup=-1\): write 0 or more\."),
    (NUTS(target_accept=1.2), r"NUTS\(target_accept=1\.2\): write a number between 0 and 1\."),
    (NUTS(max_tree_depth=0), r"NUTS\(max_tree_depth=0\): write a number from 1 to 20\."),
    (
        spoilt(NUTS(), mass_matrix="full"),
        r"NUTS\(mass_matrix='full'\): write 'auto', 'diagonal', 'dense', 'fisher' or 'low_rank'\.",
    ),
    (NUTS(step_size=-0.1), r"NUTS\(step_size=-0\.1\): write a positive number or None\."),
    (NUTS(step_size=float("nan")), r"NUTS\(step_size=nan\): write a positive number or None\."),
    (NUTS(num_warmup=0), r"NUTS\(num_warmup=0\) tunes nothing: give step_size"),
    (NUTS(init=torch.zeros(4, 5)), r"init has shape \(4, 5\), but 4 chains .* with 3 unconstrained parameters"),
    (HMC(trajectory_length=-1.0), r"HMC\(trajectory_length=-1\.0\): write a positive number\."),
    (HMC(jitter=1.0), r"HMC\(jitter=1\.0\): write a number from 0 to 1, not 1 itself\."),
    (HMC(max_steps=0), r"HMC\(max_steps=0\): write 1 or more\."),
    (MAMS(trajectory_length=0.0), r"MAMS\(trajectory_length=0\.0\): write a positive number or None\."),
    (ChEESHMC(target_accept=0.0), r"ChEESHMC\(target_accept=0\.0\): write a number between 0 and 1\."),
    (MCLMC(energy_variance=0.0), r"MCLMC\(energy_variance=0\.0\): write a positive number\."),
    (MCLMC(steps_per_draw=0), r"MCLMC\(steps_per_draw=0\): write 1 or more or None\."),
    (MCLMC(decoherence_length=-1.0), r"MCLMC\(decoherence_length=-1\.0\): write a positive number or None\."),
    (MCLMC(num_warmup=0), r"MCLMC\(num_warmup=0\) tunes nothing"),
]


@pytest.mark.parametrize(("method", "sentence"), REFUSED)
def test_invalid_settings_are_refused(method: Method, sentence: str) -> None:
    target = linear_gaussian()
    with pytest.raises(ValueError, match=sentence):
        fit(target.model, method, *target.data)


@pytest.mark.parametrize(
    "method", [spoilt(NUTS(), num_draws=20.0), spoilt(MAMS(), num_chains="4"), spoilt(HMC(), num_warmup=True)]
)
def test_settings_of_another_type_are_refused(method: Method) -> None:
    target = linear_gaussian()
    with pytest.raises(TypeError, match=rf"{type(method).__name__}\(num_\w+=.*\): write "):
        fit(target.model, method, *target.data)


@pytest.mark.parametrize("num_chains", [1, 2, 5, 7])
@pytest.mark.parametrize("num_groups", [1, 2, 3, 10])
def test_groups_are_even_and_whole(num_chains: int, num_groups: int) -> None:
    groups = even_groups(num_chains, num_groups)
    assert [chain for group in groups for chain in group] == list(range(num_chains))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    assert len(groups) == min(num_groups, num_chains)


def test_workers_get_settings_without_starts() -> None:
    assert without_init(NUTS(init=torch.zeros(4, 3), num_draws=7)) == NUTS(num_draws=7)
    assert typical_num_steps(1) == 4
