// Looks rows up and pools them into bags, for many tables in one launch.
//
// gather_pool: a group of LANES lanes owns a run of bags that follow each other in one table (runs.cuh).
// gather_pool_long: a block owns one bag at a time and its groups share the bag's ids, for bags that are few and long.
//
// Sums are kept in fp32. An id out of range adds nothing and is reported; offsets that fall or lie outside the ids are
// reported too, nothing outside the ids and tables is read, and every bag is written.
#include "runs.cuh"

namespace pm {

constexpr int kGatherThreads = 256;

// Blocks that registers let run on one multiprocessor: a lane with several accesses to a row has more columns.
constexpr int blocks_of(int chunks) { return chunks > 1 ? 3 : 4; }

// offsets  of all bags of all tables, and the end of the last one
// run      bags of a group;  wide  whether bags can be written in wide accesses
// Shared memory: that of the stream, then two numbers for each thread.
// faults   two: ids out of range (positions in ids), offsets that fall or lie outside (positions in offsets)
template <class Row, int LANES, int CHUNKS, int WIDTH>
__global__ void __launch_bounds__(kGatherThreads, blocks_of(CHUNKS))
    gather_pool(const Piece* pieces, i32 piece_count, i32 batch, i32 run, i32 shared_before, const i64* ids, i32 id_count,
                const i64* offsets, float* out, i32 wide, Faults* faults) {
  PM_DYNAMIC_SHARED(u8, shared);
  const int lane = threadIdx.x % LANES;
  const u32 runs = u32(batch + run - 1) / u32(run), groups = gridDim.x * blockDim.x / LANES;
  for (u32 tile = (blockIdx.x * blockDim.x + threadIdx.x) / LANES; tile < u32(piece_count) * runs; tile += groups) {
    const Piece& piece = pieces[tile / runs];
    const i32 first = i32(tile % runs) * run;
    const Run<i64> mine{ids, id_count, offsets, offsets + i64(piece.number) * batch + first,
                           min(run, batch - first), i32(piece.table.out_stride), faults};
    float* to = out + piece.table.out_at + i64(first) * mine.stride + lane * (WIDTH / int(sizeof(Row)));
    pool<Row, LANES, CHUNKS, WIDTH>(shared, shared_before, piece, mine, to, wide != 0);
  }
}

// The same, a block for a bag: group g of the block's G takes the bag's ids g, g + G, ...
// Shared memory: that of the stream, then a float for each lane of a group, column and warp, and one more.
template <class Row, int LANES, int CHUNKS, int WIDTH>
__global__ void __launch_bounds__(kGatherThreads, blocks_of(CHUNKS))
    gather_pool_long(const Piece* pieces, i32 piece_count, i32 batch, i32, i32 shared_before, const i64* ids, i32 id_count,
                     const i64* offsets, float* out, i32 wide, Faults* faults) {
  constexpr int kColumns = WIDTH / int(sizeof(Row));
  using Bag = BagPart<Row, LANES, CHUNKS, WIDTH>;
  PM_DYNAMIC_SHARED(u8, shared);
  float* parts = reinterpret_cast<float*>(shared + shared_before);
  const int lane = threadIdx.x % LANES, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const i32 group = threadIdx.x / LANES, groups = blockDim.x / LANES;

  for (u32 item = blockIdx.x; item < u32(piece_count) * u32(batch); item += gridDim.x) {
    const Piece& piece = pieces[item / u32(batch)];
    const i32 sample = i32(item % u32(batch));
    const i64* bag = offsets + i64(piece.number) * batch + sample;
    const bool reports = piece.reports != 0 && threadIdx.x == 0;
    const Run<i64> one{ids, id_count, offsets, bag, 1, 0, faults};
    const i32 start = within(bag[0], id_count), end = end_of(bag, one, reports);
    const i32 mine = start + group, count = end > mine ? (end - mine + groups - 1) / groups : 0;

    Bag sums;
    sums.clear();
    RowStream<Row, LANES, CHUNKS, WIDTH> rows(shared, piece, ids, faults);
    rows.begin(mine, groups, count);
#pragma unroll 1
    for (i32 i = 0; i < count; ++i) sums.add(rows.next(i));
    rows.end();
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
    float* to = out + piece.table.out_at + sample * piece.table.out_stride + lane * kColumns;
    if (threadIdx.x < LANES)
      sums.write(to, piece.table.dim - lane * kColumns, wide != 0);
  }
}

}  // namespace pm
