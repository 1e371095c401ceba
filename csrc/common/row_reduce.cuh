// Rows that a team of threads holds on chip: part of a warp, some warps of a block, or the blocks of a cluster. Sums over a row are added up in an
// order that depends on the team's shape alone.
#pragma once
#include "mbarrier.cuh"

namespace bops {

// The element offset of a row (see bops_row_strides). There are fewer than 2^32 rows, and the extents divide their number.
__device__ __forceinline__ uint64_t row_offset(uint32_t row, const bops_row_strides &s, uint64_t extent1, uint64_t extent2) {
    if (extent1 == 1 && extent2 == 1) return row * s.s0;
    const uint32_t inner = row / uint32_t(extent2), i2 = row - inner * uint32_t(extent2);
    const uint32_t i0 = inner / uint32_t(extent1), i1 = inner - i0 * uint32_t(extent1);
    return i0 * s.s0 + i1 * s.s1 + i2 * s.s2;
}

// ---- a team inside one block: blockDim = (threads of a row, rows). Threads: a power of two up to 32, beyond a multiple of 32 ----

constexpr int team_slots = 16; // places in shared memory for sums of warps, one for each warp of a block of 512 threads

struct row_team {
    uint32_t threads, lane, warp, warps;
    uint32_t slot; // first of the places for sums of warps that are those of the row

    // The position in the row of vector v of the thread. A warp's vectors lie in one run, since memory serves longer runs faster.
    template <int vectors> __device__ __forceinline__ uint32_t position(int v) const {
        return threads >= 32 ? (warp * vectors + v) * 32 + lane : v * threads + threadIdx.x;
    }

    __device__ __forceinline__ row_team()
        : threads(blockDim.x), lane(threadIdx.x & 31), warp(threadIdx.x >> 5), warps((blockDim.x + 31) >> 5), slot(threadIdx.y * warps) {}
};

// Sums over aligned groups of `width` lanes; `width` is a power of two.
template <int count, typename A> __device__ __forceinline__ void warp_sum(A (&value)[count], uint32_t width) {
    for (uint32_t offset = width >> 1; offset > 0; offset >>= 1)
#pragma unroll
        for (int k = 0; k < count; ++k) value[k] += __shfl_xor_sync(~0u, value[k], offset);
}

// Sums `count` values over a team; every thread gets the totals. slots: [value][warp of the block]. Consecutive sums take different slots: some
// thread may still read those of the first. Two values are summed at once, the first by the lower half of each warp, the second by the upper half.
// apart: the rows of a block do not run in step, so that each row has its own barrier. The numbers of these barriers are no constants, so that a
// kernel with `apart` takes all 16 barriers of a block, and an SM has room for 4 such blocks. narrow: the team may be smaller than a warp. size:
// slots for a value, 16 or 32, at least the warps of a block.
template <bool apart, bool narrow, int count, typename A, int size>
__device__ __forceinline__ void team_sum(A (&value)[count], const row_team &team, A (*slots)[size]) {
    static_assert(count <= 2 && (size == 16 || size == 32), "");
    if (narrow && team.threads < 32) {
        warp_sum(value, team.threads);
        return;
    }
    const bool upper = count == 2 && team.lane >= 16;
    A one = value[0];
    if constexpr (count == 2) one = (upper ? value[1] : value[0]) + __shfl_xor_sync(~0u, upper ? value[0] : value[1], 16);
    else one += __shfl_xor_sync(~0u, one, 16);
#pragma unroll
    for (int offset = 8; offset > 0; offset >>= 1) one += __shfl_xor_sync(~0u, one, offset);
    if (team.warps > 1) {
        const uint32_t half_lane = team.lane % 16;
        if (half_lane == 0 && (count == 2 || team.lane == 0)) slots[upper][team.slot + team.warp] = one;
        if (apart) asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(team.threads) : "memory");
        else __syncthreads();
        if (sizeof(A) == 4 && (team.warps == 4 || team.warps == 8)) { // every thread reads the parts of all warps
#pragma unroll
            for (int k = 0; k < count; ++k) {
                const float4 *const parts = reinterpret_cast<const float4 *>(&slots[k][team.slot]);
                float4 total = parts[0];
                if (team.warps == 8) {
                    const float4 more = parts[1];
                    total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
                }
                value[k] = (total.x + total.y) + (total.z + total.w);
            }
            return;
        }
        one = half_lane < team.warps ? slots[upper][team.slot + half_lane] : A(0);
        if (size == 32 && half_lane + 16 < team.warps) one += slots[upper][team.slot + half_lane + 16];
#pragma unroll
        for (int offset = 8; offset > 0; offset >>= 1) one += __shfl_xor_sync(~0u, one, offset);
    }
    value[0] = one;
    if constexpr (count == 2) {
        const A other = __shfl_xor_sync(~0u, one, 16);
        value[0] = upper ? other : one;
        value[1] = upper ? one : other;
    }
}

