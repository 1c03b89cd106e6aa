"""The page: controls on the left, the answer on the right, and who may ask for what."""

from __future__ import annotations

import hmac
import json
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib import resources
from socketserver import ThreadingTCPServer
from urllib.parse import parse_qsl, urlencode

from perfmodel.errors import PerfmodelError
from perfmodel.explore import answers
from perfmodel.explore.controls import Control, describe_refusal, list_controls
from perfmodel.explore.texts import QuestionTexts
from perfmodel.schema.fields import Exact, validated
from perfmodel.schema.gate import load_json

_SIZE = re.compile("[0-9]{1,5}")  # of a request, in bytes
COOKIE = "perfmodel_token"
_FILES = ("plotly.js", "page.js", "explore.js", "page.css", "explore.css")
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class Reply:
    """A reply of the server. kind  its media type;  headers  those that not every reply has"""

    text: str
    status: HTTPStatus = HTTPStatus.OK
    kind: str = "text/plain"
    headers: Mapping[str, str] = field(default_factory=dict)


class Posted(Exact):
    """What the page's script sends.

    said  texts of the controls by name;  name  of the figure that it asks for, if it asks for a figure
    """

    said: dict[str, str]
    name: str = ""


class Site:
    """All that is served, and to whom.

    model, machine  tables and machine of the first question, from the command line
    token  what who opens it must know
    """

    def __init__(self, model: str | None, machine: str | None, token: str) -> None:
        """Arguments: as above; None: the page's first question has 10 TB, or the default machine."""
        self.controls = list_controls(model, machine)
        texts = {"model": model} if model else {"table_size": "10TB"}
        texts |= {"machine": machine} if machine else {}
        self._first = QuestionTexts.from_texts(texts, self.controls)
        self._token = token

    def write_reply(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Reply:
        """The reply to a request. target  path and query. Limits: no token -> 403;  malformed -> 400"""
        path, _, query = target.partition("?")
        if refusal := self._refuse(query, headers):
            return refusal
        if method == "GET" and path in ("/", "/report.html"):
            try:
                said = QuestionTexts.from_search(query, self.controls) if query else self._first
                if path == "/report.html":
                    saved = {"Content-Disposition": "attachment; filename=report.html"}
                    return Reply(answers.save_page(said), kind="text/html", headers=saved)
            except PerfmodelError as error:
                return Reply(f"{error}\n", HTTPStatus.BAD_REQUEST)
            return Reply(write_page(self.controls, said), kind="text/html")
        name = path.removeprefix("/own/")
        if method == "GET" and name in _FILES:
            return Reply(read_own_file(name), kind="text/css" if name.endswith(".css") else "text/javascript")
        if method != "POST" or path != "/own/answer":
            return Reply("perfmodel explore has no such page.\n", HTTPStatus.NOT_FOUND)
        if headers.get("Content-Type") != "application/json":  # which no form of another site can send
            return Reply("This request is no JSON.\n", HTTPStatus.BAD_REQUEST)
        try:
            document = load_json(body.decode(errors="replace"), "it", "")
            posted = validated(Posted, document, "what was sent", "")
        except PerfmodelError as error:
            return Reply(f"This request is not of perfmodel explore: {error}\n", HTTPStatus.BAD_REQUEST)
        try:
            question = QuestionTexts.from_texts(posted.said, self.controls)
            document = (
                answers.draw_later(posted.name, question) if posted.name else answers.show_answer(question)
            )
        except PerfmodelError as error:
            document = describe_refusal(error, self.controls)
        return Reply(json.dumps(document), kind="application/json")

    def _refuse(self, query: str, headers: Mapping[str, str]) -> Reply | None:
        """None for a request with the cookie; a redirect that sets it if query has the token; else 403."""
        port = (headers.get("Host") or "").rpartition(":")[2]
        cookie = f"{COOKIE}_{port}"  # browsers share cookies among ports
        pairs = parse_qsl(query)
        said = next((text for name, text in pairs if name == "token"), None)
        cookies = (cookie.strip().partition("=") for cookie in (headers.get("Cookie") or "").split(";"))
        cookie_token = next((text for name, _, text in cookies if name == cookie), "")
        if not hmac.compare_digest((cookie_token if said is None else said).encode(), self._token.encode()):
            words = "Open the address that perfmodel explore printed: it ends in ?token=...\n"
            return Reply(words, HTTPStatus.FORBIDDEN)
        if said is None:
            return None
        search = urlencode([pair for pair in pairs if pair[0] != "token"])
        cookie = f"{cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/"
        where = {"Location": f"/?{search}" if search else "/", "Set-Cookie": cookie}
        return Reply("", HTTPStatus.FOUND, headers=where)


def read_own_file(name: str) -> str:
    """The text of a script or a style of this page, of the report's page, or of plotly."""
    if name == "plotly.js":
        from plotly.offline import get_plotlyjs

        return str(get_plotlyjs())
    place = "perfmodel.report.page" if name.startswith("page.") else "perfmodel.explore"
    return resources.files(place).joinpath(name).read_text(encoding="utf-8")


def write_page(known: Mapping[str, Control], said: QuestionTexts) -> str:
    """The page. known  its controls, by name;  said  what they say when it opens"""
    texts = dict(said.pairs)
    groups: dict[str, list[str]] = {}
    for control in known.values():
        field_html = _write_field(control, texts.get(control.name, ""))
        groups.setdefault(control.group, []).append(field_html)
    form = "\n".join(
        f"<fieldset><legend>{escape(name)}</legend>\n{''.join(fields)}</fieldset>"
        for name, fields in groups.items()
    )
    return read_own_file("explore.html").replace("@@FORM@@", form)


def _write_field(control: Control, text: str) -> str:
    """The label and inputs of a control: a list, or a box with a slider of the usual texts."""
    name, label = escape(control.name), escape(control.label)
    if control.only:
        options = "".join(
            f'<option value="{escape(word)}"{" selected" if word == text else ""}>'
            f"{escape(word or f'({control.empty})')}</option>"
            for word in control.words
        )
        box = f'<select id="{name}" name="{name}">{options}</select>'
    else:
        shown = text or control.empty
        stop = control.words.index(shown) if shown in control.words else 0
        box = (
            f'<input type="text" id="{name}" name="{name}" value="{escape(text)}" maxlength="40" '
            f'placeholder="{escape(control.empty)}" autocomplete="off">'
            f'<input type="range" aria-label="{label}" data-of="{name}" '
            f'min="0" max="{len(control.words) - 1}" '
            f'value="{stop}" data-stops="{escape(json.dumps(control.words))}">'
        )
    label = f'<label for="{name}" title="{escape(control.help)}">{label}</label>'
    return f'<div class="field" id="field-{name}">{label}{box}</div>\n'


class Server(ThreadingTCPServer):
    """Answers each request in a thread of its own, which ends with the process."""

    daemon_threads = allow_reuse_address = True

    def __init__(self, host: str, port: int, site: Site) -> None:
        """host, port  to listen on;  site  answers the requests."""
        self.site = site
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def handle_error(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Print what went wrong, unless the browser has left."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One request and its reply, which ``Site.write_reply`` makes."""

    server: Server
    timeout = 60.0  # of a browser that does not send what it announced [s]

    def _send_reply(self) -> None:
        """Read a request, and send the answer of ``Site.write_reply``: a page, a file, data, a figure."""
        size = self.headers.get("Content-Length", "0")
        if _SIZE.fullmatch(size):
            body = self.rfile.read(int(size))
            headers = {name.title(): value for name, value in self.headers.items()}
            reply = self.server.site.write_reply(self.command, self.path, headers, body)
        else:
            words = "at most 99999 bytes are read.\n"
            reply = Reply(words, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        content = reply.text.encode()
        about = {"Content-Type": f"{reply.kind}; charset=utf-8", "Content-Length": str(len(content))}
        self.send_response(reply.status)
        for name, value in {**_HEADERS, **reply.headers, **about}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _send_reply  # noqa: N815  as the library calls them

    def log_message(self, *_: object) -> None:
        """Print nothing."""
