"""The reference set as files for programs of any kind: JSON, CSV, netCDF, schemas, loaders, licences and checksums."""

import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import bnnzoo
from bnnzoo.engine.files import whole_folder
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.catalogue import load
from bnnzoo.zoo.cells import Cell, settings_of
from bnnzoo.zoo.data import ZooError
from bnnzoo.zoo.make_reference import write
from bnnzoo.zoo.posteriordb_data import NOTICE
from bnnzoo.zoo.reference import predicted, reference, referenced
from bnnzoo.zoo.reference_tables import covariance_table, draws_table, entropy_table, summary_table
from bnnzoo.zoo.seed_spread import seed_spreads
from bnnzoo.zoo.table import own_and_others

__all__ = ["LICENCE", "export", "leaderboard"]

LICENCE = "Apache-2.0"
FORMAT = 2
VERSIONS = "_version"
PUBLISHED = {
    "README.md": "README.md",
    "load.py.txt": "load.py",
    "load.R": "load.R",
    "card.json": "schema/card.json",
    "leaderboard.json": "schema/leaderboard.json",
}
"""Files of ``bnnzoo/zoo/published`` and where they go."""


def export(
    folder: str | Path,
    cells: Sequence[Cell] = (),
    *,
    cards: Sequence[str] | None = None,
    all_draws: Path | None = None,
    announce: Callable[[str], None] = lambda name: None,
) -> None:
    """Write the reference set to a new folder, whole or not at all.

    Parameters
    ----------
    folder : str or Path
        A new folder.
    cells : sequence of Cell
        Of the zoo's table, for the leaderboard; those of earlier versions of a card are left out.
    cards : sequence of str, optional
        Default: all with a reference.
    all_draws : Path, optional
        Folder of files with all draws, see :func:`~bnnzoo.zoo.reference`, to write in place of those that come with the package.
    announce : callable
        Receives the name of each card that was written.

    Raises
    ------
    ZooError
        If the folder exists, a card has no reference, or that of all draws is missing.
    """
    folder, names = Path(folder), referenced(all_draws) if cards is None else list(cards)
    if cards is None and not names:
        raise ZooError(
            f"There are no references in {str(all_draws)!r}: write python -m bnnzoo.zoo.make_reference NAME --all-draws "
            f"{all_draws}."
        )
    trees = {name: reference(name, all_draws) for name in names}
    if folder.exists():
        raise ZooError(f"{str(folder)!r} already exists: write to a new folder, or remove it.")
    with whole_folder(folder) as partial:
        for part in ("cards", "models", "data", "draws", "summaries", "entropies", "covariances", "schema"):
            (partial / part).mkdir()
        for source, target in PUBLISHED.items():
            _write(partial / target, (files("bnnzoo.zoo") / "published" / source).read_text(encoding="utf-8"))
        for name, tree in trees.items():
            _write_card(partial, load(name), tree)
            announce(name)
        if any(load(name).data_licence for name in names):
            _write(
                partial / "data" / NOTICE, (files("bnnzoo.zoo") / "posteriordb" / NOTICE).read_text(encoding="utf-8")
            )
        _write(partial / "leaderboard.json", _as_json(leaderboard(cells, names)))
        _write(partial / "CITATION.cff", _citation())
        try:
            found = [each for each in distribution("bnnzoo").files or () if each.name == "LICENSE"]
        except PackageNotFoundError:
            found = []
        path = Path(str(found[0].locate())) if found else Path(bnnzoo.__file__).parents[1] / "LICENSE"
        _write(partial / "LICENSE", path.read_text(encoding="utf-8"))
        lines = [
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(partial).as_posix()}\n"
            for path in sorted(path for path in partial.rglob("*") if path.is_file())
        ]
        _write(partial / "checksums.sha256", "".join(lines))


def leaderboard(cells: Sequence[Cell], cards: Sequence[str] | None = None) -> dict[str, Any]:
    """Return cells with the versions of what they were measured with, as JSON can hold them.

    Parameters
    ----------
    cells : sequence of Cell
    cards : sequence of str, optional
        Default: all with a reference.

    Examples
    --------
    >>> leaderboard([])["references"]["two-moons"]["version"]
    1
    """
    versions = {name: load(name).version for name in (referenced() if cards is None else cards)}
    current = [each for each in cells if each.version == versions.get(each.card)]
    return {
        "format": FORMAT,
        "bnnzoo_version": bnnzoo.__version__,
        "references": {
            name: {"version": version, "sha256": reference(name).attrs["sha256"]} for name, version in versions.items()
        },
        "settings": settings_of(current),
        "spreads": {method: asdict(spread) for method, spread in seed_spreads(own_and_others(current)[0]).items()},
        "cells": [asdict(each) for each in current],
    }


def _write_card(folder: Path, card: Card, tree: xr.DataTree) -> None:
    name, about = card.name, {str(key): value for key, value in tree.attrs.items()}
    draws, entropies = predicted(tree), entropy_table(tree)
    kept = ("method", "command", "num_draws", "max_rhat", "min_ess_bulk", "min_ess_tail", "seed")
    checked = ("checked_by", "checked_distance", "checked_limit", "checked_runs")
    described = {
        "name": name,
        "version": card.version,
        "title": card.title,
        "description": card.description,
        "prior": card.prior.scale,
        "model": f"models/{name}.py",
        "data": f"data/{name}.json" if card.needs is None else None,
        "needs": card.needs,
        "recipe": card.data().recipe if card.needs is None else "",
        "references": list(card.references),
        "licence": LICENCE,
        "data_licence": None if card.needs else card.data_licence or LICENCE,
        "reference": {
            "csv": f"draws/{name}.csv.gz",
            "netcdf": f"draws/{name}.nc",
            "summary": f"summaries/{name}.csv",
            "entropies": f"entropies/{name}.csv" if entropies else None,
            "covariance": f"covariances/{name}.csv",
            "quantity": str(draws.name),
            "shape": list(draws.shape),
            "settings": json.loads(about["settings"]),
            "versions": {
                key: str(value) for key, value in about.items() if key.endswith(VERSIONS) and key != "card_version"
            },
        }
        | {key: np.asarray(about[key]).item() for key in (*kept, *checked) if key in about},
    }
    _write(folder / "cards" / f"{name}.json", _as_json(described))
    code = files("bnnzoo.zoo.cards") / f"{name.replace('-', '_')}.py"
    _write(folder / "models" / f"{name}.py", code.read_text(encoding="utf-8"))
    if card.needs is None:
        data = card.data()
        parts = {
            part: {key: values.tolist() for key, values in arrays.items()}
            for part, arrays in (("train", data.train), ("test", data.test))
        }
        _write(folder / "data" / f"{name}.json", json.dumps(parts) + "\n")
    packed = gzip.compress(draws_table(tree).encode(), mtime=0)  # the same bytes each time
    (folder / "draws" / f"{name}.csv.gz").write_bytes(packed)
    write(tree, folder / "draws" / f"{name}.nc")
    _write(folder / "summaries" / f"{name}.csv", summary_table(tree))
    _write(folder / "covariances" / f"{name}.csv", covariance_table(tree))
    if entropies:
        _write(folder / "entropies" / f"{name}.csv", entropies)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _citation() -> str:
    return f"""cff-version: 1.2.0
message: To cite these reference posteriors, use the metadata of this file.
title: Reference posteriors of statistical models and small Bayesian neural networks
type: dataset
authors:
  - name: The bnnzoo developers
version: {bnnzoo.__version__}
license: {LICENCE}
"""
