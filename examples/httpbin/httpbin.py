# SPDX-License-Identifier: Apache-2.0
"""Answers with what it was asked, as go-httpbin does: /headers, /get, /ip, /user-agent,
/status/NUMBER and /anything. Each value of a header is one of a list."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

MAX_BODY = 1 << 20


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        url = urlsplit(self.path)
        headers = {name.title(): self.headers.get_all(name) for name in self.headers}
        origin = self.client_address[0]
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), MAX_BODY))
        request = {
            "args": parse_qs(url.query, keep_blank_values=True),
            "headers": headers,
            "method": self.command,
            "origin": origin,
            "url": f"http://{self.headers.get('Host', '')}{self.path}",
        }
        path, _, rest = url.path.lstrip("/").partition("/")
        if path == "headers":
            self.send(200, {"headers": headers})
        elif path == "get" and self.command == "GET":
            self.send(200, request)
        elif path == "anything":
            self.send(200, {**request, "data": body.decode(errors="replace")})
        elif path == "ip":
            self.send(200, {"origin": origin})
        elif path == "user-agent":
            self.send(200, {"user-agent": self.headers.get("User-Agent", "")})
        elif path == "status" and rest.isdecimal() and 200 <= int(rest) <= 599:
            self.send(int(rest), None)
        else:
            self.send(404, {"error": "not found"})

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def send(self, status, value):
        body = b"" if value is None else json.dumps(value, indent=2).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
