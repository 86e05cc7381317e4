"""The result of :func:`bnnzoo.distil`: a module, how far it is from the draws, and a file of it."""

import io
import json
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from bnnzoo.core.fit_warnings import INSIDE, FitWarning
from bnnzoo.engine.files import whole_file
from bnnzoo.serving.distillation_inputs import finite_rows

__all__ = ["LIMIT", "Distilled", "InexactStudentWarning", "told_if_inexact"]

LIMIT = 1.5
"""Floors up to which a student is as good as the draws."""

HEADER = "bnnzoo.json"
WORDS = {
    "mean": "the mean, in epistemic standard deviations",
    "log_sd": "the logarithm of the standard deviation",
    "log_sd_aleatoric": "that of its aleatoric part",
    "log_sd_epistemic": "that of its epistemic part",
    "probs": "the class probabilities, in total variation",
    "mutual_information": "the mutual information, in nats",
}


class InexactStudentWarning(FitWarning):
    """A distilled network is farther from the draws, inside the data, than two halves of the draws are from each other."""


@dataclass(frozen=True, repr=False)
class Distilled:
    """A network that predicts what the draws of a posterior predict together.

    Attributes
    ----------
    module : Module
        Plain torch, from raw inputs ``[N, ...]`` to a dict: ``mean``, ``sd`` and the variances ``total``, ``aleatoric`` and
        ``epistemic``; for classes ``probs``, and ``total``, ``aleatoric`` and ``epistemic`` in nats, the last of which is the
        mutual information. ``outside[N]`` tells which rows lie outside of what the student learned.
    report : Dataset
        By ``place`` (``inside`` the data and ``beyond``) and ``measure``: ``error``, ``floor`` and their ``ratio``, at points
        that the student did not learn from.
    about : mapping
        The method of the fit, how far ``beyond`` reaches, and dims.
    """

    module: nn.Module
    report: xr.Dataset
    about: Mapping[str, Any]

    @property
    def _low(self) -> torch.Tensor:
        """The lower corner of the box, in shape, type and place like a row of inputs."""
        return dict(self.module.named_buffers())["low"]

    @property
    def is_exact(self) -> bool:
        """Whether all errors inside the data are within 1.5 floors."""
        return bool((self.report["ratio"].sel(place="inside") <= LIMIT).all())

    def predict(self, inputs: Any) -> xr.Dataset:
        """Return the predictive moments of new rows ``[N, ...]``.

        Parameters
        ----------
        inputs : array_like [N, ...]
            As :func:`bnnzoo.predict` takes them.

        Returns
        -------
        Dataset
            The outputs of ``module`` by ``obs_id``; ``total``, ``aleatoric`` and ``epistemic`` are those of
            :func:`bnnzoo.uncertainty.decompose`.

        Raises
        ------
        ValueError
            If rows have another shape than those of the fit, or are not finite.
        """
        x, low = torch.as_tensor(finite_rows(inputs)).to(self._low), self._low
        if x.shape[1:] != low.shape:
            raise ValueError(
                f"inputs have shape {tuple(x.shape)}, but the student takes [N, {', '.join(map(str, low.shape))}]."
            )
        with torch.inference_mode():
            found = {name: values.numpy() for name, values in self.module(x).items()}
        dims = self.about["dims"]
        return xr.Dataset({name: (dims[: values.ndim], values) for name, values in found.items()})

    def tree(self, inputs: Any) -> xr.DataTree:
        """Return a tree by which measures, such as :func:`bnnzoo.monitor`, can watch the student.

        Its two draws are stand-ins that have the student's moments: :func:`bnnzoo.uncertainty.decompose` of the tree gives what
        :meth:`predict` gives. They say nothing of the shape of a predictive distribution.

        Parameters
        ----------
        inputs : array_like [N, ...]
        """
        found = self.predict(inputs)
        names, sign = ("chain", "draw"), xr.DataArray([[-1.0, 1.0]], dims=("chain", "draw"))
        if "probs" in found:
            moments = {"probs": found["probs"] + 0 * sign, "entropy": found["aleatoric"] + 0 * sign}
        else:
            moments = {
                "mean": found["mean"] + np.sqrt(found["epistemic"]) * sign,
                "variance": found["aleatoric"] + 0 * sign,
            }
        group = xr.Dataset({name: values.transpose(*names, ...) for name, values in moments.items()})
        return xr.DataTree.from_dict({"conditional": group})

    def save(self, path: str | Path) -> None:
        """Write the module and its report to one file, without pickle.

        ``torch.export.load(path).module()`` gives the module in a process that has no bnnzoo; :meth:`load` gives all.

        Parameters
        ----------
        path : str or Path
            Such as ``"student.pt2"``.
        """
        example = torch.zeros(2, *self._low.shape).to(self._low)
        program = torch.export.export(self.module, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
        program.example_inputs = None  # which torch would pickle
        header = json.dumps({"report": self.report.to_dict(), "about": dict(self.about)})
        buffer = io.BytesIO()
        torch.export.save(program, buffer, extra_files={HEADER: header})
        with whole_file(Path(path)) as partial:
            partial.write_bytes(buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> "Distilled":
        """Return what :meth:`save` wrote.

        Raises
        ------
        ValueError
            If the file is none of a student, or holds pickled parts, which could run any code.
        """
        content = Path(path).read_bytes()
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                files = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
            header = json.loads(files[f"extra/{HEADER}"])
        except (zipfile.BadZipFile, KeyError) as error:
            raise ValueError(f"{path} holds no student: write it with distilled.save(path).") from error
        configs = b"".join(values for name, values in files.items() if name.endswith("_config.json")).replace(b" ", b"")
        inputs = [values for name, values in files.items() if name.startswith("data/sample_inputs/")]
        if b'"use_pickle":true' in configs or any(inputs):
            raise ValueError(
                f"{path} has pickled parts, which could run any code: it was not written by distilled.save."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch 2.9 warns of the buffers of bytes that it reads itself
            module = torch.export.load(io.BytesIO(content)).module()
        return cls(module, xr.Dataset.from_dict(header["report"]), header["about"])

    def __repr__(self) -> str:
        """Say how far the student is from the draws, in sentences."""
        size = sum(each.numel() for each in self.module.parameters())
        places = {"inside": "Inside the data", "beyond": f"Beyond the data, to {self.about['reach']:g} of their range"}
        lines = [f"One network of {size:,} weights for the draws of {self.about['method']}."]
        for place, words in places.items():
            found = self.report.sel(place=place).to_dataframe().iterrows()
            each = [f"{one['error']:.2g} ({one['ratio']:.2f}) in {WORDS[str(name)]}" for name, one in found]
            lines.append(f"{words} its errors, and in brackets these in Monte Carlo floors, are {', '.join(each)}.")
        lines.append(
            "It is as good as the draws inside the data."
            if self.is_exact
            else f"It is not as good as the draws inside the data, where an error exceeds {LIMIT} floors."
        )
        return "\n".join(lines)


def told_if_inexact(found: Distilled) -> None:
    """Warn of a student whose errors inside the data exceed 1.5 floors."""
    if not found.is_exact:
        ratio = found.report["ratio"].sel(place="inside")
        worst = str(ratio.idxmax("measure").item())
        warnings.warn(
            f"The student is not as good as the draws: inside the data its error in {WORDS[worst]} is {float(ratio.max()):.2f} "
            f"Monte Carlo floors, and should be at most {LIMIT}. Write a larger num_steps or num_points, or a larger network.",
            InexactStudentWarning,
            skip_file_prefixes=INSIDE,
        )
