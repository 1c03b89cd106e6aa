// The rows of a list of ids, one after the other, DEPTH of them on their way from memory at any time.
//
// Rows travel straight into shared memory (cp.async), so rows on their way take no registers, and neither bags nor
// the end of a chunk of ids interrupt the stream. Ids travel the same way, a chunk ahead of the rows. Each lane of a
// group reads back what it copied itself; only ids, which all lanes of a group read, need the group to meet.
#pragma once
#include "rows.cuh"

namespace pm {

// A table's columns, or as many of them as one group can hold.
struct Piece {
  Table table;  // of these columns: rows, out_at and dim
  i32 number;   // of the table: its bags are number B .. number B + B - 1
  i32 tail_at;  // int8: from the first of these columns to scale and bias [bytes]
  i32 reports;  // whether this piece is the one that reports faults of the table's ids
  i32 padding;
};

// ---- copies that nobody waits for -------------------------------------------------------------------------

// How the L2 cache is asked to treat rows: hot ones stay, others go first.
struct Keeping {
  u64 hot, cold;
};

__device__ inline Keeping keeping() {
  Keeping made{0, 0};
#if PM_GPU
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(made.hot));
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(made.cold));
#endif
  return made;
}

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
  else if constexpr (N == 2)
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(got.word[0]) : "r"(at));
  else
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(got.word[0]) : "r"(at));
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
  else if constexpr (N == 2)
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(u16(words.word[0])) : "memory");
  else
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(at), "r"(words.word[0]) : "memory");
#else
  *reinterpret_cast<Bytes<N>*>(at) = bytes_of(words);
#endif
}

#if !PM_GPU
// On a CPU a copy happens when it is awaited and no sooner: what reads it before finds what was there.
struct Copies {
  static constexpr int kMost = 256;
  struct {
    void* to;
    const void* from;  // none: zeros
    int bytes;
    u32 group;
  } all[kMost];
  int count = 0;
  u32 groups = 0;
};
inline thread_local Copies pending[1024];
inline Copies& my_copies() { return pending[pm_cpu::block.at]; }
#endif

// N bytes from global to shared memory, or N zeros where there is nothing to copy (``from`` is valid all the same).
// Copies of less than 4 bytes wait for their bytes.
template <int N, bool HINT = false>
__device__ inline void copy_async(Shared to, const void* from, bool real, [[maybe_unused]] u64 policy = 0) {
  if constexpr (N < 4) {
    store_shared<N>(to, real ? words_of(load_once<N>(from)) : Words<N>{});
  } else {
#if PM_GPU
    const int bytes = real ? N : 0;
    if constexpr (N == 16 && HINT)
      asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from), "r"(bytes), "l"(policy));
    else if constexpr (N == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(N),
                   "r"(bytes));
#else
    if (reinterpret_cast<size_t>(to) % N || reinterpret_cast<size_t>(from) % N) std::abort();
    Copies& mine = my_copies();
    if (mine.count == Copies::kMost) std::abort();
    mine.all[mine.count++] = {to, real ? from : nullptr, N, mine.groups};
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
  int kept = 0;
  for (int i = 0; i < mine.count; ++i) {
    const auto one = mine.all[i];
    if (i32(mine.groups - one.group) <= N) {
      mine.all[kept++] = one;
    } else if (one.from) {
      memcpy(one.to, one.from, size_t(one.bytes));
    } else {
      memset(one.to, 0, size_t(one.bytes));
    }
  }
  mine.count = kept;
#endif
}

// ---- the stream -------------------------------------------------------------------------------------------

// Shared memory of a block: for each warp DEPTH rows of each lane, for each warp DEPTH tails of int8 rows, for each group
// two chunks of ids, for each group four chunks of weights. The last two are one element longer than they need be:
// the groups of a warp, which read the same places of their own chunks at once, do so in different banks.
template <class Row, class Id, int LANES, int CHUNKS, int WIDTH, int DEPTH, int ADDING, bool HOT>
struct RowStream {
  static constexpr int kTurn = LANES > DEPTH ? LANES : DEPTH;  // ids of a chunk
  static constexpr int kTail = WIDTH < 8 ? WIDTH : 8;          // of an int8 row, bytes of one copy
  static constexpr u32 kSlot = CHUNKS * kWarp * WIDTH, kRing = DEPTH * kSlot, kTails = DEPTH * kWarp * 8;
  static constexpr u32 kIds = (2 * kTurn + 1) * sizeof(Id), kFactors = (4 * kTurn + 1) * 4;
  static constexpr bool kInt8 = sizeof(Row) == 1;
  using Part = RowPart<Row, CHUNKS, WIDTH>;

  const u8* rows;  // this lane's first byte of row 0
  const Id* ids;
  const float* weights;
  Faults* faults;
  bool reports;   // ids that the table does not have
  u64 row_count;  // none in a lane beyond the last column
  u32 row_bytes, hot_rows, mask;
  int lane, inside, tail_at;  // bytes from this lane's first one: to the end of the columns, to scale and bias
  i32 start, step, count;     // the i-th id lies at start + i step
  u32 there;                  // of the last rows asked for, the latest in the lowest bit: whether it is one
  Shared slots, tails;        // this lane's
  Shared held, factors;       // the group's
  Keeping keep;

