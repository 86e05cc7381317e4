"""Images and colour scales, which ArviZ's backends do not have, on each of them."""

from typing import Any

import numpy as np
from arviz_plots.plot_collection import backend_from_object
from numpy.typing import NDArray

__all__ = ["draw_image", "draw_scale"]

type Array = NDArray[np.floating]

SCALE_WIDTH = 0.2  # of a panel, for its scale of colours on plotly
GREYS = [f"#{level:02x}{level:02x}{level:02x}" for level in range(256)]


def draw_image(target: Any, values: Array, **kwargs: Any) -> Any:
    """Draw an image ``[height, width]`` in shades of grey, or ``[height, width, 3]`` in colours, from 0 to 1.

    Parameters
    ----------
    target : plot of a backend
    values : ndarray
        Rows from top to bottom.
    **kwargs
        Passed to the backend.
    """
    backend = backend_from_object(target, return_module=False)
    return {"matplotlib": _in_matplotlib, "bokeh": _in_bokeh, "plotly": _in_plotly, "none": _in_none}[backend](
        target, values, **kwargs
    )


def draw_scale(target: Any, artist: Any, **kwargs: Any) -> Any:
    """Draw the colour scale of a filled contour plot beside its panel.

    Parameters
    ----------
    target : plot of a backend
    artist : object
        What the backend's ``contourf`` returned; ``plotly`` has copied it into its figure.
    **kwargs
        Passed to the backend.
    """
    backend = backend_from_object(target, return_module=False)
    if backend == "matplotlib":
        return target.figure.colorbar(artist, ax=target, **{"format": "%.3g", "shrink": 0.85} | kwargs)
    if backend == "bokeh":
        scale = artist.construct_color_bar(**kwargs)
        target.add_layout(scale, "right")
        return scale
    if backend == "plotly":
        # a fifth of the panel's width: plotly makes no room for a scale, which would cover the next panel
        place = target.figure.get_subplot(target.row, target.col)
        (left, right), (low, high) = place.xaxis.domain, place.yaxis.domain
        edge = right - SCALE_WIDTH * (right - left)
        place.xaxis.domain = (left, edge)
        bar = {"x": edge, "xpad": 2, "y": (low + high) / 2, "len": high - low, "thickness": max(4, 30 * (right - left))}
        trace = target.figure.data[-1]
        trace.update(showscale=True, colorbar={"tickfont": {"size": 10}, "nticks": 6, **bar, **kwargs})
        return trace.colorbar
    target.append({"function": "colour_scale", **kwargs})
    return target[-1]


def _in_matplotlib(target: Any, values: Array, **kwargs: Any) -> Any:
    target.set_xticks([])
    target.set_yticks([])
    return target.imshow(values, **{"cmap": "gray", "vmin": 0.0, "vmax": 1.0} | kwargs)


def _in_bokeh(target: Any, values: Array, **kwargs: Any) -> Any:
    height, width = values.shape[:2]
    place = {"x": 0, "y": 0, "dw": width, "dh": height}
    target.match_aspect = True
    target.axis.visible = target.grid.visible = False
    if values.ndim == 2:
        levels = np.round(255 * values[::-1]).astype(np.uint8)
        return target.image(image=[levels], palette=GREYS, **place | kwargs)
    opaque = np.full((height, width, 4), 255, dtype=np.uint8)
    opaque[..., :3] = np.round(255 * values[::-1])
    return target.image_rgba(image=[opaque.view(np.uint32)[..., 0]], **place | kwargs)


def _in_plotly(target: Any, values: Array, **kwargs: Any) -> Any:
    target.update_xaxes(visible=False)
    target.update_yaxes(visible=False, autorange="reversed")
    colours = np.round(255 * (values if values.ndim == 3 else np.repeat(values[..., None], 3, axis=2)))
    target.add_trace({"type": "image", "z": colours.astype(np.uint8), **kwargs})
    return target.figure.data[-1]


def _in_none(target: Any, values: Array, **kwargs: Any) -> Any:
    target.append({"function": "image", "values": values, **kwargs})
    return target[-1]
