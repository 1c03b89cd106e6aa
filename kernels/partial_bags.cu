// Partial bags of several ranks: their sum, the packing of those that are not empty, the sum of packed ones.
// Sums are kept in fp32 and add sources in rising order: they are the same in every run, packed or not.
#include "accesses.cuh"
#include "scan.cuh"

namespace pm {

constexpr int kBagThreads = 256;
constexpr int kInFlight = 4;  // loads of a thread before it uses the first

// What one access of EACH elements of In gives in Out: one or two accesses.
template <class Out, int EACH>
__device__ inline void store_sums(Out* to, const float* sum) {
  constexpr int kPiece = sizeof(Out) * EACH > 16 ? 16 / int(sizeof(Out)) : EACH;
#pragma unroll
  for (int at = 0; at < EACH; at += kPiece) {
    constexpr int kBytes = kPiece * int(sizeof(Out)), kInWord = kPiece == 1 ? 1 : 4 / int(sizeof(Out));
    Words<kBytes> piece{};
#pragma unroll
    for (int k = 0; k < kPiece; ++k)
      piece.word[k / kInWord] |= bits_of(from_float<Out>(sum[at + k])) << (k % kInWord * 8 * int(sizeof(Out)));
    store_once<kBytes>(to + at, bytes_of<kBytes>(piece));
  }
}

// The sum over sources of EACH elements; where(g): where those of source g lie, null: source g has none.
template <class In, int EACH, class Where>
__device__ inline void add_sources(i32 sources, float* sum, Where where) {
#pragma unroll
  for (int k = 0; k < EACH; ++k) sum[k] = 0.0f;
#pragma unroll 1
  for (i32 first = 0; first < sources; first += kInFlight) {
    constexpr int kBytes = EACH * int(sizeof(In));
    const In* from[kInFlight];
    Words<kBytes> part[kInFlight];
#pragma unroll
    for (int g = 0; g < kInFlight; ++g) from[g] = where(min(first + g, sources - 1));
#pragma unroll
    for (int g = 0; g < kInFlight; ++g)
      if (from[g] && first + g < sources)
        part[g] = words_of(load_once<kBytes>(from[g]));
#pragma unroll
    for (int g = 0; g < kInFlight; ++g)
#pragma unroll
      for (int k = 0; k < EACH; ++k)
        if (from[g] && first + g < sources) sum[k] += element<In>(part[g], k);
  }
}

// out[i] = sum over g of parts[g stride + i], i < n; n, stride and addresses allow accesses of EACH elements.
template <class In, class Out, int EACH>
__global__ void __launch_bounds__(kBagThreads, 4)
    partial_sum(const In* parts, i64 stride, i32 sources, i64 n, Out* out) {
  const i64 step = i64(gridDim.x) * kBagThreads * EACH;
#pragma unroll 1
  for (i64 i = (i64(blockIdx.x) * kBagThreads + threadIdx.x) * EACH; i < n; i += step) {
    float sum[EACH];
    add_sources<In, EACH>(sources, sum, [&](i32 g) { return parts + g * stride + i; });
    store_sums<Out, EACH>(out + i, sum);
  }
}

// ---- packing -----------------------------------------------------------------------------------------

// offsets[slot] = bags before slot that are not empty, and the number of each such bag within its
// destination. n = destinations bags. One block a tile.
__global__ void __launch_bounds__(kScanThreads) pack_bags(const i32* lengths, i64 n, i64 bags, u64 reciprocal,
                                                          u64* state, i64* offsets, i32* bag_numbers) {
  const Divisor by{bags, reciprocal};
  scan_tile(
      n, state, [&](i64 slot) { return lengths[slot] > 0 ? 1 : 0; },
      [&](i64 slot, i64 before, i32 here) {
        offsets[slot] = before;
        if (slot == n - 1) offsets[n] = before + here;
        if (here) bag_numbers[before] = i32(slot - divide(slot, by) * bags);
      });
}

// Rows of the bags that are not empty, one after the other, and their number for each destination.
// A row is `accesses` of a Piece: 16, 4 or 2 bytes; 2^lanes_log2 lanes share it.
template <class Piece>
__global__ void __launch_bounds__(kBagThreads)
    pack_rows(const Piece* rows, const i64* offsets, i32 destinations, i64 bags, i32 accesses,
              i32 lanes_log2, u64* state, i64 state_words, i64* counts, Piece* packed) {
  clear_words(state, state_words);
  const i64 thread = i64(blockIdx.x) * kBagThreads + threadIdx.x, threads = i64(gridDim.x) * kBagThreads;
#pragma unroll 1
  for (i64 d = thread; d < destinations; d += threads)
    counts[d] = offsets[(d + 1) * bags] - offsets[d * bags];
  const i64 slots = destinations * bags, groups = threads >> lanes_log2;
  const int lane = int(thread & ((1 << lanes_log2) - 1));
#pragma unroll 1
  for (i64 first = thread >> lanes_log2; first < slots; first += groups * kInFlight) {
    i64 to[kInFlight];  // -1: empty
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const i64 slot = first + k * groups;
      to[k] = -1;
      if (slot < slots && offsets[slot] < offsets[slot + 1]) to[k] = offsets[slot];
    }
    for (i32 at = lane; at < accesses; at += 1 << lanes_log2) {
      Piece piece[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k)
        if (to[k] >= 0) piece[k] = load_once(rows + (first + k * groups) * accesses + at);
#pragma unroll
      for (int k = 0; k < kInFlight; ++k)
        if (to[k] >= 0)
          store_once(packed + to[k] * accesses + at, reinterpret_cast<const Bytes<sizeof(Piece)>&>(piece[k]));
    }
  }
}

