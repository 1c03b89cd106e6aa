// Exclusive sums over a whole device in one pass, and where a position lies among segments.
//
// A block sums one tile of kScanTile values. It publishes the tile's sum at once and, as soon as it knows
// what lies before the tile, the sum up to the tile's end; a later tile looks back over its predecessors, 32
// at a time, until it meets one that knows. Status and sum share one 64-bit word, so a word that is seen is
// whole and nothing else has to be ordered. Tiles are handed out by a ticket: whoever waits, waits for blocks
// that already run.
//
// state: the ticket and a word for each tile, all 0 before the launch. The scan leaves them used; a later
// kernel clears them with clear_words, so that each call finds them as the first did, in a graph too. A state
// that was not cleared hands out tickets beyond the last tile: such a launch stops, and writes nothing outside.
//
// Source of the method: Merrill, Garland, "Single-pass parallel prefix scan with decoupled look-back" (2016)
//
// Limits: sums below 2^62, values not negative, fewer than 2^31 tiles
#pragma once
#include "portable.cuh"

namespace pm {

constexpr int kScanThreads = 256;
constexpr int kScanRows = 4;  // values of a thread; a warp's lie side by side, row by row
constexpr int kScanTile = kScanThreads * kScanRows;

constexpr u64 kTileSum = 1ull << 62, kSumSoFar = 2ull << 62, kSumBits = (1ull << 62) - 1;

__device__ inline u64 load_word(const u64* at) {
#if PM_GPU
  u64 word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
  return word;
#else
  return __atomic_load_n(at, __ATOMIC_RELAXED);
#endif
}

__device__ inline void store_word(u64* at, u64 word) {
#if PM_GPU
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
#else
  __atomic_store_n(at, word, __ATOMIC_RELAXED);
#endif
}

__device__ inline u64 wait_for_word(const u64* at) {
  u64 word = load_word(at);
  while (word == 0) {
#if !PM_GPU
    pm_cpu::spin();
#endif
    word = load_word(at);
  }
  return word;
}

// All threads of the grid together.
__device__ inline void clear_words(u64* words, i64 count) {
#pragma unroll 1
  for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += i64(gridDim.x) * blockDim.x)
    words[i] = 0;
}

// What lies before a tile of this sum; the first warp of a block. words: one a tile.
__device__ inline u64 look_back(u64* words, i64 tile, u64 sum) {
  const int lane = threadIdx.x % kWarp;
  if (tile == 0) {
    if (lane == 0) store_word(words, kSumSoFar | sum);
    return 0;
  }
  if (lane == 0) store_word(words + tile, kTileSum | sum);
  u64 before = 0;
  for (i64 newest = tile - 1;; newest -= kWarp) {
    const i64 at = newest - lane;
    const u64 word = at < 0 ? kSumSoFar : wait_for_word(words + at);
    const u32 known = __ballot_sync(kAllLanes, (word & kSumSoFar) != 0);
    const int last = known ? __ffs(int(known)) - 1 : kWarp - 1;
    u64 part = lane <= last ? word & kSumBits : 0;
    for (int by = kWarp / 2; by > 0; by /= 2) part += __shfl_xor_sync(kAllLanes, part, by);
    before += part;
    if (known) break;
  }
  if (lane == 0) store_word(words + tile, kSumSoFar | (before + sum));
  return before;
}

// One tile of a scan of n values by a block of kScanThreads, one block a tile.
// load(i) -> value i;  store(i, sum of the values before i, value i), each once, in no order
template <class Load, class Store>
__device__ inline void scan_tile(i64 n, u64* state, Load load, Store store) {
  __shared__ u64 ticket, before_tile, before_warp[kScanThreads / kWarp];
  using Value = decltype(load(i64(0)));
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  if (threadIdx.x == 0) ticket = atomicAdd(state, 1ull);
  __syncthreads();
  if (ticket * kScanTile >= u64(n)) trap();
  const i64 tile = i64(ticket), first = tile * kScanTile + warp * (kWarp * kScanRows) + lane;
  Value value[kScanRows];
  u64 sum[kScanRows], of_warp = 0;
#pragma unroll
  for (int r = 0; r < kScanRows; ++r) value[r] = first + r * kWarp < n ? load(first + r * kWarp) : Value(0);
#pragma unroll
  for (int r = 0; r < kScanRows; ++r) {
    const u64 in_row = warp_sums(u64(value[r]));
    sum[r] = of_warp + in_row - u64(value[r]);
    of_warp += __shfl_sync(kAllLanes, in_row, kWarp - 1);
  }
  if (lane == 0) before_warp[warp] = of_warp;
  __syncthreads();
  if (warp == 0) {
    const u64 mine = lane < kScanThreads / kWarp ? before_warp[lane] : 0;
    const u64 upto = warp_sums(mine);
    if (lane < kScanThreads / kWarp) before_warp[lane] = upto - mine;
    const u64 before = look_back(state + 1, tile, __shfl_sync(kAllLanes, upto, kWarp - 1));
    if (lane == 0) before_tile = before;
  }
  __syncthreads();
  const u64 before = before_tile + before_warp[warp];
#pragma unroll
  for (int r = 0; r < kScanRows; ++r)
    if (first + r * kWarp < n) store(first + r * kWarp, i64(before + sum[r]), value[r]);
}

// ---- segments -------------------------------------------------------------------------------------------

// The last of segments low .. high that begins at or before position; start(s) rises, start(low) <= position.
template <class Start>
__device__ inline i64 segment_of(i64 position, i64 low, i64 high, Start start) {
  while (low < high) {
    const i64 middle = low + (high - low + 1) / 2;
    if (start(middle) <= position) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The segments of the first and the last position of a block's tile: a thread then searches among those only.
struct Span {
  i64 low, high;
};
template <class Start>
__device__ inline Span span_of(i64 first, i64 last, i64 segments, Start start) {
  __shared__ Span found;
  if (threadIdx.x == 0) found.low = segment_of(first, 0, segments - 1, start);
  if (threadIdx.x == kWarp) found.high = segment_of(last, 0, segments - 1, start);
  __syncthreads();
  const Span mine = found;
  __syncthreads();
  return mine;
}

}  // namespace pm
