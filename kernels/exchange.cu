// The row-wise look-up over several PEs, one-sided. Rows of every table are split over the PEs in equal blocks.
//
//   count_ids, scan_counts, place_ids   ids of this PE's samples sorted by owner, as rows of the owner's block
//   push_ids                            offsets and ids into the owners' memory
//   bags                                pool, push and sum: one partial bag for each bag of every PE, into the
//                                       memory of the PE that asks for it, which adds up what arrives
//
// The paper's three stages (arXiv 2512.05831) are count .. push_ids, bags<kGather>, and bags<kPush> with bags<kAdd>.
// Fused, bags<kGather | kPush | kAdd> is one launch: a block takes a part (a few consecutive bags of one PE), pools
// it straight into that PE's memory, or, where only puts reach it, into a stage and puts that; every part has a
// signal of its own, and its receiver adds up a part as soon as the signals of all PEs are there, in the same
// launch. So pooling, transfers and sums go on side by side. Sums run over PEs in their order: the same bits always.
//
// Why nothing is overwritten too early, with one buffer of each kind and no barrier. Calls are numbered by each PE,
// flags hold the number of the call that set them. Say PE s asks and PE p owns rows.
//   (1) p makes bags of call e for s only after it saw s's ids of call e (bags: wait for ids_here).
//   (2) s ends call e only after it saw p's signals for all its parts of call e, and p sets these after it has
//       read s's offsets and ids of call e.
//   (3) s pushes its ids of call e + 1 after its call e has ended, as kernels of a stream follow each other.
//   landed_ids, landed_offsets at p: written by s in call e + 1, by (3) and (2) after p has read those of call e.
//   staged_ids, staged_offsets at s: written again in call e + 1; by (2) p had seen what they held in call e.
//   landed_bags at s: written by p for call e + 1, by (1) and (3) after s has added up those of call e.
//   staged_bags at p, the part of s: written for call e + 1, by (1) after s has seen what it held in call e.
//
// Why blocks that wait for each other never hang, however few of them run at a time: work is handed out by a
// ticket, in one order on all PEs, in which part k's making comes before part k's sum. A block that waits for
// ids waits for a kernel that ended or will end without anybody's help. Of all sums that wait take the lowest
// part k: its making was handed out on every PE to a block that waits for no sum.
#include "runs.cuh"
#include "symmetric.cuh"

