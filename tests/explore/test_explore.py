"""The live page without a browser: what its address means, what it takes from whom, and who may open it."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Sequence
from html import unescape
from http.client import HTTPConnection
from pathlib import Path

import pytest
from cli_calls import EXPLORE
from waiting import PATIENCE_S

from perfmodel.cli import run
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.explore import answers
from perfmodel.explore.controls import OPTIONS, PRICE, describe_refusal, list_controls
from perfmodel.explore.page import Site
from perfmodel.explore.texts import QuestionTexts
from perfmodel.schema.machine import KEYS
from perfmodel.units import format_number

KNOWN = list_controls(None, None)
TABLES = "name,rows,dim,pooling\n<script>alert(1)</script>,1000000,64,20\nb,20000000,128,1\n"


def asked(**said: str) -> QuestionTexts:
    return QuestionTexts.from_texts(said, KNOWN)


def test_every_control_is_an_option_or_a_machine_value() -> None:
    assert {*KNOWN} <= {*OPTIONS, *KEYS, PRICE} and all(control.help for control in KNOWN.values())


QUESTIONS: tuple[dict[str, str], ...] = (
    {"table_size": "10TB"},
    {"table_size": "9TB", "nic_bytes_per_s": "100GB/s", "batch": "4096", "distribution": "zipf:1.05"},
    {"table_size": "10TB", "tables": "400", "objective": "throughput", "machine": "h200-sxm-ib"},
    {"table_size": "2TB", "tables": "400", "gpus": "64", "global_batch": "65536", "sharding": "column-wise"},
    {"model": "mlperf-dlrm-dcnv2", "gpus": "16", "dim": "64"},
)


@pytest.mark.parametrize("said", QUESTIONS, ids=lambda said: ",".join(said))
def test_the_command_gives_the_answer_of_the_page(
    said: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    question = asked(**said)
    found = answers.compute_answer(question)
    program, *words = shlex.split(answers.show_answer(question)["command"])
    assert program == "perfmodel"
    assert run([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["gpus"], printed["time_s"]) == (found.answer.gpus, found.answer.time_s)
    assert printed["slowdown"] == found.answer.slowdown


@pytest.mark.parametrize("said", [
    {"table_size": "10TB", "objective": "throughput"}, {"model": "mlperf-dlrm-dcnv2", "gpus": "16"},
])  # fmt: skip
def test_a_price_is_that_of_sweep_whose_command_is_printed(
    said: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    told = answers.show_answer(asked(**said, price="2.5USD/GPU/h"))
    _, words = map(shlex.split, told["command"].splitlines())
    assert words.count("--gpus") == 1 and run([*words[1:], "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    cost = format_number(row["cost_of_1e9_samples"])
    assert f"<li>10⁹ samples cost {cost} USD, with {row['gpus_paid']} GPUs paid.</li>" in told["view"]["html"]


def test_an_address_says_the_question_and_nothing_else() -> None:
    question = asked(table_size="9TB".rjust(200), nic_bytes_per_s="100GB/s")
    assert QuestionTexts.from_search(question.search, KNOWN) == question
    assert question.to_words()[2:] == ["--table-size", "9TB", "--set", "nic_bytes_per_s=100GB/s"]
    assert asked(**{name: "" for name in KNOWN}).search == ""


@pytest.mark.parametrize(
    "said",
    [
        {"model": "/etc/passwd"}, {"model": "-"}, {"model": "./tables.csv"}, {"machine": "/etc/hosts"},
        {"calibration": "/etc/passwd"}, {"distribution": "histogram:/etc/x"},
        {"table_size": "1" * 201}, {"settings": "hbm_bytes=1"},
    ],
)  # fmt: skip
def test_no_file_of_the_server_can_be_named(said: dict[str, str]) -> None:
    with pytest.raises(BadInputError):
        asked(**said)


def test_files_of_the_command_line_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(TABLES, encoding="utf-8")
    question = QuestionTexts.from_texts({"model": str(path)}, list_controls(str(path), None))
    assert answers.compute_answer(question).answer.gpus == 1


@pytest.mark.parametrize(
    ("said", "words", "wrong"),
    [
        ({"table_size": "10Tb"}, "\u201call tables\u201d 10Tb is ambiguous", ["table_size"]),
        ({"table_size": "2TB", "gpus": "4"}, "2 TB of tables over 4 GPUs", []),
        ({"table_size": "2TB", "nic_bytes_per_s": "q"}, "\u201cnetwork per GPU\u201d q is not a rate",
         ["nic_bytes_per_s"]),
        ({"table_size": "2TB", "gpus": "400", "global_batch": "65536"},
         "\u201cbatch of all\u201d 65536 is no whole number", ["global_batch"]),
        ({"table_size": "2.5TB", "tables": "400", "dim": "64", "global_batch": "65536"},
         "each of 40 GPUs.\nthe nearest: 65520 or 65560; or \u201cGPUs\u201d 64.", ["global_batch"]),
        ({"table_size": "2TB", "price": "q"}, "\u201cprice of a GPU\u201d q is not a price", ["price"]),
        ({}, "which tables?", []),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_said_in_the_words_of_the_page(
    said: dict[str, str], words: str, wrong: list[str]
) -> None:
    with pytest.raises(PerfmodelError) as caught:
        answers.show_answer(asked(**said))
    shown = describe_refusal(caught.value, KNOWN)
    assert words in shown["error"] and shown["wrong"] == wrong


def test_what_would_change_it_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    question = asked(table_size="9TB")
    before = answers.show_answer(question)["view"]
    found = answers.draw_later(answers.WHAT_IFS, question)
    assert found["view"]["sentence"] == before["sentence"]
    (helps,) = re.findall("<li>What would help most: ([^<]*)</li>", found["view"]["html"])
    assert "What would help most" not in before["html"]
    assert run(["project", "--table-size", "9TB"]) == 0
    label, times = unescape(helps).rstrip(".").rsplit(", ", 1)
    label = label.partition(" (--")[0]
    lines = [line for line in capsys.readouterr().out.splitlines() if label in line]
    assert len(lines) == 1 and times.partition(" → ")[2] in lines[0]


# Who may open it

OWN = {"Host": "127.0.0.1:8050", "Cookie": "perfmodel_token_8050=a-long-secret"}
JSON = OWN | {"Content-Type": "application/json"}
SITE = Site(None, None, "a-long-secret")


def test_the_token_opens_the_page_and_leaves_its_address() -> None:
    stranger = {"Host": "127.0.0.1:8050"}
    for path in ("/", "/own/page.js", "/own/nothing", "/?token=wrong-secret", "/?token="):
        assert SITE.write_reply("GET", path, stranger).status == 403
    assert SITE.write_reply("POST", "/own/answer", stranger, b"nonsense").status == 403
    assert SITE.write_reply("GET", "/", OWN | {"Host": "127.0.0.1:8051"}).status == 403  # of another page
    found = SITE.write_reply("GET", "/?token=a-long-secret&table_size=9TB", stranger)
    assert (found.status, found.headers["Location"]) == (302, "/?table_size=9TB")
    kept = found.headers["Set-Cookie"]
    assert kept.startswith(OWN["Cookie"] + ";") and "HttpOnly" in kept and "SameSite=Strict" in kept
    page = SITE.write_reply("GET", "/?table_size=9TB", OWN)
    assert page.status == 200 and 'value="9TB"' in page.text


def test_the_page_of_report_is_saved() -> None:
    saved = SITE.write_reply("GET", "/report.html?table_size=1GB", OWN)
    assert saved.status == 200 and saved.headers["Content-Disposition"].startswith("attachment")
    assert "<code>perfmodel report --table-size 1GB</code>" in saved.text
    assert SITE.write_reply("GET", "/report.html?table_size=1GB", {}).status == 403


def test_only_own_files_are_served() -> None:
    assert "fetch(" in SITE.write_reply("GET", "/own/explore.js", OWN).text
    for path in ("/own/serve.py", "/own/..%2fserve.py", "/own/../serve.py", "/own/explore.html", "/page.js"):
        assert SITE.write_reply("GET", path, OWN).status == 404


def test_what_a_link_says_stays_text(tmp_path: Path) -> None:
    page = SITE.write_reply("GET", "/?table_size=%22%3E%3Cscript%3Ealert(1)%3C/script%3E", OWN)
    assert page.status == 200 and "<script>alert" not in page.text
    (tmp_path / "<b>.csv").write_text(TABLES, encoding="utf-8")
    own = Site(str(tmp_path / "<b>.csv"), None, "a-long-secret")
    assert "<b>" not in own.write_reply("GET", "/", OWN).text


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"nonsense", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 50_000 + b"]" * 50_000, "nested too deeply"),
        (b'{"said":' * 16_000 + b"1" + b"}" * 16_000, "nested too deeply"),
        (b"[]", "must be a valid dictionary"),
        (b"{}", "said: is missing"),
        (b'{"said": {}, "file": "x"}', "file: is not a field"),
        (b'{"said": {"table_size": ["10TB"]}}', "said.table_size"),
    ],
    ids=lambda sent: str(sent[:20]),
)
def test_what_is_not_of_the_page_is_refused_in_words(sent: bytes, words: str) -> None:
    found = SITE.write_reply("POST", "/own/answer", JSON, sent)
    assert found.status == 400 and words in found.text and "perfmodel explore" in found.text
    form = SITE.write_reply("POST", "/own/answer", OWN, sent)  # as a page of another site sends it
    assert form.status == 400


def test_what_the_page_does_not_have_is_said() -> None:
    sent = b'{"said": {"table_size": "10TB"}, "name": "nobody"}'
    reply = SITE.write_reply("POST", "/own/answer", JSON, sent)
    assert "figure of this page 'nobody' is not known" in json.loads(reply.text)["error"]
    many = "&".join(f"a{i}=1" for i in range(65))
    said = {many: "more than 64 fields", "colour=red": "control of this page", "machine=x": "machine"}
    for query, words in said.items():
        reply = SITE.write_reply("GET", f"/?{query}", OWN)
        assert reply.status == 400 and words in reply.text


def serving(ignored: Sequence[signal.Signals] = ()) -> subprocess.Popen[str]:
    def ignore() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    return subprocess.Popen(
        EXPLORE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=ignore
    )


def address_of(server: subprocess.Popen[str]) -> tuple[int, str]:
    """(port, token) in the printed address."""
    assert server.stdout is not None
    address = server.stdout.readline().split()[0]
    assert address.startswith("http://127.0.0.1:")
    port, _, token = address.removeprefix("http://127.0.0.1:").partition("/?token=")
    return int(port), token


def test_it_serves_who_has_the_token_until_it_is_asked_to_end() -> None:
    with serving() as server:
        port, token = address_of(server)
        assert len(token) >= 20
        for path, status in (("/", 403), (f"/?token={token}", 302)):
            client = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            client.request("GET", path)
            answer = client.getresponse()
            assert answer.status == status
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        client.request("POST", "/own/answer", "x" * 200_000)
        assert client.getresponse().status == 413
        words = [str(port) if word == "0" else word for word in EXPLORE]
        refused = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert refused.returncode == 2 and f"127.0.0.1:{port} cannot be listened on" in refused.stderr
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) in (0, 130)


def test_it_ends_while_it_computes_also_where_ctrl_c_is_ignored() -> None:
    """At once, and no process stays: the CPU time of what it still computes is not waited for."""
    with serving(ignored=(signal.SIGINT,)) as server:
        port, token = address_of(server)
        client = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        headers = {"Cookie": f"perfmodel_token_{port}={token}", "Content-Type": "application/json"}
        body = {"said": {"model": "criteo-1tb", "gpus": "512"}, "name": "over-gpus"}
        client.request("POST", "/own/answer", json.dumps(body), headers)
        children = list(Path(f"/proc/{server.pid}/task").glob("*/children"))
        assert not "".join(each.read_text() for each in children).strip()
        server.send_signal(signal.SIGTERM)
        server.wait(PATIENCE_S)


def test_a_browser_is_given_a_file_that_only_this_user_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    from perfmodel.explore import serve

    opened: list[str] = []
    monkeypatch.setattr(serve.webbrowser, "open", opened.append)
    serve._open_browser("http://127.0.0.1:1/?token=secret-secret")
    file = Path(opened[0].removeprefix("file://"))
    assert file.stat().st_mode & 0o777 == 0o600 and "token=secret-secret" in file.read_text()
