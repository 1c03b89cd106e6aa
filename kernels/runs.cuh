// A run: bags that follow each other in one table, looked up and summed by one group of lanes.
//
// Their ids follow each other too, so the group streams through one list of ids, and bags matter only where rows are
// added up: the bytes on their way from memory do not depend on the bags' lengths.
#pragma once
#include "row_stream.cuh"

namespace pm {

constexpr i32 kNever = 0x7fffffff;

template <class Offset>
__device__ inline i32 within(Offset offset, i32 id_count) {
  return offset < 0 ? 0 : offset > Offset(id_count) ? id_count : i32(offset);
}

template <class Offset>
struct Run {
  const i64* ids;  // of all bags
  i32 id_count;
  const Offset* all;   // offsets of all bags: faults name positions in them; null: they are not reported
  const Offset* mine;  // those of the first bag of this run
  i32 bags;
  i32 stride;  // from a bag to the next one in the output [elements]
  Faults* faults;  // of ids, and behind it of offsets
};

// The end of a bag, between 0 and id_count; offsets that fall or lie outside the ids are reported.
template <class Offset>
__device__ inline i32 end_of(const Offset* bag, const Run<Offset>& run, bool reports) {
  const Offset before = bag[0], end = bag[1];
  if (reports && run.all != nullptr && (before < 0 || end < before || end > Offset(run.id_count)))
    report(run.faults + 1, bag + 1 - run.all);
  return within(end, run.id_count);
}

// Bags of a run into ``to``, the place of this lane's first column in the first of them. All lanes of a group.
// shared  that of the stream, and from shared_before on two numbers for each thread
// wide    whether bags can be written in wide accesses
template <class Row, int LANES, int CHUNKS, int WIDTH, class Offset>
__device__ inline void pool(u8* shared, i32 shared_before, const Piece& piece, const Run<Offset>& run, float* to,
                            bool wide) {
  const int lane = threadIdx.x % LANES;
  const Shared ends = shared_at(shared + shared_before) + threadIdx.x / LANES * (2 * LANES * 4);
  const u32 mask = group_mask<LANES>();
  if constexpr (LANES > 1) __syncwarp(mask);  // all have read the ends of the run before
  const bool reports = piece.reports != 0;
  const i32 columns = piece.table.dim - lane * (WIDTH / int(sizeof(Row)));

  // The group keeps the ends of its next bags in shared memory, LANES of them at a time and each half of it
  // in turn; each lane holds one of the LANES after those.
  const i32 start = within(run.mine[0], run.id_count), count = within(run.mine[run.bags], run.id_count) - start;
  auto end_at = [&](i32 bag) { return bag < run.bags ? end_of(run.mine + bag, run, reports) - start : kNever; };
  i32 bag = 0, later_end = end_at(lane);  // from ``start`` on
  auto next_end = [&] {
    const Shared at = ends + u32(bag) % (2 * LANES) * 4;
    if (u32(bag) % LANES == 0) {
      store_shared<4>(at + lane * 4, Words<4>{{u32(later_end)}});
      if constexpr (LANES > 1) __syncwarp(mask);
      later_end = end_at(bag + LANES + lane);
    }
    return i32(load_shared<4>(at).word[0]);
  };
  i32 end = next_end();

  BagPart<Row, LANES, CHUNKS, WIDTH> sums;
  sums.clear();
  auto finish = [&] {
    sums.write(to, columns, wide);
    sums.clear();
    to += run.stride;
    ++bag;
    end = next_end();
  };

  RowStream<Row, LANES, CHUNKS, WIDTH> rows(shared, piece, run.ids, run.faults);
  rows.begin(start, 1, count);
#pragma unroll 1
  for (i32 i = 0; i < count; ++i) {
    const auto row = rows.next(i);
#pragma unroll 1
    while (i >= end) finish();
    sums.add(row);
  }
  rows.end();
#pragma unroll 1
  while (bag < run.bags) finish();
}

}  // namespace pm
