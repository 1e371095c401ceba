// Rows held on chip by a team of threads: sub-warp, several warps of a block, or the blocks of a cluster; and their reductions,
// in an order that depends on the team's shape alone.
#pragma once
#include "mbarrier.cuh"

namespace bops {

// The element offset of a row (see bops_row_strides); rows < 2^32, and the extents divide it.
__device__ __forceinline__ uint64_t row_offset(uint32_t row, const bops_row_strides &s, uint64_t extent1, uint64_t extent2) {
    if (extent1 == 1 && extent2 == 1) return row * s.s0;
    const uint32_t inner = row / uint32_t(extent2), i2 = row - inner * uint32_t(extent2);
    const uint32_t i0 = inner / uint32_t(extent1), i1 = inner - i0 * uint32_t(extent1);
    return i0 * s.s0 + i1 * s.s1 + i2 * s.s2;
}

// ---- a team inside one block: blockDim = (threads of a row, rows). Threads: a power of two up to 32, beyond a multiple of 32 ----

constexpr int team_slots = 16; // warps of a block

struct row_team {
    uint32_t threads, lane, warp, warps, slot;

    // The position of a thread's vector in its row. The vectors of a warp lie side by side: memory serves longer runs faster.
    template <int vectors> __device__ __forceinline__ uint32_t position(int v) const {
        return threads >= 32 ? (warp * vectors + v) * 32 + lane : v * threads + threadIdx.x;
    }

    __device__ __forceinline__ row_team()
        : threads(blockDim.x), lane(threadIdx.x & 31), warp(threadIdx.x >> 5), warps((blockDim.x + 31) >> 5), slot(threadIdx.y * warps) {}
};

// Sums over aligned groups of `width` lanes, a power of two.
template <int count, typename A> __device__ __forceinline__ void warp_sum(A (&value)[count], uint32_t width) {
    for (uint32_t offset = width >> 1; offset > 0; offset >>= 1)
#pragma unroll
        for (int k = 0; k < count; ++k) value[k] += __shfl_xor_sync(~0u, value[k], offset);
}

// Sums `count` values over a team; every thread gets the totals. Two sums in a row take different slots: some thread may still
// read the first. `apart`: the rows of a block do not keep step, so each has its own barrier; a kernel that uses this takes all 16
// barriers of a block, which leaves room for 4 blocks on a multiprocessor.
// Two values travel as one: the lower half of a warp sums the first, the upper half the second.
// narrow: the team may be less than a warp. size: slots of a value, 16 or 32, the most warps of a block.
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
        if (sizeof(A) == 4 && (team.warps == 4 || team.warps == 8)) { // few warps: every thread reads all
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

// Sums of a thread's elements; a chain per element position of the vector, then a tree.
template <int count, typename A> __device__ __forceinline__ A tree_sum(A (&v)[count]) {
#pragma unroll
    for (int half = count / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) v[i] += v[i + half];
    return v[0];
}

// ---- clusters -------------------------------------------------------------------------------------------------------------

constexpr int max_cluster = 16;

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}
// After cluster_exchange::initialize, whose fence is all that the other blocks need: a release waits for the memory of the whole
// multiprocessor, at the start of every block.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
// Where the other blocks read this one's shared memory after their wait.
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

// Stores to the shared memory of a block of the cluster, at the place of `here` in one's own.
__device__ __forceinline__ void store_remote(const float2 *here, uint32_t rank, float2 value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(remote_address(shared_address(here), rank)), "f"(value.x), "f"(value.y)
                 : "memory");
#endif
}

// All blocks of a cluster, or `cluster` of them from `base` on, give each other 4 values, again and again. Each thread of a block passes the same
// values; `rank` is the block's among them.
struct cluster_exchange {
    static constexpr uint32_t depth = 4;
    alignas(16) uint64_t arrived[depth];
    alignas(16) float slots[depth][max_cluster][4];

    // By all threads; the caller passes a cluster barrier before the first `send`. everywhere: each of them has a barrier's address, which racecheck
    // reads also of warps that initialize nothing; not where registers are scarce.
    template <bool everywhere = true> __device__ __forceinline__ void initialize(uint32_t thread) {
        uint32_t barrier = shared_address(&arrived[everywhere ? thread % depth : thread]);
        if constexpr (everywhere) asm volatile("" : "+r"(barrier));
        if (thread < depth) mbarrier::initialize(barrier, 1);
        mbarrier::fence_initialized();
    }

