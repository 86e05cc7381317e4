"""A small HTTP server on the loopback for an ASGI application, and a client of it."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["asked", "served"]


@contextmanager
def served(app: Any) -> Iterator[int]:
    """Serve an application from a thread of its own and yield the port."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    ports: list[int] = []

    async def run(ended: asyncio.Event) -> None:
        events: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        started = asyncio.Event()

        async def send(message: dict[str, str]) -> None:
            if message["type"] == "lifespan.startup.complete":
                started.set()

        lifespan = asyncio.create_task(app({"type": "lifespan"}, events.get, send))
        await events.put({"type": "lifespan.startup"})
        await started.wait()
        server = await asyncio.start_server(lambda *pair: _answer(app, *pair), "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        await ended.wait()
        server.close()
        await events.put({"type": "lifespan.shutdown"})
        await lifespan

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(ended),))
    thread.start()
    try:
        assert ready.wait(60)
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(60)
        loop.close()


async def _answer(app: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests of one connection until it ends."""
    while head := await _head(reader):
        length = next((int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length")), 0)
        body = await reader.readexactly(length)

        async def receive(body: bytes = body) -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                writer.write(b"HTTP/1.1 %d -\r\n" % message["status"])
            else:
                body = message["body"]
                writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))

        method, path, _ = head[0].decode().split(" ")
        await app({"type": "http", "method": method, "path": path}, receive, send)
        await writer.drain()
    writer.close()


async def _head(reader: asyncio.StreamReader) -> list[bytes]:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).rstrip().split(b"\r\n")
    except asyncio.IncompleteReadError:
        return []


def asked(connection: http.client.HTTPConnection, content: object) -> tuple[int, Any]:
    """Return the status and the content of an answer."""
    connection.request("POST", "/", json.dumps(content))
    response = connection.getresponse()
    return response.status, json.loads(response.read())
