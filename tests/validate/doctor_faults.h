#pragma once

// Small files without a fault, and with one each.

#include "engine/gguf/gguf_split.h"
#include "tests/support/test.h"
#include "tests/support/tiny_gguf.h"

namespace llm::test {

inline constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

inline void set_pieces(TinyGguf& model,
                       const std::vector<std::pair<std::size_t, std::string>>& changed,
                       std::int32_t kind) {
  auto pieces = TinyGguf::pieces();
  auto kinds = TinyGguf::kinds();
  for (const auto& [id, text] : changed) {
    pieces[id] = text;
    kinds[id] = kind;
  }
  model.set_strings("tokenizer.ggml.tokens", pieces);
  model.set_array("tokenizer.ggml.token_type", GgufType::kInt32, kinds);
}

inline void set_bool(TinyGguf& model, std::string_view key, bool value) {
  model.set(key, GgufType::kBool, static_cast<std::uint8_t>(value));
}

/// A llama whose replies end with <|im_end|>, by its template and by its ids.
inline TinyGguf chat_model() {
  TinyGguf model = TinyGguf::llama({.n_layers = 2});
  set_pieces(model, {{270, "<|im_start|>"}, {271, "<|im_end|>"}}, 3);
  model.set_string("tokenizer.chat_template", kChatMl);
  model.set_u32("tokenizer.ggml.eot_token_id", 271);
  return model;
}

inline TinyGguf of_architecture(const std::string& architecture) {
  TinyGguf model = TinyGguf::llama({.n_layers = 2, .architecture = architecture});
  if (architecture == "gemma3") model.set_u32("gemma3.attention.sliding_window", 16);
  return model;
}

/// A vocabulary alone, of byte-level BPE, whose tokens show the rule of SmolLM2: each digit by
/// itself, line breaks together with blanks.
inline TinyGguf digits_one_by_one() {
  TinyGguf model = TinyGguf::llama();
  model.make_byte_bpe();
  auto tokens = TinyGguf::byte_bpe_tokens();
  tokens.resize(258);  // bytes, "ab" and the control token "cd"
  std::vector<std::string> merges;
  const auto merge = [&](const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    tokens.push_back(left + right);
    return left + right;
  };
  std::vector<std::string> words = {"z"};
  for (std::size_t begin = 0; words[begin].size() < 4; ++begin)
    for (char c = 'a'; c <= 's'; ++c) words.push_back(merge(words[begin], std::string(1, c)));
  std::string indentation = "\u010A";  // a line break, then blanks
  for (int n = 0; n < 40; ++n) indentation = merge(indentation, "\u0120");
  merges.emplace_back("a b");
  std::vector<std::int32_t> kinds(tokens.size(), 1);
  kinds[257] = 3;
  model.tensors.clear();
  model.set_strings("tokenizer.ggml.tokens", tokens);
  model.set_strings("tokenizer.ggml.merges", merges);
  model.set_array("tokenizer.ggml.token_type", GgufType::kInt32, kinds);
  model.set_string("tokenizer.ggml.pre", "smollm");
  return model;
}

/// A file has the tensors of `model`, each with its data.
inline void require_tensors(const std::string& path, const TinyGguf& model) {
  const auto file = require_ok(open_gguf_file(path));
  REQUIRE(file.gguf.tensors().size() == model.tensors.size());
  for (const TinyGguf::Tensor& tensor : model.tensors) {
    const auto data = file.gguf.tensor_data(*file.gguf.find_tensor(tensor.name));
    REQUIRE(std::ranges::equal(data, std::as_bytes(std::span(tensor.data))));
  }
}

/// A fault, and the check that must name it where.
struct Fault {
  std::string_view name;
  std::function<TinyGguf()> make;
  std::string_view check;
  std::string_view where;
  bool is_mended = false;
};

template <typename Make, typename Change>
std::function<TinyGguf()> changed(Make model, Change change) {
  return [model, change] {
    TinyGguf made = [&] {
      if constexpr (std::is_invocable_v<Make>)
        return model();
      else
        return of_architecture(model);
    }();
    change(made);
    return made;
  };
}

/// What makes a fault: a key removed, or set to another value.
inline auto without(std::string_view key) {
  return [key](TinyGguf& m) { m.remove(key); };
}
template <typename T>
auto with(std::string_view key, const T& value) {
  return [key, value](TinyGguf& m) {
    if constexpr (std::is_same_v<T, bool>) set_bool(m, key, value);
    if constexpr (std::is_same_v<T, std::uint32_t>) m.set_u32(key, value);
    if constexpr (std::is_same_v<T, float>) m.set_f32(key, value);
    if constexpr (std::is_same_v<T, std::string>) m.set_string(key, value);
  };
}
/// Both.
template <typename First, typename Second>
auto both(First first, Second second) {
  return [first, second](TinyGguf& m) { first(m), second(m); };
}

inline constexpr std::string_view kTemplate = "tokenizer.chat_template";
inline constexpr std::string_view kDown = "blk.1.ffn_down.weight";

inline std::vector<Fault> faults_of_texts() {
  const auto chat = [](auto change) { return changed(chat_model, change); };
  const auto bpe = [](auto change) { return changed(digits_one_by_one, change); };
  const auto scores = [](std::size_t n) {
    return [n](TinyGguf& m) {
      m.set_array("tokenizer.ggml.scores", GgufType::kFloat32, std::vector<float>(n, 0));
    };
  };
  constexpr std::string_view kPre = "tokenizer.ggml.pre";
  return {
      {"no pre-tokenizer", bpe(without(kPre)), "pre-tokenizer", kPre, true},
      {"one that joins digits", bpe(with(kPre, std::string("gpt-2"))), "pre-tokenizer", kPre, true},
      {"one that splits tokens", bpe(with(kPre, std::string("qwen2"))), "pre-tokenizer", kPre,
       true},
      {"another vocabulary's merges", bpe([](TinyGguf& m) {
         m.set_strings("tokenizer.ggml.merges", {"a b", "z a"});
       }),
       "merges", "tokenizer.ggml.merges"},
      {"BOS in the template's letters", chat(with(kTemplate, fmt::format("<s>{}", kChatMl))), "bos",
       "tokenizer.ggml.add_bos_token", true},
      {"BOS twice in the template",
       chat(with(kTemplate, fmt::format("{{{{ bos_token }}}}<s>{}", kChatMl))), "bos", kTemplate},
      {"no BOS", chat(with("tokenizer.ggml.add_bos_token", false)), "bos",
       "tokenizer.ggml.add_bos_token", true},
      {"Gemma without BOS", changed("gemma3", with("tokenizer.ggml.add_bos_token", false)), "bos",
       "tokenizer.ggml.add_bos_token", true},
      {"another BOS", chat(with("tokenizer.ggml.bos_token_id", 2U)), "bos",
       "tokenizer.ggml.bos_token_id", true},
      {"no template",
       chat(both(without(kTemplate), with("general.name", std::string("Tiny Instruct")))), "chat",
       kTemplate, true},
      {"a template that is no Jinja", chat(with(kTemplate, std::string("{% for m in messages %}"))),
       "chat", kTemplate},
      {"one that always raises", chat(with(kTemplate, std::string("{{ raise_exception('no') }}"))),
       "chat", kTemplate},
      {"one without the question", chat(with(kTemplate, std::string("<|im_start|>assistant\n"))),
       "chat", kTemplate},
      {"another vocabulary's template",
       chat(with(kTemplate,
                 std::string("{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}"))),
       "chat", kTemplate},
      {"a turn's end that no id names", chat(without("tokenizer.ggml.eot_token_id")), "chat",
       "tokenizer.ggml.eot_token_id", true},
      {"a token twice",
       changed("llama",
               [](TinyGguf& m) {
                 set_pieces(m, {{265, "t"}}, 1);
               }),
       "vocabulary", "tokenizer.ggml.tokens"},
      {"scores of another length", chat(scores(9)), "vocabulary", "tokenizer.ggml.scores"},
      {"equal scores", chat(scores(272)), "vocabulary", "tokenizer.ggml.scores"},
      {"an id out of range", chat(with("tokenizer.ggml.padding_token_id", 272U)), "special-ids",
       "tokenizer.ggml.padding_token_id", true},
      {"EOS out of range", chat(with("tokenizer.ggml.eos_token_id", 999U)), "special-ids",
       "tokenizer.ggml.eos_token_id", true},
      {"EOS is a word", chat(with("tokenizer.ggml.eos_token_id", 265U)), "special-ids",
       "tokenizer.ggml.eos_token_id", true},
  };
}

inline std::string blocks_of_q2_k(std::size_t n) {
  std::string data;
  for (std::size_t i = 0; i < n; ++i)
    data += std::string(80, '\x35') + encoded<std::uint32_t>(0x1000'1000);
  return data;
}

inline std::vector<Fault> faults_of_weights() {
  constexpr std::string_view kBase = "llama.rope.freq_base";
  const auto chat = [](auto change) { return changed(chat_model, change); };
  const auto scale = [](std::uint16_t bits) {  // Q4_K: 144 bytes, d first
    return [bits](TinyGguf& m) { m.tensor(kDown).data.replace(144 * 3, 2, encoded(bits)); };
  };
  return {
      {"NaN", chat(scale(0x7E00)), "blocks", kDown},
      {"Inf", chat(scale(0x7C00)), "blocks", kDown},
      {"an absurd scale", chat(scale(0x7BFF)), "blocks", kDown},
      {"zeros",
       chat([](TinyGguf& m) { m.tensor(kDown).data.assign(m.tensor(kDown).data.size(), '\0'); }),
       "blocks", kDown},
      {"NaN in a norm", chat([](TinyGguf& m) {
         m.tensor("output_norm.weight").data.replace(8, 4, encoded(std::nanf("")));
       }),
       "blocks", "output_norm.weight"},
      {"a base for short texts", chat(with("llama.context_length", 131072U)), "rope", kBase},
      {"no base", chat(both(with("llama.context_length", 8192U), without(kBase))), "rope", kBase},
      {"a base of 1", chat(with(kBase, 1.0F)), "rope", kBase},
      {"Llama 3.1 without factors",
       chat(both(with("llama.context_length", 131072U), with(kBase, 500000.0F))), "rope",
       "rope_freqs.weight"},
      {"Phi-3 without factors",
       changed("phi3", both(with("phi3.context_length", 131072U),
                            with("phi3.rope.scaling.original_context_length", 4096U))),
       "rope", "rope_factors_long.weight"},
      {"YaRN without a factor",
       changed("qwen3", both(with("qwen3.rope.scaling.type", std::string("yarn")),
                             with("qwen3.rope.scaling.original_context_length", 32U))),
       "rope", "qwen3.rope.scaling.type"},
      {"Gemma without a window", changed("gemma3", without("gemma3.attention.sliding_window")),
       "rope", "gemma3.attention.sliding_window"},
      {"Gemma's other base", changed("gemma3", with("gemma3.rope.freq_base_swa", 1e6F)), "rope",
       "gemma3.rope.freq_base_swa"},
      {"a poor output", chat([](TinyGguf& m) {
         for (TinyGguf::Tensor& tensor : m.tensors) {
           if (tensor.name.find(".ffn_") == std::string::npos || tensor.dims.size() < 2) continue;
           tensor.type = static_cast<std::uint32_t>(WeightType::kF16);
           tensor.data = random_weights(WeightType::kF16, tensor.dims[1], tensor.dims[0], 0.1F, 1);
         }
       }),
       "types", "output.weight"},
      {"a poor ffn_down", chat([](TinyGguf& m) {
         m.tensor(kDown).type = static_cast<std::uint32_t>(WeightType::kQ2_K);
         m.tensor(kDown).data = blocks_of_q2_k(32);
       }),
       "types", kDown},
      {"too few blocks", chat(with("llama.block_count", 1U)), "shapes", "llama.block_count", true},
      {"another width", chat(with("llama.embedding_length", 64U)), "shapes",
       "llama.embedding_length", true},
      {"another feed-forward", chat(with("llama.feed_forward_length", 512U)), "shapes",
       "llama.feed_forward_length", true},
      {"too many heads", chat(with("llama.attention.head_count", 8U)), "shapes",
       "llama.attention.head_count", true},
      {"too many KV heads", chat(with("llama.attention.head_count_kv", 4U)), "shapes",
       "llama.attention.head_count_kv", true},
      {"a head longer than itself", chat(with("llama.rope.dimension_count", 64U)), "shapes",
       "llama.rope.dimension_count", true},
      {"another vocab_size", chat(with("llama.vocab_size", 271U)), "shapes", "llama.vocab_size",
       true},
      {"no context", chat(with("llama.context_length", 0U)), "shapes", "llama.context_length"},
      {"a tensor that is not there",
       chat([](TinyGguf& m) { m.remove_tensor("blk.1.attn_k.weight"); }), "loads",
       "tensor \"blk.1.attn_k.weight\""},
      {"trailing bytes", chat([](TinyGguf& m) { m.trailing = std::string(100, 'x'); }), "file",
       "file", true},
  };
}

}  // namespace llm::test
