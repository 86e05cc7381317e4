"""Likelihoods as formulas use them."""

from difflib import get_close_matches
from typing import Any

from bnnzoo.models.formula.parsing import FormulaError
from bnnzoo.models.likelihoods import Likelihood
from bnnzoo.models.likelihoods.named import NamedLikelihood, likelihoods_that

__all__ = ["FAMILIES", "family_of", "parameter_of"]

FAMILIES = likelihoods_that(lambda each: each.link is not None)


def parameter_of(family: NamedLikelihood, name: str, formula: str) -> str:
    """Return the site of a likelihood's parameter by one of its names.

    Raises
    ------
    FormulaError
        If the likelihood has no such parameter.
    """
    for site, parameter in family.parameters.items():
        if name in (site, *parameter.aliases):
            return site
    known = ", ".join(family.parameters) or "none besides its mean"
    raise FormulaError(
        f"{formula!r} is a formula of {name!r}, which is neither a parameter of likelihood {family.name!r} (it has "
        f"{known}) nor a covariate in mi({name})."
    )


def family_of(likelihood: str | Likelihood) -> NamedLikelihood:
    """Return the family of a likelihood, given by name or as an object of `bnnzoo.likelihoods`.

    Raises
    ------
    FormulaError
        If the likelihood is not known.

    Examples
    --------
    >>> family_of("poisson").link
    'log'
    """
    name: Any = likelihood if isinstance(likelihood, str) else getattr(likelihood, "name", None)
    name = str(name).removeprefix("likelihoods.")
    if name in FAMILIES:
        return FAMILIES[name]
    if name.startswith("heteroscedastic_"):
        base = name.removeprefix("heteroscedastic_")
        raise FormulaError(
            f"likelihood={name!r}: write likelihood={base!r} and a formula of sigma, such as formula(['y ~ x', 'sigma "
            f"~ x'], ...)."
        )
    folded = name.lower().replace(" ", "_").replace("-", "_")
    close = [name for name, each in FAMILIES.items() if folded in each.synonyms] or get_close_matches(
        folded, FAMILIES, 1
    )
    hint = f"did you mean {close[0]!r}? Choose" if close else "choose"
    shown = likelihood if isinstance(likelihood, str) else type(likelihood).__name__
    raise FormulaError(f"likelihood={shown!r} is not known: {hint} one of {', '.join(FAMILIES)}.")
