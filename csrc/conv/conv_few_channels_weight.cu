// conv_few_channels_weight: the gradient of the weight with few input channels, through mma.sync. f16 and bf16.
//
// The left factor of a tile is dy of 64 filters, the right one the patch of x that the tile's positions see. Every warp has the sums of some chunks of the
// windows over all tiles of the block. gemm_dbias adds up the parts that the blocks leave in the workspace.
// Compiled once for all architectures.
#include "few_channels.cuh"

namespace bops {
namespace conv {
namespace {

// Chunks of the windows that a warp has sums for, at most, which take 112 registers of a thread; and pairs of them, which one ldmatrix reads.
constexpr int warp_chunks = BOPS_CONV_FEW_CHANNELS_CHUNKS / few_warps, warp_pairs = (warp_chunks + 1) / 2;

// Offsets in shared memory: the ring, behind 16 bytes that are not used, and dy of two tiles. conv_few_channels.cu has a chunk of zeros in these 16
// bytes, and the host counts them here, too. Lines of dy are positions, or filters with `across`; they are an odd number of chunks apart, so that the
// rows of a matrix are in different banks. dy_bytes: of dy of a tile. bytes: of a block's shared memory. line_chunks: chunks of a line of dy. pitch:
// bytes from one line to the next.
struct weight_places {
    uint32_t ring, dy, dy_bytes, bytes;
    int lines, line_chunks, pitch;
    __host__ __device__ __forceinline__ weight_places(const patch_shape &shape, const bops_conv_few_channels_choice &choice) {
        lines = choice.across ? few_filters : few_positions, line_chunks = (choice.across ? few_positions : few_filters) / 8;
        pitch = (line_chunks + 1) * 16, dy_bytes = uint32_t(lines * pitch);
        ring = 16, dy = ring + uint32_t(shape.ring_bytes()), bytes = dy + 2 * dy_bytes;
    }
};

// Starts the copies of dy of a tile; 0 for positions and filters that do not exist.
template <typename T> __device__ __forceinline__ void fetch_gradient(const bops_conv_few_channels_params &params,
                                                                     const bops_conv_few_channels_choice &choice, const weight_places &places,
                                                                     uint32_t to, const void *dy, const few_tile &tile, int first_filter) {
    const bool across = choice.across != 0;
    const int positions = int(choice.rows * choice.columns), of_row = int(choice.columns);
    const int filters = min(int(params.filters) - first_filter, few_filters);
    const int lines = across ? few_filters : positions, places_of_line = across ? few_positions / 8 : few_filters / 8;
    const uint16_t *const from = static_cast<const uint16_t *>(dy) + uint64_t(tile.sample) * params.y.sample;
    const uint64_t step = across ? params.y.axes[1] : params.y.channel;
    const divider by_row(of_row);
#pragma unroll 2
    for (int i = int(threadIdx.x); i < lines * places_of_line; i += few_threads) {
        const int line = i / places_of_line, chunk = i % places_of_line;
        const int position = across ? chunk * 8 : line, filter = across ? line : chunk * 8, in_tile = by_row.quotient(position);
        const uint32_t row = tile.row + uint32_t(in_tile), column = tile.column + uint32_t(position - in_tile * of_row);
        if (across && position >= positions) continue;
        const bool is_there = row < params.y_extents[0] && column < params.y_extents[1] && filter < filters;
        const int left = !is_there ? 0 : min(across ? int(params.y_extents[1] - column) : filters - filter, 8);
        const uint16_t *const at = from + (is_there ? uint64_t(row) * params.y.axes[0] + uint64_t(column) * params.y.axes[1] +
                                                          uint64_t(first_filter + filter) * params.y.channel
                                                    : 0);
        fetch_chunk(to + uint32_t(line * places.pitch + chunk * 16), at, step, left, choice.eights != 0);
    }
    copy_commit();
}

__device__ __forceinline__ void load_half_matrices_transposed(uint32_t &b0, uint32_t &b1, uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(b0), "=r"(b1) : "r"(from) : "memory");
}

using weight_sums = float[few_filters / 16][warp_chunks][4];

// sums += dy of 16 positions times the patch that they see. right: address of the lane's chunk of each pair; left: address of dy of the first 16 filters, and
// left_step to that of the next 16. there: positions that exist. Sums of chunks that the warp does not have are computed but never used.
template <typename T, int chunks> __device__ __forceinline__ void multiply_group(weight_sums &sums, const uint32_t (&right)[warp_pairs],
                                                                                 uint32_t left, uint32_t left_step, bool across, int filters,
                                                                                 int there) {
    uint32_t b[chunks][2];
#pragma unroll
    for (int i = 0; i < chunks; i += 2) {
        if (i + 1 < chunks) {
            uint32_t four[4];
            gemm::load_matrices_transposed(four, right[i / 2]);
            b[i][0] = four[0], b[i][1] = four[1], b[i + 1][0] = four[2], b[i + 1][1] = four[3];
        } else load_half_matrices_transposed(b[i][0], b[i][1], right[i / 2]);
    }
    // Pixels seen by positions that do not exist may be infinite, and infinity times a dy of 0 is NaN.
    if (there < few_group) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int position = int(threadIdx.x) % 4 * 2 + half * 8;
            const uint32_t mask = (position < there ? 0xffffu : 0u) | (position + 1 < there ? 0xffff0000u : 0u);
#pragma unroll
            for (int i = 0; i < chunks; ++i) b[i][half] &= mask;
        }
    }
#pragma unroll
    for (int m = 0; m < few_filters / 16; m += 2)
        if (m * 16 < filters) {
            uint32_t a[2][4];
#pragma unroll
            for (int k = 0; k < 2; ++k)
                if (across) gemm::load_matrices(a[k], left + uint32_t(m + k) * left_step);
                else gemm::load_matrices_transposed(a[k], left + uint32_t(m + k) * left_step);
#pragma unroll
            for (int k = 0; k < 2; ++k)
#pragma unroll
                for (int i = 0; i < chunks; ++i) gemm::multiply<T>(sums[m + k][i], a[k], b[i][0], b[i][1]);
        }
}

