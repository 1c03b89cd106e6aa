"""The page: controls on the left, the answer on the right, and the reactions to a changed control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import resources
from typing import Any, NoReturn, TypeVar

from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html, no_update
from flask import Response, abort, request
from pydantic import ValidationError

from perfmodel.errors import PerfmodelError
from perfmodel.explore import answers, commands
from perfmodel.explore.asked import FILE, MOST_BYTES, Called, Dropped, Posted, Said, texts_of
from perfmodel.explore.controls import Control, controls, refused
from perfmodel.schema.machine import KEYS

Body = TypeVar("Body", Posted, Called)
_FIRST = {"table_size": "10TB"}
_POLL_MS = 500
_VISITS = 256  # whose newest question is known
_LONG = 8  # words of a list in which one may search
_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{%title%}</title>
{%css%}
<style>
@@STYLE@@
</style>
</head>
<body>
{%app_entry%}
<footer>
{%config%}
<script src="/own/plotly.js"></script>
<script src="/own/page.js"></script>
<script src="/own/explore.js"></script>
{%scripts%}
{%renderer%}
</footer>
</body>
</html>"""


def own_file(name: str) -> str:
    """The text of a script or a style of this page, of the report's page, or of plotly."""
    if name == "plotly.js":
        from plotly.offline import get_plotlyjs

        return str(get_plotlyjs())
    place = "perfmodel.report.page" if name.startswith("page.") else "perfmodel.explore"
    return resources.files(place).joinpath(name).read_text(encoding="utf-8")


def app_of(model: str | None, machine: str | None) -> Dash:
    """The application. model, machine  tables and machine of the first question, from the command line"""
    known, plans = controls(model, machine), commands.Backgrounds()
    app = Dash(
        "perfmodel.explore", title="perfmodel explore", update_title="", serve_locally=True,
        include_assets_files=False, suppress_callback_exceptions=True, enable_mcp=False,
    )  # fmt: skip
    app.index_string = _INDEX.replace("@@STYLE@@", own_file("page.css") + own_file("explore.css"))
    app.layout = _layout()
    first = {"model": model} if model else _FIRST
    _fill(app, known, first | ({"machine": machine} if machine else {}))
    _answer(app, known)
    _take(app, known)
    _plan(app, known, plans)
    return app


_LIVE: Any = {"aria-live": "polite"}
_LIMIT: Any = {"data-most-bytes": str(MOST_BYTES)}


def _labelled(words: str) -> Any:
    """An attribute with the name of an element, which screen readers read out."""
    return {"aria-label": words}


def _in_browser(app: Any, name: str, *ends: Any, at_first: bool = False) -> None:
    """Connect ``ends`` to function ``name`` of explore.js; ``at_first``: it also runs when the page opens."""
    app.clientside_callback(ClientsideFunction("explore", name), *ends, prevent_initial_call=not at_first)


def _layout() -> Any:
    stores = [dcc.Store(id=name) for name in ("filled", "pinned", "file", "plan-name")]
    take = [
        html.Button(words, id=name, type="button", title=title)
        for name, words, title in (
            ("pin", "Pin", "Keep this answer beside the next ones"),
            ("copy-link", "Copy link", "A link to this page that asks the same"),
            ("copy-command", "Copy command", "The command line that gives the same answer"),
            ("save-json", "JSON", "Download what perfmodel project --json prints"),
            ("save-csv", "CSV", "Download what perfmodel project --csv prints"),
            ("save-page", "Save page", "Download the page of perfmodel report: it takes some seconds"),
        )
    ]
    plan = [
        html.H2("A sharding of its own for each table"),
        html.P("A search in the background: quick first, then normal.", className="how"),
        html.Div(
            [
                html.Button("Plan", id="plan-start", type="button"),
                html.Button("Stop", id="plan-stop", type="button", disabled=True),
            ],
            className="tools",
        ),
        html.P(id="plan-words", role="status"),
        html.Pre(id="plan-text", tabIndex="0", **_labelled("The plan")),
        dcc.Interval(id="plan-poll", interval=_POLL_MS, disabled=True),
    ]
    dark = html.Button("Dark", id="theme", type="button")
    return html.Div(
        [
            dcc.Location(id="place", refresh=False),
            *stores,
            dcc.Download(id="saved"),
            html.Header([html.Strong("perfmodel explore"), html.Span(id="short"), dark]),
            html.Div(
                [
                    html.Form(id="question", **_labelled("The question"), **_LIMIT),
                    html.Main(
                        [
                            html.Div(id="refused", role="alert"),
                            html.P(id="against", role="status"),
                            html.Div(
                                [
                                    html.Section(id="headline", **_LIVE),
                                    html.Section(id="pinned-card", **_labelled("A, pinned")),
                                ],
                                id="cards",
                            ),
                            html.Div(take, className="tools"),
                            html.P(html.Code(id="command"), className="wide"),
                            html.P(id="said", role="status"),
                            html.Div(id="views"),
                            html.Section(plan, id="plan"),
                        ]
                    ),
                ],
                id="both",
            ),
        ]
    )  # fmt: skip


