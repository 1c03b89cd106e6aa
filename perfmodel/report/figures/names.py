"""The figures of the report by name, in their order: nothing heavy is imported to list them."""

FIGURES = {
    "slowdown": "the slowdown over table sizes, a line each way to exchange",
    "breakdown": "the steps of a batch at several table sizes",
    "collectives-all-to-all": "the measured all-to-all under its fitted curve",
    "collectives-reduce-scatter": "the measured reduce-scatter under its fitted curve",
    "libraries": "NCCL and NVSHMEM side by side, and where they cross",
    "links": "NVLink and PCIe side by side",
    "roofline": "bytes per second of gather and pool over the tables of a GPU",
    "changes": "what each change leaves of the slowdown",
    "tornado": "the slowdown with values of the machine halved and doubled",
    "heat-map": "the slowdown over batch and pooling, and over tables and dim",
    "validation": "predicted against measured times",
    "claims": "what the paper claims beside what comes out here",
    "shardings": "every way to shard at every table size, and which wins",
}
"""Each name with one line on what is drawn."""
