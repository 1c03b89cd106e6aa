// What one access reads or writes: words in registers, shared memory, and copies from global to shared memory that
// nobody waits for until their bytes are needed (cp.async).
#pragma once
#include "portable.cuh"

#if !PM_GPU
#include <vector>
#endif

namespace pm {

// ---- words ----------------------------------------------------------------------------------------------

template <class T>
struct
#if !PM_GPU
    __attribute__((may_alias))
#endif
    Aliased {
  T value;
};

// An access as words of 4 bytes, which registers hold; a shorter one is the low end of a single word.
template <int N>
struct Words {
  static constexpr int kCount = N < 4 ? 1 : N / 4;
  u32 word[kCount];
};

template <int N>
__device__ inline Words<N> words_of(const Bytes<N>& bytes) {
  Words<N> made{};
  if constexpr (N == 2)
    made.word[0] = reinterpret_cast<const Aliased<u16>&>(bytes).value;
  else
    for (int i = 0; i < N / 4; ++i) made.word[i] = reinterpret_cast<const Aliased<u32>*>(&bytes)[i].value;
  return made;
}

template <int N>
__device__ inline Bytes<N> bytes_of(const Words<N>& words) {
  Bytes<N> made;
  if constexpr (N == 2)
    reinterpret_cast<Aliased<u16>&>(made).value = u16(words.word[0]);
  else
    for (int i = 0; i < N / 4; ++i) reinterpret_cast<Aliased<u32>*>(&made)[i].value = words.word[i];
  return made;
}

// Element ``index`` of an access.
template <class Row, int N>
__device__ inline float element(const Words<N>& words, int index) {
  if constexpr (sizeof(Row) == 4)
    return bits_to_float(words.word[index]);
  else
    return to_float(Row{u16(words.word[index / 2] >> (index % 2 * 16))});
}

// ---- shared memory ---------------------------------------------------------------------------------------

// Where something lies in shared memory. On a GPU addresses of 32 bits: pointers would be turned into them each time.
#if PM_GPU
using Shared = u32;
__device__ inline Shared shared_at(const void* pointer) {
  Shared at;
  asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(at) : "l"(pointer));
  return at;
}
#else
using Shared = u8*;
inline Shared shared_at(void* pointer) { return static_cast<u8*>(pointer); }
#endif

template <int N>
__device__ inline Words<N> load_shared(Shared at) {
#if PM_GPU
  Words<N> got;
  if constexpr (N == 16)
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(got.word[0]), "=r"(got.word[1]), "=r"(got.word[2]), "=r"(got.word[3])
                 : "r"(at));
  else if constexpr (N == 8)
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(got.word[0]), "=r"(got.word[1]) : "r"(at));
  else if constexpr (N == 4)
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(got.word[0]) : "r"(at));
  else
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(got.word[0]) : "r"(at));
  return got;
#else
  return words_of(*reinterpret_cast<const Bytes<N>*>(at));
#endif
}

template <int N>
__device__ inline void store_shared(Shared at, const Words<N>& words) {
#if PM_GPU
  if constexpr (N == 4)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(words.word[0]) : "memory");
  else
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(u16(words.word[0])) : "memory");
#else
  *reinterpret_cast<Bytes<N>*>(at) = bytes_of(words);
#endif
}

#if !PM_GPU
// On a CPU a copy happens when it is awaited and no sooner: what reads it before finds what was there.
struct Copy {
  void* to;
  const void* from;  // none: zeros
  int bytes;
  u32 group;
};
struct Copies {  // of one thread
  std::vector<Copy> waiting;
  u32 groups = 0;
};
inline thread_local Copies copies[1024];
inline Copies& my_copies() { return copies[pm_cpu::block.at]; }
#endif

// N bytes from global to shared memory, or N zeros where there is nothing to copy (``from`` is valid all the same).
// Copies go through the L1 cache, where rows that are looked up again soon are found; those of less than 4 bytes wait for
// their bytes.
template <int N>
__device__ inline void copy_async(Shared to, const void* from, bool real) {
  if constexpr (N < 4) {
    store_shared<N>(to, real ? words_of(load_once<N>(from)) : Words<N>{});
  } else {
#if PM_GPU
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(N), "r"(real ? N : 0));
#else
    if (reinterpret_cast<size_t>(to) % N || reinterpret_cast<size_t>(from) % N) std::abort();
    my_copies().waiting.push_back({to, real ? from : nullptr, N, my_copies().groups});
#endif
  }
}

// The copies since the last call make one group.
__device__ inline void end_copies() {
#if PM_GPU
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  ++my_copies().groups;
#endif
}

// Wait until no more than the N latest groups of this thread are on their way.
template <int N>
__device__ inline void await_copies() {
#if PM_GPU
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#else
  Copies& mine = my_copies();
  std::vector<Copy> later;
  for (const Copy& one : mine.waiting) {
    if (i32(mine.groups - one.group) <= N) {
      later.push_back(one);
    } else if (one.from) {
      memcpy(one.to, one.from, size_t(one.bytes));
    } else {
      memset(one.to, 0, size_t(one.bytes));
    }
  }
  mine.waiting.swap(later);
#endif
}

}  // namespace pm
