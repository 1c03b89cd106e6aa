// The sum of partial bags of several ranks, kept in fp32; it adds sources in rising order: it is the same in
// every run.
#include "accesses.cuh"

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

// The sum over sources of EACH elements; where(g): where those of source g lie.
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
      if (first + g < sources)
        part[g] = words_of(load_once<kBytes>(from[g]));
#pragma unroll
    for (int g = 0; g < kInFlight; ++g)
#pragma unroll
      for (int k = 0; k < EACH; ++k)
        if (first + g < sources) sum[k] += element<In>(part[g], k);
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

}  // namespace pm
