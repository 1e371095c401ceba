// What the split forms of forward and backward share.
#pragma once

namespace bops {

constexpr int split_threads = 256, split_vectors = 4; // of a block that takes a chunk of a row; of a thread
constexpr int merge_threads = 128;                    // of a block that merges the chunks of a row

} // namespace bops
