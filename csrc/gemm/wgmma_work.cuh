// What the kernels of wgmma share: the units of work of a launch, how their factors are fetched, and the maps for the copy engine.
#pragma once
#include "gemm.cuh"
#include "wgmma.cuh"

namespace bops {
namespace gemm {

// The tiles of a launch, and the steps along k, through one summed index after the other. A *unit* of work is a tile, or the part of one that a split
// takes.
struct wgmma_work {
    uint32_t tiles_m, tiles_n, matrices, splits, band_rows, units;
    uint32_t steps_of_k, steps;
    uint64_t split_stride; // elements of out from one part to the next
    uint32_t copies;       // as in the choice of gemm_wgmma
    float alpha, beta;
};
struct wgmma_unit {
    uint32_t z, split, tile_m, tile_n, first, last; // the unit's steps: from `first` to before `last`
    // Neighbouring blocks take the tiles of a band, which is band_rows rows of tiles, column after column: see gemm.cuh.
    __device__ __forceinline__ wgmma_unit(const wgmma_work &work, uint32_t number) {
        const uint32_t in_matrix = number % (work.tiles_m * work.tiles_n), matrix = number / (work.tiles_m * work.tiles_n);
        const uint32_t high = min(work.band_rows, work.tiles_m), band = in_matrix / (high * work.tiles_n),
                       in_band = in_matrix % (high * work.tiles_n);
        const uint32_t rows = min(high, work.tiles_m - high * band);
        tile_m = high * band + in_band % rows, tile_n = in_band / rows;
        z = matrix / work.splits, split = matrix % work.splits;
        const uint32_t share = work.steps / work.splits, left = work.steps % work.splits;
        first = share * split + min(split, left), last = first + share + (split < left ? 1 : 0);
    }
};

// The two batch indices of matrix z.
__device__ __forceinline__ void in_batch(const bops_gemm_params &params, uint32_t z, int (&index)[2]) {
    index[0] = int(z), index[1] = 0;
    if (params.batch_rank == 2) index[0] = int(z / uint32_t(params.batch[1])), index[1] = int(z % uint32_t(params.batch[1]));
}

// ---- fetching factors ---------------------------------------------------------------

// How a factor lies. fours_along_k: it lies along k, and shared memory does not have it row after row: of 32 rows, those whose number is a multiple
// of four come first, then those with remainder 1, and so on. This gives a thread of gemm_wgmma_words the sums of four neighbours of out. A factor
// that is fours_along_k has no second batch extent beside one that is summed over.
enum wgmma_order { along_k, across_k, fours_along_k };
// Rows of a box of a factor that is fours_along_k: the columns of out that a warp of gemm_wgmma_words has.
constexpr int fours_rows = 32;

// The boxes that make `rows` rows of a step.
template <typename T, wgmma_order order, int rows>
__device__ __forceinline__ void bring(uint32_t to, const CUtensorMap &map, int row, int k, const int (&batch)[2], int summed, uint32_t barrier) {
    constexpr int box_rows = order == across_k ? wgmma_depth<T> : order == fours_along_k ? fours_rows : rows;
#pragma unroll
    for (int first = 0; first < rows; first += box_rows) {
        const box_place at = order == across_k        ? box_place{row + first, k, {batch[0], batch[1]}, summed}
                             : order == fours_along_k ? box_place{k, (row + first) / 4, {0, batch[0]}, batch[1] + summed}
                                                      : box_place{k, row + first, {batch[0], batch[1]}, summed};
        copy_box(to + first * wgmma_line_bytes, map, at, barrier);
    }
}

// Fetches one factor's part of every step of a block's units into a ring of `stages` stages. Called by one thread. `full` is the barrier of the first
// stage that counts the bytes that arrive, `empty` the one at which warps arrive that have used it.
template <typename T, typename shape, int stages, bool of_left, wgmma_order order>
__device__ __forceinline__ void bring_steps(const bops_gemm_params &params, const wgmma_work &work, const CUtensorMap &map, uint32_t ring,
                                            uint32_t full, uint32_t empty) {
    constexpr int rows = of_left ? shape::rows : shape::columns;
    constexpr uint32_t bytes = of_left ? shape::left_bytes : shape::right_bytes, at = of_left ? 0 : shape::left_bytes;
    uint32_t stage_number = 0; // of the next stage, counted over two rounds of the ring: the second one is the barriers' other phase
#pragma unroll 1
    for (uint32_t number = blockIdx.x; number < work.units; number += gridDim.x) {
        const wgmma_unit unit(work, number);
        const int row = int(of_left ? unit.tile_m * shape::rows : unit.tile_n * shape::columns);
        int batch[2];
        in_batch(params, unit.z, batch);
#pragma unroll
        for (int i = 0; i < 2; ++i)
            if ((of_left ? params.left : params.right).matrix.batch[i] == 0) batch[i] = 0;
        int summed = int(unit.first / work.steps_of_k), k = int(unit.first % work.steps_of_k * wgmma_depth<T>);
#pragma unroll 1
        for (uint32_t left = unit.last - unit.first; left > 0; --left) {
            const uint32_t stage = stage_number < stages ? stage_number : stage_number - stages, there = full + 8 * stage;
            mbarrier::wait(empty + 8 * stage, stage_number < stages);
            mbarrier::expect(there, bytes);
            bring<T, order, rows>(ring + stage * shape::step_bytes + at, map, row, k, batch, summed, there);
            k += wgmma_depth<T>;
            if (k >= int(work.steps_of_k) * wgmma_depth<T>) k = 0, ++summed;
            if (++stage_number == 2 * stages) stage_number = 0;
        }
    }
}

// ---- the launch -------------------------------------------------------------------------

using encode_map = CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// A function of the driver; null if the driver has none of that name.
inline void *find_in_driver(const char *name) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result) != cudaSuccess) return nullptr;
    return result == cudaDriverEntryPointSuccess ? function : nullptr;
}

