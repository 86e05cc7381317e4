"""From the statements of a program to a model: its code, its sites with the user's priors, and what the code refers to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from pyro.distributions.torch_distribution import TorchDistributionMixin

from bnnzoo.models.formula.formula_sites import FormulaSite, written
from bnnzoo.models.formula.frames import variables_of
from bnnzoo.models.formula.model import Formula
from bnnzoo.models.formula.parsing import FormulaError
from bnnzoo.models.formula.predictors import ModelCode
from bnnzoo.models.formula.response import Outcome
from bnnzoo.models.likelihoods.likelihood import Likelihood

__all__ = ["ARGUMENTS", "write_model"]

ARGUMENTS = ("y", "row_weights", "censored")
"""Arguments of every model that takes them, beside those of its terms."""


def write_model(
    program: ModelCode,
    texts: tuple[str, ...],
    outcome: Outcome,
    returned: str,
    priors: Mapping[str, TorchDistributionMixin],
    likelihood: str | Likelihood,
) -> Formula:
    """Return the model of a program: its code, sites and encoders.

    Parameters
    ----------
    program : ModelCode
    texts : tuple of str
        The formulas.
    outcome : Outcome
    returned : str
        The last line of the code.
    priors : mapping of str to Distribution
        The user's, by site.
    likelihood : str or Likelihood

    Raises
    ------
    FormulaError
        If a prior is of no site, or of another shape.
    """
    sites, constants = _with_priors([each for each in program.statements if isinstance(each, FormulaSite)], priors)
    constants |= {name: value for term in program.terms for name, value in term.constants.items()}
    if not isinstance(likelihood, str):
        constants["LIKELIHOOD"] = likelihood
    lines = [sites[each.name].statement() if isinstance(each, FormulaSite) else each for each in program.statements]
    lines.append(returned)
    found = list(dict.fromkeys(name for term in program.terms for name in term.names))
    optional = [name for name in found if name.startswith(("new", "gap"))]
    needed = [name for name in found if name not in optional]
    if any("rows" in line.split(" = ", 1)[-1].split(" + ") for line in lines):
        needed.append("rows")
    uses = [name for name in ARGUMENTS if name == "y" or name in lines[-1]]
    signature = ", ".join([*needed, *(f"{name}=None" for name in [*uses, *optional])])
    shown = "; ".join(texts).replace("\\", "").replace('"', "'")
    body = "\n".join(f"    {line}" for line in lines)
    code = f'def model({signature}):\n    """{shown}"""\n{body}\n'
    dims = {site.name: site.dims for site in sites.values() if site.dims}
    coords = {dim: labels for site in sites.values() for dim, labels in site.coords.items()}
    for term in program.terms:
        dims |= term.dims
        coords |= term.coords
    encoders = {id(term.encoder): term.encoder for term in program.terms}
    used = _columns(program, outcome, (outcome, *encoders.values()))
    kept = program.frame[used].copy()
    return Formula(texts, outcome, code, kept, tuple(sites.values()), tuple(encoders.values()), constants, dims, coords)


def _columns(program: ModelCode, outcome: Outcome, encoders: Sequence[Any]) -> list[str]:
    """Return the columns of the frame that a formula uses, in the order of the frame."""
    texts: list[str] = [*outcome.texts, *outcome.additions.values()]
    found: set[str] = set()
    for encoder in encoders:
        texts += [*getattr(encoder, "texts", ()), *getattr(encoder, "variables", ())]
        texts += [encoder.variable] if hasattr(encoder, "variable") else []
        found |= (
            set(encoder.levels.columns) if hasattr(encoder, "levels") and hasattr(encoder.levels, "columns") else set()
        )
        if getattr(encoder, "design", None) is not None:
            found |= {str(name) for name in encoder.design.spec.required_variables}
    for text in texts:
        found |= set(variables_of(text, program.frame))
    return [str(name) for name in program.frame.columns if name in found]


def _with_priors(
    sites: Sequence[FormulaSite], priors: Mapping[str, TorchDistributionMixin]
) -> tuple[dict[str, FormulaSite], dict[str, Any]]:
    """Return the sites with the user's priors in place of the default ones, and priors that cannot be written as code."""
    found, constants = {site.name: site for site in sites}, {}
    for name, prior in priors.items():
        if name not in found:
            close = get_close_matches(name, found, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise FormulaError(f"priors has {name!r}, and the model has no such site; it has {', '.join(found)}.{hint}")
        if not isinstance(prior, TorchDistributionMixin):
            raise FormulaError(
                f"priors[{name!r}] must be a Pyro distribution, such as dist.Normal(0.0, 1.0), not {prior!r}."
            )
        site, shape = found[name], prior.batch_shape + prior.event_shape
        if shape not in ((), site.shape):
            raise FormulaError(
                f"priors[{name!r}] has shape {tuple(shape)}, and the site {tuple(site.shape)}: write a distribution "
                f"of one number, "
                f"or of that shape."
            )
        text = written(prior)
        if text is None:
            text = f"PRIOR_{site.variable}"
            constants[text] = prior
        if site.shape:
            event = len(site.shape) - len(prior.event_shape)
            text += f".expand({list(site.shape)})" if shape == () else ""
            text += f".to_event({event})" if event else ""
        found[name] = replace(site, prior=text, rule="given")
    return found, constants
