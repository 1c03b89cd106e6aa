// What one lane holds of a looked-up row and of a bag: CHUNKS accesses of WIDTH bytes each, which lie LANES x WIDTH
// bytes apart, so that neighbouring lanes touch neighbouring bytes.
#pragma once
#include "accesses.cuh"
#include "tables.cuh"

namespace pm {

template <class Row, int CHUNKS, int WIDTH>
struct RowPart {
  Words<WIDTH> chunk[CHUNKS];
  float scale = 0.0f, bias = 0.0f;  // of an int8 row
};

// ---- adding up and writing --------------------------------------------------------------------------------

template <class Row, int LANES, int CHUNKS, int WIDTH>
struct BagPart {
  static constexpr int kEach = WIDTH / int(sizeof(Row));
  static constexpr bool kInt8 = sizeof(Row) == 1;
  float sum[CHUNKS][kEach];
  float biases;  // of int8 rows

  __device__ inline void clear() {
    for (int c = 0; c < CHUNKS; ++c)
      for (int k = 0; k < kEach; ++k) sum[c][k] = 0.0f;
    biases = 0.0f;
  }

  // A row of an id out of range is zeros.
  __device__ inline void add(const RowPart<Row, CHUNKS, WIDTH>& row) {
    for (int c = 0; c < CHUNKS; ++c)
      for (int k = 0; k < kEach; ++k) {
        const float value = element<Row>(row.chunk[c], k);
        sum[c][k] += kInt8 ? row.scale * value : value;
      }
    if constexpr (kInt8) biases += row.bias;
  }

  // The sums with the biases in them: what ``held`` and ``combine`` work on.
  __device__ inline void settle() {
    if constexpr (kInt8)
      for (int k = 0; k < kHeld; ++k) sum[k / kEach][k % kEach] += biases;
    biases = 0.0f;
  }

  // All that this lane knows, as numbers that another lane with the same columns and other rows combines with its own.
  static constexpr int kHeld = CHUNKS * kEach;
  __device__ inline float held(int index) const { return sum[index / kEach][index % kEach]; }
  __device__ inline void combine(int index, float other) { sum[index / kEach][index % kEach] += other; }

  __device__ inline float value(int chunk, int index) const {
    return kInt8 ? sum[chunk][index] + biases : sum[chunk][index];
  }

  // to     the bag's columns from this lane's first on;  columns  from there to the end of the bag
  // wide   whether ``to`` is a multiple of the bytes that WIDTH bytes of a row become, up to 16
  template <class Out>
  __device__ inline void write(Out* to, int columns, bool wide) const {
    for (int c = 0; c < CHUNKS; ++c) {
      if (c * LANES * kEach >= columns) return;
      Out* here = to + c * LANES * kEach;
      if (wide)
        write_wide(here, c);
      else
        for (int k = 0; k < kEach; ++k) here[k] = from_float<Out>(value(c, k));
    }
  }

 private:
  template <class Out>
  __device__ inline void write_wide(Out* to, int chunk) const {
    constexpr int kBytes = kEach * int(sizeof(Out)), kStore = kBytes < 16 ? kBytes : 16;
    constexpr int kStored = kStore / int(sizeof(Out)), kInWord = 4 / int(sizeof(Out));
    for (int k = 0; k < kEach; k += kStored) {
      Words<kStore> words{};
      for (int i = 0; i < kStored; ++i) {
        const u32 bits = bits_of(from_float<Out>(value(chunk, k + i)));
        words.word[i / kInWord] |= bits << (i % kInWord * 8 * int(sizeof(Out)));
      }
      store_once<kStore>(to + k, bytes_of<kStore>(words));
    }
  }
};

}  // namespace pm
