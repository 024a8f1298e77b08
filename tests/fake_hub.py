"""A small Hub on this machine, which takes commits as huggingface_hub sends them: HF_ENDPOINT points to it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any


@dataclass
class FakeHub:
    """What it was asked, and what it has."""

    address: str = ""
    repos: dict[str, bool] = field(default_factory=dict)
    """Name to whether it is private."""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    refuses: bool = False

    def environment(self, home: Path) -> dict[str, str]:
        """For a process that uses it."""
        mine = {"HF_ENDPOINT": self.address, "HF_TOKEN": "hf_of_a_test", "HF_HUB_OFFLINE": "0", "HF_HOME": str(home)}
        return {**os.environ, **mine}


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Run one in a thread."""
    hub = FakeHub()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            if hub.refuses:
                self.answer(403, {"error": "you may not"})
            elif path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                hub.repos[name] = asked.get("visibility") == "private" or bool(asked.get("private"))
                self.answer(200, {"url": f"{hub.address}/{name}", "name": name})
            elif path == "/api/validate-yaml":
                self.answer(200, {"errors": [], "warnings": []})
            elif "/preupload/" in path:
                files = [
                    {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                    for each in json.loads(body)["files"]
                ]
                self.answer(200, {"files": files})
            elif "/commit/" in path:
                name = "/".join(path.split("/")[3:5])
                for line in body.splitlines():
                    part = json.loads(line)
                    if part["key"] == "header":
                        hub.commits.append(part["value"]["summary"])
                    elif part["key"] == "file":
                        content = base64.b64decode(part["value"]["content"])
                        hub.files.setdefault(name, {})[part["value"]["path"]] = content
                self.answer(200, {"commitUrl": f"{hub.address}/{name}/commit/1", "commitOid": "1" * 40})
            else:
                self.answer(404, {"error": f"no {path}"})

        def do_GET(self) -> None:
            self.answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})

        do_HEAD = do_GET

        def answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        hub.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