// Adds up the chains of a thread, one for each element position of its vectors, in a tree.
template <int count, typename A> __device__ __forceinline__ A tree_sum(A (&v)[count]) {
#pragma unroll
    for (int half = count / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) v[i] += v[i + half];
    return v[0];
}

// ---- clusters -------------------------------------------------------------------------------------------------------------

constexpr int max_cluster = 16; // the most blocks of a cluster that the hardware runs

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}
// Arrives without release. Callers have called cluster_exchange::initialize, whose fence is all that the other blocks need: a release at the start of
// every block would wait for all memory accesses of the SM.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
// Arrives with release. For kernels whose other blocks read this block's shared memory after their wait.
__device__ __forceinline__ void cluster_arrive_release() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Stores to the shared memory of block `rank` of the cluster, at the place that `here` has in this block's.
__device__ __forceinline__ void store_remote(const float2 *here, uint32_t rank, float2 value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(remote_address(shared_address(here), rank)), "f"(value.x), "f"(value.y)
                 : "memory");
#endif
}

// The blocks of a cluster, or `cluster` of them from number `base` on, repeatedly give each other 4 values. All threads of a block pass the same
// values; `rank` is the block's number among those that take part.
struct cluster_exchange {
    static constexpr uint32_t depth = 4; // exchanges that have places at once; `send` says why four suffice
    alignas(16) uint64_t arrived[depth];
    alignas(16) float slots[depth][max_cluster][4];

    // Called by all threads; the caller passes a cluster barrier before the first `send`. everywhere: every thread has the address of a barrier,
    // because racecheck reads it even of warps that initialize none. Kernels whose registers are scarce do without.
    template <bool everywhere = true> __device__ __forceinline__ void initialize(uint32_t thread) {
        uint32_t barrier = shared_address(&arrived[everywhere ? thread % depth : thread]);
        if constexpr (everywhere) asm volatile("" : "+r"(barrier));
        if (thread < depth) mbarrier::initialize(barrier, 1);
        mbarrier::fence_initialized();
    }

    // Sends the values of exchange number `turn`. The caller has a block-wide barrier between a `wait` and the next `send`, and sends `turn` only
    // after it has waited for `turn` - 2 at least. With four slots, no one then sends to a slot that is still being read.
    __device__ __forceinline__ void send(const float (&value)[4], uint32_t turn, uint32_t rank, uint32_t cluster, uint32_t thread,
                                         uint32_t base = 0) {
        const uint32_t slot = shared_address(&slots[turn % depth][rank]), barrier = shared_address(&arrived[turn % depth]);
        if (thread == 0) mbarrier::expect(barrier, cluster * 16);
        if (thread < cluster) mbarrier::store_remote(slot, value, barrier, base + thread);
    }

    // Waits for exchange number `turn`, and returns every block's values by rank.
    __device__ __forceinline__ const float (*wait(uint32_t turn))[4] {
        mbarrier::wait<true>(shared_address(&arrived[turn % depth]), (turn / depth) & 1);
        return slots[turn % depth];
    }
};

// ---- moments --------------------------------------------------------------------------------------------------------------