// Two blocks per SM, for which the host asks, leave a thread all of the 255 registers that it may have.
template <typename T> __global__ void __launch_bounds__(few_threads, 2)
    weight(const __grid_constant__ bops_conv_few_channels_params params, const __grid_constant__ bops_conv_few_channels_choice choice,
           const bops_conv_few_channels_operands operands, float *parts) {
    extern __shared__ __align__(16) unsigned char shared[];
    const patch_shape shape(params, choice, int(sizeof(T)));
    const weight_places places(shape, choice);
    const uint32_t base = shared_address(shared), dy = base + places.dy;
    const uint32_t part = blockIdx.x % choice.parts, rest = blockIdx.x / choice.parts;
    // slices: parts of the chunks of the windows; a block has the sums of one.
    const uint32_t slices = (uint32_t(shape.chunks) + BOPS_CONV_FEW_CHANNELS_CHUNKS - 1) / BOPS_CONV_FEW_CHANNELS_CHUNKS;
    const int first_filter = int(rest / slices) * few_filters, filters = int(params.filters) - first_filter;
    const few_tiles tiles(params, choice);
    const uint32_t first = tiles.first(part, choice.parts), last = tiles.first(part + 1, choice.parts);
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const int groups = int(choice.rows * choice.columns) / few_group, of_row = int(choice.columns) / few_group;

    // 1. The warp's chunks: a lane gives ldmatrix the address of one chunk of each pair.
    const int slice = int(rest % slices), of_slice = (shape.chunks + int(slices) - 1) / int(slices);
    const int slice_end = min((slice + 1) * of_slice, shape.chunks), of_warp = (of_slice + few_warps - 1) / few_warps;
    const int warp_first = slice * of_slice + warp * of_warp, chunks = max(min(of_warp, slice_end - warp_first), 0);
    int pair_row[warp_pairs];
    uint32_t pair_chunk[warp_pairs];
#pragma unroll
    for (int p = 0; p < warp_pairs; ++p) {
        const int index = 2 * p + lane / 16;
        const chunk_place place(shape, index < chunks ? warp_first + index : 0);
        pair_row[p] = place.row, pair_chunk[p] = uint32_t(place.chunk * 16 + lane % 16 * shape.position_bytes);
    }
    weight_sums sums;
#pragma unroll
    for (int m = 0; m < few_filters / 16; ++m)
#pragma unroll
        for (int i = 0; i < warp_chunks; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[m][i][e] = 0.0f;

    patch_ring<T> ring{params, choice, shape, operands.x, base + places.ring, 0};
    if (first < last) fetch_gradient<T>(params, choice, places, dy, operands.y, tiles.at(choice, first), first_filter);
#pragma unroll 1
    for (uint32_t index = first; index < last; ++index) {
        // 2. The rows of x and dy of the tile, and loads of those of the next tile.
        const few_tile tile = tiles.at(choice, index);
        if (index == first || tile.row == 0) {
            if (index != first) __syncthreads(); // From here on no thread reads the rows of the previous tile.
            ring.fill(tile);
        }
        copy_wait(0);
        // From here on the tile is there for all threads, and no thread reads dy of the previous tile, or rows that only that tile saw.
        __syncthreads();
        const bool has_next = index + 1 < last, goes_on = tile.follows && has_next;
        const uint32_t now = dy + (index - first) % 2 * places.dy_bytes, next = dy + (index + 1 - first) % 2 * places.dy_bytes;
        const patch_rows<T> below = ring.below(tile);
        unit<T> ahead[units_ahead];
        if (goes_on) below.load_ahead(ahead);
        if (has_next) fetch_gradient<T>(params, choice, places, next, operands.y, tiles.at(choice, index + 1), first_filter);

        // 3. The sums, group of positions by group of positions.
        const bool across = choice.across != 0;
        uint32_t left = now + (across ? uint32_t(gemm::left_row(lane, 0) * places.pitch + gemm::left_chunk(lane, 0) * 16)
                                      : uint32_t(gemm::left_across_k(lane, 0) * places.pitch + gemm::left_across_row(lane, 0) * 2));
        const uint32_t left_step = across ? uint32_t(16 * places.pitch) : 32u, of_group = across ? 32u : uint32_t(16 * places.pitch);
        uint32_t right[warp_pairs] = {};
#pragma unroll 1
        for (int group = 0; group < groups; ++group) {
            const int row = group / of_row, column = (group - row * of_row) * few_group;
            if (tile.row + uint32_t(row) >= params.y_extents[0]) break;
            const int there = int(params.y_extents[1]) - int(tile.column) - column;
            if (there <= 0) {
                left += of_group;
                continue;
            }
#pragma unroll
            for (int p = 0; p < warp_pairs; ++p)
                right[p] = ring.ring +
                           uint32_t(ring.place_of(row * int(params.stride[0]) + pair_row[p]) * shape.pitch + column * shape.position_bytes) +
                           pair_chunk[p];
            if (chunks > warp_chunks / 2) multiply_group<T, warp_chunks>(sums, right, left, left_step, across, filters, there);
            else if (chunks > 0) multiply_group<T, warp_chunks / 2>(sums, right, left, left_step, across, filters, there);
            left += of_group;
        }
        if (goes_on) below.store_ahead(ahead);
        ring.descend();
    }

    // 4. The block's part of the gradient.
    const uint64_t of_part = uint64_t(params.filters) * params.channels * params.kernel[0] * params.kernel[1];
    float *const to = parts + part * of_part;
    const int padded = int(choice.padded);
#pragma unroll
    for (int i = 0; i < warp_chunks; ++i) {
        if (i >= chunks) break;
        const chunk_place place(shape, warp_first + i);
#pragma unroll
        for (int m = 0; m < few_filters / 16; ++m)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int filter = m * 16 + gemm::sum_row(lane, e), element = place.chunk * 8 + gemm::sum_column(lane, e);
                const int column = element / padded, channel = element % padded;
                if (filter < filters && column < int(params.kernel[1]) && channel < int(params.channels))
                    to[uint64_t(first_filter + filter) * params.weight_filter + uint64_t(channel) * params.weight_channel +
                       uint64_t(place.row) * params.weight_axes[0] + uint64_t(column) * params.weight_axes[1]] = sums[m][i][e];
            }
    }
}

template <typename Action> bops_status with_weight(bops_dtype dtype, const bops_conv_few_channels_params &params,
                                                   const bops_conv_few_channels_choice &choice, const bops_conv_few_channels_operands &operands,
                                                   void *workspace, const Action &action) {
    return for_types<__half, __nv_bfloat16>(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const patch_shape patch(params, choice, int(sizeof(T)));
        const uint64_t slices = gemm::tiles_of(uint64_t(patch.chunks), BOPS_CONV_FEW_CHANNELS_CHUNKS);
        launch_shape shape;
        shape.grid = dim3(uint32_t(choice.parts * slices * gemm::tiles_of(params.filters, few_filters))), shape.block = dim3(few_threads);
        shape.shared_bytes = weight_places(patch, choice).bytes;
        return action(weight<T>, shape, params, choice, operands, static_cast<float *>(workspace));
    });
}

} // namespace
} // namespace conv
} // namespace bops

BOPS_DEFINE_FORM(bops_conv_few_channels_weight, bops_dtype, bops_conv_few_channels_params, bops_conv_few_channels_choice,
                 bops_conv_few_channels_operands, bops::conv::with_weight)
