"""laplace-torch, torch-uncertainty and posteriors on cards of the zoo.

Run: python -m benchmarks.peers.torch_methods REFERENCES OUT [card,card] [method,method]

These libraries take a trained network: Adam with a step of 0.01 and 4,000 full-batch steps on the log posterior, from torch's own
starts. What has no default was fixed before a result was seen: five networks, dropout of 0.1 after each hidden layer, SWAG over
the last half of training with an update every 20 steps, mean-field VI by Adam with a step of 0.01 and 20,000 steps, Langevin
dynamics by BAOA with a step of 0.02 and 40,000 steps, of which the second half is kept. (SGHMC with its default friction and a
step of 0.01 ran away on linear regression.)
"""

import copy

import posteriors
import torch
import torchopt
from laplace import Laplace
from torch import nn
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset
from torch_uncertainty.methods import SWAG, deep_ensembles, mc_dropout

from benchmarks.peers.cards import NUM_DRAWS, Fitted, run

STEPS, STEP_SIZE, RATE = 4_000, 0.01, 0.1


class TwoClasses(nn.Module):
    """Logits of two classes, the first of which is nought."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        """Return logits ``[row, 2]``."""
        f = self.net(x)
        return torch.cat([torch.zeros_like(f), f], -1)


def net_of(card, dropout=False):
    """Return a network with torch's own starts."""
    parts = []
    for number, (fan_in, width, _) in enumerate(card.layers):
        parts.append(nn.Linear(fan_in, width))
        if number < len(card.layers) - 1:
            parts += [nn.Tanh(), nn.Dropout(RATE)] if dropout else [nn.Tanh()]
    return nn.Sequential(*parts)


def log_likelihood(card, f, y):
    """Return that of the outcomes given the output."""
    if card.kind == "normal":
        return -0.5 * ((y - f) / card.noise).square().sum()
    if card.kind == "poisson":
        return (y * f - f.exp()).sum()
    return (y * f - nn.functional.softplus(f)).sum()


def precisions(card, params):
    """Return the prior precision of every parameter, in the order of the network's."""
    sds = [sd for _, _, layer_sd in card.layers for sd in (layer_sd, card.bias_sd)]
    return [torch.full_like(p, sd**-2) for p, sd in zip(params, sds, strict=True)]


def log_posterior(card, net, params, x, y):
    """Return the log posterior of named parameters, up to a constant."""
    values = list(params.values())
    prior = sum((-0.5 * p.square() * tau).sum() for p, tau in zip(values, precisions(card, values), strict=True))
    return log_likelihood(card, functional_call(net, params, (x,))[:, 0], y) + prior


def tensors(x, y):
    """Return the data in torch's default precision."""
    return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)


def train(card, net, x, y, after=lambda step: None):
    """Maximise the log posterior, with dropout where the network has it."""
    optimiser = torch.optim.Adam(net.parameters(), lr=STEP_SIZE)
    for step in range(STEPS):
        optimiser.zero_grad()
        (-log_posterior(card, net, dict(net.named_parameters()), x, y)).backward()
        optimiser.step()
        after(step)
    return net


def draws(function):
    """Return a prediction from a function of inputs that returns outputs ``[draw, row]``."""

    def predict(x):
        with torch.no_grad():
            return function(torch.as_tensor(x, dtype=torch.float32)).double().numpy()[None]

    return predict