// A product that the compiler does not fuse into a later addition, so that every use of it sees the same rounded number.
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// Moments of a set of elements about `shift`, a value near their mean: the sums of d = x - shift and of d^2.
template <typename A> struct moments { A shift, sum, square; };

// Adds to `total` the moments of `count` more elements, which may be about another shift.
template <typename A> __device__ __forceinline__ void merge(moments<A> &total, const moments<A> &part, A count) {
    const A e = part.shift - total.shift;
    total.sum += part.sum + count * e;
    total.square += part.square + e * (A(2) * part.sum + count * e);
}

// Adds a vector to sums of d = x - shift and of d^2, in `chains` chains of additions. shift: one number, or one for each element position.
__device__ __forceinline__ float shift_of(float shift, int) { return shift; }
__device__ __forceinline__ double shift_of(double shift, int) { return shift; }
template <int width, typename A> __device__ __forceinline__ A shift_of(const A (&shift)[width], int i) { return shift[i]; }
template <int width, int chains, typename A, typename Shift>
__device__ __forceinline__ void add_moments(const A (&x)[width], const Shift &shift, A (&sum)[chains], A (&square)[chains]) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
        const A d = x[i] - shift_of(shift, i);
        sum[i % chains] += d;
        square[i % chains] = fma(d, d, square[i % chains]);
    }
}

// Moments that are taken in one pass are about the mean of the first elements. Where that lies far from the mean of all, the sum of squares is
// mostly count * (mean - shift)^2, which cancels later and leaves its roundings. If it makes up more than half of the sum, this moves the shift to
// the mean and returns true: the moments are to be summed again. NaN and infinities are left alone.
template <typename A> __device__ __forceinline__ bool recenter(moments<A> &m, A reciprocal_count) {
    const A correction = m.sum * reciprocal_count;
    const bool is_far = __builtin_expect(m.sum * correction > A(0.5) * m.square, false);
    if (is_far) m.shift += correction;
    return is_far;
}

// Calls recenter for elements that the lanes of a warp share and, if the shift moves, sums them again: add(shift, sums) sums those of this lane.
template <typename A, typename Add> __device__ __forceinline__ void recenter(moments<A> &m, A reciprocal_count, const Add &add) {
    if (__builtin_expect(!recenter(m, reciprocal_count), true)) return;
    A sums[2];
    add(m.shift, sums);
    warp_sum(sums, 32);
    m.sum = sums[0], m.square = sums[1];
}

// The larger of v and 0; a NaN stays.
template <typename A> __device__ __forceinline__ A at_least_zero(A v) { return v < A(0) ? A(0) : v; }

// 1 / sqrt(v) within an ulp.
__device__ __forceinline__ double reciprocal_root(double v) { return rsqrt(v); }
__device__ __forceinline__ float reciprocal_root(float v) {
    const float r = rsqrtf(v), error = fmaf(-v * r, r, 1.0f);
    return error == error ? fmaf(0.5f * r, error, r) : r; // for 0, infinity and NaN r is right as it is
}

// 1 / sqrt(v) within an ulp of a v that was added up from squares. NaN for infinity: finite elements may have squares whose sum overflows, and a root
// of 0 would make zeros of them.
__device__ __forceinline__ double reciprocal_root_of_squares(double v) { return fma(v, 0.0, rsqrt(v)); }
__device__ __forceinline__ float reciprocal_root_of_squares(float v) {
    const float r = rsqrtf(v), error = fmaf(-v * r, r, 1.0f);
    return v == 0.0f ? r : fmaf(0.5f * r, error, r); // the error of infinity is NaN
}

constexpr uint32_t merge_lanes = 32; // lanes that merge moments: one for each warp of a block, or for each block of a cluster

// Merges the moments that the lanes of a warp have, each of its own `cols` elements; every lane gets the total.
template <bool centered, typename A> __device__ __forceinline__ moments<A> merge_across(const moments<A> &mine, A cols, A reciprocal_cols) {
    if constexpr (centered) {
        A shift[1] = {mine.shift * cols};
        warp_sum(shift, merge_lanes);
        moments<A> part = {rounded_product(shift[0], reciprocal_cols), 0, 0};
        merge(part, mine, cols);
        A sums[2] = {part.sum, part.square};
        warp_sum(sums, merge_lanes);
        return {part.shift, sums[0], sums[1]};
    } else {
        A square[1] = {mine.square};
        warp_sum(square, merge_lanes);
        return {0, 0, square[0]};
    }
}

