"""``perfmodel explore``: the page on an address of this machine."""

from __future__ import annotations

import atexit
import contextlib
import secrets
import tempfile
import threading
import webbrowser
from pathlib import Path

import typer

from perfmodel.cli.output import emit, note
from perfmodel.errors import BadInputError
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.question.passes import ExploreOptions

_HOST = "127.0.0.1"


def explore(context: typer.Context, options: ExploreOptions) -> None:
    """Serve the page until Ctrl-C.

    Limits: tables or a machine that cannot be read, a port that cannot be listened on -> BadInputError
    """
    token = secrets.token_urlsafe(16)
    import pandas  # noqa: F401  plotly looks at it while another thread may still be loading it

    from perfmodel.explore.page import Server, Site
    from perfmodel.schema.machine import load_machine
    from perfmodel.schema.table_files import load_tables

    if options.model is not None:
        load_tables(options.model)
    load_machine(options.machine or DEFAULT_MACHINE)
    try:
        server = Server(_HOST, options.port, Site(options.model, options.machine, token))
    except (OSError, UnicodeError) as error:
        raise BadInputError(
            f"{_HOST}:{options.port} cannot be listened on: {getattr(error, 'strerror', 0) or error}.",
            "give another --port; 0 takes any that is free.",
        ) from None
    address = f"http://{_HOST}:{server.server_address[1]}/?token={token}"
    emit(f"{address}   (Ctrl-C ends it)")
    if options.browser:
        threading.Thread(target=_open_browser, args=(address,), daemon=True).start()
    server.serve_forever()
    note("stopped.")


def _open_browser(address: str) -> None:
    """Open the page by a file that only this user reads: all users see the command line of a browser."""
    with contextlib.suppress(OSError):  # the address is printed too
        with tempfile.NamedTemporaryFile("w", prefix="explore-", suffix=".html", delete=False) as stream:
            stream.write(f'<meta http-equiv="refresh" content="0; url={address}">\n')
        atexit.register(Path(stream.name).unlink, missing_ok=True)
        webbrowser.open(Path(stream.name).as_uri())
