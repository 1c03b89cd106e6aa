// Device time of CUB's radix sort of (id, place) pairs, and of the run lengths of sorted ids, back to back.
//
// Build:  nvcc -O3 -arch=native -o cub_sort cub_sort.cu
// Run:    cub_sort MOST_IDS > sort.csv
// The ids are the row numbers of a lookup. FBGEMM's backward sorts them with their places (int32) over the bits that
// the largest row number needs, and encodes the runs of equal ids; ``torch.unique`` sorts all 64 bits.
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_run_length_encode.cuh>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
    std::exit(1);
  }
}

template <typename Id>
__global__ void fill(Id* ids, int32_t* places, int64_t count, int bits) {
  int64_t at = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (at >= count) return;
  uint64_t mixed = uint64_t(at) * 0x9E3779B97F4A7C15ull;  // splitmix64
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
  mixed ^= mixed >> 31;
  ids[at] = Id(mixed & ((uint64_t(1) << bits) - 1));
  places[at] = int32_t(at);
}

template <typename Call>
double seconds(Call call, int calls) {
  cudaEvent_t first, last;
  check(cudaEventCreate(&first), "event");
  check(cudaEventCreate(&last), "event");
  for (int i = 0; i < 3; ++i) call();
  std::vector<double> visits;
  for (int visit = 0; visit < 9; ++visit) {
    check(cudaEventRecord(first), "record");
    for (int i = 0; i < calls; ++i) call();
    check(cudaEventRecord(last), "record");
    check(cudaEventSynchronize(last), "synchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, first, last), "elapsed");
    visits.push_back(milliseconds * 1e-3 / calls);
  }
  std::nth_element(visits.begin(), visits.begin() + 4, visits.end());
  return visits[4];
}

template <typename Id>
void measure(int64_t most) {
  Id *ids, *sorted, *heads;
  int32_t *places, *moved, *lengths, *runs;
  check(cudaMalloc(&ids, most * sizeof(Id)), "ids");
  check(cudaMalloc(&sorted, most * sizeof(Id)), "sorted ids");
  check(cudaMalloc(&heads, most * sizeof(Id)), "heads of runs");
  check(cudaMalloc(&places, most * 4), "places");
  check(cudaMalloc(&moved, most * 4), "moved places");
  check(cudaMalloc(&lengths, most * 4), "lengths of runs");
  check(cudaMalloc(&runs, 4), "number of runs");
  for (int bits : {16, 24, 30, 40, 62}) {
    if (bits >= int(8 * sizeof(Id))) continue;
    for (int64_t count = 1024; count <= most; count *= 4) {
      fill<<<unsigned((count + 255) / 256), 256>>>(ids, places, count, bits);
      check(cudaGetLastError(), "fill");
      size_t bytes = 0, more = 0;
      cub::DeviceRadixSort::SortPairs(nullptr, bytes, ids, sorted, places, moved, int(count), 0, bits);
      cub::DeviceRunLengthEncode::Encode(nullptr, more, sorted, heads, lengths, runs, int(count));
      bytes = std::max(bytes, more);
      void* scratch = nullptr;
      check(cudaMalloc(&scratch, bytes), "scratch");
      int calls = count > (1 << 20) ? 4 : 32;
      double sort = seconds([&] {
        check(cub::DeviceRadixSort::SortPairs(scratch, bytes, ids, sorted, places, moved, int(count), 0, bits), "sort");
      }, calls);
      double encode = seconds([&] {
        check(cub::DeviceRunLengthEncode::Encode(scratch, bytes, sorted, heads, lengths, runs, int(count)), "encode");
      }, calls);
      std::printf("cub sort_pairs,stream,%d,%d,%lld,%.9g\n", int(sizeof(Id)), bits, (long long)count, sort);
      std::printf("cub run_lengths,stream,%d,%d,%lld,%.9g\n", int(sizeof(Id)), bits, (long long)count, encode);
      std::fflush(stdout);
      check(cudaFree(scratch), "free");
    }
  }
  for (void* one : {(void*)ids, (void*)sorted, (void*)heads, (void*)places, (void*)moved, (void*)lengths, (void*)runs})
    check(cudaFree(one), "free");
}

int main(int count, char** words) {
  int64_t most = count > 1 ? std::atoll(words[1]) : 1 << 26;
  std::printf("what,clock,id_bytes,bits,count,time_s\n");
  measure<int64_t>(most);
  measure<int32_t>(most);
  return 0;
}
