"""``perfmodel explore``: the page on an address of this machine, and who may open it."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import threading
import webbrowser
from typing import Any
from urllib.parse import urlsplit

import typer

from perfmodel.cli.output import emit, note
from perfmodel.errors import BadInputError
from perfmodel.question.pages import ExploreOptions

_COOKIE = "perfmodel_token"
_MOST_REQUEST = 8_000_000
_SHORTEST = 8
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; frame-ancestors 'none'; "
    "form-action 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def explore(context: typer.Context, options: ExploreOptions) -> None:
    """Serve the page until Ctrl-C.

    Limits: no dash, tables or a machine that cannot be read, an address for others without a token, a port
    that is taken -> BadInputError
    """
    alone = _is_this_machine(options.host)
    _check_token(options.host, options.token, alone=alone)
    from perfmodel.cli.chosen import machine_of
    from perfmodel.schema.table_files import load_tables

    try:
        import pandas  # noqa: F401  plotly looks at it while another thread may still be loading it
        from werkzeug.serving import make_server

        from perfmodel.explore.page import app_of
    except ModuleNotFoundError as error:
        raise BadInputError(
            f"perfmodel explore needs dash: {error.name} is not installed.", "pip install '.[explore]'"
        ) from None
    if options.model is not None:
        load_tables(options.model)
    machine_of(options.machine)
    listening = _listen(options.host, options.port)
    port = listening.getsockname()[1]
    app = app_of(options.model, options.machine)
    server: Any = app.server
    _guard(server, options.token, {f"{name}:{port}" for name in _OWN} if alone else None)
    named = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{named}:{port}/" + (f"?token={options.token}" if options.token else "")
    running = make_server(
        options.host, port, server, threaded=True, request_handler=_quiet(), fd=listening.fileno()
    )
    emit(f"{address}   (Ctrl-C ends it)")
    if options.browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    running.serve_forever()
    note("stopped.")


_OWN = ("127.0.0.1", "localhost", "[::1]")


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_token(host: str, token: str | None, *, alone: bool) -> None:
    if not alone and token is None:
        raise BadInputError(
            f"--host {host} lets everybody who reaches this machine use it: ask, plan, and read answers.",
            f"say who may: --token {secrets.token_urlsafe(12)}, or any other secret; or leave --host out.",
        )
    if token is not None and (len(token) < _SHORTEST or not token.isascii() or (not token.isalnum() and not
                              token.replace("-", "").replace("_", "").isalnum())):  # fmt: skip
        raise BadInputError(
            f"--token is not a secret of letters, digits, - and _, {_SHORTEST} at least.",
            f"for example --token {secrets.token_urlsafe(12)}",
        )


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. Limits: port taken, or no address of this machine -> BadInputError"""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen()
    except OSError as error:
        found.close()
        raise BadInputError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}.",
            "give another --port; 0 takes any that is free.",
        ) from None
    return found


def _quiet() -> Any:
    from werkzeug.serving import WSGIRequestHandler

    class Quiet(WSGIRequestHandler):
        """A request handler that prints nothing."""

        def log_request(self, code: Any = "-", size: Any = "-") -> None:
            """Prints nothing."""

    return Quiet


def _guard(server: Any, token: str | None, names: set[str] | None) -> None:
    """Make the server refuse requests without the token, or to another name than ``names``.

    token, names  None: not checked. The names keep out a page of another site that gives this machine a name
                  of its own (DNS rebinding)
    """
    from dash.exceptions import DependencyException
    from flask import Response, redirect, request

    from perfmodel.explore.page import own_file

    server.config["MAX_CONTENT_LENGTH"] = _MOST_REQUEST

    def check() -> Any:
        if names is not None and request.host not in names:
            return Response("This address is not one of perfmodel explore.\n", 403)
        if token is None:
            return None
        said = request.args.get("token")
        if hmac.compare_digest((said or request.cookies.get(_COOKIE, "")).encode(), token.encode()):
            if said is None:
                return None
            rest = "&".join(
                part for part in urlsplit(request.url).query.split("&") if not part.startswith("token=")
            )
            found = redirect(f"/?{rest}" if rest else "/")
            found.set_cookie(_COOKIE, token, httponly=True, samesite="Strict")
            return found
        return Response("Open the address that perfmodel explore printed: it ends in ?token=...\n", 403)

    def add(found: Any) -> Any:
        found.headers.update(_HEADERS)
        return found

    def own(name: str) -> Any:
        if name not in ("plotly.js", "page.js", "explore.js"):
            return Response("no such file\n", 404)
        return Response(own_file(name), mimetype="text/javascript", headers={"Cache-Control": "no-cache"})

    server.before_request_funcs.setdefault(None, []).insert(0, check)  # before the page reads what is sent
    server.after_request(add)
    server.register_error_handler(DependencyException, lambda _: Response("no such file\n", 404))
    server.add_url_rule("/own/<name>", view_func=own)
