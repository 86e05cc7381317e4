"""Images with the uncertainty of their predictions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from arviz_base import rcParams
from arviz_plots.plot_collection import PlotCollection
from arviz_plots.visuals import labelled_title
from numpy.typing import ArrayLike, NDArray

from bnnzoo.calibration import misclassified
from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import PLOT, Visuals, draw_once, figure_settings
from bnnzoo.plots.rasters import draw_image
from bnnzoo.trees import average_probs, observations
from bnnzoo.uncertainty import predictive_entropy

__all__ = ["plot_images"]

type Array = NDArray[np.floating]

COLOURS = (1, 3)  # numbers of channels


@with_shared_entries(PLOT)
def plot_images(
    data: xr.DataTree,
    images: ArrayLike,
    rows: Sequence[int] | None = None,
    *,
    uncertainty: Callable[[xr.DataTree], xr.DataArray] = predictive_entropy,
    num_images: int = 12,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot images, each with its predicted class and the uncertainty of its prediction, the most uncertain first.

    Parameters
    ----------
    data : DataTree
        Predictions for the images; a wrong class is named beside the right one if there are labels.
    images : array_like [obs_id, height, width], [obs_id, channels, height, width] or [obs_id, height, width, channels]
        In the order of the predictions, with 1 channel or 3. Shades are scaled to the range of all images.
    rows : sequence of int, optional
        Positions of the images to plot, in this order. Default: those of the highest uncertainty.
    uncertainty : callable
        From a tree to one value for each row.
    num_images : int
        How many to plot, if ``rows`` is not given.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``image``, ``title``.

    Raises
    ------
    ValueError
        If the images are not as many as the predictions, have another number of channels, or there is no such row.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> images = np.random.default_rng(0).random((7, 8, 8))
    >>> plot = plot_images(example_tree("classification"), images, num_images=4, backend="none")
    >>> plot.viz["image"]["pixels"].sizes["panel"]
    4
    """
    values = uncertainty(data)
    pixels = _scaled(np.asarray(images, dtype=float), values.size)
    size = values.size
    if rows is None:
        if num_images < 1:
            raise ValueError(f"num_images={num_images}: write a positive number.")
        chosen = [int(row) for row in np.argsort(-values.to_numpy().ravel(), kind="stable")[:num_images]]
    else:
        if outside := [row for row in rows if not -size <= row < size]:
            raise ValueError(f"rows names {outside[0]}, but there are {size} observations: write positions.")
        chosen = [int(row) % size for row in rows]
    titles = _titles(data, values)
    names = [f"image {row}" for row in chosen]
    drawn = xr.Dataset({"pixels": ("panel", np.zeros(len(chosen)))}, {"panel": names})
    if plot_collection is None:
        backend = backend or rcParams["plot.backend"]
        figure = figure_settings(backend, pc_kwargs, shares_axes=False)
        plot_collection = PlotCollection.wrap(
            drawn, backend=backend, figure_kwargs=figure, **{"cols": ["panel"]} | pc_kwargs
        )
    pictures = {name: pixels[row] for name, row in zip(names, chosen, strict=True)}
    draw_once(plot_collection, _drawn, "image", drawn, visuals, {"pictures": pictures})
    texts = {name: titles[row] for name, row in zip(names, chosen, strict=True)}
    draw_once(plot_collection, _titled, "title", drawn, visuals, {"texts": texts})
    return plot_collection


def _scaled(images: Array, num_rows: int) -> Array:
    """Return images ``[N, height, width]`` or ``[N, height, width, 3]`` between 0 and 1."""
    if len(images) != num_rows:
        raise ValueError(f"There are {len(images)} images, but {num_rows} predictions: pass one image for each.")
    if images.ndim == 4 and images.shape[1] in COLOURS and images.shape[-1] not in COLOURS:
        images = np.moveaxis(images, 1, -1)
    if images.ndim == 4 and images.shape[-1] == 1:
        images = images[..., 0]
    if not (images.ndim == 3 or (images.ndim == 4 and images.shape[-1] == 3)):
        raise ValueError(
            f"images have shape {images.shape}: write [obs_id, height, width], with 1 or 3 channels after obs_id or at the end; "
            "of flat rows images.reshape(-1, height, width)."
        )
    low, high = float(np.nanmin(images)), float(np.nanmax(images))
    scaled: Array = (images - low) / (high - low if high > low else 1.0)
    return scaled


def _titles(data: xr.DataTree, values: xr.DataArray) -> list[str]:
    """Return for each row its predicted class, if there are classes, and its uncertainty."""
    unit = values.attrs.get("units", "")
    numbers = [f"{value:.2f} {unit}".strip() for value in values.to_numpy().ravel()]
    if "conditional" not in data.children or "probs" not in data["conditional"].data_vars:
        return numbers
    probs = average_probs(data)
    labels = [str(probs["class_id"].to_numpy()[k]) for k in probs.argmax("class_id").to_numpy().ravel()]
    if "predictions_observed_data" in data.children or {"observed_data", "predictions"} & {*data.children} == {
        "observed_data"
    }:
        wrong, truth = misclassified(data).to_numpy().ravel(), observations(data).to_numpy().ravel()
        labels = [f"{label}, is {y}" if bad else label for label, y, bad in zip(labels, truth, wrong, strict=True)]
    return [f"{label}\n{number}" for label, number in zip(labels, numbers, strict=True)]


def _drawn(data: xr.DataArray, target: Any, *, pictures: dict[str, Array], **kwargs: Any) -> Any:
    return draw_image(target, pictures[str(data["panel"].item())], **kwargs)


def _titled(data: xr.DataArray, target: Any, *, texts: dict[str, str], **kwargs: Any) -> Any:
    return labelled_title(data, target, text=texts[str(data["panel"].item())], **kwargs)
