// What one lane holds of a looked-up row and of a bag: CHUNKS accesses of WIDTH bytes each, which lie LANES x WIDTH
// bytes apart, so that neighbouring lanes touch neighbouring bytes.
#pragma once
#include "accesses.cuh"
#include "tables.cuh"

namespace pm {

enum Adding : int { kPlain = 0, kWeighted = 1, kLargest = 2 };

template <class Row, int CHUNKS, int WIDTH>
struct RowPart {
  Words<WIDTH> chunk[CHUNKS];
  float scale = 0.0f, bias = 0.0f;  // of an int8 row
};

// ---- adding up and writing --------------------------------------------------------------------------------

__device__ inline float larger(float a, float b) {  // not a number where one of them is none
#if PM_GPU
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a != a ? a : b != b || b > a ? b : a;
#endif
}

template <class Row, int LANES, int CHUNKS, int WIDTH, int ADDING>
struct BagPart {
  static constexpr int kEach = WIDTH / int(sizeof(Row));
  static constexpr bool kInt8 = sizeof(Row) == 1;
  float sum[CHUNKS][kEach];
  float biases;  // of int8 rows
  bool any;      // a row was there

  __device__ inline void clear() {
    for (int c = 0; c < CHUNKS; ++c)
      for (int k = 0; k < kEach; ++k) sum[c][k] = ADDING == kLargest ? bits_to_float(0xff800000u) : 0.0f;
    biases = 0.0f;
    any = false;
  }

  // there  whether the row is one: an id out of range reads as a row of zeros
  __device__ inline void add(const RowPart<Row, CHUNKS, WIDTH>& row, [[maybe_unused]] float weight,
                             [[maybe_unused]] bool there) {
    if constexpr (ADDING == kLargest) {
      if (!there) return;
      any = true;
    }
    const float scale = ADDING == kWeighted && kInt8 ? row.scale * weight : row.scale;
    for (int c = 0; c < CHUNKS; ++c)
      for (int k = 0; k < kEach; ++k) {
        const float value = element<Row>(row.chunk[c], k);
        float& into = sum[c][k];
        if constexpr (ADDING == kLargest)
          into = larger(into, kInt8 ? scale * value + row.bias : value);
        else if constexpr (kInt8)
          into += scale * value;
        else if constexpr (ADDING == kWeighted)
          into += weight * value;
        else
          into += value;
      }
    if constexpr (kInt8 && ADDING != kLargest) biases += ADDING == kWeighted ? row.bias * weight : row.bias;
  }

  // The sums with the biases in them: what ``held`` and ``combine`` work on.
  __device__ inline void settle() {
    if constexpr (kInt8 && ADDING != kLargest)
      for (int k = 0; k < CHUNKS * kEach; ++k) sum[k / kEach][k % kEach] += biases;
    biases = 0.0f;
  }

  // All that this lane knows, as numbers that another lane with the same columns and other rows combines with its own.
  static constexpr int kHeld = CHUNKS * kEach + (ADDING == kLargest);
  __device__ inline float held(int index) const {
    if (index == CHUNKS * kEach) return any ? 1.0f : 0.0f;
    return sum[index / kEach][index % kEach];
  }
  __device__ inline void combine(int index, float other) {
    if (index == CHUNKS * kEach) {
      any = any || other != 0.0f;
      return;
    }
    float& into = sum[index / kEach][index % kEach];
    into = ADDING == kLargest ? larger(into, other) : into + other;
  }

  __device__ inline float value(int chunk, int index, float factor) const {
    const float sum = this->sum[chunk][index];
    if constexpr (ADDING == kLargest) return any ? sum : 0.0f;
    return (kInt8 ? sum + biases : sum) * factor;
  }

  // to     the bag's columns from this lane's first on;  columns  from there to the end of the bag
  // wide   whether ``to`` is a multiple of the bytes that WIDTH bytes of a row become, up to 16
  template <class Out>
  __device__ inline void write(Out* to, int columns, float factor, bool wide) const {
    for (int c = 0; c < CHUNKS; ++c) {
      if (c * LANES * kEach >= columns) return;
      Out* here = to + c * LANES * kEach;
      if (wide)
        write_wide(here, c, factor);
      else
        for (int k = 0; k < kEach; ++k) here[k] = from_float<Out>(value(c, k, factor));
    }
  }

 private:
  template <class Out>
  __device__ inline void write_wide(Out* to, int chunk, float factor) const {
    constexpr int kBytes = kEach * int(sizeof(Out)), kStore = kBytes < 16 ? kBytes : 16;
    constexpr int kStored = kStore / int(sizeof(Out)), kInWord = 4 / int(sizeof(Out));
    for (int k = 0; k < kEach; k += kStored) {
      Words<kStore> words{};
      for (int i = 0; i < kStored; ++i) {
        const u32 bits = bits_of(from_float<Out>(value(chunk, k + i, factor)));
        words.word[i / kInWord] |= bits << (i % kInWord * 8 * int(sizeof(Out)));
      }
      store_once<kStore>(to + k, bytes_of<kStore>(words));
    }
  }
};

}  // namespace pm
