// Ids of bags to the ranks that hold their rows.
//
// A row part of a table is `block` rows; a bucket is what one rank is sent for one of its shards. Buckets are
// numbered by rank, then table, then part, so what goes to a rank lies together. A row part whose columns lie
// on several ranks has several buckets: its ids go to all of them. Inside a bucket ids keep their order:
// sample by sample, and in a bag as they came. No atomics but for faults: one group of lanes owns a bag.
//
//   count_ids       lengths[bucket, sample]
//   scan_lengths    where each bag of each bucket begins
//   scatter_ids     each id to its place
#include "scan.cuh"
#include "tables.cuh"

namespace pm {

struct Split {     // of one table by rows
  i64 row_count;   // E
  Divisor block;   // rows of one part
  i32 first_part;  // its parts among the parts of all tables
  i32 part_count;
};

struct Place {  // a bucket that a row part goes to
  i64 shift;    // id + shift: the row at its owner
  i32 bucket;
  i32 part;  // among the parts of its table
};

struct Splits {  // made of a kernel's parameters, which take no registers
  const Split* tables;
  const i32* places_at;  // [parts + 1] where the places of each part begin, table by table
  const Place* places;
  const i32* rank_buckets;  // [ranks + 1] where the buckets of each rank begin
  i64 batch;                // B
  Divisor tiles;            // tiles of bags of one table
  i32 table_count;          // T
  i32 ranks;
  i32 window;  // parts whose counts fit the shared memory; more take several turns
};
#define PM_SPLITS                                                                                     \
  const Split *tables, const i32 *places_at, const Place *places, const i32 *rank_buckets, i64 batch, \
      i64 tiles, u64 tiles_reciprocal, i32 table_count, i32 ranks, i32 window
#define PM_THESE_SPLITS \
  {tables, places_at, places, rank_buckets, batch, {tiles, tiles_reciprocal}, table_count, ranks, window}

constexpr int kSplitThreads = 128;

// LANES lanes share a bag. A block takes as many bags as it has groups, at least 32, of one table: a row of
// lengths is then written in whole lines. Counts lie [part][bag], a row one longer than it has bags: the
// parts of one bag and the bags of one part lie in different banks.
template <int LANES>
struct Tile {
  static constexpr int kGroups = kSplitThreads / LANES;
  static constexpr int kBags = kGroups > 32 ? kGroups : 32;
  static constexpr int kRow = kBags + 1;
};

// The ids of one bag for the parts of a window, in order, LANES at a time: each(id, part, before);
// before: how many of its part came before it. counts: of this bag, parts kRow apart; at the end all of them.
template <class Id, int LANES, class Each>
__device__ inline void walk_bag(const Id* ids, i64 begin, i32 length, const Split& split, i32 first_part,
                                i32 parts, i32* counts, Faults* faults, Each each) {
  const int lane = threadIdx.x % kWarp, in_group = lane % LANES;
  const u32 mask = group_mask<LANES>();
  ids += begin;
  Id next = in_group < length ? load_once(ids + in_group) : Id(0);
#pragma unroll 1
  for (i32 done = 0; done < length; done += LANES) {
    const i32 left = length - done - in_group;  // from one's own id on
    const Id id = next;
    if (left > LANES) next = load_once(ids + done + in_group + LANES);
    i32 part = -1;
    if (left > 0) {
      if (id < 0 || i64(id) >= split.row_count) {
        if (faults) report(faults, begin + done + in_group);
      } else {
        part = i32(divide(i64(id), split.block)) - first_part;
        if (part < 0 || part >= parts) part = -1;
      }
    }
    const u32 same = LANES == 1 ? 1u << lane : __match_any_sync(mask, part) & mask;
    const int leader = __ffs(int(same)) - 1;
    i32 before = 0;
    __syncwarp(mask);  // what another lane counted in the last turn
    if (lane == leader && part >= 0) {
      i32& count = counts[part * Tile<LANES>::kRow];
      before = count;
      count = before + __popc(same);
    }
    if constexpr (LANES > 1) before = __shfl_sync(mask, before, leader);
    if (part >= 0) each(id, part, before + __popc(same & ((1u << lane) - 1)));
  }
}

// Bags of one tile, a group each in turn, after their counts are 0: each(bag, id, part, before)
template <class Id, int LANES, class Each>
__device__ inline void walk_tile(const Id* ids, const i64* offsets, i64 first_bag, int bags,
                                 const Split& split, i32 first_part, i32 parts, i32* counts, Faults* faults,
                                 Each each) {
#pragma unroll 1
  for (int i = threadIdx.x; i < parts * Tile<LANES>::kRow; i += kSplitThreads) counts[i] = 0;
  __syncthreads();
  for (int bag = threadIdx.x / LANES; bag < bags; bag += Tile<LANES>::kGroups) {
    const i64 begin = offsets[first_bag + bag];
    const i32 length = i32(offsets[first_bag + bag + 1] - begin);
    walk_bag<Id, LANES>(ids, begin, length, split, first_part, parts, counts + bag, faults,
                        [&](Id id, i32 part, i32 before) { each(bag, id, part, before); });
  }
  __syncthreads();
}

// Every tile of every table, in every window: todo(split, table, first sample, bags, first part, parts)
template <int LANES, class Todo>
__device__ inline void for_each_tile(const Splits& splits, Todo todo) {
  for (i64 at = blockIdx.x; at < splits.tiles.divisor * splits.table_count; at += gridDim.x) {
    const i64 table = divide(at, splits.tiles);
    const i64 sample = (at - table * splits.tiles.divisor) * Tile<LANES>::kBags;
    const int bags = int(min(i64(Tile<LANES>::kBags), splits.batch - sample));
    const Split split = splits.tables[table];
    for (i32 part = 0; part < split.part_count; part += splits.window)
      todo(split, table, sample, bags, part, min(splits.window, split.part_count - part));
  }
}

template <class Id, int LANES>
__global__ void __launch_bounds__(kSplitThreads, 10)
    count_ids(PM_SPLITS, const Id* ids, const i64* offsets, i32* lengths, Faults* faults) {
  PM_DYNAMIC_SHARED(i32, counts);
  const Splits splits PM_THESE_SPLITS;
  for_each_tile<LANES>(
      splits, [&](const Split& split, i64 table, i64 sample, int bags, i32 first, i32 parts) {
        walk_tile<Id, LANES>(ids, offsets, table * splits.batch + sample, bags, split, first, parts, counts,
                             first == 0 ? faults : nullptr, [](int, Id, i32, i32) {});
        const i32* places_at = splits.places_at + split.first_part + first;
        const Place* places = splits.places + places_at[0];
        const int count = places_at[parts] - places_at[0];
#pragma unroll 1
        for (int i = threadIdx.x; i < count * Tile<LANES>::kBags; i += kSplitThreads) {
          const int bag = i % Tile<LANES>::kBags;
          const Place place = places[i / Tile<LANES>::kBags];
          if (bag < bags)
            lengths[place.bucket * splits.batch + sample + bag] =
                counts[(place.part - first) * Tile<LANES>::kRow + bag];
        }
        __syncthreads();
      });
}

// offsets[i] = sum of lengths before i, offsets[n] = their sum. A block a tile; a later kernel clears state.
__global__ void __launch_bounds__(kScanThreads)
    scan_lengths(const i32* lengths, i64 n, u64* state, i64* offsets) {
  scan_tile(
      n, state, [&](i64 i) { return lengths[i]; },
      [&](i64 i, i64 before, i32 length) {
        offsets[i] = before;
        if (i == n - 1) offsets[n] = before + length;
      });
}

// counts [ranks], rank_offsets [ranks + 1].
template <class Id, int LANES>
__global__ void __launch_bounds__(kSplitThreads, 9)
    scatter_ids(PM_SPLITS, const Id* ids, const i64* offsets, const i64* bucket_offsets, u64* state,
                i64 state_words, i64* rank_counts, i64* rank_offsets, Id* ids_out) {
  PM_DYNAMIC_SHARED(i32, counts);
  const Splits splits PM_THESE_SPLITS;
  clear_words(state, state_words);
#pragma unroll 1
  for (i64 rank = i64(blockIdx.x) * kSplitThreads + threadIdx.x; rank <= splits.ranks;
       rank += i64(gridDim.x) * kSplitThreads) {
    const i64 begin = bucket_offsets[splits.rank_buckets[rank] * splits.batch];
    rank_offsets[rank] = begin;
    if (rank < splits.ranks)
      rank_counts[rank] = bucket_offsets[splits.rank_buckets[rank + 1] * splits.batch] - begin;
  }
  for_each_tile<LANES>(
      splits, [&](const Split& split, i64 table, i64 sample, int bags, i32 first, i32 parts) {
        const i32* places_at = splits.places_at + split.first_part + first;
        walk_tile<Id, LANES>(
            ids, offsets, table * splits.batch + sample, bags, split, first, parts, counts, nullptr,
            [&](int bag, Id id, i32 part, i32 before) {
#pragma unroll 1
              for (i32 p = places_at[part]; p < places_at[part + 1]; ++p) {
                const Place place = splits.places[p];
                const i64 to = bucket_offsets[place.bucket * splits.batch + sample + bag] + before;
                ids_out[to] = Id(id + place.shift);
              }
            });
      });
}

}  // namespace pm
