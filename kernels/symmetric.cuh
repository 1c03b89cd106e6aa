// One-sided communication: a PE writes into the memory of another and signals; nobody asks, nobody acknowledges.
//
// Every PE has one region, laid out alike; an address in the own region stands for the same place in all of them.
// The host puts into memory where this process sees the region of each PE (Peers), so one build serves all.
//
//                    NVSHMEM (PM_NVSHMEM)              mapped GPU memory           shared memory of CPU processes
// mapped(at, pe)     its peer pointer, or none         base[pe] + distance         base[pe] + distance
//                    where a network lies between
// put_signal_block   nvshmemx_putmem_signal_nbi_block  copy of the block, release  copy of the block, release
//                                                      store of the flag           store of the flag
// signal             fence, nvshmemx_signal_op         release store, whole system  release store
// wait_at_least      acquire loads, and then           acquire loads, whole system  acquire loads, and
//                    nvshmem_signal_wait_until                                     pm_cpu::spin() between them
//
// Put: does not wait. What a put_signal wrote is there when its flag is; the source may be written again when the
// receiver is known to have seen the flag. Nothing here puts a payload thread by thread: a put is the work of a
// block, and stores through mapped() are made by the lanes of a warp side by side, 16 bytes each.
// Flags only rise. A wait ends after patience_ns without one: a PE that died never leaves another one hanging.
#pragma once
#include "portable.cuh"

#ifndef PM_NVSHMEM
#define PM_NVSHMEM 0
#endif

#if PM_NVSHMEM
#ifdef __CUDACC_RTC__
#include <cuda/std/type_traits>
namespace std {  // NVSHMEM's headers want <type_traits>, which NVRTC has under another name
using cuda::std::is_floating_point;
using cuda::std::is_integral;
using cuda::std::is_same;
using cuda::std::is_signed;
using cuda::std::is_unsigned;
}  // namespace std
#endif
#include <nvshmem.h>
#include <nvshmemx.h>
#ifdef __CUDACC_RTC__
// NVRTC's uint64_t is unsigned long long (mangled y); NVSHMEM's library was built with unsigned long (m).
#define PM_SCOPED_PUT(scope, width) \
  _Z28nvshmemi_transfer_put_signalIL13threadgroup_t##scope##EEvPvS1_mS1_##width##14nvshmemi_amo_tib
#define PM_BRIDGE(scope)                                                                                         \
  extern "C" __device__ void PM_SCOPED_PUT(scope, m)(void*, void*, size_t, void*, unsigned long long,            \
                                                     nvshmemi_amo_t, int, bool);                                 \
  extern "C" __device__ void PM_SCOPED_PUT(scope, y)(void* to, void* from, size_t bytes, void* flag,             \
                                                     unsigned long long value, nvshmemi_amo_t op, int pe,        \
                                                     bool nbi) {                                                 \
    PM_SCOPED_PUT(scope, m)(to, from, bytes, flag, value, op, pe, nbi);                                          \
  }
PM_BRIDGE(0)
PM_BRIDGE(1)
PM_BRIDGE(3)
#endif
#endif

namespace pm {

struct Peers {
  i64 me, count;
  u8* base[1];  // [count]: the region of each PE as this process sees it; null: puts alone reach it
};

// Where this process sees the place of another PE that `at` is here; null: only a put reaches it.
template <class T>
__device__ inline T* mapped(const Peers& peers, T* at, int pe) {
  u8* const* base = peers.base;
  if (base[pe] == nullptr) return nullptr;
  return reinterpret_cast<T*>(base[pe] + (reinterpret_cast<u8*>(at) - base[peers.me]));
}

__device__ inline i64 now_ns() {
#if PM_GPU
  i64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  return i64(pm_cpu::now_s() * 1e9);
#endif
}

__device__ inline u64 load_acquire(const u64* from) {
#if PM_GPU
  u64 value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
#else
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
#endif
}

__device__ inline void store_release(u64* to, u64 value) {
#if PM_GPU
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
#else
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
#endif
}

// What another PE wrote, after its flag was seen: no path that takes memory for constant, and one access.
template <int N>
__device__ inline Bytes<N> load_landed(const void* from) {
#if PM_GPU
  Bytes<N> to;
  if constexpr (N == 16) {
    uint4& v = reinterpret_cast<uint4&>(to);
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
  } else {
    static_assert(N == 4, "16 or 4 bytes");
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(reinterpret_cast<u32&>(to)) : "l"(from) : "memory");
  }
  return to;
#else
  return *static_cast<const Bytes<N>*>(from);
#endif
}

#if PM_NVSHMEM
// A flag as NVSHMEM takes it: its uint64_t is unsigned long in nvcc; atomics of CUDA want unsigned long long, as u64 is.
__device__ inline uint64_t* signal_word(u64* flag) { return reinterpret_cast<uint64_t*>(flag); }
#endif

// One thread sets a flag of `pe`. Stores through mapped() that happened before (in this thread, or in threads that
// met it in a barrier since) are seen by whoever sees the flag; earlier puts are not ordered by it.
__device__ inline void signal(const Peers& peers, u64* flag, u64 value, int pe) {
#if PM_NVSHMEM
  (void)peers;
  __threadfence_system();
  nvshmemx_signal_op(signal_word(flag), value, NVSHMEM_SIGNAL_SET, pe);
#else
  store_release(mapped(peers, flag, pe), value);
#endif
}

// All threads of a block copy; places and bytes are multiples of 4.
__device__ inline void copy_block(void* to, const void* from, i64 bytes) {
  const u64 bits = reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from) | u64(bytes);
  if (bits % 16 == 0) {
    for (i64 at = threadIdx.x; at < bytes / 16; at += blockDim.x)
      static_cast<Bytes<16>*>(to)[at] = static_cast<const Bytes<16>*>(from)[at];
  } else {
    for (i64 at = threadIdx.x; at < bytes / 4; at += blockDim.x)
      static_cast<u32*>(to)[at] = static_cast<const u32*>(from)[at];
  }
}

// All threads of a block put bytes (a multiple of 4, or 0) into the memory of `pe`, then its flag is set. What the
// block wrote into `from` need not have met in a barrier before.
__device__ inline void put_signal_block(const Peers& peers, void* to, const void* from, i64 bytes, u64* flag,
                                        u64 value, int pe) {
  __syncthreads();
  if (bytes == 0) {
    if (threadIdx.x == 0) signal(peers, flag, value, pe);
    return;
  }
#if PM_NVSHMEM
  nvshmemx_putmem_signal_nbi_block(to, from, size_t(bytes), signal_word(flag), value,
                                   NVSHMEM_SIGNAL_SET, pe);
#else
  copy_block(mapped(peers, static_cast<u8*>(to), pe), from, bytes);
  __syncthreads();
  if (threadIdx.x == 0) signal(peers, flag, value, pe);
#endif
}

// One thread waits until a flag of its own PE is at least `value`. False: it took longer than patience_ns, or
// somebody else here gave up already (*given_up is not 0). True: what was written before the flag can be read.
__device__ inline bool wait_at_least(u64* flag, u64 value, i64 patience_ns, const u64* given_up) {
  const i64 start = now_ns();
  while (load_acquire(flag) < value) {
    if (load_acquire(given_up) != 0 || now_ns() - start > patience_ns) return false;
#if PM_GPU
    __nanosleep(32);
#else
    pm_cpu::spin();
#endif
  }
#if PM_NVSHMEM
  nvshmem_signal_wait_until(signal_word(flag), NVSHMEM_CMP_GE, value);
#endif
  return true;
}

}  // namespace pm
