"""Fits again without some sources of samples, to predict their measurements."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from perfmodel.fit.hierarchy import learn
from perfmodel.fit.links import fit_law
from perfmodel.fit.shipped import Entry, cluster_cells, fit_entry
from perfmodel.schema.calibration import Calibration, shipped_calibration
from perfmodel.schema.machine import load_machine
from perfmodel.schema.priors import Priors, load_priors
from perfmodel.validate import measured


def sources_of(entry: Entry) -> frozenset[str]:
    """Names of all sources whose samples a calibration is fitted to."""
    return frozenset(source for selection in entry.cells for source in selection.sources)


@lru_cache(maxsize=64)
def priors_without(sources: frozenset[str]) -> Priors:
    """The prior knowledge (priors) fitted without the samples of some sources."""
    priors, clusters = load_priors(), measured.shipped_clusters()
    networks = {str(c.built().links.network) for c in clusters if c.sources & sources}
    if not networks:
        return priors
    rest = cluster_cells(measured.shipped_samples(), sources)
    again = [one for one in rest if one.network in networks]
    gone = networks - {one.network for one in again}
    near = {name: laws for name, laws in priors.learned.items() if name not in gone}
    return priors.model_copy(update={"learned": learn(again, priors, near)})


def calibration_without(entry: Entry, sources: frozenset[str]) -> Calibration:
    """The calibration of an entry, fitted without the samples of some sources."""
    priors = priors_without(sources)
    rest = without_sources(entry, sources)
    if rest.cells:
        return fit_entry(rest, measured.shipped_samples(), priors=priors)
    machine = load_machine(entry.machine)
    laws = [
        law.model_copy(update=dict(fit_law(law.law, [], machine, priors)) | {"collectives": law.collectives})
        for law in shipped_calibration(measured.identity(entry)).laws
    ]
    return shipped_calibration(measured.identity(entry)).model_copy(update={"curves": [], "laws": laws})


def without_sources(entry: Entry, sources: Collection[str]) -> Entry:
    """The entry without some sources. Limits: none is left -> an entry without cells"""
    fewer = [
        s.model_copy(update={"sources": [one for one in s.sources if one not in sources]})
        for s in entry.cells
    ]
    return entry.model_copy(update={"cells": [s for s in fewer if s.sources]})
