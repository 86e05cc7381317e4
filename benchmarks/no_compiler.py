"""NUTS on a small network with the machine's compiler, with the one from PyPI, and with none.

Run: python -m benchmarks.no_compiler [rounds]      (needs ziglang: pip install "bnnzoo[compiler]")

A network of 25 weights and an unknown noise, 60 rows, two chains of 200 + 200 iterations, default arguments, one thread of
torch's. Each run is a process of its own with empty caches; libraries are imported before the clock starts, and what a compiler
takes counts. Compilers are hidden from the path, and the package from imports.
"""

import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.pairs import in_process, processor_seconds, runs_in_turn, save

CHAINS, WARMUP, DRAWS = 2, 200, 200
HIDDEN, WEIGHTS, ROWS = 8, 25, 60
TARGET = 20.0  # processor seconds without a compiler
KINDS = ("machine", "ziglang", "none")
COMPILERS = ("g++", "c++", "clang++")


def run_once(kind: str, seed: int) -> dict[str, float]:
    """Return the seconds of a fit, the gradients that it took, and whether it ran in native code."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"XDG_CACHE_HOME": f"{folder}/cache", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "CXX": ""}
        if kind != "machine":
            environment["PATH"] = without_compilers(Path(folder) / "bin")
        return in_process("benchmarks.no_compiler", "--run", kind, seed, **environment)


def without_compilers(folder: Path) -> str:
    """Return a path on which all programs are found but compilers of C++, those of folders that hold one by links."""
    folder.mkdir()
    kept = [str(folder)]
    for place in dict.fromkeys(os.environ["PATH"].split(os.pathsep)):
        if not any(shutil.which(name, path=place) for name in COMPILERS):
            kept.append(place)
            continue
        for program in Path(place).iterdir():
            if program.name not in COMPILERS and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return os.pathsep.join(kept)


def measured(kind: str, seed: int) -> dict[str, float]:
    """Return what one fit takes, in this process."""
    import torch

    import bnnzoo as bz

    found = next((shutil.which(name) for name in COMPILERS if shutil.which(name)), None)
    if (found is None) != (kind != "machine"):
        raise RuntimeError(f"The compiler on the path of a run of kind {kind!r} is {found}.")
    if kind == "none":
        sys.modules["ziglang"] = None  # type: ignore[assignment]  # as if it were not installed
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(-2.0, 2.0, ROWS)[:, None]
    y = torch.sin(2 * x[:, 0]) + 0.2 * torch.randn(ROWS, generator=generator)
    model = bz.models.supervised(bz.models.mlp(1, hidden=(HIDDEN,)), bz.priors.fan_in(1.0), bz.likelihoods.gaussian())
    method = bz.NUTS(num_chains=CHAINS, num_warmup=WARMUP, num_draws=DRAWS)
    before, began = processor_seconds(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = bz.fit(model, method, x, y, seed=seed, progress=False)
    seconds, wall = processor_seconds() - before, time.perf_counter() - began
    info = posterior.info
    assert info.engine is not None and posterior.density.num_params == WEIGHTS + 1
    if (info.engine.engine == "native") != (kind != "none"):
        raise RuntimeError(f"A run of kind {kind!r} ran as {info.engine}.")
    return {
        "seconds": seconds,
        "wall": wall,
        "gradients": info.num_gradients,
        "compiling": info.compiling,
        "is_native": float(info.engine.engine == "native"),
    }


def main(rounds: int = 5) -> None:
    """Run the three in turn, and write what they measured."""
    found, runs = runs_in_turn(KINDS, run_once, "seconds", rounds)
    facts: dict[str, Any] = {"weights": WEIGHTS, "rows": ROWS, "chains": CHAINS, "warmup": WARMUP, "draws": DRAWS}
    save("no_compiler", "processor seconds", found, "machine", **facts, target=TARGET, detail=runs)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(measured(sys.argv[2], int(sys.argv[3]))))
    else:
        main(*map(int, sys.argv[1:2]))
