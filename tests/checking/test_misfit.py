"""Questions to scores: p-values are uniform where scores are standard normal, and small where they depend on something."""

import numpy as np
import pytest
from scipy.special import ndtr

from bnnzoo.checking.misfit import questions
from bnnzoo.checking.normal_scores import Scores
from bnnzoo.checking.variables import Variables

SIZE = 120


def scores_with(location: np.ndarray, observed: np.ndarray | None = None, **changed: object) -> Scores:
    draws, size = location.shape
    ends = np.stack([ndtr(-location.min(1)) ** size, 1 - ndtr(location.max(1)) ** size])
    largest = 1 - (2 * ndtr(np.abs(location).max(1)) - 1) ** size
    y = location[0] if observed is None else observed
    rng = np.random.default_rng(1)
    given = {"zeros": np.zeros(draws), "zeros_sd": np.zeros(draws), "is_discrete": False, "is_binary": False}
    return Scores(
        name="y",
        location=location,
        largest=largest,
        ends=ends,
        observed=y,
        fitted=rng.normal(size=size),
        rows=np.arange(size),
        num_rows=size,
        **(given | changed),
    )


def some_variables(seed: int = 2) -> Variables:
    rng = np.random.default_rng(seed)
    numbers = {
        "x": rng.normal(size=SIZE),
        "w": rng.exponential(size=SIZE),
        "few": rng.integers(0, 3, SIZE).astype(float),
    }
    return Variables(numbers, {"g": np.arange(SIZE) % 7})


def p_values(location: np.ndarray, variables: Variables) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(each.kind, each.variables): each.p_value for each in questions(scores_with(location), variables)}


def test_p_values_are_uniform_if_the_model_is_right() -> None:
    variables, rng, number = some_variables(), np.random.default_rng(0), 400
    found = [p_values(rng.normal(size=(1, SIZE)), variables) for _ in range(number)]
    assert len(found[0]) > 20
    for question in found[0]:
        values = np.array([each[question] for each in found])
        for level in (0.05, 0.25, 0.5):
            error = np.sqrt(level * (1 - level) / number)
            if question[0] == "outliers":  # the smaller of two, doubled
                assert (values < level).mean() < level + 4 * error, question
            else:
                assert abs((values < level).mean() - level) < 4 * error, (question, level)


def faults(location: np.ndarray, variables: Variables) -> set[tuple[str, tuple[str, ...]]]:
    return {question for question, p in p_values(location, variables).items() if p < 1e-4}


NOISE = np.random.default_rng(5).normal(size=(1, SIZE))
PLANTED = {
    "level": (lambda v: NOISE + 0.8, ("level", ())),
    "dispersion": (lambda v: 1.6 * NOISE, ("dispersion", ())),
    "shape": (lambda v: np.sign(NOISE) * np.abs(NOISE) ** 0.3, ("shape", ())),
    "outliers": (lambda v: np.where(np.arange(SIZE) % 9 == 0, 4.0, NOISE), ("outliers", ())),
    "largest": (lambda v: np.minimum(NOISE, 0.4), ("largest", ())),
    "smallest": (lambda v: np.maximum(NOISE, -0.4), ("smallest", ())),
    "curve": (lambda v: NOISE + 0.6 * (v.numbers["x"] ** 2 - 1), ("curve", ("x",))),
    "spread": (lambda v: np.exp(0.8 * v.numbers["x"]) * NOISE, ("spread", ("x",))),
    "neighbours": (lambda v: NOISE + np.sin(9 * v.numbers["x"]), ("neighbours", ("x",))),
    "groups": (lambda v: NOISE + 0.4 * (v.groupings["g"] - 3), ("groups", ("g",))),
    "spread of groups": (lambda v: NOISE * np.exp(0.4 * (v.groupings["g"] - 3)), ("spread of groups", ("g",))),
    "product": (lambda v: NOISE + 0.6 * v.numbers["x"] * (v.numbers["w"] - 1), ("product", ("x", "w"))),
    "slopes": (lambda v: NOISE + 0.5 * (v.groupings["g"] - 3) * v.numbers["x"], ("slopes", ("x", "g"))),
    "order": (lambda v: NOISE + np.roll(NOISE, 2), ("order", ())),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_planted_is_found(kind: str) -> None:
    variables = some_variables()
    plant, question = PLANTED[kind]
    assert question in faults(plant(variables), variables)
    assert question not in faults(NOISE, variables)


def test_zeros_are_counted_against_what_the_model_expects() -> None:
    y = np.where(np.arange(SIZE) < 40, 0.0, 3.0)
    counted = scores_with(NOISE, y, zeros=np.array([10.0]), zeros_sd=np.array([3.0]), is_discrete=True)
    found = {each.kind: each for each in questions(counted, Variables({}, {}))}
    assert found["zeros"].p_value < 1e-10
    assert found["zeros"].size == 4.0


def test_truth_values_are_asked_for_no_scale() -> None:
    y = (np.arange(SIZE) % 2).astype(float)
    kinds = {each.kind for each in questions(scores_with(NOISE, y, is_discrete=True, is_binary=True), some_variables())}
    assert kinds == {"level", "curve", "neighbours", "order", "product", "groups", "slopes"}


def test_variables_that_are_constant_or_one_another_are_no_obstacle() -> None:
    x = np.random.default_rng(0).normal(size=SIZE)
    twice = Variables({"x": x, "again": 2 * x + 1, "same": np.ones(SIZE)}, {"g": np.zeros(SIZE, dtype=int)})
    asked = list(questions(scores_with(NOISE), twice))
    assert all(np.isfinite(each.p_value) for each in asked)
    assert not any("same" in each.variables or each.kind == "product" for each in asked)
