// W <- keep W + alpha W_P in one pass over W, for each structure. No includes: NVRTC compiles this file as it is, and so
// does a C++ compiler behind a few definitions (tests/accel/host_shim.h), which is how it is tested without a GPU.
//
// A block row walks over rows of W, threads over columns. Each entry of W is read and written once. `geometry` holds
// the numbers of the structure and then the permutations around it (see imlp/accel/kernels.py, which writes it).

// The index before or after a permutation. A stage is (kind, a, b, c, d).
enum { PATCHIFY = 1, UNPATCHIFY = 2, TRANSPOSE = 3 };

__device__ inline int through(int index, const int* stages, int n) {
  for (int stage = 0; stage < n; ++stage, stages += 5) {
    const int a = stages[1], b = stages[2], c = stages[3], d = stages[4];
    if (stages[0] == TRANSPOSE) {  // a rows, b columns
      index = index % b * a + index / b;
    } else if (stages[0] == PATCHIFY) {  // a channels, b x c pixels, patch d
      const int channel = index / (b * c), Y = index / c % b, X = index % c;
      const int patch = Y / d * (c / d) + X / d;
      index = ((patch * a + channel) * d + Y % d) * d + X % d;
    } else {
      const int s = index % d, r = index / d % d, channel = index / (d * d) % a, patch = index / (d * d * a);
      const int Y = patch / (c / d) * d + r, X = patch % (c / d) * d + s;
      index = (channel * b + Y) * c + X;
    }
  }
  return index;
}

template <typename T>
__device__ inline void mix(T* entry, T keep, T added) {
  *entry = (keep == T(0) ? T(0) : keep * *entry) + added;  // keep = 0 also clears what is not finite
}

// geometry: m_out, m_in, stages on columns, stages on rows, then the numbers of the structure, then the stages.
#define FOR_EACH_ENTRY(N)                                                                                  \
  const int m_out = geometry[0], m_in = geometry[1], n_columns = geometry[2], n_rows = geometry[3];        \
  const int* own = geometry + 4;                                                                           \
  const int *column_stages = own + N, *row_stages = column_stages + 5 * n_columns;                         \
  for (int row = blockIdx.y; row < m_out; row += gridDim.y)                                                \
    for (int column = blockIdx.x * blockDim.x + threadIdx.x; column < m_in; column += gridDim.x * blockDim.x)

#define MAPPED                                                   \
  const int i = through(row, row_stages, n_rows);                \
  const int j = through(column, column_stages, n_columns);       \
  T* entry = W + (long long)row * m_in + column;

// A permutation alone: ones where row and column meet.
template <typename T>
__device__ void permutation(T* W, const T* w, T keep, T alpha, const int* geometry) {
  FOR_EACH_ENTRY(0) {
    MAPPED
    mix(entry, keep, i == j ? alpha * w[0] : T(0));
  }
}

// W~: one layer (C_out, C_in) for every row.
template <typename T>
__device__ void shared_layer(T* W, const T* w, T keep, T alpha, const int* geometry) {
  FOR_EACH_ENTRY(2) {
    MAPPED
    const int C_out = own[0], C_in = own[1];
    mix(entry, keep, i / C_out == j / C_in ? alpha * w[i % C_out * C_in + j % C_in] : T(0));
  }
}

// W_F and W_L: pixel (v, u) = (y s + tap d - p, ...) of a channel in the same group; W_L has a kernel for each (y, x).
template <typename T, bool OWN>
__device__ void window(T* W, const T* w, T keep, T alpha, const int* geometry) {
  FOR_EACH_ENTRY(14) {
    MAPPED
    const int h_in = own[0], w_in = own[1], h_out = own[2], w_out = own[3], k_y = own[4], k_x = own[5];
    const int s_y = own[6], s_x = own[7], p_y = own[8], p_x = own[9], d_y = own[10], d_x = own[11];
    const int o_group = own[12], c_group = own[13];
    const int o = i / (h_out * w_out), y = i / w_out % h_out, x = i % w_out;
    const int c = j / (h_in * w_in), v = j / w_in % h_in, u = j % w_in;
    const int t_y = v + p_y - y * s_y, t_x = u + p_x - x * s_x;  // how far into the kernel, in pixels
    const long long position = OWN ? (long long)(y * w_out + x) * (m_out / (h_out * w_out)) : 0;  // its first channel
    T added = T(0);
    if (o / o_group == c / c_group && t_y >= 0 && t_x >= 0 && t_y % d_y == 0 && t_x % d_x == 0 && t_y / d_y < k_y &&
        t_x / d_x < k_x)
      added = alpha * w[(((position + o) * c_group + c % c_group) * k_y + t_y / d_y) * k_x + t_x / d_x];
    mix(entry, keep, added);
  }
}

template <typename T>
__device__ void convolution(T* W, const T* w, T keep, T alpha, const int* geometry) {
  window<T, false>(W, w, keep, alpha, geometry);
}

template <typename T>
__device__ void local_layer(T* W, const T* w, T keep, T alpha, const int* geometry) {
  window<T, true>(W, w, keep, alpha, geometry);
}

#define EXPORT(NAME, SUFFIX, T)                                                                                  \
  extern "C" __global__ void NAME##_##SUFFIX(T* W, const T* w, T keep, T alpha, const int* geometry) { \
    NAME<T>(W, w, keep, alpha, geometry);                                                                        \
  }
EXPORT(permutation, f32, float)
EXPORT(permutation, f64, double)
EXPORT(shared_layer, f32, float)
EXPORT(shared_layer, f64, double)
EXPORT(convolution, f32, float)
EXPORT(convolution, f64, double)
EXPORT(local_layer, f32, float)
EXPORT(local_layer, f64, double)