// Adds up a long list on levels, each of which passes its sum on after `chain` additions, so that roundings stay few.
template <typename A> struct cascade {
    // Additions on one level. Four levels take 4096 numbers in chains of 8, 32 additions in a row. With chains of 16 there could be 64 in a row, more
    // than docs/numerics.md allows; with chains of 4 the last level would grow beyond 4 from 256 numbers on.
    static constexpr uint32_t chain = 8;
    A level[4] = {};
    uint32_t added = 0;
    __device__ __forceinline__ void add(A v) {
        level[0] += v;
        if (++added % chain == 0) {
            level[1] += level[0], level[0] = 0;
            if (added % (chain * chain) == 0) {
                level[2] += level[1], level[1] = 0;
                if (added % (chain * chain * chain) == 0) level[3] += level[2], level[2] = 0;
            }
        }
    }
    __device__ __forceinline__ A total() const { return (level[0] + level[1]) + (level[2] + level[3]); }
};

// ---- rows in flight -------------------------------------------------------------------------------------------------------

extern __shared__ __align__(16) unsigned char dynamic_shared[];

// Vector `index` of the dynamic shared memory.
__device__ __forceinline__ packed<16> shared_vector(uint32_t index) {
    const uint4 value = reinterpret_cast<const uint4 *>(dynamic_shared)[index];
    return {{value.x, value.y, value.z, value.w}};
}

// A ring of stages for rows at the start of the dynamic shared memory, [stage][array][vector][thread]. A thread copies and reads its own vectors
// only, so that no barrier is needed.
template <int vectors, int arrays, int threads> struct row_ring {
    static constexpr uint32_t stage_bytes = arrays * vectors * threads * 16;
    uint32_t offset, stage = 0; // of the current stage: where the thread's first vector lies, in bytes; and its number

    __device__ __forceinline__ explicit row_ring(uint32_t thread) : offset(thread * 16) {}
    __device__ __forceinline__ packed<16> *slot(int array, int v) const {
        return reinterpret_cast<packed<16> *>(dynamic_shared + offset) + (array * vectors + v) * threads;
    }
    __device__ __forceinline__ packed<16> load(int array, int v) const {
        const uint4 value = *reinterpret_cast<const uint4 *>(slot(array, v));
        return {{value.x, value.y, value.z, value.w}};
    }
    __device__ __forceinline__ void store(int array, int v, const packed<16> &value) const {
        *reinterpret_cast<uint4 *>(slot(array, v)) = make_uint4(value.word[0], value.word[1], value.word[2], value.word[3]);
    }
    __device__ __forceinline__ void advance(uint32_t stages) {
        offset += stage_bytes;
        if (++stage == stages) stage = 0, offset -= stages * stage_bytes;
    }
};

// Parameters in shared memory, which the rows of a block share: [vector][part][thread of a row]. A part is four parameters, one access of 16 bytes.
template <int width, int threads> struct shared_parameters {
    static constexpr int parts = width / 4;
    float4 *mine;

    __device__ __forceinline__ void put(int v, const float (&value)[width]) const {
#pragma unroll
        for (int p = 0; p < parts; ++p)
            mine[(v * parts + p) * threads] = make_float4(value[p * 4], value[p * 4 + 1], value[p * 4 + 2], value[p * 4 + 3]);
    }
    __device__ __forceinline__ void get(int v, float (&value)[width]) const {
#pragma unroll
        for (int p = 0; p < parts; ++p) {
            const float4 part = mine[(v * parts + p) * threads];
            value[p * 4] = part.x, value[p * 4 + 1] = part.y, value[p * 4 + 2] = part.z, value[p * 4 + 3] = part.w;
        }
    }
};

} // namespace bops
