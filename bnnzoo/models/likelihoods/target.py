"""Checks of a target, and of the columns beside it, against a network's output: type, shape and range."""

from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.reading.placeholders import is_placeholder

__all__ = [
    "refuse_bad_categories",
    "refuse_bad_censoring",
    "refuse_bad_labels",
    "refuse_bad_offset",
    "refuse_bad_output",
    "refuse_bad_row_weights",
    "refuse_not_binary",
    "refuse_not_counts",
    "refuse_not_positive_target",
    "refuse_not_proportions",
    "refuse_not_real",
]


def refuse_bad_output(where: str, output: Tensor) -> None:
    """Refuse a network output that is not [N] or [N, D]."""
    if not isinstance(output, Tensor) or output.ndim not in (1, 2) or not output.is_floating_point():
        is_tensor = isinstance(output, Tensor)
        found = f"{output.dtype} of shape {tuple(output.shape)}" if is_tensor else type(output).__name__
        raise ValueError(
            f"{where}: the network's output must be a floating-point tensor of shape [N, outputs], but is {found}."
        )


def refuse_not_real(where: str, y: Any, output: Tensor, expected: torch.Size, outputs_per_target: int = 1) -> None:
    """Refuse a target that is not real, finite and of the shape `expected`."""
    _refuse_not_tensor(where, y)
    if not y.is_floating_point():
        raise TypeError(
            f"{where}: y has the type {y.dtype}, but a real target is needed: write y.astype(float) (numpy, pandas) or "
            "y.to(torch.get_default_dtype()); for counts use likelihoods.poisson(), for class labels "
            "likelihoods.categorical() or likelihoods.bernoulli()."
        )
    _refuse_wrong_shape(where, y, output, expected, outputs_per_target)
    _refuse_bad_rows(where, y, ~torch.isfinite(y), "which is not a finite number: remove the row or fill it in")


def refuse_not_binary(where: str, y: Any, output: Tensor, expected: torch.Size) -> None:
    """Refuse a target that is not 0 or 1, as bool, integer or float, of the shape `expected`."""
    _refuse_not_tensor(where, y)
    _refuse_wrong_shape(where, y, output, expected)
    hint = "but must be 0 or 1: recode y, or use likelihoods.categorical() for more than two classes"
    _refuse_bad_rows(where, y, (y != 0) & (y != 1), hint)


def refuse_bad_labels(where: str, y: Any, output: Tensor) -> None:
    """Refuse a target [N] that is not an integer label 0 to K - 1 for the K logits of `output`."""
    _refuse_not_tensor(where, y)
    if _is_no_code(y):
        raise TypeError(
            f"{where}: y has the type {y.dtype}, but class labels are integers 0, 1, ...: write y.astype(int) (numpy, "
            "pandas) or y.long(); for a real target use likelihoods.gaussian()."
        )
    _refuse_wrong_shape(where, y, output, output.shape[:1])
    classes = output.shape[1]
    hint = (
        f"but the network has {classes} logits, for the labels 0 to {classes - 1}: "
        "relabel y from 0, or give the network one output per class"
    )
    _refuse_bad_rows(where, y, (y < 0) | (y >= classes), hint)


def refuse_bad_categories(where: str, y: Any, output: Tensor, expected: torch.Size, categories: int) -> None:
    """Refuse a target that is not an integer 0 to ``categories - 1``, of the shape `expected`."""
    _refuse_not_tensor(where, y)
    if _is_no_code(y):
        raise TypeError(
            f"{where}: y has the type {y.dtype}, but ordered categories are integers 0, 1, ...: write y.astype(int) (numpy, "
            "pandas) or y.long()."
        )
    _refuse_wrong_shape(where, y, output, expected)
    hint = f"but the categories are 0 to {categories - 1}: recode y from 0, or give num_categories= their number"
    _refuse_bad_rows(where, y, (y < 0) | (y >= categories), hint)


def refuse_not_counts(where: str, y: Any, output: Tensor, expected: torch.Size, outputs_per_target: int = 1) -> None:
    """Refuse a target that is not a whole number >= 0, as integer or float, of the shape `expected`."""
    _refuse_not_tensor(where, y)
    if y.dtype == torch.bool:
        raise TypeError(f"{where}: y has the type {y.dtype}, but counts are needed: use likelihoods.bernoulli().")
    _refuse_wrong_shape(where, y, output, expected, outputs_per_target)
    hint = "but counts are 0, 1, 2, ...: for other real targets use likelihoods.gaussian()"
    _refuse_bad_rows(where, y, (y < 0) | (y != y.floor()) | ~torch.isfinite(y), hint)


