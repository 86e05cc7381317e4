"""Different priors for different parameters of one network."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from bnnzoo.models.priors.prior import Prior
from bnnzoo.models.written import Written, remembers_call

__all__ = ["ByParameter", "by_parameter"]


@dataclass(frozen=True, repr=False)
class ByParameter(Written):
    """A prior that depends on the name of the parameter; made by `by_parameter`."""

    patterns: Mapping[str, Prior]
    default: Prior | None

    def __call__(self, site_name: str, parameter: Tensor, fan_in: int) -> TorchDistributionMixin:
        name = site_name.partition(".")[2]
        matching = (prior for pattern, prior in self.patterns.items() if fnmatchcase(name, pattern))
        prior = next(matching, self.default)
        if prior is None:
            raise ValueError(
                f"priors.by_parameter has no prior for parameter '{name}': none of the patterns "
                f"{', '.join(map(repr, self.patterns))} matches it. Add one, or give default=..."
            )
        return prior(site_name, parameter, fan_in)

    def refuse_unmatched_patterns(self, names: Collection[str]) -> None:
        """Refuse a pattern that matches no parameter of the network, which is usually a typing error."""
        for pattern in self.patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ValueError(
                    f"priors.by_parameter: pattern '{pattern}' matches no parameter of the network. "
                    f"Its parameters are {', '.join(names)}."
                )


@remembers_call
def by_parameter(patterns: Mapping[str, Prior], default: Prior | None = None) -> Prior:
    """Different priors for different parameters, chosen by name.

    Parameters
    ----------
    patterns : Mapping[str, Prior]
        Parameter name in the network, or a shell pattern such as ``"*.bias"``, to its prior. The first match
        is used; every pattern must match some parameter.
    default : Prior, optional
        For parameters that no pattern matches.

    Returns
    -------
    Prior

    Raises
    ------
    ValueError
        When the model runs: if a pattern matches no parameter, or a parameter matches no pattern and there is no default.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> prior = bz.priors.by_parameter({"*.bias": bz.priors.normal(10.0)}, default=bz.priors.fan_in(1.0))
    >>> float(prior("net.2.bias", torch.zeros(1), fan_in=50).base_dist.scale)
    10.0
    """
    return ByParameter(dict(patterns), default)
