"""The live page without a browser: what its address means, what it takes from whom, and who may open it."""

from __future__ import annotations

import base64
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_calls import EXPLORE
from flask.testing import FlaskClient
from waiting import PATIENCE_S

from perfmodel.cli import run
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.explore import answers, commands, serve
from perfmodel.explore.asked import FILE, MOST_BYTES, Dropped, Said, texts_of
from perfmodel.explore.controls import OPTIONS, controls
from perfmodel.explore.controls import refused as refused_of
from perfmodel.explore.page import app_of
from perfmodel.question.passes import ProjectOptions
from perfmodel.schema.machine import KEYS

KNOWN = controls(None, None)
TABLES = "name,rows,dim,pooling\n<script>alert(1)</script>,1000000,64,20\nb,20000000,128,1\n"


def dropped(text: str = TABLES, name: str = "mine.csv") -> Dropped:
    return Dropped(name, f"data:text/csv;base64,{base64.b64encode(text.encode()).decode()}")


def asked(file: Dropped | None = None, **said: str) -> Said:
    return Said.of(said, KNOWN, file)


def test_every_control_is_an_option_or_a_machine_value() -> None:
    assert {*KNOWN} <= {*OPTIONS, *KEYS}
    for each in KNOWN.values():
        stops = each.words if not each.only else ()
        assert [each.nearest(stop) for stop in stops] == list(range(len(stops))), each.name


QUESTIONS: tuple[dict[str, str], ...] = (
    {"table_size": "10TB"},
    {"table_size": "9TB", "nic_bytes_per_s": "100GB/s", "batch": "4096", "distribution": "zipf:1.05"},
    {"table_size": "10TB", "tables": "400", "objective": "throughput", "machine": "h200-sxm-ib"},
    {"table_size": "2TB", "gpus": "64", "global_batch": "65536", "batch": "7", "sharding": "column-wise"},
    {"model": "mlperf-dlrm-dcnv2", "gpus": "16", "dim": "64"},
    {"model": f"{FILE}mine.csv", "gpus": "8"},
)


