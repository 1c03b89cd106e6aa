// A CPU that stands in for a GPU: the threads of a block take turns as fibers of one thread, blocks follow each
// other. Barriers, shuffles, votes, atomics and shared memory mean what they mean on a GPU, so the kernels'
// own sources run and can be tested without one. A barrier that not all threads reach is an error, shared memory
// is poisoned when a block begins, and the order of the threads can be varied (pm_cpu_order).
// Not seen here: data races inside a warp's step, memory models, anything about speed.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <tuple>
#include <ucontext.h>
#include <utility>

#define __global__
#define __device__
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace pm_cpu {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 64 * 1024;
constexpr double kSpinLimit_s = 20;  // a wait for another process takes no longer

enum Result { kOk = 0, kStuck = 1, kNoMemory = 2, kSharedTooLarge = 3, kTrapped = 4 };

struct Meeting {  // of the lanes of one mask: they exchange values and leave together
  unsigned mask = 0, arrived = 0, exited = 0, generation = 0;
  unsigned long long value[2][kWarp];
};

struct Warp {
  Meeting meetings[64];
  int used = 0;
  unsigned live = 0;
};

struct Fiber {
  ucontext_t first;
  jmp_buf here;
  bool started = false, done = false;
  dim3 thread;
};

struct Block {
  Fiber* fibers = nullptr;
  Warp* warps = nullptr;
  char* stacks = nullptr;
  int threads = 0, live = 0, at = 0;
  int arrived = 0;
  unsigned generation = 0;
  bool moved = false, spinning = false, trapped = false;
  jmp_buf scheduler;
  void (*body)(void*) = nullptr;
  void* arguments = nullptr;
};

inline thread_local Block block;
inline thread_local unsigned char* dynamic_shared = nullptr;
inline thread_local dim3 block_index, block_size, grid_size, thread_index;
inline int order = 0;  // 0 rising, 1 falling, else a seed of random orders

__attribute__((noinline)) inline void yield() {
  Fiber& me = block.fibers[block.at];
  if (_setjmp(me.here) == 0) _longjmp(block.scheduler, 1);
  thread_index = me.thread;
}

inline void entry() {
  block.moved = true;
  block.body(block.arguments);
  Fiber& me = block.fibers[block.at];
  me.done = true;
  block.moved = true;
  --block.live;
  block.warps[block.at / kWarp].live &= ~(1u << (block.at % kWarp));
  _longjmp(block.scheduler, 1);
}

// Every thread of the block that still runs arrives before any goes on.
inline void barrier() {
  const unsigned generation = block.generation;
  ++block.arrived;
  block.moved = true;
  while (block.generation == generation && block.arrived < block.live) yield();
  if (block.generation == generation) {
    ++block.generation;
    block.arrived = 0;
  }
}

inline Meeting& meeting(unsigned mask) {
  Warp& warp = block.warps[block.at / kWarp];
  for (int i = 0; i < warp.used; ++i)
    if (warp.meetings[i].mask == mask) return warp.meetings[i];
  if (warp.used == 64) std::abort();
  Meeting& fresh = warp.meetings[warp.used++];
  fresh = Meeting{};
  fresh.mask = mask;
  return fresh;
}

// The lanes of mask arrive, each with a value; returns where the values of all of them lie.
inline const unsigned long long* meet(unsigned mask, unsigned long long value) {
  const unsigned lane = block.at % kWarp;
  if (!(mask >> lane & 1u)) std::abort();  // a lane outside its own mask
  Meeting& here = meeting(mask);
  const unsigned generation = here.generation;
  unsigned long long* values = here.value[generation & 1u];
  values[lane] = value;
  here.arrived |= 1u << lane;
  block.moved = true;
  // Lanes named by the mask that ended can never arrive: on a GPU that is undefined, here it gets stuck.
  while (here.generation == generation && here.arrived != mask) yield();
  if (here.generation == generation) {
    ++here.generation;
    here.arrived = 0;
  }
  return values;
}

template <class T>
inline unsigned long long pack(T value) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
inline T unpack(unsigned long long bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

inline double now_s() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// A thread waits for memory that another block's or process's thread writes: the others go on meanwhile.
inline void spin() {
  block.spinning = true;
  yield();
}

// The launch ends here: no thread of it goes on.
inline void trap() {
  block.trapped = true;
  for (;;) yield();
}

inline int order_of(int turn, int threads, unsigned long long& state, int* shuffled) {
  if (order == 0) return turn;
  if (order == 1) return threads - 1 - turn;
  if (turn == 0) {
    for (int i = 0; i < threads; ++i) shuffled[i] = i;
    for (int i = threads - 1; i > 0; --i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      std::swap(shuffled[i], shuffled[(state >> 33) % unsigned(i + 1)]);
    }
  }
  return shuffled[turn];
}

// Run a thread until it waits or ends. A function of its own: what longjmp returns over holds no local variable.
__attribute__((noinline)) inline void resume(Fiber& fiber) {
  if (_setjmp(block.scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.here, 1);
  fiber.started = true;
  setcontext(&fiber.first);
}

inline int run_block(unsigned long long& state, int* shuffled) {
  double spinning_since = 0;
  while (block.live > 0) {
    block.moved = block.spinning = false;
    for (int turn = 0; turn < block.threads; ++turn) {
      const int index = order_of(turn, block.threads, state, shuffled);
      Fiber& fiber = block.fibers[index];
      if (fiber.done) continue;
      block.at = index;
      thread_index = fiber.thread;
      resume(fiber);
      if (block.trapped) return kTrapped;
    }
    if (block.moved) {
      spinning_since = 0;
      continue;
    }
    if (!block.spinning) return kStuck;
    if (spinning_since == 0) spinning_since = now_s();
    if (now_s() - spinning_since > kSpinLimit_s) return kStuck;
    sched_yield();
  }
  return kOk;
}

__attribute__((noinline)) inline void begin(Fiber& fiber, char* stack) {
  fiber.started = fiber.done = false;
  getcontext(&fiber.first);
  fiber.first.uc_stack.ss_sp = stack;
  fiber.first.uc_stack.ss_size = kStackBytes;
  fiber.first.uc_link = nullptr;
  makecontext(&fiber.first, entry, 0);
}

inline int run_grid(dim3 grid, dim3 size, size_t shared_bytes, void (*body)(void*), void* arguments) {
  const int threads = int(size.x * size.y * size.z), warps = (threads + kWarp - 1) / kWarp;
  const size_t stack_bytes = size_t(threads) * kStackBytes;
  if (shared_bytes > 232448) return kSharedTooLarge;
  void* stacks = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) return kNoMemory;
  block.stacks = static_cast<char*>(stacks);
  block.fibers = new Fiber[threads];
  block.warps = new Warp[warps];
  int* shuffled = new int[threads];
  dynamic_shared = static_cast<unsigned char*>(std::aligned_alloc(128, (shared_bytes + 127) / 128 * 128 + 128));
  block.threads = threads;
  block.body = body;
  block.arguments = arguments;
  grid_size = grid;
  block_size = size;
  unsigned long long state = static_cast<unsigned long long>(order);
  int result = kOk;
  for (unsigned index = 0; index < grid.x * grid.y * grid.z && result == kOk; ++index) {
    block_index = {index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y};
    std::memset(dynamic_shared, 0xA5, shared_bytes);
    block.live = threads;
    block.trapped = false;
    block.arrived = 0;
    for (int w = 0; w < warps; ++w) block.warps[w].used = 0;
    for (int t = 0; t < threads; ++t) {
      const unsigned at = unsigned(t);
      block.fibers[t].thread = {at % size.x, at / size.x % size.y, at / size.x / size.y};
      begin(block.fibers[t], block.stacks + size_t(t) * kStackBytes);
    }
    result = run_block(state, shuffled);
  }
  std::free(dynamic_shared);
  delete[] shuffled;
  delete[] block.warps;
  delete[] block.fibers;
  munmap(stacks, stack_bytes);
  return result;
}

template <class... A>
struct Call {
  void (*kernel)(A...);
  std::tuple<A...> arguments;
};

template <class... A, size_t... I>
inline int launch(void (*kernel)(A...), const unsigned* grid, const unsigned* size, size_t shared_bytes,
                  void** arguments, std::index_sequence<I...>) {
  Call<A...> call{kernel, std::tuple<A...>(*static_cast<A*>(arguments[I])...)};
  return run_grid({grid[0], grid[1], grid[2]}, {size[0], size[1], size[2]}, shared_bytes,
                  [](void* at) {
                    auto* it = static_cast<Call<A...>*>(at);
                    std::apply(it->kernel, it->arguments);
                  },
                  &call);
}
template <class... A>
inline int launch(void (*kernel)(A...), const unsigned* grid, const unsigned* size, size_t shared_bytes,
                  void** arguments, size_t count) {
  if (count != sizeof...(A)) return -1;
  return launch(kernel, grid, size, shared_bytes, arguments, std::make_index_sequence<sizeof...(A)>{});
}

inline float half_to_float(unsigned short half) {
  const unsigned sign = unsigned(half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 1023u;
  unsigned bits;
  float value;
  if (exponent == 0) {
    value = float(fraction) * 5.9604644775390625e-08f;  // 2^-24
    return sign ? -value : value;
  }
  bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

}  // namespace pm_cpu

#define threadIdx (pm_cpu::thread_index)
#define blockIdx (pm_cpu::block_index)
#define blockDim (pm_cpu::block_size)
#define gridDim (pm_cpu::grid_size)

// ---- CUDA's own names ------------------------------------------------------------------------------------

inline void __syncthreads() { pm_cpu::barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { pm_cpu::meet(mask, 0); }
inline void __threadfence_system() { __sync_synchronize(); }

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const auto* all = pm_cpu::meet(mask, pm_cpu::pack(value));
  const int me = pm_cpu::block.at % 32, other = me ^ lanes;
  return (other & ~(width - 1)) > (me & ~(width - 1)) ? value : pm_cpu::unpack<T>(all[other]);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const auto* all = pm_cpu::meet(mask, pm_cpu::pack(value));
  const int me = pm_cpu::block.at % 32;
  return me % width < int(by) ? value : pm_cpu::unpack<T>(all[me - int(by)]);
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value) {
  const auto* all = pm_cpu::meet(mask, pm_cpu::pack(value));
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane)
    if ((mask >> lane & 1u) && all[lane] == pm_cpu::pack(value)) same |= 1u << lane;
  return same;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <class T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
inline T max(T a, T b) {
  return a < b ? b : a;
}

// Atomic between processes too: the symmetric heap is shared memory.
template <class T>
inline T atomicAdd(T* at, T value) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
// In random orders the other threads of the block go first: whoever read *at just now may find it changed.
template <class T>
inline T atomicCAS(T* at, T expected, T desired) {
  if (pm_cpu::order > 1) {
    pm_cpu::block.moved = true;
    pm_cpu::yield();
  }
  __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
template <class T>
inline T atomicExch(T* at, T value) {
  return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
}
template <class T>
inline T atomicMin(T* at, T value) {
  T old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  while (value < old && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}

// Once a library.
#define PM_CPU_LIBRARY \
  extern "C" void pm_cpu_order(int order) { pm_cpu::order = order; }

// Once a kernel: PM_CPU_ENTRY(pm_entry_0, pm::gather_pool<float, int>)
#define PM_CPU_ENTRY(symbol, ...)                                                                         \
  extern "C" int symbol(const unsigned* grid, const unsigned* size, size_t shared_bytes, void** arguments, \
                        size_t count) {                                                                    \
    return pm_cpu::launch(&__VA_ARGS__, grid, size, shared_bytes, arguments, count);                       \
  }
