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
// Blocks of one multiprocessor: 4 of at most 64 registers a thread, or 3 of 80 where a lane adds up many columns.
constexpr int blocks(int columns) { return columns > 8 ? 3 : 4; }
constexpr i32 kNever = 0x7fffffff;

template <class Id>
__device__ inline i32 within(Id offset, i32 id_count) {
  return offset < 0 ? 0 : offset > Id(id_count) ? id_count : i32(offset);
}

// The end of a bag, between 0 and id_count; a bag whose offsets are wrong is reported.
template <class Id>
__device__ inline i32 end_of(const Id* offsets, i64 bag, i32 id_count, Faults* faults) {
  const Id before = offsets[bag], end = offsets[bag + 1];
  if (faults && (before < 0 || end < before || end > Id(id_count))) report(faults, bag + 1);
  return within(end, id_count);
}

__device__ inline float mean_of(i32 length) { return length > 0 ? 1.0f / float(length) : 1.0f; }

// offsets  of all bags of all tables, and the end of the last one
// run      bags of a group;  wide  whether bags can be written in wide accesses;  mean  divide by the bags' lengths
// faults   two: ids out of range (positions in ids), offsets that fall or lie outside (positions in offsets)
template <class Row, class Id, class Out, int LANES, int CHUNKS, int WIDTH, int DEPTH, int ADDING, bool HOT>
__global__ void __launch_bounds__(kThreads, blocks(CHUNKS * WIDTH / int(sizeof(Row))))
    gather_pool(const Piece* pieces, i32 piece_count, i32 batch, i32 run, const Id* ids, i32 id_count, const Id* offsets,
                const float* weights, Out* out, i32 wide, i32 mean, u32 hot_rows, i32 prefetch, Faults* faults) {
  constexpr int kColumns = WIDTH / int(sizeof(Row));
  PM_DYNAMIC_SHARED(u8, shared);
  const int lane = threadIdx.x % LANES;
  const u32 mask = group_mask<LANES>();
  const u32 runs = u32(batch + run - 1) / u32(run), groups = gridDim.x * blockDim.x / LANES;

  for (u32 tile = (blockIdx.x * blockDim.x + threadIdx.x) / LANES; tile < u32(piece_count) * runs; tile += groups) {
    const Piece& piece = pieces[tile / runs];
    Faults* bad_offsets = piece.reports ? faults + 1 : nullptr;
    const i32 first = i32(tile % runs) * run, bags = min(run, batch - first);
    const i64 bag_0 = i64(piece.number) * batch + first;
    const i64 stride = piece.table.out_stride;
    const i32 columns = piece.table.dim - lane * kColumns;
    Out* to = out + piece.table.out_at + first * stride + lane * kColumns;

    // Lane l holds the end of bag l of the next LANES ones, and of the LANES after them.
    auto end_at = [&](i32 bag) { return bag < bags ? end_of(offsets, bag_0 + bag, id_count, bad_offsets) : kNever; };
    const i32 start = within(offsets[bag_0], id_count), last = within(offsets[bag_0 + bags], id_count);
    i32 ends = end_at(lane), later_ends = end_at(LANES + lane);
    i32 bag = 0, begin = start, end = from_lane<LANES>(mask, ends, 0);

    BagPart<Row, LANES, CHUNKS, WIDTH, ADDING> sums;
    sums.clear();
    auto finish = [&] {
      sums.write(to, columns, mean ? mean_of(end - begin) : 1.0f, wide != 0);
      sums.clear();
      to += stride;
      begin = end;
      if (++bag % LANES == 0) {
        ends = later_ends;
        later_ends = end_at(bag + LANES + lane);
      }
      end = from_lane<LANES>(mask, ends, bag % LANES);
    };

    RowStream<Row, Id, LANES, CHUNKS, WIDTH, DEPTH, ADDING, HOT> rows(shared, piece, ids, weights, hot_rows, faults);
    rows.begin(start, 1, last - start, prefetch != 0);
#if PM_GPU
#pragma unroll 1
#endif
    for (i32 i = 0; i < last - start; ++i) {
      float weight = 1.0f;
      bool real;
      const auto row = rows.next(i, prefetch != 0, weight, real);
      while (start + i >= end) finish();
      sums.add(row, weight, real);
    }
    while (bag < bags) finish();
  }
}

// The same, a block for a bag: group g of the block's G takes the bag's ids g, g + G, ...
// Shared memory: that of the stream, then a float for each lane of a group, column and warp, and one more.
template <class Row, class Id, class Out, int LANES, int CHUNKS, int WIDTH, int DEPTH, int ADDING, bool HOT>
__global__ void __launch_bounds__(kThreads, blocks(CHUNKS * WIDTH / int(sizeof(Row))))
    gather_pool_long(const Piece* pieces, i32 piece_count, i32 batch, i32 shared_before, const Id* ids, i32 id_count,
                     const Id* offsets, const float* weights, Out* out, i32 wide, i32 mean, u32 hot_rows, i32 prefetch,
                     Faults* faults) {
  constexpr int kColumns = WIDTH / int(sizeof(Row));
  using Bag = BagPart<Row, LANES, CHUNKS, WIDTH, ADDING>;
  PM_DYNAMIC_SHARED(u8, shared);
  float* parts = reinterpret_cast<float*>(shared + shared_before);
  const int lane = threadIdx.x % LANES, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const i32 group = threadIdx.x / LANES, groups = blockDim.x / LANES;

  for (u32 item = blockIdx.x; item < u32(piece_count) * u32(batch); item += gridDim.x) {
    const Piece& piece = pieces[item / u32(batch)];
    const i32 sample = i32(item % u32(batch));
    const i64 bag = i64(piece.number) * batch + sample;
    Faults* bad_offsets = piece.reports && threadIdx.x == 0 ? faults + 1 : nullptr;
    const i32 start = within(offsets[bag], id_count), end = end_of(offsets, bag, id_count, bad_offsets);
    const i32 mine = start + group, count = end > mine ? (end - mine + groups - 1) / groups : 0;

    Bag sums;
    sums.clear();
    RowStream<Row, Id, LANES, CHUNKS, WIDTH, DEPTH, ADDING, HOT> rows(shared, piece, ids, weights, hot_rows, faults);
    rows.begin(mine, groups, count, prefetch != 0);
#if PM_GPU
#pragma unroll 1
#endif
    for (i32 i = 0; i < count; ++i) {
      float weight = 1.0f;
      bool real;
      const auto row = rows.next(i, prefetch != 0, weight, real);
      sums.add(row, weight, real);
    }
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
