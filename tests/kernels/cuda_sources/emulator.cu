// What the stand-in for a GPU promises, each in the smallest kernel that would notice a broken promise.
#include "portable.cuh"

namespace pm {

// out[block] = sum over the block's threads of in, by shuffles in a warp and shared memory between warps
__global__ void block_sum(const i64* in, i64* out) {
  __shared__ i64 of_warp[32];
  i64 sum = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(kAllLanes, sum, by);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    i64 total = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) total += of_warp[w];
    out[blockIdx.x] = total;
  }
}

// out[t] = in[threads - 1 - t] through dynamic shared memory
__global__ void reverse(const i32* in, i32* out) {
  PM_DYNAMIC_SHARED(i32, all);
  all[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}

// Groups of 8 lanes each sum their own number of terms: groups meet among themselves only.
__global__ void groups(const i32* terms, i32* out) {
  const int lane = threadIdx.x % 32, group = lane / 8;
  const u32 mask = 0xffu << (group * 8);
  i32 sum = 0;
  for (int i = 0; i < terms[group]; ++i) sum += __shfl_xor_sync(mask, lane * (i + 1), i % 8, 8);
  out[threadIdx.x] = sum;
}

__global__ void votes(const i32* in, u32* out) {
  const i32 mine = in[threadIdx.x];
  out[threadIdx.x] = __match_any_sync(kAllLanes, mine);
  const i32 before = __shfl_up_sync(kAllLanes, mine, 1);
  out[32 + threadIdx.x] = u32(before);
}

// Threads that ended do not keep the others from meeting.
__global__ void early(i32* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void stuck(i32* out) {
  if (threadIdx.x < 16) __syncwarp(kAllLanes);
  out[threadIdx.x] = 1;
}

__global__ void whole_number(const f16* in, float* wide, i64 n) {
  for (i64 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += i64(gridDim.x) * blockDim.x) wide[i] = to_float(in[i]);
}

__global__ void first_fault(const i64* ids, i64 rows, i64 n, Faults* faults) {
  const i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n && (ids[i] < 0 || ids[i] >= rows)) report(faults, i);
}

// Shared memory that nobody wrote is poisoned.
__global__ void unwritten(u32* out) {
  PM_DYNAMIC_SHARED(u32, all);
  out[threadIdx.x] = all[threadIdx.x];
}

}  // namespace pm