// Makes a map of five extents in boxes, of which strides[i] bytes lead from one index of extent i + 1 to the next. What a box has beyond the extents is 0 in
// shared memory and not written to global memory.
inline bops_status encode_boxes(CUtensorMap &map, CUtensorMapDataType type, const void *base, const cuuint64_t (&extents)[5],
                                const cuuint64_t (&strides)[4], const cuuint32_t (&box)[5], CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion) {
    static const auto encode = reinterpret_cast<encode_map>(find_in_driver("cuTensorMapEncodeTiled"));
    if (encode == nullptr) return bops_status(cudaErrorNotSupported);
    const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
    const CUresult status = encode(&map, type, 5, const_cast<void *>(base), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                   promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return bops_status(status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue);
}

// The type of a factor's elements for the copy engine, which rounds f32 to tf32.
inline CUtensorMapDataType factor_type(bops_dtype dtype) {
    return dtype == BOPS_F32   ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
           : dtype == BOPS_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                               : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

// Makes the map of a factor of `rows` rows (columns of the right factor) in boxes of box_rows of them; `row` and `column` are its strides, the second
// one along k. An extent of one element has a stride of 16: the copy engine wants a multiple of 16, and no stride of such an extent is used.
inline bops_status make_factor_map(CUtensorMap &map, const bops_gemm_params &params, const bops_gemm_factor &factor, bops_dtype dtype,
                                   const void *base, uint64_t rows, uint64_t row, uint64_t column, wgmma_order order, uint32_t box_rows) {
    const uint32_t element = dtype == BOPS_F32 ? 4 : 2, depth = wgmma_line_bytes / element;
    cuuint64_t extents[5] = {params.k, rows, 1, 1, 1}, strides[4] = {16, 16, 16, 16};
    cuuint32_t box[5] = {depth, box_rows, 1, 1, 1};
    uint32_t outer = 2; // where the first batch index goes
    if (order == across_k) {
        extents[0] = rows, extents[1] = params.k, box[1] = depth;
        if (params.k > 1) strides[0] = element * column;
    } else if (order == fours_along_k) {
        extents[1] = rows / 4, extents[2] = 4, box[1] = fours_rows / 4, box[2] = 4, outer = 3;
        strides[0] = 4 * element * row, strides[1] = element * row;
    } else if (rows > 1) {
        strides[0] = element * row;
    }
    for (uint32_t i = 0; i < params.batch_rank; ++i)
        if (factor.matrix.batch[i] != 0) extents[outer + i] = params.batch[i], strides[outer - 1 + i] = element * factor.matrix.batch[i];
    if (params.summed_rank > 0 && factor.summed[0] != 0) extents[4] = params.summed[0], strides[3] = element * factor.summed[0];
    return encode_boxes(map, factor_type(dtype), base, extents, strides, box, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

template <typename T, typename shape> wgmma_work work_of(const bops_gemm_params &params, uint32_t splits, uint32_t band_rows) {
    wgmma_work work = {};
    work.tiles_m = uint32_t(tiles_of(params.m, shape::rows));
    work.tiles_n = uint32_t(tiles_of(params.n, shape::columns));
    work.matrices = uint32_t(product_of(params.batch_rank, params.batch));
    work.splits = splits, work.band_rows = band_rows;
    work.units = work.tiles_m * work.tiles_n * work.matrices * work.splits;
    work.steps_of_k = uint32_t(tiles_of(params.k, wgmma_depth<T>));
    work.steps = work.steps_of_k * uint32_t(product_of(params.summed_rank, params.summed));
    return work;
}

// Makes `parts` the output: dense matrices of f32, without an epilogue.
inline void leave_parts(bops_gemm_params &params, bops_gemm_operands &operands) {
    operands.out = operands.parts, operands.other = nullptr, operands.bias = nullptr, operands.column_sums = nullptr;
    params.out = {params.n, 1, {}}, params.out_dtype = BOPS_F32;
    uint64_t stride = params.m * params.n;
    for (uint32_t i = params.batch_rank; i-- > 0; stride *= params.batch[i]) params.out.batch[i] = stride;
    params.epilogue = BOPS_GEMM_FORWARD, params.activation = BOPS_IDENTITY;
}

} // namespace gemm
} // namespace bops
