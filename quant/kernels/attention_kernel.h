#pragma once

// Causal attention over chunks of keys, on 16 lanes. Part of an ISA unit.

#include "quant/kernels/attention_coded.h"
#include "quant/kernels/attention_float.h"

namespace {

/// The first key that a token at `position` sees.
LLM_INLINE std::size_t first_seen(const llm::AttendArgs& args, std::size_t position) {
  return args.window == 0 || position < args.window ? 0 : position + 1 - args.window;
}

/// Rows [first_row, first_row + n_rows) against the chunk that `cache` is at.
template <class A, class Cache>
void attend_tile(const llm::AttendArgs& args, Cache& cache, AttendTile& tile, std::size_t chunk) {
  for (std::size_t r = 0; r < tile.n_rows; ++r) {
    const std::size_t position = args.first_position + (tile.first_row + r) / args.n_heads;
    const std::size_t keys = position + 1 - chunk * kChunk;
    const std::size_t first = first_seen(args, position);
    tile.n_keys[r] = keys < kChunk ? keys : kChunk;
    tile.first_key[r] = first > chunk * kChunk ? first - chunk * kChunk : 0;
  }
  cache.score(tile, args.scale);
  for (std::size_t r = 0; r < tile.n_rows && args.cap > 0; ++r) {
    const std::size_t begin = tile.first_key[r] / 16 * 16;
    soft_cap<A>(tile.scores_of(r) + begin, round_up_16(tile.n_keys[r]) - begin, args.cap);
  }
  for (std::size_t r = 0; r < tile.n_rows; ++r)
    exponentiate<A>(tile.scores_of(r), tile.first_key[r], tile.n_keys[r], tile.out_of(r),
                    tile.out_of(r) + 1);
  cache.weigh(tile);
  const std::size_t dim = args.layout.head_dim;
  for (std::size_t r = 0; r < tile.n_rows; ++r) {
    float* out = tile.out_of(r);
    // m, l and o become neighbours, as in a partial result.
    out[14] = out[0];
    out[15] = out[1];
    float* partial = args.partial + (tile.first_row + r) * (2 + dim);
    // Whether it has seen keys of an earlier chunk of the call.
    if (chunk == args.chunk_begin ||
        first_seen(args, args.first_position + (tile.first_row + r) / args.n_heads) >=
            chunk * kChunk) {
      std::memcpy(partial, out + 14, (2 + dim) * sizeof(float));
    } else {
      merge<A>(partial, out + 14, dim);
    }
  }
}

template <class A, class Cache>
void attend_over(const llm::AttendArgs& args) {
  const std::size_t dim = args.layout.head_dim;
  AttendTile tile;
  tile.scores = reinterpret_cast<float*>(args.workspace);
  tile.out = tile.scores + kRowTile * kChunk;
  tile.out_stride = 16 + round_up_16(dim);
  Cache cache(args, reinterpret_cast<std::byte*>(tile.out + kRowTile * tile.out_stride));
  for (std::size_t chunk = args.chunk_begin; chunk < args.chunk_end; ++chunk) {
    const std::size_t first_key = chunk * kChunk;
    // Tokens before the chunk see none of its keys.
    const std::size_t skip = first_key > args.first_position ? first_key - args.first_position : 0;
    if (skip >= args.n_tokens) break;
    // Nor do tokens whose window begins after it.
    std::size_t n_tokens = args.n_tokens;
    while (n_tokens > skip &&
           first_seen(args, args.first_position + n_tokens - 1) >= first_key + kChunk)
      --n_tokens;
    const std::size_t n_rows = n_tokens * args.n_heads;
    const std::size_t all = args.first_position + n_tokens - first_key;
    cache.begin_chunk(chunk, all < kChunk ? all : kChunk);
    for (std::size_t row = skip * args.n_heads; row < n_rows; row += kRowTile) {
      tile.first_row = row;
      tile.n_rows = n_rows - row < kRowTile ? n_rows - row : kRowTile;
      attend_tile<A>(args, cache, tile, chunk);
    }
  }
}

template <class A>
void attend(const llm::AttendArgs& args) {
  if (args.layout.type == llm::KvType::kQ8) {
    attend_over<A, CodedCache<A>>(args);
  } else {
    attend_over<A, FloatCache<A>>(args);
  }
}

}  // namespace
