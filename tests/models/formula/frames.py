"""A frame with columns of every kind, for the tests of formulas."""

import numpy as np
import pandas as pd

__all__ = ["CASES", "kinds_of_columns"]

CASES: list[tuple[str | list[str], str]] = [
    ("y ~ x", "gaussian"),
    ("y ~ 1", "gaussian"),
    ("y ~ 0 + sex", "gaussian"),
    ("y ~ x*sex + `two words`", "student_t"),
    ("y ~ s(z)", "laplace"),
    ("y ~ x + gp(z)", "gaussian"),
    ("y ~ x + nn(x, z)", "gaussian"),
    ("n ~ x + (1|g) + offset(log(time))", "poisson"),
    ("n ~ x + (1|g/sex)", "negative_binomial"),
    ("n ~ x", "zero_inflated_poisson"),
    ("n ~ x", "zero_inflated_negative_binomial"),
    ("b ~ x + (1 + x || g)", "bernoulli"),
    ("c ~ x + (1|g)", "categorical"),
    ("o ~ x + s(z)", "ordinal"),
    ("p ~ x", "beta"),
    ("t ~ x", "gamma"),
    ("cens(t, e) ~ x", "weibull"),
    ("t | cens(e) ~ x", "log_normal"),
    ("y | weights(w) ~ x", "gaussian"),
    (["y ~ x", "sigma ~ z + (1|g)"], "gaussian"),
    (["y ~ x", "nu ~ z"], "student_t"),
    (["n ~ x", "phi ~ z"], "negative_binomial"),
    (["n ~ x", "zi ~ nn(z)"], "zero_inflated_poisson"),
    (["p ~ x", "phi ~ s(z)"], "beta"),
    (["cens(t, e) ~ x", "shape ~ z"], "weibull"),
    ("cbind(y, y2) ~ x + (1|g)", "multivariate_gaussian"),
    ("y ~ x", "gaussian_mixture"),
    (["y ~ mi(gaps) + z", "gaps ~ z"], "gaussian"),
    ("log(t) ~ poly(x, 2) + C(h)", "gaussian"),
    ("y ~ x + (1|g) + (0 + x|g) + (1|g:sex)", "gaussian"),
    ("y ~ x + (x|g)", "gaussian"),
]


def kinds_of_columns(num_rows: int = 60, seed: int = 0) -> pd.DataFrame:
    """Return a frame with numbers, counts, categories, times, gaps and an index of text."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.normal(10.0, 3.0, num_rows),
            "z": rng.uniform(0.0, 5.0, num_rows),
            "g": rng.permutation(np.resize(list("abcdef"), num_rows)),
            "h": rng.permutation(np.resize([0, 1, 2], num_rows)),
            "sex": rng.permutation(np.resize(["m", "f"], num_rows)),
        },
        index=[f"row {i}" for i in range(num_rows)],
    )
    frame["two words"] = frame.z**2
    frame["y"] = frame.x + np.sin(frame.z) + rng.normal(size=num_rows)
    frame["y2"] = frame.y + rng.normal(size=num_rows)
    frame["n"] = rng.poisson(np.exp(0.1 * frame.x))
    frame["b"] = rng.permutation(np.resize(["no", "yes"], num_rows))
    frame["c"] = rng.permutation(np.resize(["u", "v", "w"], num_rows))
    levels = ["low", "mid", "high"]
    frame["o"] = pd.Categorical(rng.permutation(np.resize(levels, num_rows)), levels, ordered=True)
    frame["p"] = rng.beta(2.0, 3.0, num_rows)
    frame["t"] = 3 * rng.weibull(2.0, num_rows)
    frame["e"] = rng.integers(0, 2, num_rows)
    frame["w"] = rng.integers(1, 3, num_rows)
    frame["time"] = rng.uniform(1.0, 2.0, num_rows)
    frame["gaps"] = frame.x.where(rng.uniform(size=num_rows) > 0.2)
    frame["outcome_with_gaps"] = frame.y.where(rng.uniform(size=num_rows) > 0.2)
    return frame