// ---- the sum of packed bags --------------------------------------------------------------------------

__global__ void __launch_bounds__(kBagThreads) clear_table(i32* row_of, i64 n) {
#pragma unroll 1
  for (i64 i = i64(blockIdx.x) * kBagThreads + threadIdx.x; i < n; i += i64(gridDim.x) * kBagThreads)
    row_of[i] = -1;
}

// row_of[source, bag]: the packed row that holds the bag of the source. Blocks (x, source).
// Bags that are not there, come twice from a source, or lie beyond the rows are faults.
__global__ void __launch_bounds__(kBagThreads)
    place_rows(const i32* bag_numbers, const i64* counts, i64 rows, i64 bags, i32* row_of, Faults* faults) {
  __shared__ i64 begin;
  const i64 source = blockIdx.y;
  if (threadIdx.x < kWarp) {
    i64 before = 0;
    for (i64 g = threadIdx.x; g < source; g += kWarp) before += counts[g];
    for (int by = kWarp / 2; by > 0; by /= 2) before += __shfl_xor_sync(kAllLanes, before, by);
    if (threadIdx.x == 0) begin = before;
  }
  __syncthreads();
  const i64 end = min(begin + counts[source], rows);
  if (blockIdx.x == 0 && threadIdx.x == 0 && end < begin + counts[source]) report(faults, rows);
#pragma unroll 1
  for (i64 row = begin + i64(blockIdx.x) * kBagThreads + threadIdx.x; row < end;
       row += i64(gridDim.x) * kBagThreads) {
    const i32 bag = load_once(bag_numbers + row);
    if (bag < 0 || bag >= bags || atomicExch(row_of + source * bags + bag, i32(row)) != -1)
      report(faults, row);
  }
}

// out[bag] = sum over sources of rows[row_of[source, bag]]. A row is `accesses` of EACH elements.
template <class In, class Out, int EACH>
__global__ void __launch_bounds__(kBagThreads, 4) sum_rows(const In* rows, const i32* row_of, i32 sources,
                                                           i64 bags, i32 accesses, i32 lanes_log2, Out* out) {
  const i64 thread = i64(blockIdx.x) * kBagThreads + threadIdx.x;
  const i64 groups = i64(gridDim.x) * kBagThreads >> lanes_log2;
  const int lane = int(thread & ((1 << lanes_log2) - 1));
#pragma unroll 1
  for (i64 bag = thread >> lanes_log2; bag < bags; bag += groups)
    for (i32 at = lane; at < accesses; at += 1 << lanes_log2) {
      float sum[EACH];
      add_sources<In, EACH>(sources, sum, [&](i32 g) -> const In* {
        const i32 row = row_of[g * bags + bag];
        return row < 0 ? nullptr : rows + (row * i64(accesses) + at) * EACH;
      });
      store_sums<Out, EACH>(out + (bag * accesses + at) * EACH, sum);
    }
}

}  // namespace pm