def _said(name: Any, *, slider: Any) -> dict[str, Any]:
    return {"type": "said", "name": name, "slider": slider}


_MODEL, _ALL = _said("model", slider=False), _said(ALL, slider=ALL)
_EVERY = State(_ALL, "value"), State(_ALL, "id")


def _field(each: Control, text: str) -> Any:
    """The label and inputs of a control: a list, or a slider with a box for other texts."""
    said, last = _said(each.name, slider=not each.only), len(each.words) - 1
    box: list[Any]
    if each.only:
        words = [{"label": name or f"({each.rest})", "value": name} for name in each.words]
        if text.startswith(FILE):
            words.append({"label": text.removeprefix(FILE), "value": text})
        box = [dcc.Dropdown(words, text, id=said, clearable=False, searchable=last > _LONG)]
    else:
        ends = {0: each.words[0] or each.rest, last: each.words[last]}
        box = [
            dcc.Input(text, id=said, type="text", debounce=0.4, placeholder=each.rest, maxLength=40),
            dcc.Slider(
                0, last, 1, value=each.nearest(text), marks=ends, id={"type": "slider", "name": each.name},
                updatemode="drag", allow_direct_input=False, dots=False,
            ),
            dcc.Store(id={"type": "stops", "name": each.name}, data=each.words),
        ]  # fmt: skip
    label = html.Label(each.label, title=each.help)
    return html.Div([label, *box], className="field", id=f"field-{each.name}")


def _form(known: Mapping[str, Control], said: Mapping[str, str]) -> list[Any]:
    drop = dcc.Upload(
        html.Button("Drop a CSV of tables here, or choose one", type="button"),
        id="upload", accept=".csv,.json", multiple=False,
    )  # fmt: skip
    groups: dict[str, list[Any]] = {}
    for each in known.values():
        groups.setdefault(each.group, []).append(_field(each, said.get(each.name, "")))
    first, *rest = groups.items()
    boxes = [
        html.Fieldset(
            [html.Legend(first[0]), first[1][0], drop, html.P(id="file-words", role="status"), *first[1][1:]]
        )
    ]
    return boxes + [html.Fieldset([html.Legend(name), *fields]) for name, fields in rest]


def _fill(app: Dash, known: Mapping[str, Control], first: Mapping[str, str]) -> None:
    @app.callback(
        Output("question", "children"),
        Output("filled", "data"),
        Output("pinned", "data"),
        Input("place", "search"),
        State("place", "hash"),
    )
    def fill(search: str | None, pinned: str | None) -> Any:
        said = texts_of(search or "") or dict(first)
        beside: Any = {"search": f"?{pinned.lstrip('#')}"} if pinned else None
        if beside is not None:
            try:
                beside = answers.shown(Said.of(texts_of(beside["search"]), known), None)
            except PerfmodelError as error:
                beside |= refused(error, known)
        return _form(known, said), said, beside

    slider, stops = ({"type": kind, "name": MATCH} for kind in ("slider", "stops"))
    text = _said(MATCH, slider=True)
    ends = Output(text, "value"), Output(slider, "value"), Input(slider, "value"), Input(text, "value")
    _in_browser(app, "step", *ends, State(stops, "data"))

    @app.callback(
        Output("file", "data"), Output(_MODEL, "options"),
        Output(_MODEL, "value"), Output("file-words", "children"),
        Input("upload", "contents"), State("upload", "filename"),
        State(_MODEL, "options"),
        prevent_initial_call=True,
    )  # fmt: skip
    def dropped(contents: str | None, name: str | None, options: list[dict[str, str]]) -> Any:
        if contents is None or name is None:
            return no_update, no_update, no_update, no_update
        try:
            file = Dropped(name, contents)
            found = file.tables()
        except PerfmodelError as error:
            return no_update, no_update, no_update, str(error)
        own = [each for each in options if not each["value"].startswith(FILE)]
        value = FILE + name
        words = f"{len(found.tables)} tables of {name}. They stay in this page: a link does not hold them."
        return {"name": name, "contents": contents}, [*own, {"label": name, "value": value}], value, words

    given = Input(_ALL, "value"), Input("file", "data"), Input("filled", "data"), State(_ALL, "id")
    _in_browser(app, "gather", *given, at_first=True)
    _in_browser(app, "keep", Input("pinned", "data"))


