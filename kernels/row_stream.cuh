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
  i32 reports;  // whether this piece is the one that reports faults of the table's ids
};

constexpr int kAccesses = 4;  // of a lane, on their way from memory: of 4 and 8 an H200 was faster with 4

// Shared memory of a block: for each warp DEPTH rows of each lane, for each group two chunks of ids. These are one
// element longer than they need be: the groups of a warp, which read the same places of their own chunks at once, do so
// in different banks.
template <class Row, int LANES, int CHUNKS, int WIDTH>
struct RowStream {
  static constexpr int DEPTH = kAccesses / CHUNKS;             // rows of a group that are on their way
  static constexpr int kTurn = LANES > DEPTH ? LANES : DEPTH;  // ids of a chunk
  static constexpr u32 kSlot = CHUNKS * kWarp * WIDTH, kRing = DEPTH * kSlot;
  static constexpr u32 kIds = (2 * kTurn + 1) * sizeof(i64);
  using Part = RowPart<CHUNKS, WIDTH>;

  const u8* rows;  // this lane's first byte of row 0
  const i64* ids;
  Faults* faults;
  bool reports;   // ids that the table does not have
  u64 row_count;  // none in a lane beyond the last column
  u32 row_bytes, mask;
  int lane, inside;           // inside: bytes from this lane's first one to the end of the columns
  i32 start, step, count;     // the i-th id lies at start + i step
  Shared slots;               // this lane's
  Shared held;                // the group's

  __device__ inline RowStream(u8* shared, const Piece& piece, const i64* ids, Faults* faults)
      : ids(ids),
        faults(faults),
        reports(piece.reports != 0 && threadIdx.x % LANES == 0),
        row_bytes(u32(piece.table.row_bytes)),
        mask(group_mask<LANES>()),
        lane(threadIdx.x % LANES) {
    const u32 warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp, group = threadIdx.x / LANES;
    rows = piece.table.rows + lane * WIDTH;
    inside = piece.table.dim * int(sizeof(Row)) - lane * WIDTH;
    row_count = inside > 0 ? u64(piece.table.row_count) : 0;
    const Shared base = shared_at(shared);
    slots = base + warp * kRing + threadIdx.x % kWarp * WIDTH;
    held = base + warps * kRing + group * kIds;
  }

  // Begin with a list of ids. All lanes of the group call it.
  __device__ inline void begin(i32 from, i32 every, i32 many) {
    start = from, step = every, count = many;
    meet();  // all have read the ids of the list before
    copy_ids(0);
    end_copies();
    await_copies<0>();
    meet();
    copy_ids(kTurn);
#pragma unroll 1
    for (int u = 0; u + 1 < DEPTH; ++u) ask(u);
  }

  // After the last row: nothing of this thread is on its way any more.
  __device__ inline void end() { await_copies<0>(); }

  // The i-th row; i rises by one from 0 to count - 1, the same i in all lanes of the group.
  __device__ inline Part next(i32 i) {
    const i32 asked = i + DEPTH - 1;
    if (u32(asked) % kTurn == 0) {  // the next chunk of ids has arrived; the one after it is asked for
      meet();
      copy_ids(asked + kTurn);
    }
    ask(asked);
    await_copies<DEPTH - 1>();
    Part got{};
    for (int c = 0; c < CHUNKS; ++c) got.chunk[c] = load_shared<WIDTH>(slots + slot_of(i) + c * kWarp * WIDTH);
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
      copy_async<sizeof(i64)>(held + u32(i) % (2 * kTurn) * sizeof(i64), ids + at, true);
    }
  }

  __device__ inline static u32 slot_of(i32 i) { return u32(i) % DEPTH * kSlot; }

  // Ask for the i-th row; beyond the last id for none.
  __device__ inline void ask(i32 i) {
    const Words<8> words = load_shared<8>(held + u32(i) % (2 * kTurn) * sizeof(i64));
    const u64 id = u64(words.word[1]) << 32 | words.word[0];
    const bool real = i < count && id < row_count;
    if (!real && i < count && reports) report(faults, start + i64(i) * step);
    const u8* at = rows + (real ? id : 0) * row_bytes;
    for (int c = 0; c < CHUNKS; ++c)
      copy_async<WIDTH>(slots + slot_of(i) + c * kWarp * WIDTH, at + c * LANES * WIDTH,
                        real && (c == 0 || c * LANES * WIDTH < inside));
    end_copies();
  }
};

}  // namespace pm
