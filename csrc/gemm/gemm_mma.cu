// gemm_mma: tensor cores of compute capability 8.0 and later, through mma.sync. Factors of f16 and bf16, or of f32 that are rounded to tf32.
#include "gemm.cuh"
#include "mma_tile.cuh"

namespace bops {
namespace gemm {
namespace {

constexpr int mma_stages = 4; // steps in flight or in use

// A block of four warps, each of which has a quarter of the tile: the larger that is, the more products there are for each word from shared memory.
template <int tile> struct mma_shape {
    static constexpr int threads = 128, warps_m = 2, warps_n = 2;
    static constexpr int warp_rows = tile / warps_m, warp_columns = tile / warps_n, row_blocks = warp_rows / 16, column_blocks = warp_columns / 8;
};

template <typename T, int tile> constexpr uint32_t mma_shared_bytes() {
    constexpr uint32_t stage = tile * staged_row<tile> * 4, pipeline = mma_stages * 2 * step_bytes<T, tile>;
    return stage > pipeline ? stage : pipeline;
}

__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ uint32_t load_word(uint32_t from) {
    uint32_t to;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to) : "r"(from) : "memory");
    return to;
}

// sums += a b, of 16 rows and 8 columns over 32 bytes of k.
template <typename T> __device__ __forceinline__ void multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (std::is_same_v<T, __half>)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// f32 to tf32, to nearest; the instruction would cut the rest off.
template <typename T> __device__ __forceinline__ void round_factors(uint32_t (&words)[4]) {
    if constexpr (sizeof(T) == 4)
#pragma unroll
        for (int i = 0; i < 4; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(words[i]) : "f"(__uint_as_float(words[i])));
}

// The words of the left factor that a lane holds: rows first.. of 16, over 32 bytes of k from chunk 2 * k_step on.
template <typename T, int tile, bool across> __device__ __forceinline__ void load_left(uint32_t (&a)[4], uint32_t step, int first, int k_step) {
    const int lane = int(threadIdx.x) % 32;
    if constexpr (!across) load_matrices(a, step + along_k_address(left_row(lane, first), left_chunk(lane, k_step)));
    else if constexpr (sizeof(T) == 2)
        load_matrices_transposed(a, step + across_address<T, tile>(left_across_k(lane, k_step), left_across_row(lane, first)));
    else
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = load_word(step + across_address<T, tile>(word_k(lane, k_step, i / 2), word_row(lane, first, i % 2)));
    round_factors<T>(a);
}

// The words of the right factor for 16 columns from `first` on: b[0], b[1] are those of the first eight, b[2], b[3] of the others.
template <typename T, int tile, bool across> __device__ __forceinline__ void load_right(uint32_t (&b)[4], uint32_t step, int first, int k_step) {
    const int lane = int(threadIdx.x) % 32;
    if constexpr (!across) load_matrices(b, step + along_k_address(right_column(lane, first), right_chunk(lane, k_step)));
    else if constexpr (sizeof(T) == 2)
        load_matrices_transposed(b, step + across_address<T, tile>(right_across_k(lane, k_step), right_across_column(lane, first)));
    else
#pragma unroll
        for (int i = 0; i < 4; ++i) b[i] = load_word(step + across_address<T, tile>(word_k(lane, k_step, i % 2), word_row(lane, first, i / 2)));
    round_factors<T>(b);
}

// `bytes` of a copy into shared memory, of which `there` exist; the others become 0.
template <int bytes> __device__ __forceinline__ void copy_or_zero(uint32_t to, const void *from, int there) {
    if constexpr (bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(bytes), "r"(there) : "memory");
}
// A chunk in parts of `bytes`, of `there` bytes; elements lie `stride` apart, which is 1 where a part has several.
template <typename T, int bytes> __device__ __forceinline__ void copy_parts(uint32_t to, const T *from, uint64_t stride, int there) {
    constexpr int each = bytes / int(sizeof(T));
#pragma unroll
    for (int i = 0; i < 16 / bytes; ++i) {
        const int left = max(min(there - i * bytes, bytes), 0);
        copy_or_zero<bytes>(to + i * bytes, left > 0 ? from + uint64_t(i * each) * stride : from, left);
    }
}

// A thread's part in bringing steps of one factor to shared memory: a few chunks of 16 bytes.
template <typename T, int tile, bool across> struct mma_carrier {
    static constexpr int threads = mma_shape<tile>::threads, elements = 16 / int(sizeof(T));
    static constexpr int per_line = across ? tile * int(sizeof(T)) / 16 : step_row_bytes / 16;          // chunks
    static constexpr int line_step = threads / per_line, chunks = tile * step_row_bytes / 16 / threads; // from one chunk of the thread to the next
    const T *from;
    int lines_left, fast_left; // from the first chunk on, of the index that k is not

    __device__ __forceinline__ static int line() { return int(threadIdx.x) / per_line; }
    __device__ __forceinline__ static int fast() { return int(threadIdx.x) % per_line * elements; }

    // row_stride, k_stride: those of the factor, here and below.
    __device__ __forceinline__ mma_carrier(int rows_left) : from(nullptr), lines_left(rows_left - line()), fast_left(rows_left - fast()) {}
    // Where the thread's first element lies in a tile.
    __device__ __forceinline__ static uint64_t first(uint64_t row_stride, uint64_t k_stride) {
        return across ? uint64_t(line()) * k_stride + uint64_t(fast()) * row_stride : uint64_t(line()) * row_stride + uint64_t(fast()) * k_stride;
    }
    __device__ __forceinline__ void fetch(uint32_t step, uint64_t row_stride, uint64_t k_stride, uint32_t bytes, int depth_left) const {
        const uint64_t line_stride = across ? k_stride : row_stride, stride = across ? row_stride : k_stride;
        const int lines = across ? depth_left - line() : lines_left, fasts = across ? fast_left : depth_left - fast();
#pragma unroll
        for (int i = 0; i < chunks; ++i) {
            const int there = i * line_step < lines ? max(min(fasts, elements), 0) * int(sizeof(T)) : 0;
            const T *at = there > 0 ? from + uint64_t(i * line_step) * line_stride : from;
            const uint32_t to = step + (across ? across_address<T, tile>(line() + i * line_step, fast())
                                               : along_k_address(line() + i * line_step, fast() / elements));
            if (bytes == 16) copy_or_zero<16>(to, at, there);
            else if (bytes == 8) copy_parts<T, 8>(to, at, stride, there);
            else if (bytes == 4) copy_parts<T, 4>(to, at, stride, there);
            else if constexpr (sizeof(T) == 2) {
                // No asynchronous copy is this short.
                uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    if (2 * j < there) words[j / 2] |= uint32_t(reinterpret_cast<const unsigned short *>(at)[uint64_t(j) * stride]) << (16 * (j % 2));
                asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                             : "memory");
            }
        }
    }
};

