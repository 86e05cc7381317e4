"""Likelihoods by name, as formulas and the command line offer them; each is described where it is written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from bnnzoo.models.likelihoods.likelihood import Likelihood

__all__ = ["NAMED", "SIGMA", "NamedLikelihood", "Outcome", "Parameter", "Support", "likelihoods_that", "named"]

type Outcome = Literal["real", "positive", "count", "proportion", "binary", "class", "ordered"]
type Support = Literal["class", "count", "positive", "proportion", "real"]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a likelihood beside its location, as formulas use it.

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


SIGMA = Parameter("scale", "dist.Exponential({rate})", "Exponential, mean the scale of the outcome")


@dataclass(frozen=True)
class NamedLikelihood:
    """A likelihood by name.

    Attributes
    ----------
    name : str
    make : callable
        Returns it, with its default settings; of ordered classes, takes their number.
    outcome : str
        Kind of outcome.
    words : str, optional
        Description, where it is offered for tables on the command line.
    num_outputs : int
        Outputs of the network per target; of classes without an order, one for each.
    link : {"identity", "log", "logit"}, optional
        Where it is offered in formulas.
    parameters : mapping of str to Parameter
        By the names of their sites.
    in_units : bool
        Whether the predictor has the units of the outcome, or of its logarithm.
    synonyms : tuple of str
        What other packages call it.
    censored : bool
        Whether it is one of event times, which may be censored.
    """

    name: str
    make: Callable[..., Likelihood]
    outcome: Outcome
    words: str | None = None
    num_outputs: int = 1
    link: Literal["identity", "log", "logit"] | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    in_units: bool = False
    synonyms: tuple[str, ...] = ()
    censored: bool = False

    @property
    def support(self) -> Support:
        """Values of the target."""
        if self.outcome == "binary" or self.outcome == "class" or self.outcome == "ordered":
            return "class"
        return self.outcome

    def for_classes(self, num_classes: int) -> tuple[Likelihood, int]:
        """Return the likelihood and the number of outputs of a network for so many classes, 0 for regression."""
        if self.outcome == "ordered":
            return self.make(num_classes), self.num_outputs
        return self.make(), num_classes or self.num_outputs


NAMED: dict[str, NamedLikelihood] = {}


def named[Make: Callable[..., Likelihood]](
    outcome: Outcome, words: str | None = None, **offered: Any
) -> Callable[[Make], Make]:
    """Offer the likelihood that a function makes under the function's name; see :class:`NamedLikelihood`."""

    def register(make: Make) -> Make:
        NAMED[make.__name__] = NamedLikelihood(make.__name__, make, outcome, words, **offered)
        return make

    return register


def likelihoods_that(offered: Callable[[NamedLikelihood], bool]) -> dict[str, NamedLikelihood]:
    """Return those of the likelihoods, by name and by kind of outcome, the common ones first.

    Examples
    --------
    >>> list(likelihoods_that(lambda each: each.censored))
    ['log_normal', 'weibull']
    """
    kinds = get_args(Outcome.__value__)
    chosen = sorted(filter(offered, NAMED.values()), key=lambda each: (kinds.index(each.outcome), each.words is None))
    return {each.name: each for each in chosen}