def refuse_not_positive_target(where: str, y: Any, output: Tensor, expected: torch.Size) -> None:
    """Refuse a target that is not positive and finite, as integer or float, of the shape `expected`."""
    _refuse_not_tensor(where, y)
    if y.dtype == torch.bool:
        raise TypeError(
            f"{where}: y has the type {y.dtype}, but positive numbers are needed: use likelihoods.bernoulli()."
        )
    _refuse_wrong_shape(where, y, output, expected)
    hint = "but must be positive: where y may be zero or negative use likelihoods.gaussian() or student_t()"
    _refuse_bad_rows(where, y, (y <= 0) | ~torch.isfinite(y), hint)


def refuse_not_proportions(where: str, y: Any, output: Tensor, expected: torch.Size) -> None:
    """Refuse a target that is not strictly between 0 and 1, of the shape `expected`."""
    _refuse_not_tensor(where, y)
    _refuse_wrong_shape(where, y, output, expected)
    hint = (
        "but proportions lie strictly between 0 and 1: move those at the ends inside, for instance by "
        "(y * (N - 1) + 0.5) / N for N rows, or use likelihoods.bernoulli() where y is 0 or 1"
    )
    _refuse_bad_rows(where, y, ~((y > 0) & (y < 1)), hint)


def refuse_bad_censoring(where: str, censored: Any, y: Tensor) -> None:
    """Refuse a column of censoring that is not 0 or 1, as bool, integer or float, of the shape of `y`."""
    _refuse_not_tensor(where, censored, "censored")
    _refuse_not_beside(where, censored, y.shape, "censored")
    hint = "but must be 0, where the event came at y, or 1, where it came later"
    _refuse_bad_rows(where, censored, (censored != 0) & (censored != 1), hint, "censored")


def refuse_bad_row_weights(where: str, weights: Any, num_rows: int) -> None:
    """Refuse weights of rows that are not finite numbers >= 0, one for each row."""
    _refuse_not_tensor(where, weights, "row_weights")
    _refuse_not_beside(where, weights, torch.Size([num_rows]), "row_weights")
    hint = "but a weight is a number >= 0, and 0 leaves a row out"
    _refuse_bad_rows(where, weights, ~((weights >= 0) & torch.isfinite(weights)), hint, "row_weights")


def refuse_bad_offset(where: str, offset: Any, expected: torch.Size) -> None:
    """Refuse an offset that is neither finite numbers of the shape `expected` nor one number."""
    if isinstance(offset, int | float) and not isinstance(offset, bool):
        return
    _refuse_not_tensor(where, offset, "offset")
    if offset.ndim:
        _refuse_not_beside(where, offset, expected, "offset")
        _refuse_bad_rows(where, offset, ~torch.isfinite(offset), "which is not a finite number", "offset")


def _refuse_not_beside(where: str, column: Tensor, expected: torch.Size, name: str) -> None:
    if column.shape != expected:
        each = "one number for each row" if len(expected) == 1 else "one number for each row and target"
        raise ValueError(f"{where}: {name} has shape {tuple(column.shape)}, but needs shape {tuple(expected)}, {each}.")


def _is_no_code(y: Tensor) -> bool:
    return y.is_floating_point() or y.dtype == torch.bool


def _refuse_not_tensor(where: str, y: Any, name: str = "y") -> None:
    if not isinstance(y, Tensor):
        raise TypeError(f"{where}: {name} must be a tensor, but is {type(y).__name__}: write torch.as_tensor({name}).")


def _refuse_wrong_shape(
    where: str, y: Tensor, output: Tensor, expected: torch.Size, outputs_per_target: int = 1
) -> None:
    if y.shape == expected:
        return
    if y.ndim == 0 or y.shape[0] != expected[0]:
        rows = y.shape[0] if y.ndim else "no"
        raise ValueError(f"{where}: y has {rows} rows, but the network's output, and so x, has {expected[0]}.")
    if y.ndim == 2 and y.shape[1] == 1:
        hint = "write y.squeeze(-1) (y[:, 0] in numpy)"
    else:
        targets = y.shape[1] if y.ndim > 1 else 1
        hint = f"give the network out_features={targets * outputs_per_target}"
    raise ValueError(
        f"{where}: y has shape {tuple(y.shape)}, but the network's output of shape {tuple(output.shape)} needs y of "
        f"shape {tuple(expected)}: {hint}."
    )


def _refuse_bad_rows(where: str, y: Tensor, bad: Tensor, hint: str, name: str = "y") -> None:
    if is_placeholder(y) or not _is_known(bad.any()):
        return
    row = int(bad.reshape(len(y), -1).any(-1).nonzero()[0])
    value = y[row].reshape(-1)[bad[row].reshape(-1)][0].item()
    raise ValueError(f"{where}: {name} is {value} in row {row}, {hint}.")


def _is_known(truth: Tensor) -> bool:
    """Tell whether something is known to be true: nothing is while a function is traced, compiled, or batched over its value."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or truth.is_meta:  # type: ignore[attr-defined]
        return False
    try:
        return bool(truth)
    except RuntimeError:  # what torch says of a value that is not there
        return False
