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

#if PM_GPU
__device__ inline u32 shared_address(const void* at) {
  u32 address;
  asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(address) : "l"(at));
  return address;
}
#else
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
__device__ inline void copy_async(void* to, const void* from, bool real, [[maybe_unused]] u64 policy = 0) {
  if constexpr (N < 4) {
    *static_cast<Bytes<N>*>(to) = real ? *static_cast<const Bytes<N>*>(from) : Bytes<N>{};
  } else {
#if PM_GPU
    const int bytes = real ? N : 0;
    if constexpr (N == 16 && HINT)
      asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared_address(to)),
                   "l"(from), "r"(bytes), "l"(policy));
    else if constexpr (N == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes));
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(N),
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

template <class Row, class Id, int LANES, int CHUNKS, int WIDTH, int DEPTH, int ADDING, bool HOT>
struct RowStream {
  static constexpr int kTurn = LANES > DEPTH ? LANES : DEPTH;  // ids of a chunk
  static constexpr int kTail = WIDTH < 8 ? WIDTH : 8;          // of an int8 row, bytes of one copy
  static constexpr bool kInt8 = sizeof(Row) == 1;
  using Part = RowPart<Row, CHUNKS, WIDTH>;

  const u8* rows;  // this lane's first byte of row 0
  const Id* ids;
  const float* weights;
  Faults* faults;
  u64 row_count;
  u32 row_bytes, hot_rows, mask;
  int lane, inside, tail_at;  // bytes from this lane's first one: to the end of the columns, to scale and bias
  i32 start, step, count;     // the i-th id lies at start + i step
  i32 issued;
  u32 there;                  // of the last rows asked for, the latest in the lowest bit: whether it is one
  u8 *slots, *tails;          // this lane's
  Id* held;                   // the group's: two chunks
  float* factors;             // the group's: four chunks
  Keeping keep;

  // shared  of the block: rows, then tails of int8 rows, ids, weights
  __device__ inline RowStream(u8* shared, const Piece& piece, const Id* ids, const float* weights, u32 hot_rows,
                              Faults* faults)
      : rows(piece.table.rows),
        ids(ids),
        weights(weights),
        faults(piece.reports ? faults : nullptr),
        row_count(u64(piece.table.row_count)),
        row_bytes(u32(piece.table.row_bytes)),
        hot_rows(hot_rows),
        mask(group_mask<LANES>()),
        lane(threadIdx.x % LANES),
        keep{0, 0} {
    const u32 threads = blockDim.x, group = threadIdx.x / LANES;
    inside = piece.table.dim * int(sizeof(Row)) - lane * WIDTH;
    tail_at = piece.tail_at - lane * WIDTH;
    rows += lane * WIDTH;
    slots = shared + threadIdx.x * WIDTH;
    u8* after = shared + threads * DEPTH * CHUNKS * WIDTH;
    tails = after + threadIdx.x * 8;
    if constexpr (kInt8) after += threads * DEPTH * 8;
    held = reinterpret_cast<Id*>(after) + group * 2 * kTurn;
    after += threads / LANES * 2 * kTurn * sizeof(Id);
    factors = reinterpret_cast<float*>(after) + group * 4 * kTurn;
    if constexpr (HOT) keep = keeping();
  }

  // Begin with a list of ids. All lanes of the group call it.
  __device__ inline void begin(i32 from, i32 every, i32 many, bool prefetch) {
    start = from, step = every, count = many, issued = 0, there = 0;
    if constexpr (LANES > 1) __syncwarp(mask);  // all have read the ids of the list before
    copy_ids(0);
    end_copies();
    await_copies<0>();
    if constexpr (LANES > 1) __syncwarp(mask);
    copy_ids(kTurn);
    if (prefetch) prefetch_chunk();
    for (int u = 0; u + 1 < DEPTH; ++u) ask();
  }

  // The i-th row, and its weight; i rises by one from 0 to count - 1, the same i in all lanes of the group.
  __device__ inline Part next(i32 i, bool prefetch, [[maybe_unused]] float& weight, bool& real) {
    if (issued % kTurn == 0) turn(prefetch);
    ask();
    await_copies<DEPTH - 1>();
    real = there >> (DEPTH - 1) & 1u;
    if constexpr (ADDING == kWeighted) weight = factors[i % (4 * kTurn)];
    Part got{};
    const u32 threads = blockDim.x, slot = i % DEPTH;
    for (int c = 0; c < CHUNKS; ++c)
      got.chunk[c] = words_of(*reinterpret_cast<const Bytes<WIDTH>*>(slots + (slot * CHUNKS + c) * threads * WIDTH));
    if constexpr (kInt8) {
      const Words<8> tail = words_of(*reinterpret_cast<const Bytes<8>*>(tails + slot * threads * 8));
      got.scale = bits_to_float(tail.word[0]);
      got.bias = bits_to_float(tail.word[1]);
    }
    return got;
  }

 private:
  // The next chunk's ids have arrived: all lanes may read them; those of the chunk after it are asked for.
  __device__ inline void turn(bool prefetch) {
    if constexpr (LANES > 1) __syncwarp(mask);
    copy_ids(issued + kTurn);
    if (prefetch) prefetch_chunk();
  }

  __device__ inline void copy_ids(i32 from) {
    for (int h = 0; h < kTurn; h += LANES) {
      const i32 i = from + h + lane;
      if (i >= count) continue;
      copy_async<sizeof(Id)>(held + i % (2 * kTurn), ids + start + i64(i) * step, true);
      if constexpr (ADDING == kWeighted)
        copy_async<4>(factors + i % (4 * kTurn), weights + start + i64(i) * step, true);
    }
  }

  __device__ inline void ask() {
    if (issued < count) {
      const Id id = held[issued % (2 * kTurn)];
      const bool real = u64(i64(id)) < row_count;
      if (!real && lane == 0 && faults) report(faults, start + i64(issued) * step);
      there = there << 1 | u32(real);
      const u8* at = rows + (real ? u64(id) * row_bytes : 0);
      const u32 threads = blockDim.x, slot = issued % DEPTH;
      for (int c = 0; c < CHUNKS; ++c) {
        if (c * LANES * WIDTH >= inside) break;
        copy_async<WIDTH, HOT>(slots + (slot * CHUNKS + c) * threads * WIDTH, at + c * LANES * WIDTH, real,
                               u64(i64(id)) < hot_rows ? keep.hot : keep.cold);
      }
      if constexpr (kInt8)
        for (int byte = 0; byte < 8; byte += kTail)
          copy_async<kTail>(tails + slot * threads * 8 + byte, at + tail_at + byte, real);
    } else {
      there <<= 1;
    }
    ++issued;
    end_copies();
  }

  // Each lane asks the L2 cache for whole rows of the chunk that is about to be read.
  __device__ inline void prefetch_chunk() {
    for (int h = 0; h < kTurn; h += LANES) {
      const i32 i = issued + h + lane;
      if (i >= count) continue;
      const Id id = held[i % (2 * kTurn)];
      if (u64(i64(id)) >= row_count) continue;
      const u8* row = rows - lane * WIDTH + u64(id) * row_bytes;
      for (int byte = 0; byte < inside + lane * WIDTH; byte += 32) prefetch_l2(row + byte);
    }
  }
};

}  // namespace pm