def by_laplace(subset, structure):
    """Return a method by laplace-torch, with the card's prior and noise: its linearised predictions."""

    def fit(card, x, y):
        is_last = subset == "last_layer"
        if card.kind == "poisson" or (is_last and (card.kind == "bernoulli" or len(card.layers) == 1)):
            return None  # it has no Poisson likelihood; two logits, of which one is fixed, are no last layer; nor is a single one
        torch.manual_seed(0)
        x, y = tensors(x, y)
        net = train(card, net_of(card), x, y)
        taus = precisions(card, list(net.parameters()))
        if subset == "last_layer":
            taus = taus[-2:]
        settings = {"subset_of_weights": subset, "hessian_structure": structure}
        if structure == "kron":
            settings["prior_precision"] = torch.stack([tau.flatten()[0] for tau in taus])
        else:
            settings["prior_precision"] = torch.cat([tau.flatten() for tau in taus])
        if card.kind == "normal":
            approximation = Laplace(net, "regression", sigma_noise=card.noise, **settings)
            targets = y[:, None]
        else:
            approximation = Laplace(TwoClasses(net), "classification", **settings)
            targets = y.long()
        approximation.fit(DataLoader(TensorDataset(x, targets), batch_size=len(x)))

        def predict(at):
            at = torch.as_tensor(at, dtype=torch.float32)
            if card.kind == "normal":
                return approximation.predictive_samples(at, n_samples=NUM_DRAWS)[..., 0].detach().double().numpy()[None]
            # Of two logits one is fixed, so that their joint covariance, which predictive_samples needs, is singular.
            jacobians, output = approximation.backend.jacobians(at)
            sd = approximation.functional_variance(jacobians)[:, 1, 1].sqrt()
            return (output[:, 1] + sd * torch.randn(NUM_DRAWS, len(at))).detach().double().numpy()[None]

        return Fitted(predict)

    return fit


def by_ensemble(card, x, y):
    """Train five networks and hold them by torch-uncertainty."""
    torch.manual_seed(0)
    x, y = tensors(x, y)
    members = [train(card, net_of(card), x, y) for _ in range(5)]
    ensemble = deep_ensembles(members, task="classification").eval()
    return Fitted(draws(lambda at: ensemble(at).view(len(members), len(at))), gradients=5 * STEPS)


def by_dropout(card, x, y):
    """Train with dropout, and draw by torch-uncertainty."""
    if len(card.layers) < 2:
        return None
    torch.manual_seed(0)
    x, y = tensors(x, y)
    net = mc_dropout(train(card, net_of(card, dropout=True), x, y), num_estimators=100, on_batch=False).eval()
    return Fitted(draws(lambda at: net(at).view(100, len(at))), gradients=STEPS)


def by_swag(card, x, y):
    """Collect SWAG's moments while training, by torch-uncertainty."""
    torch.manual_seed(0)
    x, y = tensors(x, y)
    net = net_of(card)
    swag = SWAG(net, cycle_start=STEPS // 2, cycle_length=20, num_estimators=100)
    train(card, net, x, y, swag.update_wrapper)
    swag.eval()
    return Fitted(draws(lambda at: swag.eval_forward(at).view(100, len(at))), gradients=STEPS)


def by_transform(build, steps, is_chain):
    """Return a method by posteriors, whose temperature is one over the number of rows, as its pages advise."""

    def fit(card, x, y):
        torch.manual_seed(0)
        x, y = tensors(x, y)
        net = net_of(card)

        def per_row(params, batch):
            return log_posterior(card, net, params, *batch) / len(x), torch.tensor([])

        params = {name: p.detach().clone() for name, p in net.named_parameters()}
        transform = build(per_row, 1 / len(x))
        state, found = transform.init(params), []
        for step in range(steps):
            state, _ = transform.update(state, (x, y))
            if is_chain and step >= steps // 2 and step % (steps // 2 // NUM_DRAWS) == 0:
                found.append(copy.deepcopy(state.params))
        found = found or [posteriors.vi.diag.sample(state) for _ in range(NUM_DRAWS)]
        stacked = {name: torch.stack([each[name] for each in found]).detach() for name in params}
        run_all = torch.vmap(lambda theta, at: functional_call(net, theta, (at,))[:, 0], (0, None))
        return Fitted(draws(lambda at: run_all(stacked, at)), is_chain, steps)

    return fit


METHODS = {
    "laplace-torch": by_laplace("last_layer", "kron"),
    "laplace-torch-full": by_laplace("all", "full"),
    "torch-uncertainty-ensemble": by_ensemble,
    "torch-uncertainty-dropout": by_dropout,
    "torch-uncertainty-swag": by_swag,
    "posteriors-vi": by_transform(
        lambda density, temperature: posteriors.vi.diag.build(
            density, torchopt.adam(lr=STEP_SIZE), temperature=temperature
        ),
        20_000,
        False,
    ),
    "posteriors-langevin": by_transform(
        lambda density, temperature: posteriors.sgmcmc.baoa.build(density, lr=0.02, temperature=temperature),
        40_000,
        True,
    ),
}

if __name__ == "__main__":
    run(METHODS)
