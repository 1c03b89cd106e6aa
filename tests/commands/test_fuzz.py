"""Whatever is typed or lies in a file: an answer, or one screen with exit code 2 or 3; never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from cli_calls import called
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.question import measured, passes
from perfmodel.question.spec import CommandOptions, Opt

WORDS = (
    "10TB 1GB 0 -1 1 2 3 8 128 1e3 1e400 nan inf 1..8 8..1 1KiB..1MiB fp32 int8 nccl nvshmem best graph all "
    "all_to_all l40s-pcie gb200-nvl72 nic_bytes_per_s=1GB/s gpus_per_node=3 l2_bytes=0 a=b 10TB@3TB/s 50% , @"
)
VALUES = st.one_of(
    st.sampled_from(["", *WORDS.split()]),
    st.text(max_size=12).filter(lambda text: not text.startswith("-")),
    st.integers(-5, 10**7).map(str),
)
ASKED: dict[str, type[CommandOptions]] = {
    "project": passes.ProjectOptions,
    "collective": passes.CollectiveOptions,
    "sweep": passes.SweepOptions,
    "show": measured.ShowOptions,
}
OPTIONS = {
    command: [
        each.flag
        for each in asked.declared()
        if isinstance(each.words, Opt) and each.kind is not bool and Path not in get_args(each.kind)
    ]
    for command, asked in ASKED.items()
}
"""Options with a value, but files to write."""


@settings(max_examples=80)
@given(st.data())
def test_any_words_are_answered_or_refused(data: st.DataObject) -> None:
    command = data.draw(st.sampled_from(sorted(OPTIONS)))
    words = [command]
    base = {
        "project": ["--table-size", "1TB"],
        "collective": ["--op", "all_gather", "--size", "1MiB", "--gpus", "8"],
        "sweep": ["--gpus", "16"],
    }
    words += base.get(command, [data.draw(st.sampled_from([*measured.LISTS, ""])), data.draw(VALUES)])
    if OPTIONS[command]:
        for option in data.draw(st.lists(st.sampled_from(OPTIONS[command]), max_size=3)):
            words += [option, data.draw(VALUES)]
    done = called(*words)
    assert done.code in (0, 2, 3) and "Traceback" not in done.err, (words, done.err)
    assert len(done.err.splitlines()) <= 25, done.err
