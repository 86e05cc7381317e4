"""Functions of effects, or of parameters, such as the difference of two."""

import ast
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.effects.effect_estimates import Effects
from bnnzoo.predictive import to_datatree

__all__ = ["hypotheses"]

type Array = NDArray[np.floating[Any]]

FUNCTIONS = {"abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt}
ALLOWED = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.Call,
    ast.Name,
    ast.Constant,
    ast.operator,
    ast.unaryop,
    ast.Load,
)
PAIRS = ("pairwise", "reference", "sequential")


def hypotheses(
    effects: Effects | Posterior, hypothesis: str | Sequence[str], *, num_draws: int | None = None
) -> Effects:
    """Return functions of effects, or of the parameters of a posterior, with their draws.

    Parameters
    ----------
    effects : Effects or Posterior
        Effects are called ``b0``, ``b1``, ... in the order of their rows; parameters by their names, and entries of vectors by
        their labels, as in ``"b_sex[m]"``.
    hypothesis : str or sequence of str
        An equation or expression, such as ``"b1 - b0 = 0"``, ``"b0 = 2 * b1"``, ``"exp(b_dose)"``; or ``"pairwise"``,
        ``"reference"``, ``"sequential"``, the differences between rows. The two sides of an equation are subtracted.
    num_draws : int, optional
        Draws a chain of a posterior.

    Returns
    -------
    Effects
        ``prob_positive`` in its frame is the probability that the left side is larger.

    Raises
    ------
    ValueError
        If a name or a function is not known.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> frame = pd.DataFrame({"y": [1.0, 2.0, 2.5, 4.0], "dose": [0.0, 1.0, 2.0, 3.0]})
    >>> posterior = bz.fit(bz.formula("y ~ dose", frame), bz.Laplace(), frame, progress=False)
    >>> found = bz.effects.predictions(posterior, newdata={"dose": [0.0, 1.0]}, num_draws=50)
    >>> bz.effects.hypotheses(found, "b1 - b0 = 0").rows["term"].tolist()
    ['b1 - b0 = 0']
    >>> len(bz.effects.hypotheses(posterior, ["b_dose > 0", "exp(b_dose)"], num_draws=50))
    2
    """
    names: dict[str, Array] = {}
    if isinstance(effects, Effects):
        names = {f"b{row}": effects.draws[..., row] for row in range(len(effects.rows))}
    else:
        for name, array in to_datatree(effects, num_draws=num_draws)["posterior"].data_vars.items():
            values = array.to_numpy()
            if values.ndim == 2:
                names[str(name)] = values
                continue
            labels = [[str(label) for label in array[dim].to_numpy()] for dim in array.dims[2:]]
            flat = values.reshape(*values.shape[:2], -1)
            for place, chosen in enumerate(itertools.product(*labels)):
                names[f"{name}[{', '.join(chosen)}]"] = flat[..., place]
    if isinstance(hypothesis, str) and hypothesis in PAIRS:
        hypothesis = _pairs(hypothesis, list(names))
    texts = [hypothesis] if isinstance(hypothesis, str) else list(hypothesis)
    if not texts:
        raise ValueError("There is no hypothesis: write 'b1 - b0 = 0'.")
    draws = np.stack([_value(text, names) for text in texts], -1)
    return Effects("hypotheses", draws, pd.DataFrame({"term": texts}))


def _pairs(kind: str, names: list[str]) -> list[str]:
    if kind == "reference":
        return [f"{name} - {names[0]} = 0" for name in names[1:]]
    pairs = itertools.pairwise(names) if kind == "sequential" else itertools.combinations(names, 2)
    return [f"{high} - {low} = 0" for low, high in pairs]


def _value(text: str, names: dict[str, Array]) -> Array:
    """Return the left side of a hypothesis less the right side, for each draw."""
    safe, values = text, {}
    for number, name in enumerate(sorted(names, key=len, reverse=True)):  # names may hold brackets, colons and spaces
        if name in safe and not name.isidentifier():
            safe = safe.replace(name, f"_name{number}_")
            values[f"_name{number}_"] = names[name]
        elif name.isidentifier():
            values[name] = names[name]
    for sign in ("==", ">=", "<=", ">", "<"):
        safe = safe.replace(sign, "=")
    sides = safe.split("=")
    if len(sides) > 2:
        raise ValueError(f"The hypothesis {text!r} has several signs of equality or order: write one.")
    found = [np.asarray(_evaluated(side, values, text, names), dtype=float) for side in sides]
    shape = next(iter(names.values())).shape
    total = found[0] if len(found) == 1 else found[0] - found[1]
    return np.broadcast_to(total, shape)


def _evaluated(side: str, values: dict[str, Array], text: str, names: dict[str, Array]) -> Any:
    try:
        tree = ast.parse(side.strip(), mode="eval")
    except SyntaxError:
        raise ValueError(f"The hypothesis {text!r} cannot be read: write 'b1 - b0 = 0'.") from None
    for node in ast.walk(tree):
        if not isinstance(node, ALLOWED):
            raise ValueError(
                f"The hypothesis {text!r} has more than sums, products, powers and {', '.join(FUNCTIONS)}."
            )
        if isinstance(node, ast.Name) and node.id not in {*values, *FUNCTIONS}:
            shown = ", ".join(list(names)[:12]) + (", ..." if len(names) > 12 else "")
            raise ValueError(f"The hypothesis {text!r} has {node.id!r}, which is not known; there are {shown}.")
    return eval(compile(tree, "<hypothesis>", "eval"), {"__builtins__": {}}, {**FUNCTIONS, **values})
