"""Reads output of nccl-tests (``all_gather_perf -b 8 -e 1G -f 2``): old and new layouts, several runs.

    # nccl-tests version 2.18.3 nccl-headers=23003 nccl-library=23003      (new)
    # Collective test starting: alltoall_perf                              (new)
    # nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 … graph: 0
    #  Rank  0 Group  0 Pid 50292 on node-1 device  0 [0000:0f:00] NVIDIA H200
    rccl-tests: Version develop:33cc4df · RCCL version : 2.27.7-HEAD:0d2c4fd             (RCCL, for "NCCL")
    #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw …
         1048576        262144     float    none      -1    12.34   84.97   74.35       0    12.50   83.89 …

The header names the columns, so a layout without ``root`` or with a time stamp is read in the same way.
The line above it names the halves; without it the first is out of place. Sizes: bytes of one rank's buffer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from calibrate.importers.logged_rows import (
    OK,
    SINGLE_PROCESS,
    LoggedRow,
    LoggedRun,
    Reading,
    gpu_name,
    library_of,
    logged_row,
    operation_name,
    parse_printed,
    split_label,
)

_RANK = re.compile(
    r"#\s*Rank\s+(\d{1,7})\s+(?:Group\s+(\d{1,7})\s+)?Pid\s+\S+\s+on\s+(\S+)\s+"
    r"device\s+(\d{1,5})\s+\[([^\]]*)\]\s*(.*)"
)
_OPTIONS = re.compile(r"#\s*nThread\s+\d{1,5}\s+nGpus\s+(\d{1,5})\b")
_GRAPH = re.compile(r"\bgraph:\s*(\d{1,5})")
_STARTING = re.compile(r"#\s*Collective test starting:\s*(\S+)")
_LIBRARY = re.compile(r"nccl-library=(\d{1,7})\b")
_VERSION = re.compile(r"\b([NR]CCL) version(?: :)? (\d{1,3}(?:\.\d{1,3}){1,3})|rccl-tests: Version")
_END = re.compile(r"Avg bus bandwidth|Out of bounds values|test concluded")
_COMMAND = re.compile(r"\b([a-z_]+_perf)\b")
_CHECKS = ("#wrong", "wrong", "error")
_UNTABLED = {
    13: "size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
    12: "size count type redop time algbw busbw #wrong time algbw busbw #wrong",
}


_HEAD = re.compile(r"^(\S[^#\n]{0,200})#\s+size\s.*\bbusbw\b", re.MULTILINE)


def version_from_code(code: int) -> str:
    """Version from a number: ``23003`` -> 2.30.3; before NCCL 2.9 it had one digit less (2804 -> 2.8.4)."""
    if code >= 10000:
        return f"{code // 10000}.{code % 10000 // 100}.{code % 100}"
    return f"{code // 1000}.{code % 1000 // 100}.{code % 100}"


@dataclass
class _State:
    """The reader's state after the lines read so far; ``run`` and ``columns`` apply to the next row."""

    run: LoggedRun = field(default_factory=LoggedRun)
    columns: list[str] = field(default_factory=list)
    places: list[bool] = field(default_factory=list)  # whether the halves of a row are in place
    second: int = 0  # where the second half's time stands in the header
    seen: set[str] = field(default_factory=set)  # headers of this run so far
    groups: set[int] = field(default_factory=set)
    rank_lines: int = 0
    command: str = ""
    ended: bool = False


def _label_of_table(text: str) -> re.Pattern[str]:
    """A pattern for what stands before the head of a table, which all its lines share in shape.

    Runs of letters and digits differ from line to line, as times and ranks do.
    Limits: nothing stands before it, or there is no head -> a pattern that matches nothing
    """
    head = _HEAD.search(text)
    if head is None:
        return re.compile(r"(?!)")
    shape = re.sub(r"[\w.-]+", "x", head.group(1))
    return re.compile(re.sub(r"(\\ )+(?!$)", " +", re.escape(shape)).replace("x", r"[\w.-]+"))


