// Tables of rows, and bags of looked-up rows: what all kernels take.
//
// Bags are numbered table by table, then sample by sample: bag = t B + b. Their ids lie one after the other,
// those of bag i at offsets[i] .. offsets[i + 1] (offsets has T B + 1 elements). Sums are kept in fp32.
#pragma once
#include "portable.cuh"

namespace pm {

struct Table {
  const u8* rows;   // first row; a multiple of 16 bytes makes accesses wide
  i64 row_count;    // E
  i64 row_bytes;    // from one row to the next
  i64 out_at;       // where the bag of this table's first sample begins in the output [elements]
  i64 out_stride;   // from the bag of one sample to the next sample's [elements]
  i32 dim;          // D
  i32 padding;
};

}  // namespace pm