namespace pm {

constexpr int kHead = 4;  // words before the offsets that a PE pushes: batch, and padding to 16 bytes
constexpr int kLanes = 8;  // lanes that sort the ids of one bag

// Blocks of 256 threads of one multiprocessor that `bags` leaves registers for. Linked with NVSHMEM the compiler needs
// more of an A100's: two.
#if PM_NVSHMEM && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kBlocks = 2;
#else
constexpr int kBlocks = 3;
#endif

struct OwnerSplit {
  i64 rows;   // E, all PEs together
  i64 block;  // rows of one PE; the last may have fewer
};

struct Status {
  Faults faults;      // ids out of range, by position among this PE's ids
  u64 lost;           // 1 + PE that ended the exchange, and a Reason; who waits then gives up
  Faults foreign;     // ids received that are no rows here, by position in the landing zone of their PE
};
enum Reason : u64 {
  kNoIds = 0,               // its ids did not come within the time
  kNoBags = 1ull << 32,     // its partial bags did not
  kOtherBatch = 2ull << 32  // it looks up another number of samples in the same call
};

struct Progress {
  u64 call;
  u64 tickets[3];  // of bags, by its lowest stage
};

struct Exchange {  // what a kernel is given, by value: nothing of it is read from memory again
  const Peers* peers;
  const Table* tables;  // the rows that lie here
  const OwnerSplit* splits;
  Status* status;
  Progress* progress;
  i32* tile_sums;       // [PE][tiles]
  i64* totals;          // [PE] ids of this call
  // In the symmetric region:
  u64* ids_here;        // [PE][2 pieces] flags of offsets and ids
  u64* bags_here;       // [PE][parts] flags
  i32* landed_offsets;  // [PE][words]
  i64* landed_ids;      // [PE][capacity]
  float* landed_bags;   // [PE][T max_batch][D]
  i32* staged_offsets;  // [PE][words]
  i64* staged_ids;      // [max_ids, and padding]
  float* staged_bags;   // [PE][T max_batch][D], or null: all PEs are mapped
  i64 capacity;         // most ids of one PE for another
  i64 words;            // of the offsets of one PE
  i64 patience_ns;
  i32 me, PEs, table_count, dim, max_batch, part_bags, parts, pieces, lag, stage_all;
  i32 shared_before;    // of the rows' stream; the ends of bags lie behind it
  i32 padding;
};

struct Home {
  i32 owner;  // -1: no such row
  i64 row;    // of the owner's block
};

__device__ inline Home home_of(i64 id, const OwnerSplit& split) {
  if (id < 0 || id >= split.rows) return {-1, 0};
  if (u64(split.rows) <= 0xffffffffull) {
    const u32 owner = u32(id) / u32(split.block);
    return {i32(owner), i64(u32(id) - owner * u32(split.block))};
  }
  const i64 owner = id / split.block;
  return {i32(owner), id - owner * split.block};
}

struct IdSpan {
  i64 begin, end;
};

// The ids of a bag; lengths that do not fit the ids reach no memory outside of them.
__device__ inline IdSpan span_of(const i64* offsets, i64 bag, i64 ids) {
  const i64 begin = max(i64(0), min(offsets[bag], ids));
  return {begin, max(begin, min(offsets[bag + 1], ids))};
}

__device__ inline i64 bags_of(const Exchange& x, i32 batch) { return i64(x.table_count) * batch; }

// Ids of each bag for each owner into staged_offsets, sums of a tile of bags into tile_sums; the call begins.
// Dynamic shared memory: [PE][tile] ints.
__global__ void __launch_bounds__(256, 3)
    count_ids(const __grid_constant__ Exchange x, const i64* ids, i64 id_count, const i64* offsets, i32 batch) {
  PM_DYNAMIC_SHARED(i32, counts);
  const int PEs = x.PEs, tile = int(blockDim.x) / kLanes;
  const int mine = int(threadIdx.x) / kLanes, lane = int(threadIdx.x) % kLanes;
  const i64 bags = bags_of(x, batch), tiles = (bags + tile - 1) / tile;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    ++x.progress->call;
    for (int k = 0; k < 3; ++k) x.progress->tickets[k] = 0;
  }
  for (i64 t = blockIdx.x; t < tiles; t += gridDim.x) {
    for (int i = threadIdx.x; i < PEs * tile; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    const i64 bag = t * tile + mine;
    if (bag < bags) {
      const OwnerSplit split = x.splits[u32(bag) / u32(batch)];
      const IdSpan span = span_of(offsets, bag, id_count);
      for (i64 j = span.begin + lane; j < span.end; j += kLanes) {
        const Home home = home_of(ids[j], split);
        if (home.owner < 0)
          report(&x.status->faults, j);
        else
          atomicAdd(&counts[home.owner * tile + mine], 1);
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < PEs * tile; i += blockDim.x)
      if (t * tile + i % tile < bags) x.staged_offsets[(i / tile) * x.words + kHead + t * tile + i % tile] = counts[i];
    for (int owner = threadIdx.x; owner < PEs; owner += blockDim.x) {
      i32 sum = 0;
      for (int i = 0; i < tile; ++i) sum += counts[owner * tile + i];
      x.tile_sums[owner * tiles + t] = sum;
    }
    __syncthreads();
  }
}

// One block for each owner: tile_sums to where the tile's ids begin, and totals.
__global__ void __launch_bounds__(1024) scan_counts(const __grid_constant__ Exchange x, i32 batch, i32 tile) {
  __shared__ i64 warp_sum[kWarp];
  __shared__ i64 before_all;
  const i64 tiles = (bags_of(x, batch) + tile - 1) / tile;
  i32* sums = x.tile_sums + blockIdx.x * tiles;
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  if (threadIdx.x == 0) before_all = 0;
  __syncthreads();
  for (i64 first = 0; first < tiles; first += blockDim.x) {
    const i64 t = first + threadIdx.x;
    const i64 mine = t < tiles ? i64(sums[t]) : 0, upto = warp_sums(mine);
    if (lane == kWarp - 1) warp_sum[warp] = upto;
    __syncthreads();
    i64 before = before_all;
    for (int w = 0; w < warp; ++w) before += warp_sum[w];
    if (t < tiles) sums[t] = i32(before + upto - mine);
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) before_all = before + upto;
    __syncthreads();
  }
  if (threadIdx.x == 0) x.totals[blockIdx.x] = before_all;
}

// Where the ids for an owner begin in staged_ids: a multiple of 16 bytes.
__device__ inline i64 start_of(const Exchange& x, int owner) {
  i64 start = 0;
  for (int before = 0; before < owner; ++before) start += (x.totals[before] + 1) / 2 * 2;
  return start;
}

// Offsets of each bag for each owner, and the ids in the order owner, table, sample, place in the bag.
// Dynamic shared memory: [PE] i64, [PE][tile] ints.
__global__ void __launch_bounds__(256, 3)
    place_ids(const __grid_constant__ Exchange x, const i64* ids, i64 id_count, const i64* offsets, i32 batch) {
  PM_DYNAMIC_SHARED(i64, starts);
  const int PEs = x.PEs, tile = int(blockDim.x) / kLanes;
  i32* cursor = reinterpret_cast<i32*>(starts + PEs);
  const int mine = int(threadIdx.x) / kLanes, lane = int(threadIdx.x) % kLanes;
  const u32 group = group_mask<kLanes>();
  const u32 lower = (1u << (threadIdx.x % kWarp)) - 1;
  const i64 bags = bags_of(x, batch), tiles = (bags + tile - 1) / tile;
  for (int owner = threadIdx.x; owner < PEs; owner += blockDim.x) {
    starts[owner] = start_of(x, owner);
    if (blockIdx.x == 0) {
      i32* pushed = x.staged_offsets + owner * x.words;
      pushed[0] = batch;
      pushed[kHead + bags] = i32(x.totals[owner]);
    }
  }
  for (i64 t = blockIdx.x; t < tiles; t += gridDim.x) {
    __syncthreads();
    for (int owner = int(threadIdx.x) / kWarp; owner < PEs; owner += int(blockDim.x) / kWarp) {
      const int lane_of_warp = int(threadIdx.x) % kWarp;
      const bool here = lane_of_warp < tile && t * tile + lane_of_warp < bags;
      i32* pushed = x.staged_offsets + owner * x.words + kHead + t * tile + lane_of_warp;
      const i64 count = here ? i64(*pushed) : 0;
      const i32 begin = i32(warp_sums(count) - count) + x.tile_sums[owner * tiles + t];
      if (here) *pushed = cursor[owner * tile + lane_of_warp] = begin;
    }
    __syncthreads();
    const i64 bag = t * tile + mine;
    if (bag >= bags) continue;
    const OwnerSplit split = x.splits[u32(bag) / u32(batch)];
    const IdSpan span = span_of(offsets, bag, id_count);
    for (i64 first = span.begin; first < span.end; first += kLanes) {
      const i64 j = first + lane;
      const Home home = j < span.end ? home_of(ids[j], split) : Home{-1, 0};
      const u32 same = __match_any_sync(group, home.owner);
      i32* next = &cursor[max(home.owner, 0) * tile + mine];
      const i64 place = *next + __popc(same & lower);
      __syncwarp(group);
      if (home.owner >= 0) {
        if ((same & lower) == 0) *next += __popc(same);
        x.staged_ids[starts[home.owner] + place] = home.row;
      }
      __syncwarp(group);
    }
  }
}

// Piece `piece` of `pieces` of `bytes`, in whole 16 bytes.
__device__ inline IdSpan piece_of(i64 bytes, int piece, int pieces) {
  const i64 each = (bytes + 16 * pieces - 1) / (16 * pieces) * 16;
  return {min(bytes, each * piece), min(bytes, each * (piece + 1))};
}

// A block for each (PE, piece): offsets and ids into the memory of that PE.
__global__ void __launch_bounds__(256, 3) push_ids(const __grid_constant__ Exchange x, i32 batch) {
  const Peers& peers = *x.peers;
  const int PEs = x.PEs, me = x.me;
  const int owner = (me + 1 + int(blockIdx.x) % PEs) % PEs, piece = int(blockIdx.x) / PEs;
  const u64 call = x.progress->call;
  u64* flags = x.ids_here + i64(me) * 2 * x.pieces + piece;
  const IdSpan head = piece_of((kHead + bags_of(x, batch) + 1) * 4, piece, x.pieces);
  u8* offsets_to = reinterpret_cast<u8*>(x.landed_offsets + me * x.words);
  const u8* offsets_from = reinterpret_cast<const u8*>(x.staged_offsets + owner * x.words);
  put_signal_block(peers, offsets_to + head.begin, offsets_from + head.begin, head.end - head.begin, flags, call,
                   owner);
  const IdSpan part = piece_of(x.totals[owner] * i64(sizeof(i64)), piece, x.pieces);
  const u8* ids_from = reinterpret_cast<const u8*>(x.staged_ids + start_of(x, owner));
  u8* ids_to = reinterpret_cast<u8*>(x.landed_ids + me * x.capacity);
  put_signal_block(peers, ids_to + part.begin, ids_from + part.begin, part.end - part.begin, flags + x.pieces, call,
                   owner);
}

struct Part {  // of one PE's bags: what a block makes; in shared memory, not in registers, which the rows need
  i32 asker, first, count;
  u64 call;
  float* landed;  // in the memory of that PE, as an address in the own region
  float* staged;
  float* to;      // where the bags are summed: staged, or landed as this process sees it
  u64* flag;
};

// One block: the partial bags of a part, [count][D] from part.to on. A group of lanes takes bags that follow each other,
// table by table, and rows of more columns than it holds piece by piece.
template <class Row, int LANES, int CHUNKS, int WIDTH>
__device__ inline void pool_part(const Exchange& x, const Part& part, i32 batch) {
  constexpr int kColumns = LANES * CHUNKS * WIDTH / int(sizeof(Row));
  PM_DYNAMIC_SHARED(u8, shared);
  Run<i32> run{};
  run.ids = x.landed_ids + part.asker * x.capacity;
  run.id_count = x.landed_offsets[part.asker * x.words + kHead + bags_of(x, batch)];
  run.stride = x.dim;
  run.faults = &x.status->foreign;
  const i32 each = (part.count * LANES + i32(blockDim.x) - 1) / i32(blockDim.x);
#pragma unroll 1
  for (i32 bag = i32(threadIdx.x) / LANES * each;; bag += run.bags) {
    const i32 left = min((i32(threadIdx.x) / LANES + 1) * each, part.count) - bag;
    if (left <= 0) break;
    const i32 table = i32(u32(part.first + bag) / u32(batch));
    run.mine = x.landed_offsets + part.asker * x.words + kHead + part.first + bag;
    run.bags = min(left, (table + 1) * batch - (part.first + bag));
#pragma unroll 1
    for (int column = 0; column < x.dim; column += kColumns) {
      Piece piece{x.tables[table], table, column == 0};
      piece.table.rows += column * i64(sizeof(Row));
      piece.table.dim = min(kColumns, x.dim - column);
      float* mine = part.to + i64(bag) * x.dim + column + int(threadIdx.x) % LANES * (WIDTH / int(sizeof(Row)));
      pool<Row, LANES, CHUNKS, WIDTH>(shared, x.shared_before, piece, run, mine, x.dim % 4 == 0);
    }
  }
}

// All threads of a block wait until `count` flags are at least `call`; false: a PE did not come.
__device__ inline bool wait_block(const Exchange& x, u64* flags, i32 count, i32 stride, u64 call, i32 per_pe,
                                  i32 first_pe, Reason reason) {
  __shared__ int missing;
  __syncthreads();
  if (threadIdx.x == 0) missing = 0;
  __syncthreads();
  for (i32 i = threadIdx.x; i < count; i += blockDim.x)
    if (!wait_at_least(flags + i64(i) * stride, call, x.patience_ns, &x.status->lost)) {
      atomicCAS(&x.status->lost, u64(0), reason + u64(1 + first_pe + i / per_pe));
      atomicExch(&missing, 1);
    }
  __syncthreads();
  return missing == 0;
}

enum Stage : int { kGather = 1, kPush = 2, kAdd = 4 };

template <int Stages>
__device__ inline Part part_of(const Exchange& x, int asker, i32 number, i32 batch, u64 call) {
  const i64 zone = i64(x.table_count) * x.max_batch * x.dim;
  Part part;
  part.asker = asker;
  part.first = number * x.part_bags;
  part.count = min(x.part_bags, i32(bags_of(x, batch)) - part.first);
  part.call = call;
  part.landed = x.landed_bags + x.me * zone + i64(part.first) * x.dim;
  part.staged = x.staged_bags + asker * zone + i64(part.first) * x.dim;
  part.flag = x.bags_here + i64(x.me) * x.parts + number;
  float* straight = (Stages & kPush) != 0 && !x.stage_all ? mapped(*x.peers, part.landed, asker) : nullptr;
  part.to = straight != nullptr ? straight : part.staged;
  return part;
}

// A part is pooled from what its PE asked for, and brought into the memory of that PE.
template <class Row, int LANES, int CHUNKS, int WIDTH, int Stages>
__device__ inline void make_part(const Exchange& x, const Part& part, i32 batch) {
  if constexpr ((Stages & kGather) != 0) {
    const int asker = part.asker;
    if (!wait_block(x, x.ids_here + i64(asker) * 2 * x.pieces, 2 * x.pieces, 1, part.call, 2 * x.pieces, asker, kNoIds))
      return;
    if (x.landed_offsets[asker * x.words] != batch) {
      if (threadIdx.x == 0) atomicCAS(&x.status->lost, u64(0), kOtherBatch + u64(1 + asker));
      return;
    }
    pool_part<Row, LANES, CHUNKS, WIDTH>(x, part, batch);
  }
  if constexpr ((Stages & kPush) != 0) {
    if (part.to == part.staged || (Stages & kGather) == 0) {
      put_signal_block(*x.peers, part.landed, part.staged, i64(part.count) * x.dim * 4, part.flag, part.call,
                       part.asker);
    } else {
      __syncthreads();
      if (threadIdx.x == 0) signal(*x.peers, part.flag, part.call, part.asker);
    }
  }
}

// V columns at a time of the bags of a part: the partial bags of all PEs, in their order.
template <int V>
__device__ inline void add_up(const Exchange& x, i32 first, i32 count, i32 batch, float* out) {
  const int PEs = x.PEs;
  const i64 zone = i64(x.table_count) * x.max_batch * x.dim;
  const u32 each = u32(x.dim) / V;  // accesses of a bag
  for (u32 i = threadIdx.x; i < u32(count) * each; i += blockDim.x) {
    const u32 bag = u32(first) + i / each, column = i % each * V, table = bag / u32(batch);
    const float* from = x.landed_bags + i64(bag) * x.dim + column;
    float sum[V] = {};
#pragma unroll 4
    for (int pe = 0; pe < PEs; ++pe, from += zone) {
      const Words<4 * V> got = words_of(load_landed<4 * V>(from));
      for (int v = 0; v < V; ++v) sum[v] += bits_to_float(got.word[v]);
    }
    Words<4 * V> words;
    for (int v = 0; v < V; ++v) words.word[v] = float_to_bits(sum[v]);
    const u32 sample = bag - table * u32(batch);
    store_once<4 * V>(out + (i64(sample) * x.table_count + table) * x.dim + column, bytes_of<4 * V>(words));
  }
}

// Of the stages that the PE's kernel has: the parts of all PEs are made, its own parts are added up into
// out [B, T, D]. Any number of blocks. In a fused launch the sum of a part follows `lag` parts behind its making.
template <class Row, int LANES, int CHUNKS, int WIDTH, int Stages>
__global__ void __launch_bounds__(256, kBlocks) bags(const __grid_constant__ Exchange x, i32 batch, float* out) {
  __shared__ u32 ticket;
  __shared__ Part making;
  constexpr bool kMakes = (Stages & (kGather | kPush)) != 0, kSums = (Stages & kAdd) != 0;
  constexpr int kCounter = (Stages & kGather) != 0 ? 0 : (Stages & kPush) != 0 ? 1 : 2;
  const int PEs = x.PEs, me = x.me;
  const i32 bags = i32(bags_of(x, batch)), parts = (bags + x.part_bags - 1) / x.part_bags;
  const int lag = kMakes && kSums ? x.lag : 0, width = (kMakes ? PEs : 0) + (kSums ? 1 : 0);
  for (;;) {
    __syncthreads();
    if (threadIdx.x == 0) {
      ticket = u32(atomicAdd(&x.progress->tickets[kCounter], u64(1)));
      if constexpr (kMakes)
        making = part_of<Stages>(x, (me + 1 + i32(ticket % u32(width))) % PEs, i32(ticket / u32(width)), batch,
                                 x.progress->call);
    }
    __syncthreads();
    const i32 round = i32(ticket / u32(width)), turn = i32(ticket % u32(width));
    if (round >= parts + lag) return;
    if (kMakes && turn < PEs) {
      if (round < parts) make_part<Row, LANES, CHUNKS, WIDTH, Stages>(x, making, batch);
      continue;
    }
    const i32 part = round - lag;
    if (!kSums || part < 0) continue;
    const u64 call = x.progress->call;
    if (!wait_block(x, x.bags_here + part, PEs, x.parts, call, 1, 0, kNoBags)) continue;
    const i32 first = part * x.part_bags, count = min(x.part_bags, bags - first);
    if (x.dim % 4 == 0)
      add_up<4>(x, first, count, batch, out);
    else
      add_up<1>(x, first, count, batch, out);
  }
}

}  // namespace pm
