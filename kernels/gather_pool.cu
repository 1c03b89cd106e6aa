// Looks rows up and pools them into bags, for many tables in one launch.
//
// gather_pool: a group of LANES lanes owns a run of bags that follow each other in one table. Their ids follow each
// other too, so the group streams through one list of ids, and bags matter only where rows are added up: the
// bytes on their way from memory do not depend on the bags' lengths.
// gather_pool_long: a block owns one bag at a time and its groups share the bag's ids, for bags that are few and long.
//
// Sums are kept in fp32. An id out of range adds nothing and is reported; offsets that fall or lie outside the ids are
// reported too, nothing outside the ids and tables is read, and every bag is written.
#include "row_stream.cuh"

namespace pm {

constexpr int kThreads = 256;
constexpr i32 kNever = 0x7fffffff;

template <class Id>
__device__ inline i32 within(Id offset, i32 id_count) {
  return offset < 0 ? 0 : offset > Id(id_count) ? id_count : i32(offset);
}

// The end of the bag that begins at ``bag`` of the offsets, between 0 and id_count.
// faults  of ids and of offsets: a bag whose offsets are wrong is reported in the latter, if ``reports``
template <class Id>
__device__ inline i32 end_of(const Id* bag, i32 id_count, const Id* offsets, Faults* faults, bool reports) {
  const Id before = bag[0], end = bag[1];
  if (reports && (before < 0 || end < before || end > Id(id_count))) report(faults + 1, bag + 1 - offsets);
  return within(end, id_count);
}

// 1 / length to within one unit in the last place, without the many instructions of a division that rounds.
__device__ inline float mean_of(i32 length) {
  float factor = 1.0f / float(max(length, 1));
#if PM_GPU
  asm("rcp.approx.f32 %0, %1;" : "=f"(factor) : "f"(float(max(length, 1))));
#endif
  return factor;
}

// offsets  of all bags of all tables, and the end of the last one
// run      bags of a group;  wide  whether bags can be written in wide accesses;  mean  divide by the bags' lengths
// Shared memory: that of the stream, then two numbers for each thread.
// faults   two: ids out of range (positions in ids), offsets that fall or lie outside (positions in offsets)
template <class Row, class Id, class Out, int LANES, int CHUNKS, int WIDTH, int DEPTH, int ADDING, bool HOT,
          bool NEAR, int BLOCKS>
__global__ void __launch_bounds__(kThreads, BLOCKS)
    gather_pool(const Piece* pieces, i32 piece_count, i32 batch, i32 run, i32 shared_before, const Id* ids, i32 id_count,
                const Id* offsets, const float* weights, Out* out, i32 wide, i32 mean, u32 hot_rows, Faults* faults) {
  constexpr int kColumns = WIDTH / int(sizeof(Row));
  PM_DYNAMIC_SHARED(u8, shared);
  const int lane = threadIdx.x % LANES;
  const Shared ends = shared_at(shared + shared_before) + threadIdx.x / LANES * (2 * LANES * 4);
  const u32 mask = group_mask<LANES>();
  const u32 runs = u32(batch + run - 1) / u32(run), groups = gridDim.x * blockDim.x / LANES;

  for (u32 tile = (blockIdx.x * blockDim.x + threadIdx.x) / LANES; tile < u32(piece_count) * runs; tile += groups) {
    if constexpr (LANES > 1) __syncwarp(mask);  // all have read the ends of the run before
    const Piece& piece = pieces[tile / runs];
    const bool reports = piece.reports != 0;
    const i32 first = i32(tile % runs) * run, bags = min(run, batch - first);
    const Id* mine = offsets + i64(piece.number) * batch + first;
    const i32 stride = i32(piece.table.out_stride);
    const i32 columns = piece.table.dim - lane * kColumns;
    Out* to = out + piece.table.out_at + i64(first) * stride + lane * kColumns;

    // The group keeps the ends of its next bags in shared memory, LANES of them at a time and each half of it
    // in turn; each lane holds one of the LANES after those.
    const i32 start = within(mine[0], id_count), count = within(mine[bags], id_count) - start;
    auto end_at = [&](i32 bag) {
      return bag < bags ? end_of(mine + bag, id_count, offsets, faults, reports) - start : kNever;
    };
    i32 bag = 0, begin = 0, later_end = end_at(lane);  // from ``start`` on
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

    BagPart<Row, LANES, CHUNKS, WIDTH, ADDING> sums;
    sums.clear();
    auto finish = [&] {
      sums.write(to, columns, mean ? mean_of(end - begin) : 1.0f, wide != 0);
      sums.clear();
      to += stride;
      begin = end;
      ++bag;
      end = next_end();
    };

    RowStream<Row, Id, LANES, CHUNKS, WIDTH, DEPTH, ADDING, HOT, NEAR> rows(shared, piece, ids, weights, hot_rows, faults);
    rows.begin(start, 1, count);
#pragma unroll 1
    for (i32 i = 0; i < count; ++i) {
      float weight = 1.0f;
      bool real;
      const auto row = rows.next(i, weight, real);
      while (i >= end) finish();
      sums.add(row, weight, real);
    }
    rows.end();
    while (bag < bags) finish();
  }
}

// The same, a block for a bag: group g of the block's G takes the bag's ids g, g + G, ...
// Shared memory: that of the stream, then a float for each lane of a group, column and warp, and one more.
template <class Row, class Id, class Out, int LANES, int CHUNKS, int WIDTH, int DEPTH, int ADDING, bool HOT,
          bool NEAR, int BLOCKS>
__global__ void __launch_bounds__(kThreads, BLOCKS)
    gather_pool_long(const Piece* pieces, i32 piece_count, i32 batch, i32, i32 shared_before, const Id* ids, i32 id_count,
                     const Id* offsets, const float* weights, Out* out, i32 wide, i32 mean, u32 hot_rows, Faults* faults) {
  constexpr int kColumns = WIDTH / int(sizeof(Row));
  using Bag = BagPart<Row, LANES, CHUNKS, WIDTH, ADDING>;
  PM_DYNAMIC_SHARED(u8, shared);
  float* parts = reinterpret_cast<float*>(shared + shared_before);
  const int lane = threadIdx.x % LANES, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const i32 group = threadIdx.x / LANES, groups = blockDim.x / LANES;

  for (u32 item = blockIdx.x; item < u32(piece_count) * u32(batch); item += gridDim.x) {
    const Piece& piece = pieces[item / u32(batch)];
    const i32 sample = i32(item % u32(batch));
    const Id* bag = offsets + i64(piece.number) * batch + sample;
    const bool reports = piece.reports != 0 && threadIdx.x == 0;
    const i32 start = within(bag[0], id_count), end = end_of(bag, id_count, offsets, faults, reports);
    const i32 mine = start + group, count = end > mine ? (end - mine + groups - 1) / groups : 0;

    Bag sums;
    sums.clear();
    RowStream<Row, Id, LANES, CHUNKS, WIDTH, DEPTH, ADDING, HOT, NEAR> rows(shared, piece, ids, weights, hot_rows, faults);
    rows.begin(mine, groups, count);
#pragma unroll 1
    for (i32 i = 0; i < count; ++i) {
      float weight = 1.0f;
      bool real;
      const auto row = rows.next(i, weight, real);
      sums.add(row, weight, real);
    }
    rows.end();
    sums.settle();
    for (int by = LANES; by < kWarp; by *= 2)
      for (int k = 0; k < Bag::kHeld; ++k) sums.combine(k, __shfl_xor_sync(kAllLanes, sums.held(k), by));
    if (warps > 1) {
      __syncthreads();  // all have read the parts of the bag before
      if (threadIdx.x % kWarp < LANES)
        for (int k = 0; k < Bag::kHeld; ++k) parts[(warp * Bag::kHeld + k) * LANES + lane] = sums.held(k);
      __syncthreads();
      if (threadIdx.x < LANES)
        for (int other = 1; other < warps; ++other)
          for (int k = 0; k < Bag::kHeld; ++k) sums.combine(k, parts[(other * Bag::kHeld + k) * LANES + lane]);
    }
    Out* to = out + piece.table.out_at + sample * piece.table.out_stride + lane * kColumns;
    if (threadIdx.x < LANES)
      sums.write(to, piece.table.dim - lane * kColumns, mean ? mean_of(end - start) : 1.0f, wide != 0);
  }
}

}  // namespace pm
