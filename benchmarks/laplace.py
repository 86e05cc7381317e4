"""Laplace approximations of one trained network: bnnzoo next to laplace-torch, entries compared and fits timed.

Both get the same weights; bnnzoo's time is that of tracing the model and of the curvature at them, laplace-torch's that of
making the object and of ``fit``. The reference is the peer's own default backend, CurvlinopsGGN; its fastest is in the facts.
Run: python -m benchmarks.laplace      (needs laplace-torch and curvlinops-for-pytorch)
"""

import copy
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from laplace import DiagLaplace, FullLaplace, FullLLLaplace, KronLaplace
from laplace.curvature import AsdlGGN, BackPackGGN, CurvlinopsGGN
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.pairs import in_turn, save
from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import build_density
from bnnzoo.inference import MAP, DiagonalLaplace, KFACLaplace, Laplace, LastLayerLaplace
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.predictive import marginal_predictive, predict

DEFAULT = "CurvlinopsGGN"


@dataclass(frozen=True)
class Task:
    """A network with data of three classes."""

    name: str
    net: nn.Sequential
    x: Tensor
    y: Tensor


def tasks() -> list[Task]:
    """Return a multilayer perceptron and a small convolutional network, in double precision."""
    torch.manual_seed(0)
    x, images = torch.randn(1000, 8), torch.randn(300, 1, 8, 8)
    dense = mlp(8, (32,), 3)
    conv = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    return [
        Task("mlp", dense, x, x[:, :3].argmax(1)),
        Task("convnet", conv, images, torch.arange(300) % 3),
    ]


def seconds(call: Callable[[], Any]) -> float:
    """Return the processor time of one call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def ours(task: Task, method: type, theta: Tensor) -> Any:
    """Fit a Laplace approximation at given weights."""
    model = supervised(task.net, priors.normal(1.0), likelihoods.categorical())
    density = build_density(model, task.x, task.y)
    fixed = MAP(init=theta[None], num_steps=0, polish_steps=0)
    return method(fixed).run(density, FitContext())


def theirs(task: Task, kind: type, backend: type) -> Any:
    """Fit laplace-torch's approximation; its loader gives all rows at once."""
    found = kind(copy.deepcopy(task.net), "classification", prior_precision=1.0, backend=backend)
    found.fit(DataLoader(TensorDataset(task.x, task.y), batch_size=len(task.x)))
    return found


STRUCTURES = {
    "dense": (Laplace, FullLaplace, (CurvlinopsGGN, BackPackGGN, AsdlGGN), lambda q: q.posterior_covariance.diagonal()),
    "diagonal": (DiagonalLaplace, DiagLaplace, (CurvlinopsGGN, BackPackGGN, AsdlGGN), lambda q: q.posterior_variance),
    "kfac": (KFACLaplace, KronLaplace, (CurvlinopsGGN, AsdlGGN), lambda q: q.posterior_precision.diag()),
    "last_layer": (
        LastLayerLaplace,
        FullLLLaplace,
        (CurvlinopsGGN, BackPackGGN),
        lambda q: q.posterior_covariance.diagonal(),
    ),
}


def compare(task: Task, name: str) -> None:
    """Time one structure with every backend of the peer that knows it, and compare variances (kfac: precisions)."""
    method, kind, backends, read = STRUCTURES[name]
    theta = torch.cat([p.detach().reshape(-1) for p in task.net.parameters()])
    own = ours(task, method, theta)
    calls: dict[str, Callable[[], Any]] = {"bnnzoo": lambda: ours(task, method, theta)}
    differences, unable = {}, {}
    for backend in backends:
        try:
            differences[backend.__name__] = _difference(own, read(theirs(task, kind, backend)).detach(), name)
        except Exception as error:  # a backend that does not know a layer or a structure is no peer here
            unable[backend.__name__] = f"{type(error).__name__}: {error}"[:200]
            continue
        calls[backend.__name__] = lambda backend=backend: theirs(task, kind, backend)
    found = in_turn({key: lambda call=call: seconds(call) for key, call in calls.items()})
    peers = [key for key in found if key != "bnnzoo"]
    reference = DEFAULT if DEFAULT in peers else (peers or ["bnnzoo"])[0]
    fastest = min(peers, key=lambda key: statistics.median(found[key]), default="bnnzoo")
    facts = {
        "parameters": len(theta),
        "rows": len(task.x),
        "max_relative_difference": differences,
        "unable": unable,
        "fastest": fastest,
        "ratio_to_fastest": statistics.median(found["bnnzoo"]) / statistics.median(found[fastest]),
    }
    save(f"laplace_{name}_{task.name}_fit", "s", found, reference, **facts)
    if reference != "bnnzoo":
        predictions = {
            "bnnzoo": lambda: marginal_predictive(own, task.x),
            "bnnzoo, tree of 100 draws": lambda: predict(own, task.x, num_draws=100),
        }
        for name_of_peer in dict.fromkeys((reference, fastest)):
            peer = theirs(task, kind, next(b for b in backends if b.__name__ == name_of_peer))
            predictions[name_of_peer] = lambda peer=peer: peer(task.x)
        found = in_turn({key: lambda call=call: seconds(call) for key, call in predictions.items()})
        save(
            f"laplace_{name}_{task.name}_predict",
            "s",
            found,
            reference,
            bnnzoo="closed form, pairwise probit",
            peer="probit",
            fastest_fit=fastest,
        )
    print(facts, flush=True)


def _difference(own: Any, expected: Tensor, name: str) -> float:
    found = own.covariance.diagonal()
    if name == "last_layer":
        found = found[own.covariance.index]
    if name == "kfac":
        inverse = tuple((left, right, 1 / scale) for left, right, scale in own.covariance.blocks)
        found = type(own.covariance)(inverse).diagonal()
    return float(((found - expected) / expected).abs().max())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for one in tasks():
        for structure in STRUCTURES:
            compare(one, structure)
