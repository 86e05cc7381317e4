"""Trained networks and what they are to be adapted to: digits that they have not seen, and text of other authors.

Both networks are trained here, on one part of the data, and get low-rank adapters for the other.
"""

import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import bnnzoo as bz

__all__ = ["Problem", "digits", "text"]

NUM_DIGITS, NUM_TEST = 300, 1000  # of images
CONTEXT, WIDTH = 12, 48
NUM_TEXT, NUM_OTHER_TEXT = 500, 3000  # characters to adapt with, and to judge by
LETTERS = "\x00 abcdefghijklmnopqrstuvwxyz0123456789.,;:'\"()[]{}<>=+-*/_\n"
PACKAGES = ("collections", "argparse", "datetime", "decimal", "logging", "random", "statistics", "pathlib", "socket")
"""Where the transformer learns; `inspect`, `subprocess`, `asyncio` and `unittest` are what it is adapted to."""
OTHERS = ("asyncio", "inspect", "subprocess", "unittest")


@dataclass(frozen=True, eq=False)
class Problem:
    """A network with adapters, and rows to adapt it with and to judge it by."""

    net: nn.Module
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    share: float
    """Adapters as a share of the trained network's parameters."""


def digits(seed: int) -> Problem:
    """Return a network trained on MNIST's digits 0 to 4, with adapters for 5 to 9, whose labels are 0 to 4, too."""
    with np.load(Path(os.environ["BNNZOO_DATA"]) / "images" / "mnist_5000.npz") as arrays:
        x = torch.tensor(arrays["images"].reshape(-1, 784) / 255, dtype=torch.float32)
        labels = torch.tensor(arrays["labels"].astype(int))
    torch.manual_seed(seed)
    net = bz.models.mlp(784, (256, 256), 5, "relu")
    first = labels < 5
    train(net, net, x[first], labels[first], num_steps=400, batch_size=128)
    rows = torch.randperm(int((~first).sum()))
    x, y = x[~first][rows], labels[~first][rows] - 5
    wanted = slice(NUM_DIGITS + NUM_TEST)
    return adapted(net, 4, (x[wanted], y[wanted]), NUM_DIGITS)


class Transformer(nn.Module):
    """Two blocks of causal attention over the last 12 characters; only the next character is predicted."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, len(LETTERS))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of the next character."""
        return self.everywhere(x)[..., -1, :]

    def everywhere(self, x: Tensor) -> Tensor:
        """Return logits of the character after each of them, for training."""
        h = self.letters(x) + self.places
        for block in self.blocks:
            h = block(h)
        logits: Tensor = self.head(h)
        return logits


class Block(nn.Module):
    """Attention and a network of one hidden layer, each added to its normalised input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.hidden = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), -1e9).triu(1))

    def forward(self, h: Tensor) -> Tensor:
        """Return the sequence after the block."""
        z = self.first(h)
        h = h + self.attention(z, z, z, attn_mask=self.mask, need_weights=False)[0]
        out: Tensor = h + self.hidden(self.second(h))
        return out


def text(seed: int) -> Problem:
    """Return a transformer trained on docstrings of the standard library, with adapters for those of other modules."""
    torch.manual_seed(seed)
    net = Transformer()
    x, y = windows(docstrings(PACKAGES), stride=CONTEXT)
    train(net.everywhere, net, x, torch.cat([x[:, 1:], y[:, None]], 1), num_steps=1000, batch_size=64)
    whole = docstrings(OTHERS)
    middle = len(whole) // 2  # what the adapters learn from and what they are judged by are different docstrings
    halves = (whole[:middle], NUM_TEXT), (whole[middle:], NUM_OTHER_TEXT)
    parts = [pick(windows(half, stride=5), num) for half, num in halves]
    x, y = (torch.cat(each) for each in zip(*parts, strict=True))
    return adapted(net, 2, (x, y), len(parts[0][0]))


def pick(rows: tuple[Tensor, Tensor], num: int) -> tuple[Tensor, Tensor]:
    """Return some of the rows, in random order."""
    chosen = torch.randperm(len(rows[0]))[:num]
    return rows[0][chosen], rows[1][chosen]


def docstrings(names: Iterable[str]) -> str:
    """Return the docstrings of modules and of what they define, in lower case, each once."""
    found: dict[str, None] = {}
    for module in map(import_module, (each for name in names for each in with_submodules(name))):
        members = [
            value for _, value in inspect.getmembers(module) if getattr(value, "__module__", "") == module.__name__
        ]
        inner = [value for each in members if inspect.isclass(each) for value in vars(each).values()]
        found |= dict.fromkeys(filter(None, (inspect.getdoc(each) for each in [module, *members, *inner])))
    kept = f"[^{re.escape(LETTERS)}]"
    return "\x00".join(re.sub(kept, "", each.lower()) for each in found)


def with_submodules(name: str) -> list[str]:
    """Return a module's name and those of the modules in it that start no program."""
    inside = getattr(import_module(name), "__path__", None)
    names = [each.name for each in pkgutil.iter_modules(inside)] if inside else []
    unwanted = (
        {"__main__", "windows_events", "windows_utils"} if sys.platform != "win32" else {"__main__", "unix_events"}
    )
    return [name, *(f"{name}.{each}" for each in names if each not in unwanted)]


def windows(whole: str, stride: int) -> tuple[Tensor, Tensor]:
    """Return pieces [N, 12] of a text as numbers, and the character [N] after each."""
    numbers = torch.tensor([LETTERS.index(each) for each in whole])
    pieces = numbers.unfold(0, CONTEXT + 1, stride)
    return pieces[:, :-1], pieces[:, -1]


def train(
    logits: Callable[[Tensor], Tensor], net: nn.Module, x: Tensor, y: Tensor, num_steps: int, batch_size: int
) -> None:
    """Train a network in place by Adam: `logits` is the network, or one of its methods, and `y` has its classes."""
    optimiser = torch.optim.Adam(net.parameters(), 2e-3)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, num_steps)
    for _ in range(num_steps):
        rows = torch.randint(len(x), (batch_size,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(logits(x[rows]).flatten(0, -2), y[rows].flatten()).backward()
        optimiser.step()
        rate.step()


def adapted(net: nn.Module, rank: int, rows: tuple[Tensor, ...], num_train: int) -> Problem:
    """Return the problem of a trained network with adapters, the first rows for training and the others for tests."""
    x, y = rows
    copy = bz.models.lora(net.eval(), rank=rank)
    share = sum(value.numel() for value in bz.models.adapter_state(copy).values()) / sum(
        map(torch.numel, net.parameters())
    )
    return Problem(net=copy, x=x[:num_train], y=y[:num_train], x_test=x[num_train:], y_test=y[num_train:], share=share)
