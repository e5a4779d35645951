/* W <- keep W + alpha W_P for a window that slides over an image: row by row, each scaled and filled while it is in the
   cache.

   Row (o, y, x) of W holds kernel o, where output pixel (y, x) meets the image with it:
       W[(o, y, x), (c, y s_y + i d_y - p_y, x s_x + j d_x - p_x)] gets alpha w[o, c, i, j]
   or, for a layer with a kernel of its own at each position, alpha w[(y, x), o, c, i, j]. `g` is the geometry, in the
   order in which it is read here; the weight comes with the steps of its axes, that of the positions 0 if it has none.
   rows.py makes a copy of this file for each type, in which it replaces REAL and SUFFIX. */

#include <omp.h>
#include <stdint.h>

#ifndef GEOMETRY
#define GEOMETRY                                                                                                       \
    const int64_t c_in = g[0], h_in = g[1], w_in = g[2], c_out = g[3], h_out = g[4], w_out = g[5], groups = g[6];      \
    const int64_t k_y = g[7], k_x = g[8], s_y = g[9], s_x = g[10], p_y = g[11], p_x = g[12], d_y = g[13], d_x = g[14]; \
    const int64_t step_p = g[15], step_o = g[16], step_c = g[17], step_i = g[18], step_j = g[19];                      \
    const int64_t pixels = h_in * w_in, positions = h_out * w_out, m_in = c_in * pixels, c_group = c_in / groups;
#endif

static inline void row_SUFFIX(REAL *W, const REAL *w, REAL keep, REAL alpha, const int64_t *g, int64_t row)
{
    GEOMETRY
    const int64_t o = row / positions, y = row / w_out % h_out, x = row % w_out;
    const int64_t group = o / (c_out / groups);
    const REAL *kernel = w + o * step_o + (y * w_out + x) * step_p;
    REAL *entries = W + row * m_in;
    for (int64_t k = 0; k < m_in; k++)
        entries[k] = keep == 0 ? 0 : keep * entries[k]; /* also where W is not finite */
    entries += group * c_group * pixels;
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
                    entry[c * pixels] += alpha * number[c];
            else
                for (int64_t c = 0; c < c_group; c++)
                    entry[c * pixels] += alpha * number[c * step_c];
        }
    }
}

void window_SUFFIX(REAL *W, const REAL *w, REAL keep, REAL alpha, const int64_t *g, int threads)
{
    const int64_t m_out = g[3] * g[4] * g[5];
#pragma omp parallel for num_threads(threads)
    for (int64_t row = 0; row < m_out; row++)
        row_SUFFIX(W, w, keep, alpha, g, row);
}

/* The weight of the convolution whose matrix is nearest to W: each number of `w`, whose channels are stored side by side,
   is the mean of the entries that it fills. Here those of output channel `o` and of the channels of its group of inputs
   from `from` up to `to`; `sums` has place for the sums and the counts of one output channel. */
static void means_SUFFIX(const REAL *W, REAL *w, double *sums, const int64_t *g, int64_t o, int64_t from, int64_t to)
{
    GEOMETRY
    const int64_t group = o / (c_out / groups), taps = k_y * k_x;
    double *counts = sums + taps * c_group;
    for (int64_t k = 0; k < taps * (c_group + 1); k++)
        sums[k] = 0;
    for (int64_t at = 0; at < positions; at++) {
        const REAL *entries = W + ((o * positions + at) * c_in + group * c_group) * pixels;
        for (int64_t tap = 0; tap < taps; tap++) {
            const int64_t v = at / w_out * s_y + tap / k_x * d_y - p_y, u = at % w_out * s_x + tap % k_x * d_x - p_x;
            if (v < 0 || v >= h_in || u < 0 || u >= w_in)
                continue;
            const REAL *entry = entries + v * w_in + u;
            counts[tap]++;
            for (int64_t c = from; c < to; c++)
                sums[tap * c_group + c] += entry[c * pixels];
        }
    }
    for (int64_t tap = 0; tap < taps; tap++) {
        REAL *number = w + o * step_o + tap / k_x * step_i + tap % k_x * step_j;
        for (int64_t c = from; c < to; c++) /* a tap that never meets the image is given 0 */
            number[c] = counts[tap] == 0 ? 0 : sums[tap * c_group + c] / counts[tap];
    }
}

/* One row: W <- keep W outside the window, inside W + alpha W_P within it. `kept` has place for one kernel: the entries
   within the window, while the row is scaled. */
static void pull_row_SUFFIX(REAL *W, const REAL *w, REAL keep, REAL inside, REAL alpha, REAL *kept, const int64_t *g,
                            int64_t row)
{
    if (keep == inside) {
        row_SUFFIX(W, w, keep, alpha, g, row);
        return;
    }
    GEOMETRY
    const int64_t o = row / positions, y = row / w_out % h_out, x = row % w_out;
    const int64_t group = o / (c_out / groups);
    const REAL *kernel = w + o * step_o + (y * w_out + x) * step_p;
    REAL *entries = W + row * m_in, *window = entries + group * c_group * pixels;
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
                        entry[c * pixels] = inside * own[c] + alpha * number[c * step_c];
                    else
                        own[c] = entry[c * pixels];
            }
        }
        for (int64_t k = 0; !filling && k < m_in; k++)
            entries[k] = keep == 0 ? 0 : keep * entries[k];
    }
}

/* All rows, towards the weight `w`; or, with `nearest`, towards the nearest convolution, whose weight is written there.
   A thread has output channels of its own, whose rows are still in its cache when their means are known; if there are
   too few of them, input channels and then rows. So the order of the terms does not depend on the number of threads. For
   each thread `sums` has place for the sums and counts of one output channel, and `kept` for one kernel of it. */
void pull_SUFFIX(REAL *W, REAL *w, int nearest, REAL keep, REAL inside, REAL alpha, double *sums, REAL *kept,
                 const int64_t *g, int threads)
{
    const int64_t c_out = g[3], positions = g[4] * g[5], c_group = g[0] / g[6], size = g[7] * g[8] * c_group;
    const int64_t room = size + g[7] * g[8], alone = c_out >= threads;

    if (!alone && nearest) {
#pragma omp parallel for num_threads(threads)
        for (int64_t unit = 0; unit < c_out * threads; unit++) {
            const int64_t part = unit % threads;
            means_SUFFIX(W, w, sums + omp_get_thread_num() * room, g, unit / threads, part * c_group / threads,
                         (part + 1) * c_group / threads);
        }
    }
#pragma omp parallel for num_threads(threads)
    for (int64_t unit = 0; unit < (alone ? c_out : c_out * positions); unit++) {
        const int64_t first = alone ? unit * positions : unit, last = alone ? first + positions : first + 1;
        if (alone && nearest)
            means_SUFFIX(W, w, sums + omp_get_thread_num() * room, g, unit, 0, c_group);
        for (int64_t row = first; row < last; row++)
            pull_row_SUFFIX(W, w, keep, inside, alpha, kept + omp_get_thread_num() * size, g, row);
    }
}
