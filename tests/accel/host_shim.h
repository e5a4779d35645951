// Lets a C++ compiler build kernels.cu and run it on the CPU, one thread after the other.
#define __global__
#define __device__
struct Index {
  int x, y;
};
static Index blockIdx, threadIdx, blockDim, gridDim;

#define LAUNCH(NAME, T)                                                                                          \
  extern "C" void launch_##NAME(int grid_x, int grid_y, int block, T* W, const T* w, T keep, T alpha,            \
                                const int* geometry) {                                                           \
    gridDim = {grid_x, grid_y};                                                                                  \
    blockDim = {block, 1};                                                                                       \
    for (blockIdx.y = 0; blockIdx.y < grid_y; ++blockIdx.y)                                                      \
      for (blockIdx.x = 0; blockIdx.x < grid_x; ++blockIdx.x)                                                    \
        for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) NAME(W, w, keep, alpha, geometry);             \
  }
