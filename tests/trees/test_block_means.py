"""Means over draws do not depend on how an array is stored and cut, and only a block is loaded at a time."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr

from bnnzoo.trees import average_probs, draw_means, draw_variance, sum_draws, tiles

DIMS = ("chain", "draw", "obs_id", "class_id")
ARRAY = xr.DataArray(np.random.default_rng(0).normal(3.0, 2.0, size=(3, 20, 11, 4)), dims=DIMS)
STORED = {
    "memory": lambda array, path: array,
    "transposed": lambda array, path: array.transpose("class_id", "obs_id", "draw", "chain"),
    "dask": lambda array, path: array.chunk(chain=2, draw=7, obs_id=4, class_id=2),
}


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("tile_bytes", [1, 500, 2**22])
def test_means_and_variances_do_not_depend_on_blocks(stored, tile_bytes, tmp_path):
    array = STORED[stored](ARRAY, tmp_path)
    mean = draw_means(array, {"mean": sum_draws}, tile_bytes=tile_bytes)["mean"]
    variance = draw_variance(array, tile_bytes=tile_bytes)
    xr.testing.assert_allclose(mean.transpose("obs_id", ...), ARRAY.mean(("chain", "draw")), rtol=1e-13)
    xr.testing.assert_allclose(variance.transpose("obs_id", ...), ARRAY.var(("chain", "draw")), rtol=1e-12)


@pytest.mark.parametrize("chunks", [None, (1, 5, 4, 4)])
def test_a_file_opened_lazily_is_read_block_by_block(chunks, tmp_path):
    path = tmp_path / "tree.nc"
    ARRAY.to_dataset(name="a").to_netcdf(path, engine="h5netcdf", encoding={"a": {"chunksizes": chunks}})
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        blocks = list(tiles(opened["a"], tile_bytes=2000))
        assert max(values.nbytes for values, _ in blocks) <= 2000
        assert sum(values.size for values, _ in blocks) == ARRAY.size
        assert not opened["a"].variable._in_memory
        mean = draw_means(opened["a"], {"mean": sum_draws})["mean"]
    xr.testing.assert_allclose(mean, ARRAY.mean(("chain", "draw")))


def test_memory_is_bounded_by_the_block():
    probs = xr.DataArray(np.full((1, 100, 5000, 10), 0.1), dims=DIMS)  # 40 MB
    tracemalloc.start()
    average_probs(probs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 2**20


def test_coordinates_of_rows_are_kept():
    array = ARRAY.assign_coords(obs_id=np.arange(11) + 5, chain=[1, 2, 3])
    assert set(draw_means(array, {"m": sum_draws}).coords) == {"obs_id"}
    assert set(draw_variance(array).coords) == {"obs_id"}


def test_an_empty_array_is_refused():
    with pytest.raises(ValueError, match=r"nothing to average: the sizes are .*'draw': 0"):
        draw_means(ARRAY.isel(draw=slice(0)), {"m": sum_draws})


def test_variance_far_from_zero_keeps_its_digits():
    far = ARRAY + 1e8
    xr.testing.assert_allclose(draw_variance(far, tile_bytes=64), ARRAY.var(("chain", "draw")), rtol=1e-6)
