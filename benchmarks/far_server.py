"""A web server, or object store, that is far away: a set latency and bandwidth, and counters.

    python benchmarks/far_server.py FOLDER --latency 0.02

prints its port. `/counters` gives, and starts anew, the number of each method, the bytes sent, and
the most requests that were answered at a time, as JSON.
"""

import argparse
import asyncio
import json
import pathlib

_PIECE = 1 << 18  # bytes sent between two pauses that keep the bandwidth


class Server:
    """The files of a folder.

    Args:
      folder: of the files; they are held in memory.
      latency: seconds before each answer.
      bandwidth: bytes a second of a connection.
    """

    def __init__(self, folder: pathlib.Path, latency: float, bandwidth: float):
        self._files: dict[str, bytes] = {}
        contents: dict[int, bytes] = {}  # hard links share theirs
        for path in folder.rglob("*"):
            number = path.stat().st_ino
            if path.is_file() and number not in contents:
                contents[number] = path.read_bytes()
            if path.is_file():
                self._files[f"/{path.relative_to(folder)}"] = contents[number]
        self._latency = latency
        self._bandwidth = bandwidth
        self._reset()

    def _reset(self) -> None:
        self._counts = {"GET": 0, "HEAD": 0, "bytes": 0, "at_a_time": 0}
        self._active = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, one after the other."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
                await self._answer(head, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        request, *lines = head.split("\r\n")
        method, path, _ = request.split(" ")
        headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
        if path == "/counters":
            text = json.dumps(self._counts).encode()
            self._reset()
            writer.write(_head("200 OK", len(text)) + b"\r\n" + text)
            return

        self._counts[method] += 1
        self._active += 1
        self._counts["at_a_time"] = max(self._counts["at_a_time"], self._active)
        try:
            await asyncio.sleep(self._latency)
            await self._send(method, path, headers, writer)
        finally:
            self._active -= 1

    async def _send(self, method: str, path: str, headers: dict, writer) -> None:
        data = self._files.get(path)
        if data is None:
            writer.write(_head("404 Not Found", 0) + b"\r\n")
            return

        about = f'ETag: "{len(data):x}"\r\nAccept-Ranges: bytes\r\n'
        about += "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n"  # which clients of S3 want
        status, body = "200 OK", memoryview(data)
        if "range" in headers:
            first, last = headers["range"].removeprefix("bytes=").split("-")
            stop = min(int(last) + 1 if last else len(data), len(data))
            status, body = "206 Partial Content", body[int(first) : stop]
            about += f"Content-Range: bytes {first}-{stop - 1}/{len(data)}\r\n"
        writer.write(_head(status, len(body)) + f"{about}\r\n".encode())
        if method == "HEAD":
            return
        for start in range(0, len(body), _PIECE):
            piece = body[start : start + _PIECE]
            writer.write(piece)
            self._counts["bytes"] += len(piece)
            await writer.drain()
            if self._bandwidth:
                await asyncio.sleep(len(piece) / self._bandwidth)


def _head(status: str, length: int) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n".encode()


async def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--bandwidth", type=float, default=60e6)
    given = parser.parse_args()
    server = Server(given.folder, given.latency, given.bandwidth)
    running = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=2048)
    print(running.sockets[0].getsockname()[1], flush=True)
    await running.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
