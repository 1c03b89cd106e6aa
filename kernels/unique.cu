// The different ids of each bucket, in the order of their first occurrence, and where each id is among them.
//
// Open addressing in global memory. A bucket of n ids has 2 n slots of its own: the table is half full at
// most, its size is known without asking the device, and a key is the id alone. A slot keeps the least
// position that holds its id, so the order does not depend on who comes first.
//
//   clear_slots    all slots empty
//   insert_ids     each id's slot; the least position of each slot
//   number_ids     the ids at those positions, numbered by a scan in the order of the positions
//   invert_ids     each id's number within its bucket
//
// Ids are taken as unsigned: what has the top bit set is negative and a fault.
#include "scan.cuh"

namespace pm {

using Pos = u32;  // a position among the ids, or of a slot

constexpr u64 kOdd1 = 0x9e3779b97f4a7c15ull;  // these two mix all bits of an id into the high ones
constexpr u64 kOdd2 = 0xd6e8feb86659fd93ull;

template <class T>
constexpr T kNone = ~T(0);  // no key, no position, no slot

template <class T>
__device__ inline T peek(const T* at) {  // what others may write at this moment
  return *const_cast<const volatile T*>(at);
}

// Buckets of positions: bucket k has start(k) .. start(k + 1). offsets lie `stride` apart.
struct BucketStarts {
  const i64* offsets;
  i64 stride, buckets, positions;
  __device__ inline i64 operator()(i64 bucket) const { return min(offsets[bucket * stride], positions); }
  __device__ inline i64 total() const { return (*this)(buckets); }
};

template <class Key>
__global__ void __launch_bounds__(kScanThreads) clear_slots(Key* keys, Pos* first, i64 slots) {
#pragma unroll 1
  for (i64 i = i64(blockIdx.x) * kScanThreads + threadIdx.x; i < slots; i += i64(gridDim.x) * kScanThreads) {
    keys[i] = kNone<Key>;
    first[i] = kNone<Pos>;
  }
}

// The slot of a key among `slots` slots of its bucket.
template <class Key>
__device__ inline i64 find_slot(Key* keys, i64 slots, Key id) {
  u64 mixed = u64(id) * kOdd1;
  mixed = (mixed ^ mixed >> 32) * kOdd2;
  i64 at = i64(__umul64hi(mixed ^ mixed >> 32, u64(slots)));
  for (;; at = at + 1 < slots ? at + 1 : 0) {
    Key found = peek(keys + at);
    if (found == kNone<Key>) found = atomicCAS(keys + at, kNone<Key>, id);
    if (found == id || found == kNone<Key>) return at;
  }
}

// A block takes kScanTile positions: each(position, bucket) for those that are there.
template <class Each>
__device__ inline void for_positions(const BucketStarts& start, Each each) {
  const i64 first = i64(blockIdx.x) * kScanTile, total = start.total();
  if (first >= total) return;
  const Span span = span_of(first, min(first + kScanTile, total) - 1, start.buckets, start);
  for (i64 i = first + threadIdx.x; i < min(first + kScanTile, total); i += kScanThreads)
    each(i, segment_of(i, span.low, span.high, start));
}

template <class Key>
__global__ void __launch_bounds__(kScanThreads)
    insert_ids(const Key* ids, i64 positions, const i64* offsets, i64 stride, i64 buckets, Key* keys,
               Pos* first, Pos* slot_of, Faults* faults) {
  const BucketStarts start{offsets, stride, buckets, positions};
  if (blockIdx.x == 0 && threadIdx.x == 0 && offsets[buckets * stride] > positions) report(faults, positions);
  for_positions(start, [&](i64 i, i64 bucket) {
    const Key id = load_once(ids + i);
    if (id > kNone<Key> / 2) {
      report(faults, i);
      slot_of[i] = kNone<Pos>;
      return;
    }
    const i64 begin = start(bucket), slots = 2 * (start(bucket + 1) - begin);
    const i64 slot = 2 * begin + find_slot(keys + 2 * begin, slots, id);
    if (peek(first + slot) > Pos(i)) atomicMin(first + slot, Pos(i));
    slot_of[i] = Pos(slot);
  });
}

// rank[i] = different ids before position i, over all buckets; rank[n] = all of them.
template <class Key>
__global__ void __launch_bounds__(kScanThreads, 5)
    number_ids(const Key* ids, i64 positions, const i64* offsets, i64 stride, i64 buckets, const Pos* first,
               const Pos* slot_of, u64* state, Pos* rank, Key* different) {
  const i64 total = BucketStarts{offsets, stride, buckets, positions}.total();
  scan_tile(
      positions, state,
      [&](i64 i) {
        if (i >= total) return 0;
        const Pos slot = slot_of[i];
        return slot != kNone<Pos> && first[slot] == Pos(i) ? 1 : 0;
      },
      [&](i64 i, i64 before, i32 here) {
        rank[i] = Pos(before);
        if (i == positions - 1) rank[positions] = Pos(before + here);
        if (here) different[before] = ids[i];
      });
}

// inverse[i]: which of its bucket's different ids the id is, all ones for a fault. counts [buckets], starts
// [buckets + 1] of the different ids.
__global__ void __launch_bounds__(kScanThreads)
    invert_ids(i64 positions, const i64* offsets, i64 stride, i64 buckets, const Pos* first,
               const Pos* slot_of, const Pos* rank, u64* state, i64 state_words, Pos* inverse, i64* counts,
               i64* starts) {
  const BucketStarts start{offsets, stride, buckets, positions};
  clear_words(state, state_words);
#pragma unroll 1
  for (i64 k = i64(blockIdx.x) * kScanThreads + threadIdx.x; k <= buckets;
       k += i64(gridDim.x) * kScanThreads) {
    starts[k] = rank[start(k)];
    if (k < buckets) counts[k] = i64(rank[start(k + 1)]) - i64(rank[start(k)]);
  }
  for_positions(start, [&](i64 i, i64 bucket) {
    const Pos slot = slot_of[i];
    inverse[i] = slot == kNone<Pos> ? kNone<Pos> : rank[first[slot]] - rank[start(bucket)];
  });
}

}  // namespace pm
