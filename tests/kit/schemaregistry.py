# SPDX-License-Identifier: Apache-2.0
"""A schema registry that speaks Confluent's documented protocol: subjects, versions, ids, references, descriptors of
Protobuf (`format=serialized`), logins, and errors with its codes. The frames of messages are made here too."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from google.protobuf import descriptor_pb2


@dataclass
class SchemaRegistryServer:
    """`login`: the value of the Authorization header that is required, if any. `asked`: the paths of all requests."""

    login: str = ""
    asked: list[str] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._answer(self, None)

            def do_POST(self) -> None:
                registry._answer(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: tuple[tuple[str, str, int], ...] = ()
    ) -> int:
        """`references`: name, subject and version of schemas that this one uses. The schema's id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        used = [dict(zip(("name", "subject", "version"), r, strict=True)) for r in references]
        body = {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind}), "references": used}
        return self._register(subject, body)

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        same = [number for number, schema in self.schemas.items() if schema == body]
        number = same[0] if same else len(self.schemas) + 100
        self.schemas[number] = body
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def _answer(self, request: BaseHTTPRequestHandler, body: dict[str, Any] | None) -> None:
        self.asked.append(request.path)
        if self.login and request.headers.get("Authorization") != self.login:
            status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
        else:
            status, answer = self._found(urlsplit(request.path), body)
        payload = json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        request.send_header("Content-Length", str(len(payload)))
        request.end_headers()
        request.wfile.write(payload)

    def _found(self, address: Any, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        parts = [unquote(part) for part in address.path.strip("/").split("/")]
        serialized = parse_qs(address.query).get("format") == ["serialized"]
        if parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            if number not in self.schemas:
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            return 200, self._shown(number, serialized)
        versions = self.subjects.get(parts[1], [])
        if body is not None:
            number = self._register(parts[1], {**body, "references": body.get("references") or []})
            return 200, {
                "subject": parts[1],
                "id": number,
                "version": self.subjects[parts[1]].index(number) + 1,
                **body,
            }
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{parts[1]}' not found."}
        version = len(versions) if parts[3] == "latest" else int(parts[3])
        number = versions[version - 1]
        return 200, {"subject": parts[1], "id": number, "version": version, **self._shown(number, serialized)}

    def _shown(self, number: int, serialized: bool) -> dict[str, Any]:
        """Clients register Protobuf as text, or as a descriptor in base64."""
        body = self.schemas[number]
        if serialized and body.get("schemaType") == "PROTOBUF" and "syntax" in body["schema"]:
            return {**body, "schema": base64.b64encode(self._descriptor(body)).decode()}
        return body

    def _descriptor(self, body: dict[str, Any]) -> bytes:
        files = {"main.proto": body["schema"]}
        waiting = list(body["references"])
        while waiting:
            used = waiting.pop()
            other = self.schemas[self.subjects[used["subject"]][used["version"] - 1]]
            files[used["name"]] = other["schema"]
            waiting += other["references"]
        return compile_protobuf(files).file[-1].SerializeToString()


def compile_protobuf(files: dict[str, str]) -> descriptor_pb2.FileDescriptorSet:
    """The descriptors of `main.proto` and of what it imports, itself last."""
    from grpc_tools import protoc

    with TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        include = Path(protoc.__file__).parent / "_proto"
        out = Path(folder, "out")
        arguments = ["protoc", f"-I{folder}", f"-I{include}", "--include_imports", f"--descriptor_set_out={out}"]
        assert protoc.main([*arguments, "main.proto"]) == 0
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def frame(number: int, body: bytes, places: bytes = b"") -> bytes:
    """`places`: the list of message places of Protobuf, as it is in the frame; empty for Avro."""
    return b"\0" + number.to_bytes(4) + places + body
