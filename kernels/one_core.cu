// Four ways for one core (SM) to look tables up. A block works through its own list of items; an item is some
// bags of one table, and a way to look them up:
//   GM     rows are gathered from global memory;
//   L1     the table is copied into shared memory once, bags are gathered there;
//   GM-UB  bags stay in shared memory, the table streams past them in chunks, two buffers taking turns;
//   L1-UB  the same, with the first rows of the table kept in shared memory.
// The lists say who does what: every block a slice of every table's batch, or tables that blocks own.
//
// Shared memory of an item, in this order: resident rows, two chunks, sums of the bags of one pass, where their
// ids begin, ids. A row there takes its bytes rounded up to 16, and no more: eight lanes read 128 bytes at once,
// one row or several, and rows whose ids are random meet in the same banks least where they are aligned.
#include "rows.cuh"

namespace pm {

enum Way : int { kGM = 0, kL1 = 1, kGMUB = 2, kL1UB = 3 };

struct Item {
  i32 table;
  i32 first_bag;      // sample
  i32 bags;           // samples
  i32 way;
  i32 first_column;   // columns of the table that this item looks up
  i32 columns;
  i32 resident_rows;  // L1: all rows; L1-UB: the first ones
  i32 chunk_rows;     // GM-UB, L1-UB: rows of one buffer
  i32 pass_bags;      // bags that the table streams past together, at most
  i32 id_room;        // ids in shared memory, at most
};

// Positions of ids and numbers of samples are below 2^31.

template <class Id>
struct Batch {  // what is the same for every item
  const Id* ids;
  const i64* offsets;
  float* out;
  Faults* faults;
  i32 samples;
  i32 pooling;
};

constexpr int kCoreThreads = 512;   // of a block, at most
constexpr int kFlight = 4;       // rows that a group of lanes waits for together
constexpr u32 kNoRow = ~0u;      // tables have fewer rows

__device__ inline u8* core_memory(int offset) {
  PM_DYNAMIC_SHARED(u8, base);
  return base + offset;
}

// ---- lanes that share a bag -------------------------------------------------------------------------------

// Where a group is a whole warp the mask is written as the constant that it then is: a mask that is not constant is
// compared with the lanes that are there, at every shuffle.
struct Group {
  int width, lane, index, count, shift;
  u32 mask;
};

__device__ inline Group groups_for(int pieces) {  // as many lanes as a row has pieces, a power of 2, at most 32
  int width = 1;
  while (width < pieces && width < kWarp) width *= 2;
  Group group;
  group.width = width;
  group.lane = int(threadIdx.x) & (width - 1);
  group.index = int(threadIdx.x) / width;
  group.count = int(blockDim.x) / width;
  group.shift = int(threadIdx.x) & (kWarp - 1) & ~(width - 1);
  group.mask = (width == kWarp ? kAllLanes : (1u << width) - 1) << group.shift;
  return group;
}

template <class T, int N, int V>
__device__ inline void add(float (&sum)[V], const Words<N>& got) {
  static_assert(V * int(sizeof(T)) == N, "one sum an element");
#pragma unroll
  for (int k = 0; k < V; ++k) sum[k] += element<T>(got, k);
}

template <int V>
__device__ inline void store_bag(float* to, const float (&sum)[V], int left, float scale) {
  if constexpr (V % 4 == 0) {
    if (left >= V && reinterpret_cast<u64>(to) % 16 == 0) {
#pragma unroll
      for (int k = 0; k < V; k += 4) {
        Words<16> words;
#pragma unroll
        for (int i = 0; i < 4; ++i) words.word[i] = float_to_bits(sum[k + i] * scale);
        store_once<16>(to + k, bytes_of<16>(words));
      }
      return;
    }
  }
#pragma unroll
  for (int k = 0; k < V; ++k)
    if (k < left) to[k] = sum[k] * scale;
}

__device__ inline float scale_of(int pooling, i32 count) {
  return pooling == kMean && count > 0 ? 1.0f / float(count) : 1.0f;
}

// ---- GM and L1: bag after bag -----------------------------------------------------------------------------

// A piece of a row; from global memory through the cache of the core, which small tables fit.
template <int N, bool kShared>
__device__ inline Words<N> load_piece(const u8* rows, i64 at) {
  static_assert(N == 16 || N == 4 || N == 2, "a whole access, or one element");
  const u8* from = kShared ? core_memory(int(at)) : rows + at;
#if PM_GPU
  if constexpr (N == 16) {
    const uint4* place = reinterpret_cast<const uint4*>(from);
    const uint4 got = kShared ? *place : __ldg(place);
    return {{got.x, got.y, got.z, got.w}};
  } else if constexpr (N == 4) {
    const u32* place = reinterpret_cast<const u32*>(from);
    return {{kShared ? *place : __ldg(place)}};
  } else {
    const u16* place = reinterpret_cast<const u16*>(from);
    return {{kShared ? *place : __ldg(place)}};
  }
#else
  return words_of(*reinterpret_cast<const Bytes<N>*>(from));
#endif
}

// Adds kRows rows, numbers of which lanes from `first` on hold in `row`. All loads are under way before the first is
// waited for: where there is no row, the first one of the table is loaded and zeros are added.
template <class T, int N, int kRows, bool kShared, int V>
__device__ inline void add_rows(float (&sum)[V], const Group& group, u32 row, int first, const u8* rows, u32 pitch,
                                int piece, int pieces) {
  Words<N> got[kRows];
  bool there[kRows];
  u32 wanted[kRows];
  if (group.width == kWarp) {
#pragma unroll
    for (int u = 0; u < kRows; ++u) wanted[u] = __shfl_sync(kAllLanes, row, first + u);
  } else {
#pragma unroll
    for (int u = 0; u < kRows; ++u) wanted[u] = __shfl_sync(group.mask, row, first + u, group.width);
  }
#pragma unroll
  for (int u = 0; u < kRows; ++u) {
    there[u] = wanted[u] != kNoRow;
    got[u] = load_piece<N, kShared>(rows, i64(u64(there[u] ? wanted[u] : 0u) * pitch) + min(piece, pieces - 1) * N);
  }
#pragma unroll
  for (int u = 0; u < kRows; ++u) {  // no branch: the compiler would put the load behind it
#pragma unroll
    for (u32& word : got[u].word) word = there[u] ? word : 0u;
    add<T, N>(sum, got[u]);
  }
}

// Rows of `pitch` bytes at `rows`, or resident in shared memory; N bytes an access. While the rows of one bag are
// on their way, so are the ids of the next one and the offsets of the one after that.
template <class T, class Id, int N, bool kShared>
__device__ inline void pool_bags(const Batch<Id>& batch, const Item& item, const Table& table, const u8* rows,
                                 u32 pitch) {
  constexpr int V = N / int(sizeof(T));
  const int pieces = (item.columns + V - 1) / V;
  const Group group = groups_for(pieces);
  const i64* offsets = batch.offsets + i64(item.table) * batch.samples + item.first_bag;
  const auto bound = [&](i32 bag) { return bag <= item.bags ? i32(__ldg(offsets + bag)) : 0; };
  const auto id_at = [&](i32 at, i32 end) { return at < end ? load_once(batch.ids + at) : Id(-1); };

  i32 from = bound(group.index), to = bound(group.index + 1);
  i32 next_from = bound(group.index + group.count), next_to = bound(group.index + group.count + 1);
  Id first = id_at(from + group.lane, to);
  for (i32 bag = group.index; bag < item.bags; bag += group.count) {
    const i32 after_from = bound(bag + 2 * group.count), after_to = bound(bag + 2 * group.count + 1);
    const Id next_first = id_at(next_from + group.lane, next_to);
    const float scale = scale_of(batch.pooling, to - from);
    float* out = batch.out + table.out_at + i64(item.first_bag + bag) * table.out_stride + item.first_column;
    for (int piece = group.lane; piece - group.lane < pieces; piece += group.width) {
      float sum[V] = {};
      for (i32 at = from; at < to; at += group.width) {
        const Id id = at == from ? first : id_at(at + group.lane, to);
        const bool is_row = u64(i64(id)) < u64(table.row_count);
        const u32 row = is_row ? u32(id) : kNoRow;
        if (!is_row && at + group.lane < to && piece == group.lane && item.first_column == 0)
          report(batch.faults, at + group.lane);
        const int count = min(group.width, to - at);
        int j = 0;
        for (; j + kFlight <= count; j += kFlight)
          add_rows<T, N, kFlight, kShared>(sum, group, row, j, rows, pitch, piece, pieces);
        for (; j < count; ++j) add_rows<T, N, 1, kShared>(sum, group, row, j, rows, pitch, piece, pieces);
      }
      store_bag(out + piece * V, sum, item.columns - piece * V, scale);
    }
    from = next_from, to = next_to, first = next_first;
    next_from = after_from, next_to = after_to;
  }
}

// ---- rows into shared memory ------------------------------------------------------------------------------

// `count` rows from `first` on, `pitch` bytes apart at `at`. The caller ends the copies, waits and meets the others.
template <class T>
__device__ inline void copy_rows(int at, int pitch, const u8* rows, const Table& table, int columns, int first,
                                 int count) {
  const bool aligned = (reinterpret_cast<u64>(rows) | u64(table.row_bytes)) % 16 == 0;
  const int wide = aligned ? columns * int(sizeof(T)) / 16 : 0;
  const Group group = groups_for(pitch / 16);
  for (int row = group.index; row < count; row += group.count) {
    const u8* from = rows + i64(first + row) * table.row_bytes;
    u8* to = core_memory(at + row * pitch);
    for (int piece = group.lane; piece < wide; piece += group.width) copy_async<16>(shared_at(to + piece * 16), from + piece * 16, true);
    for (int k = wide * (16 / int(sizeof(T))) + group.lane; k < columns; k += group.width)
      reinterpret_cast<T*>(to)[k] = reinterpret_cast<const T*>(from)[k];
  }
}

// ---- GM-UB and L1-UB: the table streams past the bags -----------------------------------------------------

struct Places {  // bytes into shared memory
  int pitch, sum_pitch, chunks, sums, starts, ids;
};

template <class T>
__device__ inline Places places_of(const Item& item) {
  const int pieces = (item.columns * int(sizeof(T)) + 15) / 16;
  Places at;
  at.pitch = pieces * 16;
  at.sum_pitch = pieces * (16 / int(sizeof(T))) * 4;
  at.chunks = item.resident_rows * at.pitch;
  at.sums = at.chunks + 2 * item.chunk_rows * at.pitch;
  at.starts = at.sums + item.pass_bags * at.sum_pitch;
  at.ids = at.starts + (item.pass_bags + 1) * 4;
  return at;
}

// Bags from `bag` on that the table streams past together: at least one, else as many as their ids have room.
__device__ inline int bags_of_pass(const Item& item, const i64* offsets, i32 bag) {
  int least = 1, most = min(item.pass_bags, item.bags - bag);
  const i64 end = __ldg(offsets + bag) + item.id_room;
  while (least < most) {
    const int middle = (least + most + 1) / 2;
    if (__ldg(offsets + bag + middle) <= end)
      least = middle;
    else
      most = middle - 1;
  }
  return least;
}

struct Window {  // ids that lie in shared memory, and the bags of this pass
  i32 from, to;
  int bags;
};

// Adds those of the `count` rows at `buffer` that the bags want; row `first` of the table is the first of them.
template <class T>
__device__ inline void gather_chunk(const Places& at, const Group& group, const Window& window, int buffer,
                                    int first, int count) {
  constexpr int V = 16 / int(sizeof(T));
  const int pieces = at.pitch / 16;
  const i32* starts = reinterpret_cast<const i32*>(core_memory(at.starts));
  const i32* ids = reinterpret_cast<const i32*>(core_memory(at.ids));
  for (int bag = group.index; bag < window.bags; bag += group.count) {
    const int from = max(starts[bag], window.from) - window.from;
    const int to = min(starts[bag + 1], window.to) - window.from;
    for (int piece = group.lane; piece - group.lane < pieces; piece += group.width) {
      float sum[V] = {};
      bool some = false;
      for (int i = from; i < to; i += group.width) {
        const int row = i + group.lane < to ? ids[i + group.lane] - first : -1;
        const bool is_here = u32(row) < u32(count), whole = group.width == kWarp;
        u32 here = whole ? __ballot_sync(kAllLanes, is_here) : __ballot_sync(group.mask, is_here) >> group.shift;
        some = some || here != 0;
        while (here != 0) {
          const int at_lane = __ffs(int(here)) - 1;
          const int wanted =
              whole ? __shfl_sync(kAllLanes, row, at_lane) : __shfl_sync(group.mask, row, at_lane, group.width);
          here &= here - 1;
          if (piece < pieces) add<T, 16>(sum, load_piece<16, true>(nullptr, buffer + wanted * at.pitch + piece * 16));
        }
      }
      if (!some || piece >= pieces) continue;
      float* kept = reinterpret_cast<float*>(core_memory(at.sums + bag * at.sum_pitch)) + piece * V;
#pragma unroll
      for (int k = 0; k < V; ++k) kept[k] += sum[k];
    }
  }
}

// The rows that are not resident, chunk after chunk: one is looked up while the next is on its way.
template <class T>
__device__ inline void stream(const Places& at, const Group& group, const Item& item, const Table& table,
                              const u8* rows, const Window& window) {
  const int first = item.resident_rows, size = item.chunk_rows, end = int(table.row_count);
  const auto count = [&](int row) { return min(size, end - row); };
  const auto fetch = [&](int row, int turn) {
    if (row < end)
      copy_rows<T>(at.chunks + turn * item.chunk_rows * at.pitch, at.pitch, rows, table, item.columns, row, count(row));
    end_copies();
  };
  fetch(first, 0);
  if (first > 0) gather_chunk<T>(at, group, window, 0, 0, first);
  int turn = 0;
  for (int row = first; row < end; row += size, turn ^= 1) {
    fetch(row + size, turn ^ 1);
    await_copies<1>();
    __syncthreads();
    gather_chunk<T>(at, group, window, at.chunks + turn * item.chunk_rows * at.pitch, row, count(row));
    __syncthreads();
  }
}

template <class T, class Id>
__device__ inline void pool_streaming(const Batch<Id>& batch, const Item& item, const Table& table, const u8* rows) {
  constexpr int V = 16 / int(sizeof(T));
  const Places at = places_of<T>(item);
  const int pieces = at.pitch / 16;
  const Group group = groups_for(pieces);
  const i64* offsets = batch.offsets + i64(item.table) * batch.samples + item.first_bag;
  i32* starts = reinterpret_cast<i32*>(core_memory(at.starts));
  i32* ids = reinterpret_cast<i32*>(core_memory(at.ids));
  for (i32 bag = 0; bag < item.bags;) {
    Window window;
    window.bags = bags_of_pass(item, offsets, bag);
    const i32 end = i32(__ldg(offsets + bag + window.bags));
    for (int i = int(threadIdx.x); i <= window.bags; i += int(blockDim.x)) starts[i] = i32(__ldg(offsets + bag + i));
    for (int own = group.index; own < window.bags; own += group.count) {  // its sums are this group's alone
      float* sums = reinterpret_cast<float*>(core_memory(at.sums + own * at.sum_pitch));
      for (int k = group.lane; k < pieces * V; k += group.width) sums[k] = 0;
    }
    __syncthreads();
    // One window, unless a single bag has more ids than there is room for.
    for (window.from = i32(__ldg(offsets + bag)); window.from < end; window.from = window.to) {
      window.to = end - window.from > item.id_room ? window.from + item.id_room : end;
      for (int i = int(threadIdx.x); i < window.to - window.from; i += int(blockDim.x)) {
        const Id id = load_once(batch.ids + window.from + i);
        const bool is_row = u64(i64(id)) < u64(table.row_count);
        ids[i] = is_row ? i32(id) : -1;
        if (!is_row && item.first_column == 0) report(batch.faults, window.from + i);
      }
      __syncthreads();
      stream<T>(at, group, item, table, rows, window);
      __syncthreads();
    }
    for (int own = group.index; own < window.bags; own += group.count) {
      const i64 sample = item.first_bag + bag + own;
      const float scale = scale_of(batch.pooling, starts[own + 1] - starts[own]);
      float* out = batch.out + table.out_at + sample * table.out_stride + item.first_column;
      const float* sums = reinterpret_cast<const float*>(core_memory(at.sums + own * at.sum_pitch));
      for (int piece = group.lane; piece < pieces; piece += group.width) {
        float sum[V];
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] = sums[piece * V + k];
        store_bag(out + piece * V, sum, item.columns - piece * V, scale);
      }
    }
    __syncthreads();
    bag += window.bags;
  }
}

