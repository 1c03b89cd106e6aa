// What one lane holds of a looked-up row and of a bag: CHUNKS accesses of WIDTH bytes each, which lie LANES x WIDTH
// bytes apart, so that neighbouring lanes touch neighbouring bytes.
#pragma once
#include "accesses.cuh"
#include "tables.cuh"

namespace pm {

template <int CHUNKS, int WIDTH>
struct RowPart {
  Words<WIDTH> chunk[CHUNKS];
};

template <class Row, int LANES, int CHUNKS, int WIDTH>
struct BagPart {
  static constexpr int kEach = WIDTH / int(sizeof(Row));
  float sum[CHUNKS][kEach];

  __device__ inline void clear() {
    for (int c = 0; c < CHUNKS; ++c)
      for (int k = 0; k < kEach; ++k) sum[c][k] = 0.0f;
  }

  // A row of an id out of range is zeros.
  __device__ inline void add(const RowPart<CHUNKS, WIDTH>& row) {
    for (int c = 0; c < CHUNKS; ++c)
      for (int k = 0; k < kEach; ++k) sum[c][k] += element<Row>(row.chunk[c], k);
  }

  // All that this lane knows, as numbers that another lane with the same columns and other rows combines with its own.
  static constexpr int kHeld = CHUNKS * kEach;
  __device__ inline float held(int index) const { return sum[index / kEach][index % kEach]; }
  __device__ inline void combine(int index, float other) { sum[index / kEach][index % kEach] += other; }

  // to     the bag's columns from this lane's first on;  columns  from there to the end of the bag
  // wide   whether ``to`` is a multiple of the bytes that WIDTH bytes of a row become, up to 16
  __device__ inline void write(float* to, int columns, bool wide) const {
    for (int c = 0; c < CHUNKS; ++c) {
      if (c * LANES * kEach >= columns) return;
      float* here = to + c * LANES * kEach;
      if (wide)
        write_wide(here, c);
      else
        for (int k = 0; k < kEach; ++k) here[k] = sum[c][k];
    }
  }

 private:
  __device__ inline void write_wide(float* to, int chunk) const {
    constexpr int kStored = kEach < 4 ? kEach : 4;  // columns of a store
    for (int k = 0; k < kEach; k += kStored) {
      Words<4 * kStored> words;
      for (int i = 0; i < kStored; ++i) words.word[i] = float_to_bits(sum[chunk][k + i]);
      store_once<4 * kStored>(to + k, bytes_of<4 * kStored>(words));
    }
  }
};

}  // namespace pm