def _answer(app: Dash, known: Mapping[str, Control]) -> None:
    """Add the addresses that the page's script calls without Dash: answers, slow figures, a knob's place."""
    newest: dict[str, str] = {}

    def answer() -> Any:
        posted = _posted(Posted)
        try:
            question = posted.asked(known)
            beside = None
            with suppress(PerfmodelError):  # it is about a file that has not been dropped yet
                beside = Said.of(texts_of(posted.pinned), known, posted.file) if posted.pinned else None
            if len(newest) > _VISITS:
                newest.clear()
            newest[posted.visit] = question.search
            later = [answers.WHAT_IFS, *(figure.name for figure in answers.LATER)]
            return answers.shown(question, beside) | {"later": later, "own": _own_values(question, known)}
        except PerfmodelError as error:
            return refused(error, known)

    def figure() -> Any:
        posted = _posted(Posted)
        try:
            question = posted.asked(known)
            found = answers.drawn(posted.name, question, lambda: newest.get(posted.visit) == question.search)
        except PerfmodelError as error:
            return {"error": str(error)}
        return found or {"error": "something else is asked now"}

    def stop() -> Any:
        posted = _posted(Posted)
        if posted.name not in known:
            _refuse("name: the page has no such control")
        return {"at": known[posted.name].nearest(posted.said.get(posted.name) or "")}

    def check() -> None:
        if request.path == "/_dash-update-component" and _posted(Called).output not in app.callback_map:
            _refuse("output: the page has no such callback")

    server: Any = app.server
    server.before_request(check)
    for view in (answer, figure, stop):
        server.add_url_rule(f"/own/{view.__name__}", view_func=view, methods=["POST"])


def _own_values(asked: Said, known: Mapping[str, Control]) -> dict[str, str]:
    """By control, in words: the values of the machine that the question leaves as they are."""
    machine, said = answers.answer(asked).question.machine, dict(asked.said)
    own = [name for name in known if name in KEYS and name not in said]
    return {name: str(machine.quantity(name)) for name in own}


def _posted(kind: type[Body]) -> Body:
    """The body of the request as a ``kind``. Limits: it is not of that kind -> the request fails with 400"""
    body = request.get_json(silent=True)
    if not isinstance(body, dict):
        _refuse("the body is no JSON object")
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        _refuse(f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}")


def _refuse(why: str) -> NoReturn:
    text = f"This request is not of the page of perfmodel explore: {why}.\n"
    abort(Response(text, 400, mimetype="text/plain"))


def _asked(said: Mapping[str, Any], known: Mapping[str, Control], file: Mapping[str, str] | None) -> Said:
    return Said.of(said, known, Dropped.of(file))


def _texts(values: Sequence[Any], ids: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    return {each["name"]: value for each, value in zip(ids, values, strict=True)}


def _take(app: Dash, known: Mapping[str, Control]) -> None:
    buttons = ("save-json", "save-csv", "save-page")

    @app.callback(
        Output("saved", "data"), Output("said", "children"), *[Input(name, "n_clicks") for name in buttons],
        *_EVERY, State("file", "data"), prevent_initial_call=True,
        running=[(Output(name, "disabled"), True, False) for name in buttons],
    )  # fmt: skip
    def save(*given: Any) -> Any:
        values, ids, file = given[-3:]
        kind = str(ctx.triggered_id).removeprefix("save-")
        try:
            asked = _asked(_texts(values, ids), known, file)
            answers.answer(asked)
        except PerfmodelError as error:
            return no_update, refused(error, known)["error"]
        text, trouble = commands.page(asked) if kind == "page" else commands.printed(asked, kind)
        if trouble:
            return no_update, trouble
        return {"filename": "report.html" if kind == "page" else f"answer.{kind}", "content": text}, ""


def _plan(app: Dash, known: Mapping[str, Control], plans: commands.Backgrounds) -> None:
    @app.callback(
        Output("plan-name", "data"), Output("plan-words", "children"), Output("plan-text", "children"),
        Output("plan-poll", "disabled"), Output("plan-start", "disabled"), Output("plan-stop", "disabled"),
        Input("plan-start", "n_clicks"), Input("plan-stop", "n_clicks"), Input("plan-poll", "n_intervals"),
        State("plan-name", "data"), *_EVERY, State("file", "data"),
        prevent_initial_call=True,
    )  # fmt: skip
    def plan(_: Any, __: Any, ___: Any, name: Any, values: Any, ids: Any, file: Any) -> Any:
        if ctx.triggered_id == "plan-start":
            try:
                asked = _asked(_texts(values, ids), known, file)
                gpus = answers.answer(asked).shown.gpus
            except PerfmodelError as error:
                return name, refused(error, known)["error"], "", True, False, True
            if "model" not in dict(asked.said):
                words = "Equal tables have one best sharding: the answer above. Choose a set, or drop a file."
                return name, words, "", True, False, True
            name = plans.start(asked, gpus)
            if name is None:
                return name, "Too many searches run here: wait until one of them ends.", "", True, False, True
        found = plans.get(name)
        if found is None:
            return name, "", "", True, False, True
        if ctx.triggered_id == "plan-stop":
            found.stop()
        return name, found.words(), found.text, not found.runs, found.runs, not found.runs