  __device__ inline RowStream(u8* shared, const Piece& piece, const Id* ids, const float* weights, u32 hot_rows,
                              Faults* faults)
      : ids(ids),
        weights(weights),
        faults(faults),
        reports(piece.reports != 0 && threadIdx.x % LANES == 0),
        row_bytes(u32(piece.table.row_bytes)),
        hot_rows(hot_rows),
        mask(group_mask<LANES>()),
        lane(threadIdx.x % LANES),
        keep{0, 0} {
    const u32 warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp, group = threadIdx.x / LANES;
    rows = piece.table.rows + lane * WIDTH;
    inside = piece.table.dim * int(sizeof(Row)) - lane * WIDTH;
    tail_at = piece.tail_at - lane * WIDTH;
    row_count = inside > 0 ? u64(piece.table.row_count) : 0;
    const Shared base = shared_at(shared);
    slots = base + warp * kRing + threadIdx.x % kWarp * WIDTH;
    Shared after = base + warps * kRing;
    tails = after + warp * kTails + threadIdx.x % kWarp * 8;
    if constexpr (kInt8) after += warps * kTails;
    held = after + group * kIds;
    factors = after + blockDim.x / LANES * kIds + group * kFactors;
    if constexpr (HOT) keep = keeping();
  }

  // Begin with a list of ids. All lanes of the group call it.
  __device__ inline void begin(i32 from, i32 every, i32 many, bool prefetch) {
    start = from, step = every, count = many, there = 0;
    meet();  // all have read the ids of the list before
    copy_ids(0);
    end_copies();
    await_copies<0>();
    meet();
    copy_ids(kTurn);
    if (prefetch) prefetch_chunk(0);
#if PM_GPU
#pragma unroll 1
#endif
    for (int u = 0; u + 1 < DEPTH; ++u) ask(u);
  }

  // After the last row: nothing of this thread is on its way any more.
  __device__ inline void end() { await_copies<0>(); }

  // The i-th row, and its weight; i rises by one from 0 to count - 1, the same i in all lanes of the group.
  __device__ inline Part next(i32 i, bool prefetch, [[maybe_unused]] float& weight, bool& real) {
    const i32 asked = i + DEPTH - 1;
    if (u32(asked) % kTurn == 0) {  // the next chunk of ids has arrived; the one after it is asked for
      meet();
      copy_ids(asked + kTurn);
      if (prefetch) prefetch_chunk(asked);
    }
    ask(asked);
    await_copies<DEPTH - 1>();
    real = there >> (DEPTH - 1) & 1u;
    if constexpr (ADDING == kWeighted)
      weight = bits_to_float(load_shared<4>(factors + u32(i) % (4 * kTurn) * 4).word[0]);
    Part got{};
    for (int c = 0; c < CHUNKS; ++c) got.chunk[c] = load_shared<WIDTH>(slots + slot_of(i) + c * kWarp * WIDTH);
    if constexpr (kInt8) {
      const Words<8> tail = load_shared<8>(tails + u32(i) % DEPTH * (kWarp * 8));
      got.scale = bits_to_float(tail.word[0]);
      got.bias = bits_to_float(tail.word[1]);
    }
    return got;
  }

 private:
  __device__ inline void meet() const {
    if constexpr (LANES > 1) __syncwarp(mask);
  }

  __device__ inline void copy_ids(i32 from) {
    for (int h = 0; h < kTurn; h += LANES) {
      const i32 i = from + h + lane;
      if (i >= count) continue;
      const i64 at = start + i64(i) * step;
      copy_async<sizeof(Id)>(held + u32(i) % (2 * kTurn) * sizeof(Id), ids + at, true);
      if constexpr (ADDING == kWeighted) copy_async<4>(factors + u32(i) % (4 * kTurn) * 4, weights + at, true);
    }
  }

  __device__ inline Id id_in(Shared at) const {
    const auto words = load_shared<sizeof(Id)>(at);
    if constexpr (sizeof(Id) == 8)
      return Id(u64(words.word[1]) << 32 | words.word[0]);
    else
      return Id(words.word[0]);
  }

  __device__ inline static u32 slot_of(i32 i) { return u32(i) % DEPTH * kSlot; }

  // Ask for the i-th row; beyond the last id for none.
  __device__ inline void ask(i32 i) {
    const Id id = id_in(held + u32(i) % (2 * kTurn) * sizeof(Id));
    const bool real = i < count && u64(i64(id)) < row_count;
    if (!real && i < count && reports) report(faults, start + i64(i) * step);
    const u8* at = rows + u64(real ? u32(id) : 0u) * row_bytes;
    for (int c = 0; c < CHUNKS; ++c)
      copy_async<WIDTH, HOT>(slots + slot_of(i) + c * kWarp * WIDTH, at + c * LANES * WIDTH,
                             real && (c == 0 || c * LANES * WIDTH < inside), u32(id) < hot_rows ? keep.hot : keep.cold);
    if constexpr (kInt8)
      for (int byte = 0; byte < 8; byte += kTail)
        copy_async<kTail>(tails + u32(i) % DEPTH * (kWarp * 8) + byte, at + tail_at + byte, real);
    end_copies();
    there = there << 1 | u32(real);
  }

  // Each lane asks the L2 cache for whole rows of the chunk that is about to be read.
  __device__ inline void prefetch_chunk(i32 from) {
    for (int h = 0; h < kTurn; h += LANES) {
      const i32 i = from + h + lane;
      if (i >= count) continue;
      const Id id = id_in(held + u32(i) % (2 * kTurn) * sizeof(Id));
      if (u64(i64(id)) >= row_count) continue;
      const u8* row = rows - lane * WIDTH + u64(id) * row_bytes;
#if PM_GPU
#pragma unroll 1
#endif
      for (int byte = 0; byte < inside + lane * WIDTH; byte += 32) prefetch_l2(row + byte);
    }
  }
};

}  // namespace pm
