/* W <- keep W + alpha W_P for a window that slides over an image: row by row, each scaled and filled while it is in the
   cache.

   Row (o, y, x) of W holds kernel o, where output pixel (y, x) meets the image with it:
       W[(o, y, x), (c, y s_y + i d_y - p_y, x s_x + j d_x - p_x)] gets alpha w[o, c, i, j]
   or, for a layer with a kernel of its own at each position, alpha w[(y, x), o, c, i, j]. `g` is the geometry, in the
   order in which it is read here; the weight comes with the steps of its axes, that of the positions 0 if it has none.
   Only the rows from `first` up to `last` are changed. rows.py makes a copy of this file for each type, in which it
   replaces REAL and SUFFIX. */

#include <omp.h>
#include <stdint.h>

void window_SUFFIX(REAL *W, const REAL *w, REAL keep, REAL alpha, const int64_t *g, int64_t first, int64_t last,
                   int threads)
{
    const int64_t c_in = g[0], h_in = g[1], w_in = g[2], c_out = g[3], h_out = g[4], w_out = g[5], groups = g[6];
    const int64_t k_y = g[7], k_x = g[8], s_y = g[9], s_x = g[10], p_y = g[11], p_x = g[12], d_y = g[13], d_x = g[14];
    const int64_t step_p = g[15], step_o = g[16], step_c = g[17], step_i = g[18], step_j = g[19];
    const int64_t m_in = c_in * h_in * w_in, c_group = c_in / groups;

#pragma omp parallel for num_threads(threads)
    for (int64_t row = first; row < last; row++) {
        const int64_t o = row / (h_out * w_out), y = row / w_out % h_out, x = row % w_out;
        const int64_t group = o / (c_out / groups);
        const REAL *kernel = w + o * step_o + (y * w_out + x) * step_p;
        REAL *entries = W + row * m_in;
        for (int64_t k = 0; k < m_in; k++)
            entries[k] = keep == 0 ? 0 : keep * entries[k]; /* also where W is not finite */
        entries += group * c_group * h_in * w_in;
        for (int64_t i = 0; i < k_y; i++) {
            const int64_t v = y * s_y + i * d_y - p_y;
            for (int64_t j = 0; j < k_x; j++) {
                const int64_t u = x * s_x + j * d_x - p_x;
                if (v < 0 || v >= h_in || u < 0 || u >= w_in)
                    continue;
                REAL *entry = entries + v * w_in + u;
                const REAL *number = kernel + i * step_i + j * step_j;
                if (step_c == 1) /* as a network stores its weights: the compiler does better if it is told */
                    for (int64_t c = 0; c < c_group; c++)
                        entry[c * h_in * w_in] += alpha * number[c];
                else
                    for (int64_t c = 0; c < c_group; c++)
                        entry[c * h_in * w_in] += alpha * number[c * step_c];
            }
        }
    }
}

/* The weight of the convolution whose matrix is nearest to W: each number of `w`, whose channels are stored side by side,
   is the mean of the entries that it fills; only those of the output channels from `first` up to `last`. A thread has
   channels of its own, of the input if there are too few of the output, so the order of the terms does not depend on the
   number of threads; `room` has place for the sums and the counts of one output channel for each. */