def read_nccl_text(text: str, file: str) -> Reading:
    """All rows of a nccl-tests log; never raises on any text."""
    reading = Reading(file)
    state = _State()
    states, table_label = [state], _label_of_table(text)
    for line_no, raw in enumerate(text.splitlines(), start=1):
        match = table_label.match(raw)
        label, line = (match.group().strip(), raw[match.end() :]) if match else split_label(raw)
        stripped = line.strip()
        if stripped.startswith("#"):
            state = _header(stripped, state)
            states += [state] if state is not states[-1] else []
            continue
        if version := _VERSION.search(line):
            _library(version, state.run)
            continue
        if (command := _COMMAND.search(line)) and not stripped[:1].isdigit():
            state.command = command.group(1)
            continue
        _data_line(
            line.replace(label, " ") if label[-1:] in tuple("]>:|)") else line, line_no, state, reading
        )
    for finished in states:
        finished.run.cut = bool({"options", "starting"} & finished.seen) and not finished.ended
        _finish(finished.run)
    return reading


def _starts_new_run(kind: str, state: _State) -> _State:
    """The state for a header line: a new state if the header repeats, or follows rows: a new run begins."""
    if kind in state.seen or "row" in state.seen:
        state = _State(command=state.command)
    state.seen.add(kind)
    return state


def _header(line: str, state: _State) -> _State:
    words = line.lstrip("#").split()
    if "nccl-tests version" in line:
        state = _starts_new_run("version", state)
        if code := _LIBRARY.search(line):
            state.run.library_version = version_from_code(int(code.group(1)))
    elif starting := _STARTING.search(line):
        state = _starts_new_run("starting", state)
        state.run.operation_text = starting.group(1)
    elif options := _OPTIONS.search(line):
        state = _starts_new_run("options", state)
        state.run.flag = SINGLE_PROCESS if int(options.group(1)) > 1 else OK
        graph = _GRAPH.search(line)
        state.run.clock = "graph" if graph and int(graph.group(1)) > 0 else "stream"
    elif _END.search(line):
        state.ended = True
    elif "Blocking Enabled" in line:
        state.run.clock = "eager"
    elif rank := _RANK.match(line):
        _rank_line(rank, state)
    elif version := _VERSION.search(line):
        _library(version, state.run)
    elif "size" in words and "busbw" in words:
        state.columns, state.second = words, line.rfind("time")
    elif words and set(words) <= {"in-place", "out-of-place"}:
        state.places = [word == "in-place" for word in words]
    if not state.run.operation_text and state.command:
        state.run.operation_text = state.command
    return state


def _library(match: re.Match[str], run: LoggedRun) -> None:
    """Set the library of ``run`` and its version; a line of rccl-tests shows that the library is RCCL."""
    run.library_version = run.library_version or match.group(2) or ""
    if match.group(1) != "NCCL":
        run.backend = "rccl"


def _rank_line(match: re.Match[str], state: _State) -> None:
    rank, group, host, _device, bus, name = match.groups()
    run = state.run
    state.groups.add(int(group or 0))
    state.rank_lines += 1
    run.hosts[int(rank)] = host
    run.devices.append((host, bus))
    gpu, run.backend = gpu_name(name), library_of(name, run.backend)
    if run.gpu and gpu and run.gpu != gpu:
        run.trouble = f"the ranks run on different GPUs ({run.gpu}; {gpu})"
    run.gpu = run.gpu or gpu
    if len(state.groups) > 1:
        run.trouble = "several communicators ran at once (more than one 'Group'): not the time of one"
    run.gpus = state.rank_lines


def _data_line(line: str, line_no: int, state: _State, reading: Reading) -> None:
    tokens = line.split()
    if not _looks_like_data(tokens):
        if state.columns and _looks_broken(tokens):
            reading.take("part of a row that other output broke", line_no, line.strip())
        return
    state.seen.add("row")
    state.run.operation_text = state.run.operation_text or state.command
    columns = state.columns or _UNTABLED.get(len(tokens), "").split()
    for row in _rows(_fill_blanks(line, tokens, columns, state.second), columns, state):
        reading.take(row, line_no, line.strip())


