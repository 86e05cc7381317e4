"""
A web service that predicts with its uncertainty
================================================

A posterior is loaded once and answers requests from any number of threads. The service is a plain ASGI application, which any
server runs: ``uvicorn plot_serving:app``.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

# %%
# Fit and save, in another process and on another day.

model = bz.models.supervised(bz.models.mlp(2, (20,)), bz.priors.fan_in(2.0), bz.likelihoods.gaussian())
method, num_requests = bz.MeanFieldVI(), 300
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method, num_requests = bz.MeanFieldVI(num_steps=50), 20
# sphinx_gallery_end_ignore
path = Path(tempfile.mkdtemp()) / "fit.bnn"
rng = np.random.default_rng(0)
x = rng.normal(size=(200, 2))
bz.fit(model, method, x, np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=200), progress=False).save(path)

# %%
# The service. It loads the posterior when it starts and warms up with the shape that it will be asked for: the first calls
# trace the model, later ones run the graph. Predictions are made in threads, so that the event loop stays free. ``keep`` leaves
# out what nobody asked for. Whatever a client sends that is no row is answered with the sentence that says so.

posterior = bz.load(path, model)
OPTIONS = {"num_draws": 1000, "keep": ("predictions", "conditional")}


def predicted(rows: list[list[float]]) -> dict[str, list[float]]:
    """Return the mean of each row and a 90% interval of its outcome."""
    tree = bz.predict(posterior, np.asarray(rows, dtype=float), **OPTIONS)
    draws = tree["predictions"]["y"].to_numpy()[0]
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    mean = tree["conditional"]["mean"].to_numpy()[0].mean(0)
    return {"mean": mean.tolist(), "low": low.tolist(), "high": high.tolist()}


def answer(body: bytes) -> tuple[int, object]:
    """Return the status and the content of a response."""
    try:
        return 200, predicted(json.loads(body)["rows"])
    except (ValueError, TypeError, KeyError) as error:
        return 422, {"error": f"{type(error).__name__}: {error}"}


async def app(scope, receive, send) -> None:  # noqa: ANN001 - as ASGI has them
    """Answer POST requests of ``{"rows": [[...], ...]}``."""
    if scope["type"] == "lifespan":
        await receive()
        for _ in range(3):
            predicted([[0.0, 0.0]])
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    status, content = await asyncio.to_thread(answer, body)
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})


# %%
# Ask it, here without a server in between, and time the answers.


async def asked(rows: list[list[float]]) -> dict:
    """Return what the application answers."""
    sent: list[dict] = []

    async def receive() -> dict:
        return {"type": "http.request", "body": json.dumps({"rows": rows}).encode()}

    async def send(message: dict) -> None:
        sent.append(message)

    await app({"type": "http"}, receive, send)
    return json.loads(sent[1]["body"])


async def requests() -> list[float]:
    """Return the seconds of each answer."""
    taken = []
    for row in rng.normal(size=(num_requests, 1, 2)):
        start = time.perf_counter()
        await asked(row.tolist())
        taken.append(time.perf_counter() - start)
    return taken


if __name__ == "__main__":
    print(asyncio.run(asked([[0.5, 0.0], [9.0, 9.0]])))
    milliseconds = 1e3 * np.array(asyncio.run(requests()))
    plt.semilogy(milliseconds, ".")
    plt.xlabel("request")
    plt.ylabel("milliseconds")
    plt.show()