void means_SUFFIX(const REAL *W, REAL *w, double *room, const int64_t *g, int64_t first, int64_t last, int threads)
{
    const int64_t c_in = g[0], h_in = g[1], w_in = g[2], c_out = g[3], h_out = g[4], w_out = g[5], groups = g[6];
    const int64_t k_y = g[7], k_x = g[8], s_y = g[9], s_x = g[10], p_y = g[11], p_x = g[12], d_y = g[13], d_x = g[14];
    const int64_t step_o = g[16], step_i = g[18], step_j = g[19];
    const int64_t c_group = c_in / groups, taps = k_y * k_x, parts = last - first < threads ? threads : 1;

#pragma omp parallel for num_threads(threads)
    for (int64_t unit = 0; unit < (last - first) * parts; unit++) {
        const int64_t o = first + unit / parts, part = unit % parts, group = o / (c_out / groups);
        const int64_t from = part * c_group / parts, to = (part + 1) * c_group / parts;
        double *sums = room + omp_get_thread_num() * taps * (c_group + 1), *counts = sums + taps * c_group;
        for (int64_t k = 0; k < taps * (c_group + 1); k++)
            sums[k] = 0;
        for (int64_t at = 0; at < h_out * w_out; at++) {
            const REAL *entries = W + ((o * h_out * w_out + at) * c_in + group * c_group) * h_in * w_in;
            for (int64_t tap = 0; tap < taps; tap++) {
                const int64_t v = at / w_out * s_y + tap / k_x * d_y - p_y, u = at % w_out * s_x + tap % k_x * d_x - p_x;
                if (v < 0 || v >= h_in || u < 0 || u >= w_in)
                    continue;
                const REAL *entry = entries + v * w_in + u;
                counts[tap]++;
                for (int64_t c = from; c < to; c++)
                    sums[tap * c_group + c] += entry[c * h_in * w_in];
            }
        }
        for (int64_t tap = 0; tap < taps; tap++) {
            REAL *number = w + o * step_o + tap / k_x * step_i + tap % k_x * step_j;
            for (int64_t c = from; c < to; c++) /* a tap that never meets the image is given 0 */
                number[c] = counts[tap] == 0 ? 0 : sums[tap * c_group + c] / counts[tap];
        }
    }
}

/* W <- keep W outside the window, inside W + alpha W_P within it. `room` has place for one kernel of one output channel
   for each thread: the entries within the window, while the row is scaled. */
void pull_SUFFIX(REAL *W, const REAL *w, REAL keep, REAL inside, REAL alpha, REAL *room, const int64_t *g, int threads)
{
    const int64_t c_in = g[0], h_in = g[1], w_in = g[2], c_out = g[3], h_out = g[4], w_out = g[5], groups = g[6];
    const int64_t k_y = g[7], k_x = g[8], s_y = g[9], s_x = g[10], p_y = g[11], p_x = g[12], d_y = g[13], d_x = g[14];
    const int64_t step_p = g[15], step_o = g[16], step_c = g[17], step_i = g[18], step_j = g[19];
    const int64_t m_out = c_out * h_out * w_out, m_in = c_in * h_in * w_in, c_group = c_in / groups;

#pragma omp parallel for num_threads(threads)
    for (int64_t row = 0; row < m_out; row++) {
        const int64_t o = row / (h_out * w_out), y = row / w_out % h_out, x = row % w_out;
        const int64_t group = o / (c_out / groups);
        const REAL *kernel = w + o * step_o + (y * w_out + x) * step_p;
        REAL *entries = W + row * m_in, *window = entries + group * c_group * h_in * w_in;
        REAL *kept = room + omp_get_thread_num() * k_y * k_x * c_group;
        for (int filling = 0; filling < 2; filling++) {
            for (int64_t i = 0; i < k_y; i++) {
                const int64_t v = y * s_y + i * d_y - p_y;
                for (int64_t j = 0; j < k_x; j++) {
                    const int64_t u = x * s_x + j * d_x - p_x;
                    if (v < 0 || v >= h_in || u < 0 || u >= w_in)
                        continue;
                    REAL *entry = window + v * w_in + u, *own = kept + (i * k_x + j) * c_group;
                    const REAL *number = kernel + i * step_i + j * step_j;
                    for (int64_t c = 0; c < c_group; c++)
                        if (filling)
                            entry[c * h_in * w_in] = inside * own[c] + alpha * number[c * step_c];
                        else
                            own[c] = entry[c * h_in * w_in];
                }
            }
            for (int64_t k = 0; !filling && k < m_in; k++)
                entries[k] = keep == 0 ? 0 : keep * entries[k];
        }
    }
}
