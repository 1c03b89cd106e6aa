"""Constants of the model that belong to no machine, and scenarios: TOML, each value with its source."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from perfmodel import resources
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import Name, Quantity, Text
from perfmodel.schema.strict import Strict, read_as

_SUFFIX = ".toml"


class Constants(Strict):
    """Values with unit, source, why and evidence."""

    values: Mapping[str, Quantity]

    def value(self, key: str) -> float:
        """The SI value of ``key``."""
        return self.quantity(key).value

    def quantity(self, key: str) -> Quantity:
        """The value ``key`` with its source and evidence."""
        if key not in self.values:
            raise unknown_name("constant", key, self.values)
        return self.values[key]

    def replaced(self, others: Mapping[str, Quantity]) -> Constants:
        """These constants with some of them replaced."""
        for key in others:
            self.quantity(key)
        return Constants(values={**self.values, **others})


class ScenarioFile(Constants):
    """A named set of assumptions: values that replace values of the machine and constants of the model."""

    name: Name
    title: Text
    notes: str = ""
    machine_values_of: str = ""
    machine: Mapping[str, Quantity] = {}
    constants: Mapping[str, Quantity] = {}


@lru_cache(maxsize=1)
def load_kernel_constants() -> Constants:
    """The shipped constants of the embedding-bag steps."""
    return _constants("kernels", "kernel_model", "kernel constants")


def _constants(folder: str, name: str, what: str) -> Constants:
    return read_as(Constants, resources.data_path(folder, name + _SUFFIX), what)


def list_scenario_files() -> list[str]:
    """Names of the shipped scenario files."""
    return resources.data_names("scenarios", _SUFFIX)


@lru_cache(maxsize=8)
def load_scenario_file(name: str) -> ScenarioFile:
    """A shipped scenario by name; an unknown name -> BadInputError that lists the known names."""
    if name not in list_scenario_files():
        raise unknown_name("scenario", name, list_scenario_files())
    return read_as(ScenarioFile, resources.data_path("scenarios", name + _SUFFIX), "scenario file")