@pytest.mark.parametrize("said", QUESTIONS, ids=lambda said: ",".join(said))
def test_the_command_gives_the_answer_of_the_page(
    said: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question = asked(dropped(), **said)
    found = answers.answer(question)
    (tmp_path / "mine.csv").write_text(TABLES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(shlex.join(commands.line(question)))
    assert program == "perfmodel"
    assert run([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["gpus"], printed["time_s"]) == (found.shown.gpus, found.shown.time_s)
    assert printed["slowdown"] == found.shown.slowdown


def test_an_address_says_the_question_and_nothing_else() -> None:
    question = asked(table_size="9TB", nic_bytes_per_s="100GB/s")
    assert Said.of(texts_of(question.search), KNOWN) == question
    assert commands.line(question)[2:] == ["--table-size", "9TB", "--set", "nic_bytes_per_s=100GB/s"]
    assert asked(**{name: "" for name in KNOWN}).search == ""


@pytest.mark.parametrize(
    "said",
    [
        {"model": "/etc/passwd"}, {"model": "-"}, {"model": "./tables.csv"}, {"machine": "/etc/hosts"},
        {"calibration": "/etc/passwd"}, {"distribution": "histogram:/etc/x"},
        {"table_size": "1" * 300}, {"model": f"{FILE}/etc/passwd"}, {"settings": "hbm_bytes=1"},
    ],
)  # fmt: skip
def test_no_file_of_the_server_can_be_named(said: dict[str, str]) -> None:
    with pytest.raises(BadInputError):
        asked(**said)


def test_files_of_the_command_line_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(TABLES, encoding="utf-8")
    question = Said.of({"model": str(path)}, controls(str(path), None))
    assert answers.answer(question).shown.gpus == 1


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (dropped("rows\n1\n"), "missing column dim"),
        (dropped("not a table"), "is empty|no table|missing column|unknown column"),
        (dropped("rows,dim,pooling\n1,2,x\n"), "pooling"),
        (dropped(name="-"), "cannot be read here"),
        (dropped(name="tables.parquet"), "cannot be read here"),
        (dropped(name="a" * 300 + ".csv"), "cannot be read here"),
        (dropped("rows,dim,pooling\n" + "10,4,1\n" * 10_001), "10001 tables"),
        (dropped("rows,dim,pooling,count\n10,4,1,20000\n"), "20000 tables"),
        (dropped("x" * (MOST_BYTES + 1)), "too large"),
        (Dropped("mine.csv", "data:text/csv;base64,???"), "did not arrive whole"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_in_words(file: Dropped, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        file.tables()


@pytest.mark.parametrize("name", ["../../etc/mine.csv", "C:\\mine.csv", "<b>.csv", "ü ñ.csv"])
def test_a_file_is_read_from_memory_whatever_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a file was opened")

    monkeypatch.setattr(Path, "open", refuse)
    assert [table.name for table in dropped(name=name).tables().tables] == ["<script>alert(1)</script>", "b"]


def test_a_link_to_somebody_elses_file_says_so() -> None:
    with pytest.raises(BadInputError, match="stays with who dropped it"):
        asked(model=f"{FILE}mine.csv")


def refusal(**said: str) -> dict[str, Any]:
    """What the page shows instead of an answer."""
    with pytest.raises(PerfmodelError) as caught:
        answers.shown(asked(**said), None)
    return refused_of(caught.value, KNOWN)


@pytest.mark.parametrize(
    ("said", "words", "wrong"),
    [
        ({"table_size": "10Tb"}, "\u201call tables\u201d 10Tb is ambiguous", ["table_size"]),
        ({"table_size": "2TB", "gpus": "4"}, "2 TB of tables over 4 GPUs", []),
        ({"table_size": "2TB", "nic_bytes_per_s": "q"}, "\u201cnetwork per GPU\u201d q is not a rate",
         ["nic_bytes_per_s"]),
        ({"table_size": "2TB", "gpus": "400", "global_batch": "65536"},
         "\u201cbatch of all\u201d 65536 is no whole number of samples", ["global_batch"]),
        ({"table_size": "2.5TB", "tables": "400", "dim": "64", "global_batch": "65536"},
         "each of 40 GPUs.\nthe nearest: 65520 or 65560; or \u201cGPUs\u201d 64.", ["global_batch"]),
        ({}, "which tables?", []),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_said_in_the_words_of_the_page(
    said: dict[str, str], words: str, wrong: list[str]
) -> None:
    found = refusal(**said)
    assert words in found["error"] and found["wrong"] == wrong


def test_a_figure_that_cannot_be_drawn_says_why() -> None:
    found = answers.drawn("changes", asked(table_size="10Tb"), lambda: True)
    assert found is not None and "ambiguous" in found["missing"]
    assert answers.drawn("changes", asked(table_size="10TB"), lambda: False) is None


def test_lines_of_a_figure_can_be_told_apart() -> None:
    found = answers.drawn("over-gpus", asked(table_size="10TB"), lambda: True)
    assert found is not None
    lines = [trace for trace in found["figure"]["data"] if trace.get("showlegend")]
    assert {trace["name"] for trace in lines} >= {"the fastest of TorchRec's", "row-wise"}
    assert len({trace["line"]["color"] for trace in lines}) == len(lines)


def test_the_question_names_machine_library_and_what_was_changed() -> None:
    head = answers.shown(
        asked(
            table_size="9TB", machine="b200-sxm-ib", nic_bytes_per_s="100GB/s", payload="fp16",
            sharding="row-wise",
        ), None,
    )["view"]["heads"][0]  # fmt: skip
    assert head["question"].endswith("; on b200-sxm-ib, nic_bytes_per_s = 100 GB/s, nccl")
    assert (
        head["question"].startswith("bags sent as fp16; by default ") and "rows of fp32" in head["question"]
    )
    head = answers.shown(asked(table_size="9TB"), None)["view"]["heads"][0]
    assert head["question"].endswith("forward pass: all by default; on h100-sxm-ib, nccl")


def test_figures_are_of_the_sharding_that_they_name() -> None:
    said = {"table_size": "2TB", "tables": "400", "dim": "64", "pooling": "20", "gpus": "64"}
    for question, way in (
        (asked(**said), "table-wise"),
        (asked(**said, sharding="column-wise"), "column-wise"),
        (asked(**said, sharding="row-wise"), "row-wise"),
    ):
        found = answers.answer(question)
        (block,) = answers.shown(question, None)["blocks"]
        longest = max(found.shown.steps, key=lambda step: step.time_s).label
        assert f"the longest step of {way} is the {longest}: " in block["title"]
    changes = answers.drawn("changes", asked(**said), lambda: True)
    assert changes is not None and "for table-wise sharding" in changes["how"]


@pytest.mark.parametrize(
    ("said", "words"), [({}, "same samples per GPU"), ({"global_batch": "65536"}, "on all of them together")]
)
def test_the_figure_over_gpus_says_which_batch_stays(said: dict[str, str], words: str) -> None:
    found = answers.drawn("over-gpus", asked(table_size="2TB", gpus="64", **said), lambda: True)
    assert found is not None and words in found["how"]
    assert found["switches"][0]["label"] == "time" and max(row[1] for row in found["rows"]) == 64 * 32
    y, times = found["figure"]["data"][0]["y"], found["switches"][0]["traces"]["y"][0]
    assert y == times


def test_two_answers_stand_side_by_side() -> None:
    """1.0: the same question twice."""
    one = asked(table_size="10TB")
    assert answers.shown(one, one)["against"].endswith("B takes 1.00× the time of A.")


def test_what_would_change_it_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    question = asked(table_size="9TB")
    before = answers.shown(question, None)["view"]["heads"][0]
    found = answers.drawn(answers.WHAT_IFS, question, lambda: True)
    assert found is not None
    after = found["view"]["heads"][0]
    assert after["times"].startswith(before["times"].rstrip("."))
    *same, changes = after["findings"]
    assert same == before["findings"] and changes["title"].startswith(
        "What would change it most: NVLink domain "
    )
    assert run(["project", "--table-size", "9TB"]) == 0
    printed = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    assert len(changes["rows"]) == 3 and {" ".join(row) for row in changes["rows"]} <= printed


def test_downloads_are_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    question = asked(table_size="9TB")
    for kind in ("json", "csv"):
        assert run(["project", "--table-size", "9TB", f"--{kind}"]) == 0
        assert commands.printed(question, kind) == (capsys.readouterr().out, "")
    assert "ambiguous" in commands.printed(asked(table_size="9Tb"), "json")[1]


# Who may open it


@pytest.fixture(scope="module")
def guarded() -> Iterator[FlaskClient]:
    server = app_of(None, None).server
    serve._guard(server, "a-long-secret", None)
    yield server.test_client()


def test_the_token_opens_the_page_and_leaves_its_address(guarded: FlaskClient) -> None:
    for path in ("/", "/_dash-layout", "/own/page.js", "/?token=wrong-secret"):
        assert guarded.get(path).status_code == 403
    assert guarded.post("/_dash-update-component", data="nonsense").status_code == 403
    found = guarded.get("/?token=a-long-secret&table_size=9TB")
    assert (found.status_code, found.headers["Location"]) == (302, "/?table_size=9TB")
    assert "HttpOnly" in found.headers["Set-Cookie"] and "SameSite=Strict" in found.headers["Set-Cookie"]
    assert guarded.get("/?table_size=9TB").status_code == 200


def test_only_own_names_and_own_files_are_served() -> None:
    server = app_of(None, None).server
    serve._guard(server, None, {"127.0.0.1:8050"})
    client = server.test_client()
    assert client.get("/", headers={"Host": "evil.example:8050"}).status_code == 403
    own = {"Host": "127.0.0.1:8050"}
    found = client.get("/own/explore.js", headers=own)
    assert found.status_code == 200 and "default-src 'self'" in found.headers["Content-Security-Policy"]
    for path in ("/own/serve.py", "/own/..%2fserve.py", "/own/page.css", "/assets/serve.py"):
        assert b"MAX_CONTENT_LENGTH" not in client.get(path, headers=own).data
    big = client.post(
        "/_dash-update-component", data="x" * 9_000_000, headers=own, content_type="application/json"
    )
    assert big.status_code == 413


ASKED: dict[str, Any] = {"said": {"table_size": "10TB"}, "file": None, "visit": "v", "pinned": None}
CALLED: dict[str, Any] = {"output": "no.such", "outputs": [], "inputs": [], "changedPropIds": []}


@pytest.mark.parametrize(
    ("path", "sent", "words"),
    [
        ("/own/answer", "nonsense", "no JSON object"),
        ("/own/answer", {}, "said: Field required"),
        ("/own/answer", ASKED | {"said": ["10TB"]}, "said"),
        ("/own/answer", ASKED | {"said": {"table_size": ["10TB"]}}, "said.table_size"),
        ("/own/answer", ASKED | {"file": {"name": "mine.csv"}}, "file.contents: Field required"),
        ("/own/answer", ASKED | {"pinned": 3}, "pinned"),
        ("/own/figure", [], "no JSON object"),
        ("/_dash-update-component", {}, "output: Field required"),
        ("/_dash-update-component", CALLED, "no such callback"),
        ("/_dash-update-component", CALLED | {"inputs": ["x"]}, "inputs.0"),
    ],
)
def test_what_is_not_of_the_page_is_refused_in_words(path: str, sent: Any, words: str) -> None:
    server = app_of(None, None).server
    serve._guard(server, None, None)
    found = server.test_client().post(path, data=json.dumps(sent), content_type="application/json")
    assert found.status_code == 400 and words in found.text and "perfmodel explore" in found.text
    assert server.test_client().get("/_dash-component-suites/no/such.js").status_code == 404
    page = server.test_client().post("/own/figure", json=ASKED | {"name": "nobody"})
    assert page.status_code == 200 and "figure of this page 'nobody' is not known" in page.json["error"]


@pytest.mark.parametrize(
    ("name", "text", "stop"),
    [
        ("tables", "400", "384"),
        ("pooling", "22", "24"),
        ("table_size", "2 TB", "2TB"),
        ("tables", "many", "1"),
    ],
)
def test_a_knob_goes_to_the_stop_nearest_to_a_typed_text(name: str, text: str, stop: str) -> None:
    client = app_of(None, None).server.test_client()
    found = client.post("/own/stop", json=ASKED | {"name": name, "said": {name: text}})
    assert KNOWN[name].words[found.json["at"]] == stop
    assert client.post("/own/stop", json=ASKED | {"name": "nobody"}).status_code == 400


def refused(*words: str) -> str:
    done = subprocess.run([*EXPLORE, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2, done
    return done.stderr


def test_others_need_a_token() -> None:
    """Nothing heavy is loaded to say so."""
    assert "lets everybody" in (text := refused("--host", "0.0.0.0")) and "--token" in text
    assert "not a secret" in refused("--token", "short")
    loaded = (
        "import sys; from perfmodel.cli import run; run(['explore', '--host', '::']); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert not {"dash", "flask", "numpy", "pandas", "plotly"} & set(done.stdout.split())


def test_without_dash_it_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['dash'] = None; from perfmodel.cli import main; main(['explore'])"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "pip install '.[explore]'" in done.stderr


def test_it_serves_until_it_is_asked_to_end() -> None:
    with subprocess.Popen(EXPLORE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        port = address.rsplit(":", 1)[1].strip("/")
        assert address == f"http://127.0.0.1:{port}/"
        assert f"127.0.0.1:{port} cannot be listened on" in refused("--port", port)
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) in (0, 130)


def test_typed_values_are_those_of_the_options() -> None:
    typed = asked(table_size="9TB", hbm_bytes="96GB").typed(ProjectOptions)
    assert typed["settings"] == ["hbm_bytes=96GB"] and typed["table_size"] == "9TB" and typed["batch"] is None