def _looks_broken(tokens: list[str]) -> bool:
    """Whether a line is the start of a row (size, count and type), or its end (nothing but numbers)."""
    if len(tokens) < 3 or tokens[0].isdigit():
        return len(tokens) > 2 and tokens[1].isdigit() and tokens[2].isalnum()
    return "." in tokens[0] and all(parse_printed(text) or text.upper() == "N/A" for text in tokens)


def _fill_blanks(line: str, tokens: list[str], columns: list[str], second: int) -> list[str]:
    """The cells of a row, "" where the table has a blank: the reduction (2020 to 2022), or the first half.

    second  where the time of the second half stands in the header
    """
    missing, redop = len(columns) - len(tokens), columns.index("redop") if "redop" in columns else 0
    if 0 < redop < len(tokens) and missing == 1 and parse_printed(tokens[redop]):
        return [*tokens[:redop], "", *tokens[redop:]]
    if columns.count("time") == 2:
        start = columns.index("time")
        ends = [match.end() for match in re.finditer(r"\S+", line)]
        if 2 * missing == len(columns) - start and ends[start] > second:
            return [*tokens[:start], *[""] * missing, *tokens[start:]]
    return tokens


def _looks_like_data(tokens: list[str]) -> bool:
    """Whether a line has a size first and numbers after it, one of them with a decimal point or NaN."""
    if len(tokens) < 4 or not tokens[0].lstrip("+-").isdigit():
        return False
    numbers = [parse_printed(token) is not None or token.upper() == "N/A" for token in tokens]
    return sum(numbers) >= len(tokens) / 2


def _rows(tokens: list[str], columns: list[str], state: _State) -> Iterator[LoggedRow | str]:
    """The halves of a line, out of place and in place, as rows or as reasons why they are none."""
    times = [i for i, name in enumerate(columns) if name in ("time", "cputime")]
    if not times or "size" not in columns[: times[0]]:
        yield "no column header before it"
    elif "cputime" in columns:
        yield "CPU time (-C): the time to enqueue, not to run"
    elif len(tokens) != len(columns) and not ("timestamp" in columns and len(tokens) == len(columns) + 1):
        yield f"{len(tokens)} columns where the header has {len(columns)}: cut short?"
    else:
        places = state.places if len(state.places) == len(times) else [False, True]
        for in_place, start in zip(places, times, strict=False):
            if not tokens[start]:
                continue
            check = "".join(columns[start + 3 : start + 4])
            names = [*columns[:start], "time", "algbw", "busbw", *(["wrong"] if check in _CHECKS else [])]
            cells = dict(zip(names, tokens, strict=False)) | {"inplace": str(int(in_place))}
            if check == "error" and parse_printed(cells["wrong"]):
                cells["wrong"] = "0"  # old layout: the largest rounding error, no count
            row = logged_row(state.run, cells)
            whole = isinstance(row, str) or (row.algbw is not None and row.busbw is not None)
            yield row if whole else "a bandwidth is not a number"


def _finish(run: LoggedRun) -> None:
    """Set a run's number of ranks, ranks per node and collective, once all its headers are read."""
    run.operation = operation_name(run.operation_text)
    if not run.gpus:
        return
    if run.gpus < max(run.hosts) + 1:  # the list is cut: bandwidths and options say how many
        run.gpus = 0
        return
    if run.gpus > max(run.hosts) + 1:
        run.refuse(f"{run.gpus} 'Rank' lines for {max(run.hosts) + 1} ranks: the list is repeated")
    if len(set(run.devices)) < len(run.devices):
        run.refuse("two ranks share one GPU: such times say nothing about a network")
    run.spread(Counter(host for host, _bus in run.devices))
