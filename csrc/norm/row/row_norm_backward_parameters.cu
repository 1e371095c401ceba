// LayerNorm and RMSNorm backward: the gradients of the parameters from the partial rows that a form has left in the workspace.
#include "row_norm_backward.cuh"

namespace bops {

constexpr int parameters_threads = 256; // of a block

template <typename A> struct alignas(16) quad { A v[4]; };

// Partial rows up to which one chain of additions is short enough: 32 threads share a column, so that each adds up at most 8 groups of four rows.
constexpr uint32_t few_partial_rows = 1024;

// Drops a line of 128 bytes from the L2, so that it is not written to memory: nobody reads it again.
__device__ __forceinline__ void discard_line(const void *line) { asm volatile("discard.global.L2 [%0], 128;" ::"l"(line) : "memory"); }

template <typename A> struct plain_sum {
    A value = 0;
    __device__ __forceinline__ void add(A v) { value += v; }
    __device__ __forceinline__ A total() const { return value; }
};

// A block is (threads with four columns each, threads that share these columns' partial rows). blockIdx.y: 0 dweight, or dbias if that alone is
// wanted; 1 dbias. few: there are few_partial_rows at most, so that one chain of additions is short enough. A line of a partial row is read by
// lanes of one warp. They drop it when all have read it.
template <typename T, bool few> __global__ void __launch_bounds__(parameters_threads)
    row_norm_backward_parameters(const __grid_constant__ row_norm_backward_arguments<accumulator_t<T>> a) {
    using A = accumulator_t<T>;
    // Partial rows of a thread in flight: 8 of f32 take 32 registers, as 4 of f64 do. With more partial rows there are 4, and the cascades of a
    // thread take 16 registers, or 32 of f64.
    constexpr int batch = few && sizeof(A) == 4 ? 8 : 4;
    constexpr int line_lanes = 128 / int(sizeof(quad<A>)); // lanes that share a line of the L2
    __shared__ quad<A> shared[parameters_threads];
    wait_for_dependency();
    const bool is_dweight = blockIdx.y == 0 && a.o.dweight;
    const A *const partial = is_dweight ? a.partial_dweight : a.partial_dbias;
    void *const to = is_dweight ? a.o.dweight : a.o.dbias;
    for (uint64_t first = uint64_t(blockIdx.x) * blockDim.x * 4; first < a.p.cols; first += uint64_t(gridDim.x) * blockDim.x * 4) {
        const uint64_t column = first + threadIdx.x * 4;
        std::conditional_t<few, plain_sum<A>, cascade<A>> sums[4]; // of groups of four partial rows
        const A *from = partial + threadIdx.y * a.partial_cols + column;
        if (column < a.p.cols) {
            for (uint64_t r = threadIdx.y; r < a.partial_rows; r += blockDim.y * batch) {
                quad<A> rows[batch] = {};
#pragma unroll
                for (int j = 0; j < batch; ++j, from += blockDim.y * a.partial_cols)
                    if (r + j * blockDim.y < a.partial_rows) rows[j] = *reinterpret_cast<const quad<A> *>(from);
#pragma unroll
                for (int j = 0; j < batch; j += 4)
#pragma unroll
                    for (int i = 0; i < 4; ++i) sums[i].add((rows[j].v[i] + rows[j + 1].v[i]) + (rows[j + 2].v[i] + rows[j + 3].v[i]));
            }
        }
        quad<A> &mine = shared[threadIdx.y * blockDim.x + threadIdx.x];
#pragma unroll
        for (int i = 0; i < 4; ++i) mine.v[i] = sums[i].total();
        __syncwarp();
        if (threadIdx.x % line_lanes == 0 && column < a.p.cols)
            for (uint64_t r = threadIdx.y; r < a.partial_rows; r += blockDim.y) discard_line(partial + r * a.partial_cols + column);
        for (uint32_t half = blockDim.y / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.y < half)
#pragma unroll
                for (int i = 0; i < 4; ++i) mine.v[i] += shared[(threadIdx.y + half) * blockDim.x + threadIdx.x].v[i];
        }
        if (threadIdx.y == 0) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (column + i < a.p.cols) store_parameter<T>(a, to, column + i, mine.v[i]);
        }
        __syncthreads();
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------------

template <typename Action>
bops_status for_row_norm_backward_parameters(const bops_row_norm_specialisation &of, const bops_row_norm_backward_params &p,
                                             const bops_row_norm_backward_parameters_choice &c, const bops_row_norm_backward_operands &o,
                                             void *workspace, const Action &action) {
    return for_float(of.dtype, [&](auto element) -> bops_status {
        using T = typename decltype(element)::type;
        const auto a = row_norm_backward_arguments_of<accumulator_t<T>>(of, p, o, c.partial_rows, workspace);
        const uint32_t row_threads = power_of_two_at_least((a.partial_rows + 3) / 4, 32), vectors = parameters_threads / row_threads;
        const uint64_t blocks = (p.cols + vectors * 4 - 1) / (vectors * 4);
        launch_shape shape;
        shape.grid = dim3(uint32_t(blocks < 0x7fffffff ? blocks : 0x7fffffff), o.dweight && o.dbias ? 2 : 1);
        shape.block = dim3(vectors, row_threads), shape.overlaps_previous = c.overlaps;
        return a.partial_rows <= few_partial_rows ? action(row_norm_backward_parameters<T, true>, shape, a)
                                                  : action(row_norm_backward_parameters<T, false>, shape, a);
    });
}

} // namespace bops

BOPS_DEFINE_ROW_NORM_FORM(parameters, backward_)
