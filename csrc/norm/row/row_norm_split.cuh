// What the split forms of forward and backward share.
#pragma once

namespace bops {

constexpr int split_threads = 256; // of a block that takes a chunk of a row
constexpr int split_vectors = 4;   // of a thread of such a block; a chunk is split_threads * split_vectors vectors
constexpr int merge_threads = 128; // of a block that merges the chunks of a row

} // namespace bops
