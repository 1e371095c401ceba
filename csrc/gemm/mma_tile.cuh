// Where elements of a step lie in shared memory, and which of them a lane has: plain arithmetic.
//
// A step of one factor is `tile` rows (columns of the right factor) over 64 bytes of k, in chunks of 16 bytes, the unit of copies.
//
//   along k: [row][k], a line is 64 bytes. Chunks of neighbouring lines change places: the eight of an access lie in different banks.
//   across:  [k][row]. Of 16-bit elements an access takes one chunk of eight lines, which change places as well. Of f32 a lane takes single words, of four
//            lines and eight rows, and lines begin eight banks apart.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace bops {
namespace gemm {

#define BOPS_PLACE __host__ __device__ __forceinline__

constexpr int step_row_bytes = 64; // of k, of a row of a step

BOPS_PLACE uint32_t along_k_address(int row, int chunk) { return uint32_t(row * step_row_bytes + ((chunk ^ (row / 2 % 4)) * 16)); }

// Bytes from one line of a step that lies across to the next.
template <typename T, int tile> constexpr int across_line_bytes = tile *int(sizeof(T)) + (sizeof(T) == 4 ? 32 : 0);

template <typename T, int tile> BOPS_PLACE uint32_t across_address(int k, int row) {
    constexpr int elements = 16 / int(sizeof(T));
    const int chunk = row / elements ^ (sizeof(T) == 2 ? k % 8 : 0);
    return uint32_t(k * across_line_bytes<T, tile> + chunk * 16 + row % elements * int(sizeof(T)));
}

// Bytes of one factor's step, whichever way it lies.
template <typename T, int tile> constexpr uint32_t step_bytes = uint32_t(across_line_bytes<T, tile> *(step_row_bytes / int(sizeof(T))));

// ldmatrix: lanes 8i to 8i + 7 give the addresses of the lines of matrix i, which becomes word i of each lane. k_step: 32 bytes of k.
// The words of mma's left factor: rows 0-7 and 8-15 of the first 16 bytes of k, then those of the second.
BOPS_PLACE int left_row(int lane, int first) { return first + lane % 16; }
BOPS_PLACE int left_chunk(int lane, int k_step) { return 2 * k_step + lane / 16; }
BOPS_PLACE int left_across_k(int lane, int k_step) { return 16 * k_step + lane % 8 + lane / 16 * 8; }
BOPS_PLACE int left_across_row(int lane, int first) { return first + lane / 8 % 2 * 8; }
// The words of mma's right factor: the first and the second 16 bytes of k of columns 0-7, then those of columns 8-15.
BOPS_PLACE int right_column(int lane, int first) { return first + lane % 8 + lane / 16 * 8; }
BOPS_PLACE int right_chunk(int lane, int k_step) { return 2 * k_step + lane / 8 % 2; }
BOPS_PLACE int right_across_k(int lane, int k_step) { return 16 * k_step + lane % 16; }
BOPS_PLACE int right_across_column(int lane, int first) { return first + lane / 16 * 8; }
// The words of f32 are loaded one at a time: a lane has row lane / 4 of eight, and k lane % 4 of four.
BOPS_PLACE int word_k(int lane, int k_step, int half) { return 8 * k_step + 4 * half + lane % 4; }
BOPS_PLACE int word_row(int lane, int first, int half) { return first + 8 * half + lane / 4; }

// The positions of the four sums that a lane has in a block of 16 rows and 8 columns.
BOPS_PLACE int sum_row(int lane, int e) { return lane / 4 + e / 2 * 8; }
BOPS_PLACE int sum_column(int lane, int e) { return lane % 4 * 2 + e % 2; }

#undef BOPS_PLACE

} // namespace gemm
} // namespace bops
