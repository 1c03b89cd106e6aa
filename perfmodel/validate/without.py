"""Fits again without some sources of samples, to predict their measurements."""

from __future__ import annotations

from functools import lru_cache

from perfmodel.fit.hierarchy import learn
from perfmodel.fit.shipped import Entry, cluster_cells
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
