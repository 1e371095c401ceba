// What the split forms of forward and backward share.
#pragma once

namespace bops {

constexpr int split_threads = 256; // of a block that takes a chunk of a row
// Vectors of a thread of such a block, which it loads together: a chunk is split_threads * split_vectors vectors, 16 KB if they have 16 bytes. Larger
// chunks leave fewer parts to merge, smaller ones more blocks for few rows.
constexpr int split_vectors = 4;
constexpr int merge_threads = 128; // of a block that merges the chunks of a row: a thread takes every 128th, and a row of 128 chunks has up to 2 MB

} // namespace bops