// ---- the kernel -------------------------------------------------------------------------------------------

struct Desk {  // what the block works on; not in registers, which are few
  Item item;
  Table table;
  i32 kept;  // the item's resident rows lie in shared memory already
};

__device__ inline void take(Desk& desk, const Item& next, const Table* tables, bool begins) {
  const Item& last = desk.item;
  desk.kept = !begins && last.table == next.table && last.first_column == next.first_column &&
              last.resident_rows == next.resident_rows;
  desk.item = next;
  desk.table = tables[next.table];
}

// Block i works through items starts[i] .. starts[i + 1]. Rows that the next item wants too stay where they are.
template <class T, class Id>
__global__ void __launch_bounds__(kCoreThreads, 1)
    one_core(const Table* tables, const Item* items, const i32* starts, const Id* ids, const i64* offsets, float* out,
             Faults* faults, i32 samples, i32 pooling) {
  const Batch<Id> batch{ids, offsets, out, faults, samples, pooling};
  __shared__ Desk desk;
  const int first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
  for (int i = first; i < end; ++i) {
    __syncthreads();  // the item before is done with shared memory
    if (threadIdx.x == 0) take(desk, items[i], tables, i == first);
    __syncthreads();
    const Item& item = desk.item;
    const Table& table = desk.table;
    const u8* rows = table.rows + i64(item.first_column) * i64(sizeof(T));
    if (item.way == kGM) {
      const u64 address = reinterpret_cast<u64>(rows) | u64(table.row_bytes) | u64(item.columns) * sizeof(T);
      if (address % 16 == 0)
        pool_bags<T, Id, 16, false>(batch, item, table, rows, u32(table.row_bytes));
      else
        pool_bags<T, Id, int(sizeof(T)), false>(batch, item, table, rows, u32(table.row_bytes));
      continue;
    }
    const int pitch = places_of<T>(item).pitch;
    if (!desk.kept) {
      copy_rows<T>(0, pitch, rows, table, item.columns, 0, item.resident_rows);
      end_copies();
      await_copies<0>();
      __syncthreads();
    }
    if (item.way == kL1)
      pool_bags<T, Id, 16, true>(batch, item, table, nullptr, pitch);
    else
      pool_streaming<T, Id>(batch, item, table, rows);
  }
}

}  // namespace pm
