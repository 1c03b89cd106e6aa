"""``--host``: whether the launch time of PyTorch is added to the answer."""

from __future__ import annotations

from perfmodel.errors import BadInputError


def check_host(host: str | None, **others: object) -> None:
    """Check the value of ``--host``.

    others  options by name whose output leaves out the host
    Limits: an unknown value, or such an option -> BadInputError
    """
    if host is None:
        return
    from perfmodel.projections.hosted import split_host

    split_host(host)
    given = [f"--{name.removeprefix('as_').replace('_', '-')}" for name, value in others.items() if value]
    if given:
        raise BadInputError(
            f"--host and {given[0]} cannot be combined.",
            "the host is counted on the screen and with --json.",
        )