template <typename T, int tile, bool left_across, bool right_across> __global__ void __launch_bounds__(mma_shape<tile>::threads, tile == 128 ? 2 : 3)
    mma(const __grid_constant__ bops_gemm_params params, const bops_gemm_choice choice, const bops_gemm_operands operands) {
    using shape = mma_shape<tile>;
    constexpr int depth = step_row_bytes / int(sizeof(T));
    extern __shared__ __align__(16) unsigned char shared[];
    const uint32_t steps = shared_address(shared);
    const place at = place_of_block(params, choice.splits, tile);
    const uint64_t m_first = uint64_t(at.tile_m) * tile, n_first = uint64_t(at.tile_n) * tile;
    const reduction range(params, depth, at.split, choice.splits);

    // 1. The factors of the block.
    const bops_gemm_matrix &left = params.left.matrix, &right = params.right.matrix;
    mma_carrier<T, tile, left_across> of_left(int(min(uint64_t(tile), params.m - m_first)));
    mma_carrier<T, tile, right_across> of_right(int(min(uint64_t(tile), params.n - n_first)));
    uint64_t steps_to_fetch = range.last - range.first;
    uint64_t summed = steps_to_fetch > 0 ? range.first / range.steps_of_k : 0;
    uint64_t k_left = params.k - (range.first - summed * range.steps_of_k) * depth;
    of_left.from = static_cast<const T *>(operands.left) + offset_of(params.batch_rank, params.batch, left.batch, at.z) +
                   offset_of(params.summed_rank, params.summed, params.left.summed, summed) + m_first * left.row + (params.k - k_left) * left.column +
                   of_left.first(left.row, left.column);
    of_right.from = static_cast<const T *>(operands.right) + offset_of(params.batch_rank, params.batch, right.batch, at.z) +
                    offset_of(params.summed_rank, params.summed, params.right.summed, summed) + n_first * right.column +
                    (params.k - k_left) * right.row + of_right.first(right.column, right.row);
    // The next step goes to place `to`.
    const auto fetch = [&](int to) {
        if (steps_to_fetch > 0) {
            const int depth_left = int(min(uint64_t(depth), k_left));
            const uint32_t step = steps + uint32_t(to) * 2 * step_bytes<T, tile>;
            of_left.fetch(step, left.row, left.column, choice.left_bytes, depth_left);
            of_right.fetch(step + step_bytes<T, tile>, right.column, right.row, choice.right_bytes, depth_left);
            if (k_left > depth) {
                k_left -= depth;
                of_left.from += depth * left.column, of_right.from += depth * right.row;
            } else if (steps_to_fetch > 1) {
                // The start of k, of the next summed index.
                const auto jump = [&](const bops_gemm_factor &factor, uint64_t k_stride) {
                    return offset_of(params.summed_rank, params.summed, factor.summed, summed + 1) -
                           offset_of(params.summed_rank, params.summed, factor.summed, summed) - (range.steps_of_k - 1) * depth * k_stride;
                };
                of_left.from += jump(params.left, left.column), of_right.from += jump(params.right, right.row);
                k_left = params.k;
                ++summed;
            }
            --steps_to_fetch;
        }
        copy_commit();
    };

    // 2. The sums.
    float sums[shape::row_blocks][shape::column_blocks][4];
#pragma unroll
    for (int i = 0; i < shape::row_blocks; ++i)
#pragma unroll
        for (int j = 0; j < shape::column_blocks; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[i][j][e] = 0.0f;
    const int warp = int(threadIdx.x) / 32, warp_m = warp % shape::warps_m * shape::warp_rows, warp_n = warp / shape::warps_m * shape::warp_columns;
    int now = 0;
#pragma unroll 1
    for (int i = 0; i < mma_stages - 1; ++i) fetch(i);
#pragma unroll 1
    for (uint64_t steps_left = range.last - range.first; steps_left > 0; --steps_left) {
        copy_wait(mma_stages - 2);
        __syncthreads(); // The step has come for all threads, and none reads the one that is replaced.
        fetch(now == 0 ? mma_stages - 1 : now - 1);
        const uint32_t step = steps + uint32_t(now) * 2 * step_bytes<T, tile>;
#pragma unroll
        for (int k_step = 0; k_step < 2; ++k_step) {
            uint32_t b[shape::column_blocks / 2][4];
#pragma unroll
            for (int j = 0; j < shape::column_blocks / 2; ++j)
                load_right<T, tile, right_across>(b[j], step + step_bytes<T, tile>, warp_n + 16 * j, k_step);
#pragma unroll
            for (int i = 0; i < shape::row_blocks; ++i) {
                uint32_t a[4];
                load_left<T, tile, left_across>(a, step, warp_m + 16 * i, k_step);
#pragma unroll
                for (int j = 0; j < shape::column_blocks; ++j) multiply<T>(sums[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
        }
        now = now + 1 == mma_stages ? 0 : now + 1;
    }
    copy_wait(0);
    __syncthreads();

    // 3. What is done with them.
    float *const stage = reinterpret_cast<float *>(shared);
    const bool across = choice.across != 0;
    const int slow_step = across ? 1 : staged_row<tile>, fast_step = across ? staged_row<tile> : 1;
#pragma unroll
    for (int i = 0; i < shape::row_blocks; ++i)
#pragma unroll
        for (int j = 0; j < shape::column_blocks; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int lane = int(threadIdx.x) % 32;
                stage[(warp_m + 16 * i + sum_row(lane, e)) * slow_step + (warp_n + 8 * j + sum_column(lane, e)) * fast_step] = sums[i][j][e];
            }
    __syncthreads();
    leave_tile<T, tile, shape::threads>(params, choice, operands, at, stage);
}

template <typename T, int tile, typename Action>
bops_status with_shape(const bops_gemm_params &params, const bops_gemm_choice &choice, const bops_gemm_operands &operands, const Action &action) {
    launch_shape shape;
    shape.grid = dim3(blocks_of(params, choice)), shape.block = dim3(mma_shape<tile>::threads);
    shape.shared_bytes = mma_shared_bytes<T, tile>();
    if (!choice.right_across) return action(mma<T, tile, false, false>, shape, params, choice, operands);
    if (!choice.left_across) return action(mma<T, tile, false, true>, shape, params, choice, operands);
    return action(mma<T, tile, true, true>, shape, params, choice, operands);
}

template <typename Action> bops_status with_kernel(const bops_gemm_params &params, const bops_gemm_choice &choice, bops_dtype dtype,
                                                   const bops_gemm_operands &operands, const Action &action) {
    const auto of_type = [&](auto tag) {
        using T = typename decltype(tag)::type;
        return choice.tile == 64 ? with_shape<T, 64>(params, choice, operands, action) : with_shape<T, 128>(params, choice, operands, action);
    };
    switch (dtype) {
    case BOPS_F32: return of_type(type_tag<float>{});
    case BOPS_F16: return of_type(type_tag<__half>{});
    case BOPS_BF16: return of_type(type_tag<__nv_bfloat16>{});
    default: return bops_status(cudaErrorInvalidValue);
    }
}

} // namespace
} // namespace gemm
} // namespace bops

bops_status bops_gemm_mma_prepare(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype) {
    return bops::gemm::with_kernel(*params, *choice, dtype, {}, bops::prepare_action{});
}

bops_status bops_gemm_mma_launch(const bops_gemm_params *params, const bops_gemm_choice *choice, bops_dtype dtype, const bops_gemm_operands *operands,
                                 bops_stream stream) {
    return bops::gemm::with_kernel(*params, *choice, dtype, *operands, bops::launch_action{stream});
}
