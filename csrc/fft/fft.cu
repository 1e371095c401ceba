// Fourier transforms of lines that the shared memory of a block holds: a pass reads lines, transforms them stage by stage, and writes them. Longer lines take two
// passes, and those of other prime factors than 2, 3, 5 and 7 are convolved with a chirp.
#include "../bops_fft.h"
#include "../common/dispatch.cuh"
#include "../common/launch.cuh"
#include "../pointwise/walk.cuh"

namespace bops {
namespace {

// Threads of a block, each with 8 points. Those of f64 have twice the registers.
template <typename A> constexpr uint32_t fft_threads = sizeof(A) == 8 ? BOPS_FFT_POINTS_F64 / 8 : BOPS_FFT_POINTS / 8;

template <typename A> struct alignas(2 * sizeof(A)) complex { A re, im; };

template <typename A> __device__ __forceinline__ complex<A> operator+(complex<A> a, complex<A> b) { return {a.re + b.re, a.im + b.im}; }
template <typename A> __device__ __forceinline__ complex<A> operator-(complex<A> a, complex<A> b) { return {a.re - b.re, a.im - b.im}; }
template <typename A> __device__ __forceinline__ complex<A> operator*(complex<A> a, complex<A> b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
// -i times a number.
template <typename A> __device__ __forceinline__ complex<A> turned(complex<A> a) { return {a.im, -a.re}; }
template <typename A> __device__ __forceinline__ complex<A> swapped_if(bool is_swapped, complex<A> a) {
    return is_swapped ? complex<A>{a.im, a.re} : a;
}

// exp(-2 pi i part / whole), of a part below the whole, which is below 2^28. The angle is brought into an octant in integers.
template <typename A> __device__ __forceinline__ complex<A> root(uint32_t part, uint32_t whole) {
    uint32_t at = 8 * part; // in eighths of a turn over the whole
    const bool is_sine_turned = at > 4 * whole;
    if (is_sine_turned) at = 8 * whole - at;
    const bool is_cosine_turned = at > 2 * whole;
    if (is_cosine_turned) at = 4 * whole - at;
    const bool is_other = at > whole;
    if (is_other) at = 2 * whole - at;
    A sine, cosine;
    if constexpr (sizeof(A) == 8) sincospi(0.25 * double(at) / double(whole), &sine, &cosine);
    else sincospif(0.25f * float(at) / float(whole), &sine, &cosine);
    const A re = is_other ? sine : cosine, im = is_other ? cosine : sine;
    return {is_cosine_turned ? -re : re, is_sine_turned ? im : -im};
}

// exp(-pi i j^2 / points)
template <typename A> __device__ __forceinline__ complex<A> chirp(uint32_t j, uint32_t points) {
    return root<A>(uint32_t(uint64_t(j) * j % (2 * points)), 2 * points);
}

template <typename A> __device__ __forceinline__ void transform(complex<A> (&v)[2]) {
    const complex<A> a = v[0];
    v[0] = a + v[1], v[1] = a - v[1];
}

template <typename A> __device__ __forceinline__ void transform(complex<A> (&v)[4]) {
    const complex<A> a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3], d = turned(v[1] - v[3]);
    v[0] = a + c, v[1] = b + d, v[2] = a - c, v[3] = b - d;
}

template <typename A> __device__ __forceinline__ void transform(complex<A> (&v)[8]) {
    complex<A> even[4] = {v[0], v[2], v[4], v[6]}, odd[4] = {v[1], v[3], v[5], v[7]};
    transform(even);
    transform(odd);
    constexpr A half = A(0.70710678118654752440);
    odd[1] = {half * (odd[1].re + odd[1].im), half * (odd[1].im - odd[1].re)};
    odd[2] = turned(odd[2]);
    odd[3] = {half * (odd[3].im - odd[3].re), -half * (odd[3].re + odd[3].im)};
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = even[k] + odd[k], v[k + 4] = even[k] - odd[k];
}

// Cosine and sine of so many R-ths of a turn.
template <typename A, int R> __device__ __forceinline__ A cosine(int at) {
    const int near = 2 * at > R ? R - at : at;
    if constexpr (R == 3) return A(-0.5);
    else if constexpr (R == 5) return near == 1 ? A(0.30901699437494742410) : A(-0.80901699437494742410);
    else return near == 1 ? A(0.62348980185873353053) : near == 2 ? A(-0.22252093395631440429) : A(-0.90096886790241912624);
}
template <typename A, int R> __device__ __forceinline__ A sine(int at) {
    const int near = 2 * at > R ? R - at : at;
    A value;
    if constexpr (R == 3) value = A(0.86602540378443864676);
    else if constexpr (R == 5) value = near == 1 ? A(0.95105651629515357212) : A(0.58778525229247312917);
    else value = near == 1 ? A(0.78183148246802980871) : near == 2 ? A(0.97492791218182360702) : A(0.43388373911755812048);
    return 2 * at > R ? -value : value;
}

// Of an odd number of inputs, from the sums and the differences of those whose roots are conjugates.
template <typename A, int R> __device__ __forceinline__ void transform(complex<A> (&v)[R]) {
    constexpr int pairs = R / 2;
    complex<A> sum[pairs], difference[pairs], first = v[0];
    const complex<A> zeroth = v[0];
#pragma unroll
    for (int k = 0; k < pairs; ++k) {
        sum[k] = v[k + 1] + v[R - 1 - k], difference[k] = v[k + 1] - v[R - 1 - k];
        first = first + sum[k];
    }
    v[0] = first;
#pragma unroll
    for (int m = 1; m <= pairs; ++m) {
        complex<A> even = zeroth, odd = {0, 0};
#pragma unroll
        for (int k = 1; k <= pairs; ++k) {
            const A c = cosine<A, R>(m * k % R), s = sine<A, R>(m * k % R);
            even = {even.re + c * sum[k - 1].re, even.im + c * sum[k - 1].im};
            odd = {odd.re + s * difference[k - 1].re, odd.im + s * difference[k - 1].im};
        }
        v[m] = even + turned(odd), v[R - m] = even - turned(odd);
    }
}

// The place of a number in shared memory: neighbours stay in other banks than those 16 apart.
__device__ __forceinline__ uint32_t held_at(uint32_t at) { return at ^ (at >> 4 & 15); }

// A stage: input r of butterfly b is point b + r points / R of a line, its results are `before` points apart.
template <typename A, int R> __device__ __forceinline__ void stage(const bops_fft_pass &pass, complex<A> *tile, uint32_t lines, uint32_t before) {
    constexpr uint32_t most = (8 * fft_threads<A> / R + fft_threads<A> - 1) / fft_threads<A>;
    const uint32_t step = pass.points / R, count = lines * step, whole = before * R;
    complex<A> v[most][R];
    // 1. The inputs of a thread's butterflies, and their transforms.
#pragma unroll
    for (uint32_t i = 0; i < most; ++i) {
        const uint32_t b = threadIdx.x + i * fft_threads<A>;
        if (b >= count) continue;
        const uint32_t line = b / step, at = b - line * step, group = at / before, position = at - group * before;
        const uint32_t first = line * pass.line_step + at;
#pragma unroll
        for (int r = 0; r < R; ++r) v[i][r] = tile[held_at(first + r * step)];
        if (before > 1) {
            const complex<A> w = root<A>(position, whole);
            complex<A> power = w;
            if constexpr (R == 2) v[i][1] = v[i][1] * w;
            else if constexpr (R <= 4) {
#pragma unroll
                for (int r = 1; r < R; ++r) {
                    v[i][r] = v[i][r] * power;
                    power = power * w;
                }
            } else {
                // Products of few factors: w^2, w^3, w^4, and those of two of these.
                const complex<A> w2 = w * w, w3 = w2 * w, w4 = w2 * w2;
                v[i][1] = v[i][1] * w, v[i][2] = v[i][2] * w2, v[i][3] = v[i][3] * w3, v[i][4] = v[i][4] * w4;
                if constexpr (R >= 7) v[i][5] = v[i][5] * (w2 * w3), v[i][6] = v[i][6] * (w3 * w3);
                if constexpr (R == 8) v[i][7] = v[i][7] * (w3 * w4);
            }
        }
        transform(v[i]);
    }
    __syncthreads();
    // 2. Their results.
#pragma unroll
    for (uint32_t i = 0; i < most; ++i) {
        const uint32_t b = threadIdx.x + i * fft_threads<A>;
        if (b >= count) continue;
        const uint32_t line = b / step, at = b - line * step, to = line * pass.line_step + at + at / before * before * (R - 1);
#pragma unroll
        for (int r = 0; r < R; ++r) tile[held_at(to + r * before)] = v[i][r];
    }
    __syncthreads();
}

// Bins of half a spectrum count `inner`, but those of 0 and n/2, whose imaginary parts are 0, count once.
__device__ __forceinline__ bool is_real_bin(const bops_fft_params &params, uint32_t bin) { return bin == 0 || 2 * bin == params.points; }

// The number at a point of line `line` of the tensor.
template <typename A> __device__ __forceinline__ complex<A> read_point(const bops_fft_params &params, const bops_fft_pass &pass, const A *x,
                                                                       const complex<A> *work, uint64_t line, uint64_t first, uint32_t point) {
    if (pass.from == BOPS_FFT_WORK) return work[pass.from_work + line * pass.padded + point];
    if (pass.from == BOPS_FFT_CHIRP) {
        const uint32_t other = pass.padded - point, j = point < params.points ? point : other;
        if (j >= params.points) return {0, 0};
        const complex<A> w = chirp<A>(j, params.points);
        return {w.re, -w.im};
    }
    if (point >= (pass.from == BOPS_FFT_HALF ? params.points / 2 + 1 : params.points)) return {0, 0};
    const uint64_t at = first + point * params.x_step;
    if (pass.from == BOPS_FFT_REAL) return {x[at], 0};
    complex<A> value;
    if (params.x_is_packed) value = *reinterpret_cast<const complex<A> *>(x + at);
    else value = {x[at], x[at + params.x_part]};
    if (pass.from == BOPS_FFT_HALF) {
        const A inner = A(params.inner);
        value = is_real_bin(params, point) ? complex<A>{value.re, 0} : complex<A>{inner * value.re, inner * value.im};
    }
    return value;
}

template <typename A> __device__ __forceinline__ void write_point(const bops_fft_params &params, const bops_fft_pass &pass, A *y, complex<A> *work,
                                                                  uint64_t line, uint64_t first, uint32_t point, complex<A> value) {
    if (pass.to == BOPS_FFT_WORK) {
        work[pass.to_work + line * pass.padded + point] = value;
        return;
    }
    if (point >= (pass.to == BOPS_FFT_HALF ? params.points / 2 + 1 : params.points)) return;
    const uint64_t at = first + point * params.y_step;
    if (pass.to == BOPS_FFT_REAL) {
        y[at] = value.re;
        return;
    }
    if (pass.to == BOPS_FFT_HALF && !is_real_bin(params, point)) value = {A(params.inner) * value.re, A(params.inner) * value.im};
    if (params.y_is_packed) *reinterpret_cast<complex<A> *>(y + at) = value;
    else y[at] = value.re, y[at + params.y_part] = value.im;
}

template <typename A> __global__ void __launch_bounds__(fft_threads<A>, 1)
    fft(const __grid_constant__ bops_fft_params params, const __grid_constant__ bops_fft_operands operands, complex<A> *work, uint32_t number) {
    extern __shared__ __align__(16) unsigned char shared[];
    complex<A> *const tile = reinterpret_cast<complex<A> *>(shared);
    const bops_fft_pass &pass = params.pass[number];
    const uint64_t group = uint64_t(blockIdx.x) * pass.of_group;
    const uint32_t lines = pass.lines - group < pass.of_group ? uint32_t(pass.lines - group) : pass.of_group, count = lines * pass.points;
    const auto has = [&](uint32_t flag) { return (pass.flags & flag) != 0; };
    const uint64_t first_line = group / pass.inners;
    const uint32_t first_inner = uint32_t(group - first_line * pass.inners);
    // For each number its place in the tile, its line of the tensor, where that begins, and the line of the pass and the point in it.
    const auto each = [&](bool is_columns, const bops_walked &walked, auto &&act) {
#pragma unroll 1
        for (uint32_t e = threadIdx.x; e < count; e += fft_threads<A>) {
            const uint32_t outer = e / (is_columns ? lines : pass.points), inner = e - outer * (is_columns ? lines : pass.points);
            const uint32_t own = is_columns ? inner : outer, point = is_columns ? outer : inner;
            const uint32_t inners = pass.inners, passed = inners == 1 ? first_inner + own : (first_inner + own) / inners;
            const uint64_t line = first_line + passed;
            const uint64_t first = place<BOPS_POINTWISE_EXTENTS, true>(params.walk, line, 1).offset(walked);
            act(held_at(own * pass.line_step + point), line, first, first_inner + own - passed * inners, point);
        }
    };
    // 1. The lines.
    each(has(BOPS_FFT_READS_COLUMNS), params.x, [&](uint32_t at, uint64_t line, uint64_t first, uint32_t inner, uint32_t point) {
        const uint32_t from = inner * pass.from_inner + point * pass.from_step;
        complex<A> value = read_point(params, pass, static_cast<const A *>(operands.x), work, line, first, from);
        value = swapped_if(has(BOPS_FFT_TURNS_READ), value);
        if (has(BOPS_FFT_CHIRPS_READ) && from < params.points) value = value * chirp<A>(from, params.points);
        tile[at] = value;
    });
    __syncthreads();
    // 2. Stage by stage.
    uint32_t before = 1, stages = 0;
    // A loop for each radix, in the order in which they come: with one loop over all of them the compiler keeps registers for several at once.
    const auto all = [&](auto radix) {
        constexpr int R = decltype(radix)::value;
        for (; stages < pass.stages && pass.radix[stages] == R; ++stages, before *= R) stage<A, R>(pass, tile, lines, before);
    };
    all(std::integral_constant<int, 8>());
    all(std::integral_constant<int, 4>());
    all(std::integral_constant<int, 2>());
    all(std::integral_constant<int, 7>());
    all(std::integral_constant<int, 5>());
    all(std::integral_constant<int, 3>());
    // 3. The results.
    const A factor = A(pass.factor);
    each(has(BOPS_FFT_WRITES_COLUMNS), params.y, [&](uint32_t at, uint64_t line, uint64_t first, uint32_t inner, uint32_t point) {
        const uint32_t to = inner * pass.to_inner + point * pass.to_step;
        complex<A> value = tile[at];
        // Both are below their extents, whose product is the whole.
        if (pass.whole > 0) value = value * root<A>(inner * point, pass.whole);
        if (has(BOPS_FFT_CONVOLVES)) value = value * work[params.spectrum + to];
        value = swapped_if(has(BOPS_FFT_TURNS_RESULT), value);
        if (has(BOPS_FFT_CHIRPS_RESULT) && to < params.points) value = value * chirp<A>(to, params.points);
        value = swapped_if(has(BOPS_FFT_TURNS_WRITTEN), complex<A>{factor * value.re, factor * value.im});
        write_point(params, pass, static_cast<A *>(operands.y), work, line, first, to, value);
    });
}

template <typename Action> bops_status with_kernel(bops_dtype dtype, const bops_fft_params &params, const bops_fft_choice &,
                                                   const bops_fft_operands &operands, void *workspace, const Action &action) {
    return for_types<float, double>(dtype, [&](auto tag) {
        using A = typename decltype(tag)::type;
        bops_status status = 0;
        for (uint32_t number = 0; number < params.passes && status == 0; ++number) {
            const bops_fft_pass &pass = params.pass[number];
            launch_shape shape;
            shape.grid = dim3(uint32_t(pass.blocks)), shape.block = dim3(fft_threads<A>);
            // In whole groups of 16, within which numbers change places.
            shape.shared_bytes = (pass.of_group * pass.line_step + 15) / 16 * 16 * uint32_t(sizeof(complex<A>));
            status = action(fft<A>, shape, params, operands, static_cast<complex<A> *>(workspace), number);
        }
        return status;
    });
}

} // namespace
} // namespace bops

BOPS_DEFINE_FORM(bops_fft, bops_dtype, bops_fft_params, bops_fft_choice, bops_fft_operands, bops::with_kernel)
