"""Likelihoods as formulas use them: links, parameters with predictors of their own, and priors on the scale of the data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from bnnzoo.models.formula.parsing import FormulaError
from bnnzoo.models.likelihoods.likelihood import Likelihood

__all__ = ["FAMILIES", "Family", "Parameter", "family_of"]

type Outcome = Literal["real", "positive", "count", "proportion", "binary", "class", "ordered"]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a likelihood beside its location.

    Attributes
    ----------
    keyword : str
        Argument of the likelihood's function.
    prior : str
        Prior of one value for all rows; ``{rate}`` and ``{scale}`` stand for the outcome's scale.
    rule : str
        The same in words.
    link : str
        Function of the predictor, where the parameter has one.
    centre : float
        Of the intercept's prior on the scale of the link, beside the logarithm of the outcome's scale.
    attribute : str
        Field of the likelihood object, if it has another name.
    aliases : tuple of str
        Other names in formulas.
    """

    keyword: str
    prior: str
    rule: str
    link: str = "torch.exp"
    centre: float = 0.0
    attribute: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def in_units(self) -> bool:
        """Whether the parameter has the units of the outcome."""
        return "{rate}" in self.prior


@dataclass(frozen=True)
class Family:
    """A likelihood by name.

    Attributes
    ----------
    name : str
    outcome : str
        Kind of outcome.
    link : str
        ``"identity"``, ``"log"`` or ``"logit"``.
    parameters : mapping of str to Parameter
        By the names of their sites.
    in_units : bool
        Whether the predictor has the units of the outcome, or of its logarithm.
    """

    name: str
    outcome: Outcome
    link: Literal["identity", "log", "logit"] = "log"
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    in_units: bool = False

    def parameter(self, name: str, formula: str) -> str:
        """Return the site of a parameter by one of its names.

        Raises
        ------
        FormulaError
            If the likelihood has no such parameter.
        """
        for site, parameter in self.parameters.items():
            if name in (site, *parameter.aliases):
                return site
        known = ", ".join(self.parameters) or "none besides its mean"
        raise FormulaError(
            f"{formula!r} is a formula of {name!r}, which is neither a parameter of likelihood {self.name!r} (it has "
            f"{known}) nor "
            f"a covariate in mi({name})."
        )


_SIGMA = Parameter("scale", "dist.Exponential({rate})", "Exponential, mean the scale of the outcome")
_SD_OF_LOG = Parameter("scale", "dist.Exponential({rate})", _SIGMA.rule, attribute="value")
_DF = Parameter("df", "dist.Gamma(2.0, 0.1)", "Gamma(2, 0.1)", centre=2.0, aliases=("nu",))
_CONCENTRATION = Parameter(
    "concentration", "dist.LogNormal(1.0, 1.5)", "log-normal(1, 1.5)", centre=1.0, aliases=("phi", "shape")
)
_ZEROS = Parameter("zeros", "dist.Beta(1.0, 1.0)", "uniform", "torch.sigmoid", aliases=("zi",))
_SHAPE = Parameter("shape", "dist.LogNormal(0.0, 1.0)", "log-normal(0, 1)", aliases=("alpha",))
_PRECISION = Parameter("precision", "dist.LogNormal(2.0, 1.5)", "log-normal(2, 1.5)", centre=2.0, aliases=("phi",))
_WEIBULL = Parameter("shape", "dist.LogNormal(0.0, 1.0)", "log-normal(0, 1)", attribute="value", aliases=("k",))

FAMILIES: dict[str, Family] = {
    each.name: each
    for each in (
        Family("gaussian", "real", "identity", {"sigma": _SIGMA}, in_units=True),
        Family("laplace", "real", "identity", {"sigma": _SIGMA}, in_units=True),
        Family("student_t", "real", "identity", {"sigma": _SIGMA, "df": _DF}, in_units=True),
        Family("log_normal", "positive", "identity", {"sigma": _SD_OF_LOG}, in_units=True),
        Family("gamma", "positive", "log", {"shape": _SHAPE}),
        Family("weibull", "positive", "log", {"shape": _WEIBULL}),
        Family("beta", "proportion", "logit", {"precision": _PRECISION}),
        Family("poisson", "count"),
        Family("negative_binomial", "count", "log", {"concentration": _CONCENTRATION}),
        Family("zero_inflated_poisson", "count", "log", {"zeros": _ZEROS}),
        Family("zero_inflated_negative_binomial", "count", "log", {"zeros": _ZEROS, "concentration": _CONCENTRATION}),
        Family("bernoulli", "binary", "logit"),
        Family("categorical", "class", "logit"),
        Family("ordinal", "ordered", "logit"),
        Family("multivariate_gaussian", "real", "identity", in_units=True),
        Family("gaussian_mixture", "real", "identity", in_units=True),
    )
}

SYNONYMS = {
    **dict.fromkeys(("binomial", "logistic", "logit", "binary", "probit"), "bernoulli"),
    **dict.fromkeys(("multinomial", "softmax"), "categorical"),
    **dict.fromkeys(("cumulative", "ordered", "ordered_logistic"), "ordinal"),
    **dict.fromkeys(("normal", "linear"), "gaussian"),
    **dict.fromkeys(("negbinomial", "nb", "negbin"), "negative_binomial"),
    **dict.fromkeys(("count", "counts"), "poisson"),
    **dict.fromkeys(("student", "t"), "student_t"),
    "lognormal": "log_normal",
}
"""What other packages call these families."""

CENSORED = ("log_normal", "weibull")
"""Families of event times that may be censored."""


def family_of(likelihood: str | Likelihood) -> Family:
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
    close = [SYNONYMS[folded]] if folded in SYNONYMS else get_close_matches(folded, FAMILIES, 1)
    hint = f"did you mean {close[0]!r}? Choose" if close else "choose"
    shown = likelihood if isinstance(likelihood, str) else type(likelihood).__name__
    raise FormulaError(f"likelihood={shown!r} is not known: {hint} one of {', '.join(FAMILIES)}.")
