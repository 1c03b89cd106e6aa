// What the kernels use of a GPU, and of a CPU that stands in for one. No header of the CUDA toolkit is needed.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define PM_GPU 1
#else
#define PM_GPU 0
#include "cpu.hpp"
#endif

// The shared memory that a launch asks for: PM_DYNAMIC_SHARED(float, rows); rows[i] = ...
#if PM_GPU
#define PM_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(128) unsigned char pm_dynamic_shared[]; \
  T* name = reinterpret_cast<T*>(pm_dynamic_shared)
#else
#define PM_DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(pm_cpu::dynamic_shared)
#endif

namespace pm {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

constexpr int kWarp = 32;
constexpr u32 kAllLanes = 0xffffffffu;

// ---- lanes of a warp ------------------------------------------------------------------------------------

// Lanes of a group that shares rows: those of the caller's warp with the same lane / LANES.
template <int LANES>
__device__ inline u32 group_mask() {
  if constexpr (LANES == kWarp)
    return kAllLanes;
  else
    return ((1u << LANES) - 1u) << (threadIdx.x % kWarp / LANES * LANES);
}

// Sums over the lanes up to and with one's own.
template <class T>
__device__ inline T warp_sums(T value) {
  for (int by = 1; by < kWarp; by *= 2) {
    const T other = __shfl_up_sync(kAllLanes, value, unsigned(by));
    if (int(threadIdx.x) % kWarp >= by) value += other;
  }
  return value;
}

// ---- elements of rows ------------------------------------------------------------------------------------

struct f16 {
  u16 bits;
};
__device__ inline float bits_to_float(u32 bits) {
#if PM_GPU
  return __uint_as_float(bits);
#else
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
#endif
}

__device__ inline u32 float_to_bits(float value) {
#if PM_GPU
  return __float_as_uint(value);
#else
  u32 bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
#endif
}

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(f16 value) {
#if PM_GPU
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#else
  return pm_cpu::half_to_float(value.bits);
#endif
}

// ---- memory ---------------------------------------------------------------------------------------------

template <int N>
struct alignas(N) Bytes {  // N in {2, 4, 8, 16}: one access
  u8 byte[N];
};

// What is read once and by nobody else: rows, ids. Not kept in the L1.
template <int N>
__device__ inline Bytes<N> load_once(const void* from) {
#if PM_GPU
  Bytes<N> to;
  if constexpr (N == 16) {
    uint4& v = reinterpret_cast<uint4&>(to);
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(from));
  } else if constexpr (N == 8) {
    uint2& v = reinterpret_cast<uint2&>(to);
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
  } else if constexpr (N == 4) {
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(reinterpret_cast<u32&>(to)) : "l"(from));
  } else {
    to = *static_cast<const Bytes<N>*>(from);
  }
  return to;
#else
  return *static_cast<const Bytes<N>*>(from);
#endif
}

template <class T>
__device__ inline T load_once(const T* from) {
  Bytes<sizeof(T)> got = load_once<int(sizeof(T))>(static_cast<const void*>(from));
  return reinterpret_cast<const T&>(got);
}

// What nobody on this GPU reads soon: finished bags.
template <int N>
__device__ inline void store_once(void* to, const Bytes<N>& value) {
#if PM_GPU
  if constexpr (N == 16) {
    const uint4& v = reinterpret_cast<const uint4&>(value);
    asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
  } else if constexpr (N == 8) {
    const uint2& v = reinterpret_cast<const uint2&>(value);
    asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" ::"l"(to), "r"(v.x), "r"(v.y) : "memory");
  } else if constexpr (N == 4) {
    asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(to), "r"(reinterpret_cast<const u32&>(value)) : "memory");
  } else {
    *static_cast<Bytes<N>*>(to) = value;
  }
#else
  *static_cast<Bytes<N>*>(to) = value;
#endif
}

// ---- what went wrong ------------------------------------------------------------------------------------

// Ends the launch: what it was given breaks a rule of its callers, and going on would write somewhere.
__device__ inline void trap() {
#if PM_GPU
  asm volatile("trap;");
#else
  pm_cpu::trap();
#endif
}

// Ids out of range add nothing to a bag and are counted: a kernel that meets one never stays silent.
struct Faults {
  u64 count;  // ids out of range
  u64 first;  // position of the first of them in ids; all ones: none
};

__device__ inline void report(Faults* faults, i64 position) {
  atomicAdd(&faults->count, 1ull);
  atomicMin(&faults->first, u64(position));
}

}  // namespace pm
