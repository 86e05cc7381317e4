"""Findings in words: what a model misses, by how much, and what to write instead."""

from dataclasses import dataclass

from bnnzoo.checking.misfit import Question
from bnnzoo.checking.prior import SENSITIVE, Conflict, PriorPrediction, Sensitivity

__all__ = ["Finding", "of_conflict", "of_prior_prediction", "of_question"]


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes
    ----------
    kind : str
        Name of the check.
    is_fault : bool
        False for a note, which does not count against the model.
    sentence, advice : str
        What was found, and what to do.
    evidence : dict
        Numbers behind it: ``p_value``, ``size`` and the like.
    """

    kind: str
    is_fault: bool
    sentence: str
    advice: str
    evidence: dict[str, float | str]


FITTED = "the fitted mean"
MANY_TIMES = 1000.0
"""Ratio of the standard deviations of data from the prior and of the data beyond which a prior says next to nothing."""


def of_question(site: str, asked: Question) -> Finding:
    """Return the finding of a question about a site whose answer is unlikely under the model."""
    sentence, advice = _WORDS[asked.kind](site, asked)
    evidence: dict[str, float | str] = {
        "site": site,
        "about": asked.about,
        "p_value": asked.p_value,
        "size": asked.size,
        "shape": asked.shape,
    }
    return Finding(asked.kind, True, f"{sentence} ({_p(asked.p_value)}).", advice, evidence)


def _p(value: float) -> str:
    return "p < 0.0001" if value < 1e-4 else f"p = {value:.4f}"


def _level(site: str, asked: Question) -> tuple[str, str]:
    where = "above" if asked.size > 0 else "below"
    return (
        f"{site} lies {where} its predictions, by {abs(asked.size):.2f} standard deviations on average",
        "Look for a missing intercept or offset, or for a prior that holds the level back.",
    )


def _dispersion(site: str, asked: Question) -> tuple[str, str]:
    if asked.size > 0:
        return (
            f"{site} scatters more than the model says",
            "Take a likelihood with a scale of its own: negative_binomial in place of poisson, beta_binomial in place of "
            "binomial, student_t in place of gaussian; or look for effects that are missing.",
        )
    return (
        f"{site} scatters less than the model says",
        "Let the data choose the scale, or take a likelihood with less variance.",
    )


def _shape(site: str, asked: Question) -> tuple[str, str]:
    what = "is skewed differently from what" if asked.shape == "skew" else "has other tails, or another middle, than"
    return (
        f"{site} {what} the model says",
        "Take another likelihood (student_t for heavy tails, gamma or lognormal for skewness, a truncated one for values that "
        "end at a limit), or transform the outcome.",
    )


def _outliers(site: str, asked: Question) -> tuple[str, str]:
    return (
        f"{site} has observations far outside of what the model predicts for them",
        "Look at these rows first; a likelihood with heavy tails, such as student_t, keeps them from pulling the fit.",
    )


def _limit(site: str, asked: Question) -> tuple[str, str]:
    end = "smallest" if asked.kind == "smallest" else "largest"
    side = "higher" if asked.size > 0 else "lower"
    if (asked.kind == "smallest") == (asked.size > 0):
        return (
            f"The {end} value of {site} is {side} than the model says: data seem to end at a limit",
            "Ask how rows came into the table; a truncated or censored likelihood says that values beyond a limit are not seen.",
        )
    return (
        f"The {end} value of {site} is {side} than the model says",
        "Look at this row first; a likelihood with heavier tails allows for such values.",
    )


def _zeros(site: str, asked: Question) -> tuple[str, str]:
    many = f"{asked.size:.2g} times as many zeros as the model expects"
    advice = (
        "Take a zero-inflated likelihood or one with more dispersion, such as negative_binomial."
        if asked.size > 1
        else "Take a likelihood without so many zeros, such as a truncated or a less dispersed one."
    )
    return f"{site} has {many}", advice


def _curve(site: str, asked: Question) -> tuple[str, str]:
    name = asked.variables[0]
    what = {"rise": "rise", "fall": "fall", "curve": "bend"}[asked.shape]
    if name == "fitted":
        return (
            f"Residuals of {site} {what} with {FITTED} (correlation {asked.size:.2f})",
            "Try another link or a transformed outcome, or look for a term that is missing.",
        )
    return (
        f"Residuals of {site} {what} with {name} (correlation {asked.size:.2f})",
        f"Add {name} to the model, or let its effect bend: s({name}), a polynomial or a network.",
    )


def _spread(site: str, asked: Question) -> tuple[str, str]:
    name = FITTED if asked.variables[0] == "fitted" else asked.variables[0]
    what = {"rise": "grows", "fall": "shrinks", "curve": "changes"}[asked.shape]
    return (
        f"The scatter of {site} {what} with {name} beyond what the model says",
        "Model the scale, as in sigma ~ x, or take a likelihood or link whose variance changes with the mean.",
    )


def _neighbours(site: str, asked: Question) -> tuple[str, str]:
    name = FITTED if asked.variables[0] == "fitted" else asked.variables[0]
    return (
        f"Residuals of {site} that are neighbours in {name} are alike (correlation {asked.size:.2f})",
        f"The effect of {name} has more shape than the model gives it: s({name}), a Gaussian process or a network.",
    )


def _order(site: str, asked: Question) -> tuple[str, str]:
    kind = "alike" if asked.size > 0 else "opposite"
    return (
        f"Residuals of {site} in rows near one another are {kind} (correlation {asked.size:.2f})",
        "If rows are in the order of time or place, model it: an autoregression, a random walk, a Gaussian process; if they come "
        "in blocks, add an effect of each block.",
    )


def _groups(site: str, asked: Question) -> tuple[str, str]:
    name = asked.variables[0]
    return (
        f"Residuals of {site} differ between the levels of {name}",
        f"Add an effect of each level, (1 | {name}) or {name}.",
    )


def _spread_of_groups(site: str, asked: Question) -> tuple[str, str]:
    name = asked.variables[0]
    return (
        f"The scatter of {site} differs between the levels of {name}",
        f"Give each level a scale of its own: sigma ~ {name}.",
    )


def _product(site: str, asked: Question) -> tuple[str, str]:
    first, second = asked.variables
    return (
        f"The effect of {first} on {site} changes with {second}",
        f"Add the interaction {first}:{second}, or a network of both.",
    )


def _slopes(site: str, asked: Question) -> tuple[str, str]:
    name, group = asked.variables
    return (
        f"The slope of {site} along {name} differs between the levels of {group}",
        f"Let the slope vary: ({name} | {group}).",
    )


_WORDS = {
    "level": _level,
    "dispersion": _dispersion,
    "shape": _shape,
    "outliers": _outliers,
    "smallest": _limit,
    "largest": _limit,
    "zeros": _zeros,
    "curve": _curve,
    "spread": _spread,
    "neighbours": _neighbours,
    "order": _order,
    "groups": _groups,
    "spread of groups": _spread_of_groups,
    "product": _product,
    "slopes": _slopes,
}


def of_conflict(found: Conflict, sensitivity: Sensitivity | None = None) -> Finding:
    """Return the finding of a prior that the data contradict, with what power scaling says of it."""
    side = "above" if found.z > 0 else "below"
    evidence: dict[str, float | str] = {"site": found.name, "p_value": found.p_value, "size": found.z}
    scaled = ""
    if sensitivity is not None:
        evidence |= {"prior_sensitivity": sensitivity.prior, "likelihood_sensitivity": sensitivity.likelihood}
        scaled = (
            f" Power scaling: sensitivity {sensitivity.prior:.2f} to the prior and {sensitivity.likelihood:.2f} to the "
            f"likelihood, {'both' if sensitivity.is_conflict else 'not both'} above {SENSITIVE}."
        )
    return Finding(
        "prior",
        True,
        f"The posterior of {found.name} lies far {side} its prior, {abs(found.z):.1f} times as far as the prior expects "
        f"({_p(found.p_value)}).{scaled}",
        f"Look at the units of {found.name} and of what it multiplies, and write a prior that allows such values.",
        evidence,
    )


def of_prior_prediction(found: PriorPrediction, level: float) -> Finding | None:
    """Return the finding of data that the prior hardly produces, or a note on a prior that says next to nothing."""
    evidence: dict[str, float | str] = {"site": found.site, "p_value": found.p_value, "size": found.observed}
    span = f"95% of data sets from the prior: {found.low:.3g} to {found.high:.3g}"
    if found.p_value < level:
        return Finding(
            "prior predictive",
            True,
            f"The prior hardly produces data like these: the {found.statistic} of {found.site} is {found.observed:.3g} "
            f"({span}).",
            "Widen or move the priors, and look at the units of the data.",
            evidence,
        )
    if found.times > MANY_TIMES:
        return Finding(
            "prior predictive",
            False,
            f"Data sets from the prior scatter {float(f'{found.times:.2g}'):,.0f} times as much as the data ({span}).",
            "Nothing is wrong if the data outweigh the prior; a narrower one makes sampling easier and small data sets safer.",
            evidence | {"size": found.times},
        )
    return None
