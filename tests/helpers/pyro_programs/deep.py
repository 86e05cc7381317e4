"""Networks that make data from latent vectors, each with the guide that reads the vectors off the data."""

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from pyro import poutine
from pyro.contrib.cevae import CEVAE, TraceCausalEffect_ELBO
from pyro.distributions import constraints
from pyro.distributions.transforms import affine_autoregressive
from pyro.infer import Trace_ELBO, TraceEnum_ELBO, TraceGraph_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDiagonalNormal
from pyro.nn import PyroModule
from torch import Tensor, nn

import bnnzoo as bz
from tests.helpers.pyro_programs.catalogue import normal, refused, sampled, svi

__all__: list[str] = []

PIXELS, HIDDEN, Z = 6, 5, 2
IMAGES = (normal(4, PIXELS) > 0).double()
CLASSES = F.one_hot(torch.tensor([0, 1, 2, 1]), 3).double()


def mlp(num_inputs: int, num_outputs: int) -> nn.Module:
    """Return a network with one hidden layer."""
    return nn.Sequential(nn.Linear(num_inputs, HIDDEN), nn.Softplus(), nn.Linear(HIDDEN, num_outputs))


def halves(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a location and a scale."""
    loc, raw = net(x).chunk(2, dim=-1)
    return loc, raw.exp()


def joined(*parts: Tensor) -> Tensor:
    """Return vectors side by side, whatever their batches: classes may have a dimension of their own."""
    shape = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return torch.cat([part.expand(*shape, part.shape[-1]) for part in parts], -1)


class Autoencoder(nn.Module):
    def __init__(self, flow: bool = False) -> None:
        super().__init__()
        self.encoder, self.decoder = mlp(PIXELS, 2 * Z), mlp(Z, PIXELS)
        self.flow = affine_autoregressive(Z, hidden_dims=[HIDDEN]) if flow else None

    def prior(self, x: Tensor) -> Any:
        prior = dist.Normal(x.new_zeros(x.shape[0], Z), 1.0).to_event(1)
        return prior if self.flow is None else dist.TransformedDistribution(prior, [self.flow])

    def model(self, x: Tensor) -> None:
        pyro.module("decoder", self.decoder)
        if self.flow is not None:
            pyro.module("flow", self.flow)
        with pyro.plate("data", x.shape[0]):
            z = pyro.sample("latent", self.prior(x))
            pyro.sample("obs", dist.Bernoulli(logits=self.decoder(z)).to_event(1), obs=x)

    def guide(self, x: Tensor) -> None:
        pyro.module("encoder", self.encoder)
        with pyro.plate("data", x.shape[0]):
            pyro.sample("latent", dist.Normal(*halves(self.encoder, x)).to_event(1))


PLAIN, WITH_FLOW = Autoencoder(), Autoencoder(flow=True)
svi("vae", "", PLAIN.guide, IMAGES)(PLAIN.model)
svi("vae", "several particles", PLAIN.guide, IMAGES, elbo=Trace_ELBO(num_particles=2))(PLAIN.model)
svi("vae_flow_prior", "", WITH_FLOW.guide, IMAGES)(WITH_FLOW.model)


class SemiSupervised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder_y, self.encoder_z = mlp(PIXELS, 3), mlp(PIXELS + 3, 2 * Z)
        self.decoder = mlp(Z + 3, PIXELS)

    def model(self, xs: Tensor, ys: Tensor | None = None) -> None:
        pyro.module("ss_vae", self)
        size = xs.size(0)
        with pyro.plate("data"):
            z = pyro.sample("z", dist.Normal(xs.new_zeros([size, Z]), xs.new_ones([size, Z])).to_event(1))
            ys = pyro.sample("y", dist.OneHotCategorical(xs.new_ones([size, 3]) / 3), obs=ys)
            both = joined(z, ys)
            pyro.sample("x", dist.Bernoulli(logits=self.decoder(both)).to_event(1), obs=xs)

    def guide(self, xs: Tensor, ys: Tensor | None = None) -> None:
        with pyro.plate("data"):
            if ys is None:
                ys = pyro.sample("y", dist.OneHotCategorical(logits=self.encoder_y(xs)))
            loc, scale = halves(self.encoder_z, joined(xs, ys))
            pyro.sample("z", dist.Normal(loc, scale).to_event(1))


LABELLED, UNLABELLED = SemiSupervised(), SemiSupervised()
CLASSES_SUMMED = TraceEnum_ELBO(max_plate_nesting=1)
svi("ss-vae", "labelled", LABELLED.guide, IMAGES, CLASSES, elbo=CLASSES_SUMMED)(LABELLED.model)
svi("ss-vae", "unlabelled", config_enumerate(UNLABELLED.guide), IMAGES, elbo=CLASSES_SUMMED)(UNLABELLED.model)


class Conditional(nn.Module):
    """Of the tutorial about half of an image given the other: what is hidden is -1."""

    def __init__(self) -> None:
        super().__init__()
        self.baseline, self.prior_net = mlp(PIXELS, PIXELS), mlp(PIXELS, 2 * Z)
        self.generation, self.recognition = mlp(Z, PIXELS), mlp(PIXELS, 2 * Z)

    def model(self, xs: Tensor, ys: Tensor | None = None) -> Tensor:
        pyro.module("generation_net", self)
        with pyro.plate("data"):
            with torch.no_grad():
                y_hat = self.baseline(xs).sigmoid()
            filled = torch.where(xs == -1, y_hat, xs)
            z = pyro.sample("z", dist.Normal(*halves(self.prior_net, filled)).to_event(1))
            loc = self.generation(z).sigmoid()
            if ys is not None:
                hidden = xs == -1
                pyro.sample(
                    "y",
                    dist.Bernoulli(loc[hidden].view(len(xs), -1)).to_event(1),
                    obs=ys[hidden].view(len(xs), -1),
                )
            else:
                pyro.deterministic("y", loc.detach())
            return loc

    def guide(self, xs: Tensor, ys: Tensor | None = None) -> None:
        with pyro.plate("data"):
            loc, scale = halves(self.prior_net if ys is None else self.recognition, xs if ys is None else ys)
            pyro.sample("z", dist.Normal(loc, scale).to_event(1))


COMPLETION = Conditional()
HALF = torch.where(torch.arange(PIXELS) < 3, IMAGES, -1.0)
svi("cvae", "", COMPLETION.guide, HALF, IMAGES)(COMPLETION.model)


class DeepMarkov(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emitter, self.trans, self.combiner = mlp(Z, PIXELS), mlp(Z, 2 * Z), mlp(Z + HIDDEN, 2 * Z)
        self.rnn = nn.RNN(PIXELS, HIDDEN, batch_first=True)
        self.z_0, self.z_q_0 = nn.Parameter(torch.zeros(Z)), nn.Parameter(torch.zeros(Z))
        self.h_0 = nn.Parameter(torch.zeros(1, 1, HIDDEN))

    def model(self, x: Tensor, mask: Tensor, annealing: float = 1.0) -> None:
        pyro.module("dmm", self)
        z = self.z_0.expand(x.size(0), Z)
        with pyro.plate("z_minibatch", len(x)):
            for t in pyro.markov(range(1, x.size(1) + 1)):
                with poutine.scale(scale=annealing):
                    own = dist.Normal(*halves(self.trans, z)).mask(mask[:, t - 1 : t]).to_event(1)
                    z = pyro.sample(f"z_{t}", own)
                emitted = dist.Bernoulli(logits=self.emitter(z)).mask(mask[:, t - 1 : t]).to_event(1)
                pyro.sample(f"obs_x_{t}", emitted, obs=x[:, t - 1, :])

    def guide(self, x: Tensor, mask: Tensor, annealing: float = 1.0) -> None:
        pyro.module("dmm", self)
        output, _ = self.rnn(x.flip(1), self.h_0.expand(1, x.size(0), HIDDEN).contiguous())
        z = self.z_q_0.expand(x.size(0), Z)
        with pyro.plate("z_minibatch", len(x)):
            for t in pyro.markov(range(1, x.size(1) + 1)):
                loc, scale = halves(self.combiner, torch.cat([z, output.flip(1)[:, t - 1]], -1))
                with poutine.scale(scale=annealing):
                    z = pyro.sample(f"z_{t}", dist.Normal(loc, scale).mask(mask[:, t - 1 : t]).to_event(1))


MARKOV = DeepMarkov()
PIECES = (normal(3, 4, PIXELS) > 0).double()
LASTS = (torch.arange(4) < torch.tensor([4, 2, 3])[:, None]).double()
svi("dmm", "", MARKOV.guide, PIECES, LASTS > 0)(MARKOV.model)
svi("dmm", "annealed", MARKOV.guide, PIECES, LASTS > 0, 0.5)(MARKOV.model)


# air: objects of which there may be one more at each step, their presence discrete and of one entry
class Objects(nn.Module):
    """Presence as the tutorial has it, a vector of one entry, or as a number of each row."""

    def __init__(self, as_vector: bool = True) -> None:
        super().__init__()
        self.event_dim = int(as_vector)
        self.decode, self.encode, self.presence = mlp(Z, PIXELS), mlp(PIXELS, 2 * Z), mlp(PIXELS, 1)

    def present(self, t: int, probs: Tensor) -> Tensor:
        probs = probs if self.event_dim else probs.squeeze(-1)
        found = pyro.sample(f"z_pres_{t}", dist.Bernoulli(probs).to_event(self.event_dim))
        return found if self.event_dim else found.unsqueeze(-1)

    def model(self, data: Tensor) -> None:
        pyro.module("decode", self.decode)
        with pyro.plate("data", len(data)):
            image, present = torch.zeros_like(data), torch.ones(len(data), 1)
            for t in range(2):
                present = self.present(t, 0.5 * present)
                with poutine.mask(mask=present.squeeze(-1).bool()):
                    what = pyro.sample(f"z_what_{t}", dist.Normal(torch.zeros(len(data), Z), 1.0).to_event(1))
                image = image + self.decode(what) * present
            pyro.sample("obs", dist.Normal(image, 0.3).to_event(1), obs=data)

    def guide(self, data: Tensor) -> None:
        pyro.module("encode", self.encode)
        pyro.module("presence", self.presence)
        with pyro.plate("data", len(data)):
            present = torch.ones(len(data), 1)
            for t in range(2):
                present = self.present(t, self.presence(data).sigmoid() * present)
                with poutine.mask(mask=present.squeeze(-1).bool()):
                    pyro.sample(f"z_what_{t}", dist.Normal(*halves(self.encode, data)).to_event(1))


OBJECTS, NUMBERED = Objects(), Objects(as_vector=False)
refused("air", "", r"'z_pres_0' is one vector of 4 discrete values .* Leave .to_event\(\) out", IMAGES)(OBJECTS.model)
svi("air", "without to_event", NUMBERED.guide, IMAGES, elbo=TraceGraph_ELBO())(NUMBERED.model)

EFFECTS = CEVAE(feature_dim=3, latent_dim=2, hidden_dim=4, num_layers=2)
COVARIATES, TREATMENT = normal(6, 3), (normal(6, seed=1) > 0).double()
OUTCOMES = (normal(6, seed=2) > 0).double()
SHARED = r"two modules share one name.*both = pyro.nn.PyroModule\('both'\)"
refused("cevae", "", SHARED, COVARIATES, TREATMENT, OUTCOMES, method=bz.SVI(guide=EFFECTS.guide))(EFFECTS.model)
NAMED = CEVAE(feature_dim=3, latent_dim=2, hidden_dim=4, num_layers=2)
both = PyroModule("both")
both.model, both.guide = NAMED.model, NAMED.guide
svi("cevae", "named apart", NAMED.guide, COVARIATES, TREATMENT, OUTCOMES, elbo=TraceCausalEffect_ELBO())(NAMED.model)


# sparse_gamma: a deep exponential family, all of whose latent values are positive
COUNTS = torch.tensor([[2.0, 0, 1], [3, 1, 0]])
TOP, MID, BOTTOM = 3, 2, 2


def exponential_family(x: Tensor) -> None:
    sizes = {"w_top": TOP * MID, "w_mid": MID * BOTTOM, "w_bottom": BOTTOM * x.size(1)}
    w = {}
    for name, size in sizes.items():
        with pyro.plate(f"{name}_plate", size):
            w[name] = pyro.sample(name, dist.Gamma(torch.tensor(0.3), torch.tensor(0.3)))
    with pyro.plate("data", x.size(0)):
        top = pyro.sample("z_top", dist.Gamma(0.3, 0.3).expand([TOP]).to_event(1))
        mean = torch.matmul(top, w["w_top"].reshape(-1, TOP, MID)).squeeze(0)
        mid = pyro.sample("z_mid", dist.Gamma(0.3, 0.3 / mean).to_event(1))
        mean = torch.matmul(mid, w["w_mid"].reshape(-1, MID, BOTTOM)).squeeze(0)
        bottom = pyro.sample("z_bottom", dist.Gamma(0.3, 0.3 / mean).to_event(1))
        mean = torch.matmul(bottom, w["w_bottom"].reshape(-1, BOTTOM, x.size(1))).squeeze(0)
        pyro.sample("obs", dist.Poisson(mean).to_event(1), obs=x)


svi("sparse_gamma", "AutoDiagonalNormal", AutoDiagonalNormal, COUNTS)(exponential_family)
sampled("sparse_gamma", "NUTS", COUNTS)(exponential_family)


class Topics(nn.Module):
    """Of prodlda: topics as a network's weights, and a normal vector for each document."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder, self.encoder = nn.Linear(Z, PIXELS, bias=False), mlp(PIXELS, 2 * Z)

    def model(self, docs: Tensor) -> None:
        pyro.module("decoder", self.decoder)
        with pyro.plate("documents", docs.shape[0]):
            loc = docs.new_zeros((docs.shape[0], Z))
            theta = F.softmax(pyro.sample("logtheta", dist.Normal(loc, torch.ones_like(loc)).to_event(1)), -1)
            param = F.softmax(self.decoder(theta), -1)
            total = int(docs.sum(-1).max())
            pyro.sample("obs", dist.Multinomial(total, param), obs=docs)

    def guide(self, docs: Tensor) -> None:
        pyro.module("encoder", self.encoder)
        with pyro.plate("documents", docs.shape[0]):
            pyro.sample("logtheta", dist.Normal(*halves(self.encoder, docs)).to_event(1))


TOPICS = Topics()
svi("prodlda", "", TOPICS.guide, torch.tensor([[1.0, 0, 2, 0, 1, 0], [0, 2, 0, 1, 0, 1]]))(TOPICS.model)


class Cells(nn.Module):
    """Of scanvi: counts of genes, and a class of which the guide has the probability."""

    def __init__(self, join: Callable[[list[Tensor]], Tensor] = lambda parts: torch.cat(parts, -1)) -> None:
        super().__init__()
        self.join = join
        self.z2_decoder, self.x_decoder = mlp(Z + 3, 2 * Z), mlp(Z, 2 * PIXELS)
        self.encoder, self.z1_encoder, self.classifier = mlp(PIXELS, 2 * Z + 2), mlp(Z + 3, 2 * Z), mlp(Z, 3)

    def model(self, x: Tensor, y: Tensor | None = None) -> None:
        pyro.module("scanvi", self)
        theta = pyro.param("inverse_dispersion", x.new_ones(PIXELS), constraint=constraints.positive)
        with pyro.plate("batch", len(x)), poutine.scale(scale=0.1):
            z1 = pyro.sample("z1", dist.Normal(0, x.new_ones(Z)).to_event(1))
            y = pyro.sample("y", dist.OneHotCategorical(logits=x.new_zeros(3)), obs=y)
            both = self.join([z1, y])
            z2 = pyro.sample("z2", dist.Normal(*halves(self.z2_decoder, both)).to_event(1))
            total = pyro.sample("l", dist.LogNormal(1.0, x.new_ones(1)).to_event(1))
            gate, mu = self.x_decoder(z2).chunk(2, -1)
            logits = theta.log() - (total * mu.softmax(-1) + 1e-6).log()
            counts = dist.ZeroInflatedNegativeBinomial(gate=gate.sigmoid(), total_count=theta, logits=logits)
            pyro.sample("x", counts.to_event(1), obs=x)

    def guide(self, x: Tensor, y: Tensor | None = None) -> None:
        pyro.module("scanvi", self)
        with pyro.plate("batch", len(x)), poutine.scale(scale=0.1):
            loc, raw = self.encoder(x).chunk(2, -1)
            scale = F.softplus(raw)
            pyro.sample("l", dist.LogNormal(loc[..., -1:], scale[..., -1:]).to_event(1))
            z2 = pyro.sample("z2", dist.Normal(loc[..., :-1], scale[..., :-1]).to_event(1))
            own = dist.OneHotCategorical(logits=self.classifier(z2))
            if y is None:
                y = pyro.sample("y", own)
            else:
                pyro.factor("classification_loss", 0.1 * own.log_prob(y), has_rsample=False)
            both = joined(z2, y)
            pyro.sample("z1", dist.Normal(*halves(self.z1_encoder, both)).to_event(1))


GENES, BY_HAND, BROADCAST = Cells(), Cells(), Cells(lambda parts: joined(*parts))
CELLS = COUNTS.repeat(1, 2)
svi("scanvi", "labelled", BY_HAND.guide, CELLS, CLASSES[:2], elbo=CLASSES_SUMMED)(BY_HAND.model)
refused("scanvi", "unlabelled", "cannot be run with all values of 'y' at once.*further axes on the left", CELLS)(
    GENES.model
)
svi(
    "scanvi",
    "unlabelled, parts broadcast",
    config_enumerate(BROADCAST.guide, "parallel", expand=True),
    CELLS,
    elbo=CLASSES_SUMMED,
)(BROADCAST.model)