    // Exchange number `turn`. A block-wide barrier lies between a `wait` and the block's next `send`, and a block sends `turn` after it
    // has waited for `turn` - 2 at least: so nobody sends to a slot that is still being read.
    __device__ __forceinline__ void send(const float (&value)[4], uint32_t turn, uint32_t rank, uint32_t cluster, uint32_t thread,
                                         uint32_t base = 0) {
        const uint32_t slot = shared_address(&slots[turn % depth][rank]), barrier = shared_address(&arrived[turn % depth]);
        if (thread == 0) mbarrier::expect(barrier, cluster * 16);
        if (thread < cluster) mbarrier::store_remote(slot, value, barrier, base + thread);
    }

    // Afterwards the result holds every block's values by rank.
    __device__ __forceinline__ const float (*wait(uint32_t turn))[4] {
        mbarrier::wait<true>(shared_address(&arrived[turn % depth]), (turn / depth) & 1);
        return slots[turn % depth];
    }
};

// ---- moments --------------------------------------------------------------------------------------------------------------

// A product that the compiler does not fuse into what it is used in: what is subtracted is then the number that is kept.
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// Moments of a set about `shift`, a value near its mean: sums of d = x - shift and of d^2.
template <typename A> struct moments { A shift, sum, square; };

// Adds to `total` (moments about total.shift) a set of `count` elements whose moments are about another shift.
template <typename A> __device__ __forceinline__ void merge(moments<A> &total, const moments<A> &part, A count) {
    const A e = part.shift - total.shift;
    total.sum += part.sum + count * e;
    total.square += part.square + e * (A(2) * part.sum + count * e);
}

// Adds a vector to sums of d = x - shift and of d^2, a chain of additions for each of `chains` positions. shift: one, or of every position.
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

// Moments in one pass are about the mean of the first elements. Where those lie far from the others, the squares are mostly
// count * (mean - shift)^2, which cancels later and leaves its roundings. If it is more than half of them, the shift moves to the mean, and the
// moments are to be added up again. NaN and infinity stay where they are.
template <typename A> __device__ __forceinline__ bool recenter(moments<A> &m, A reciprocal_count) {
    const A correction = m.sum * reciprocal_count;
    const bool is_far = __builtin_expect(m.sum * correction > A(0.5) * m.square, false);
    if (is_far) m.shift += correction;
    return is_far;
}

// The same for the elements that the lanes of a warp share: add(shift, sums) adds up this lane's.
template <typename A, typename Add> __device__ __forceinline__ void recenter(moments<A> &m, A reciprocal_count, const Add &add) {
    if (__builtin_expect(!recenter(m, reciprocal_count), true)) return;
    A sums[2];
    add(m.shift, sums);
    warp_sum(sums, 32);
    m.sum = sums[0], m.square = sums[1];
}

// NaN stays NaN.
template <typename A> __device__ __forceinline__ A at_least_zero(A v) { return v < A(0) ? A(0) : v; }

// 1 / sqrt(v) within an ulp.
__device__ __forceinline__ double reciprocal_root(double v) { return rsqrt(v); }
__device__ __forceinline__ float reciprocal_root(float v) {
    const float r = rsqrtf(v), error = fmaf(-v * r, r, 1.0f);
    return error == error ? fmaf(0.5f * r, error, r) : r; // v of 0, infinity and NaN: r is right
}

constexpr uint32_t merge_lanes = 32; // the most warps of a block; more than the blocks of a cluster

// Merges the moments of the lanes of a warp, lane i's of cols[i] elements; every lane gets the total.
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

// Adds a long list in chains of at most `chain` additions a level.
template <typename A> struct cascade {
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

// Stages of rows at the start of the dynamic shared memory, [stage][array][vector][thread]. Every thread copies and reads its own
// vectors, so a stage needs no barrier.
template <int vectors, int arrays, int threads> struct row_ring {
    static constexpr uint32_t stage_bytes = arrays * vectors * threads * 16;
    uint32_t offset, stage = 0; // of the current stage

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

// Parameters of a thread's columns, shared by the rows of a block: [vector][part][thread of a row].
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
