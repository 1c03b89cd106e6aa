// exchange.cu over NVSHMEM: PEs of several processes and nodes.
#define PM_NVSHMEM 1
#include "exchange.cu"
