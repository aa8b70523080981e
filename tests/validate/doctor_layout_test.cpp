// Files whose layout or types of values are wrong though nothing is lost: found, named, and mended
// to the file that they should have been.

#include <functional>

#include "engine/model/model_file.h"
#include "tests/validate/doctor_faults.h"
#include "validate/gguf_lint/doctor.h"

namespace llm::test {
namespace {

using Offsets = std::vector<std::uint64_t>;

/// `model` with its tensors' data at `places`, and the descriptions saying `said`.
std::vector<std::byte> laid_out(const TinyGguf& model, const Offsets& places, const Offsets& said) {
  const std::size_t begin = model.header_bytes();
  TinyGguf described = model;
  for (auto& tensor : described.tensors) tensor.offset = 0;  // up to which the serializer pads
  std::vector<std::byte> bytes = described.bytes();
  bytes.resize(begin);
  for (std::size_t i = 0; i < said.size(); ++i) {
    // The description ends with its offset.
    const std::string name = encoded_string(model.tensors[i].name);
    const auto at =
        std::search(bytes.begin(), bytes.end(), reinterpret_cast<const std::byte*>(name.data()),
                    reinterpret_cast<const std::byte*>(name.data() + name.size()));
    const auto field =
        at + static_cast<std::ptrdiff_t>(name.size() + 4 + 8 * model.tensors[i].dims.size() + 4);
    std::memcpy(&*field, &said[i], sizeof said[i]);
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::string& data = model.tensors[i].data;
    bytes.resize(std::max(bytes.size(), begin + places[i] + data.size()));
    std::memcpy(bytes.data() + begin + places[i], data.data(), data.size());
  }
  return bytes;
}

Offsets in_a_row(const TinyGguf& model, std::uint64_t alignment, std::uint64_t gap = 0) {
  Offsets offsets;
  std::uint64_t next = 0;
  for (const auto& tensor : model.tensors) {
    offsets.push_back(next);
    next = (next + tensor.data.size() + alignment - 1) / alignment * alignment + gap;
  }
  return offsets;
}

/// A model with a tensor that ends between two alignments.
TinyGguf odd_model() {
  TinyGguf model = chat_model();
  std::string divisors;
  for (int i = 0; i < 4; ++i) divisors += encoded(1.0F);
  model.tensors.insert(model.tensors.begin() + 3,
                       {.name = "rope_freqs.weight", .dims = {4}, .data = divisors});
  return model;
}

class Layouts : public ScratchDirectory {
 public:
  /// @return what was found, as text; the mended copy is `good`'s data and loads
  std::string must_mend(const std::vector<std::byte>& bytes, const TinyGguf& good) {
    const std::string in = write("in.gguf", bytes);
    const std::string out = path("out.gguf");
    std::filesystem::remove(out);
    const Examination found = require_ok(examine(in, {.threads = 1, .fix = out}));
    std::string told = doctor_text("FILE", found);
    INFO(told);
    CHECK_FALSE(found.healthy());
    REQUIRE(found.written);
    const Examination again = require_ok(examine(out, {}));
    INFO(doctor_text("COPY", again));
    CHECK(again.healthy());
    require_tensors(out, good);
    CHECK(require_ok(open_model_file(out)).warnings.empty());
    return told;
  }
};

TEST_CASE_METHOD(Layouts, "bad input 113: tensors that are not where they must be") {
  const TinyGguf model = odd_model();
  // Whole files of other alignments, with and without the end's padding.
  for (const std::uint64_t alignment : {1, 2, 4, 8, 12, 16, 20, 64, 128}) {
    for (const bool is_padded : {true, false}) {
      CAPTURE(alignment, is_padded);
      TinyGguf other = model;
      other.alignment = alignment;
      other.final_padding = is_padded;
      const auto strict = GgufFile::parse(other.bytes());
      if (strict.ok()) continue;  // all of its sizes are multiples of 32 by chance
      if (alignment % 32 == 0) continue;
      must_mend(other.bytes(), model);
    }
  }
  // Each tensor a few bytes behind where it should be, its bytes with it.
  for (const std::uint64_t shift : {1, 3, 4, 8, 16, 17, 31}) {
    CAPTURE(shift);
    Offsets offsets = in_a_row(model, 32, 32);
    for (std::size_t i = 1; i < offsets.size(); i += 2) offsets[i] += shift;
    CHECK_THAT(must_mend(laid_out(model, offsets, offsets), model),
               Contains("need a multiple of 32"));
  }
  // Gaps and another order, which some programs refuse.
  const Offsets gaps = in_a_row(model, 32, 64);
  CHECK_THAT(must_mend(laid_out(model, gaps, gaps), model),
             Contains("the end of the tensor before"));
  Offsets turned = in_a_row(model, 32);
  std::uint64_t next = 0;
  for (std::size_t i = turned.size(); i-- > 0;) {
    turned[i] = next;
    next += (model.tensors[i].data.size() + 31) / 32 * 32;
  }
  CHECK_THAT(must_mend(laid_out(model, turned, turned), model),
             Contains("the end of the tensor before"));
  for (std::uint64_t& offset : turned) offset += offset > 0 ? 5 : 0;
  must_mend(laid_out(model, turned, turned), model);
  // Descriptions that lie, the bytes in a row.
  const Offsets right = in_a_row(model, 32);
  for (const std::size_t which : {std::size_t{0}, std::size_t{3}, right.size() - 1}) {
    for (const std::uint64_t lie :
         {right[which] + 4, right[which] + 32, right[which] - 32, right[which] - 1,
          std::uint64_t{1} << 40, UINT64_MAX - 31, right[1], right[2] + 7}) {
      if (lie == right[which]) continue;
      CAPTURE(which, lie);
      Offsets said = right;
      said[which] = lie;
      CHECK_THAT(must_mend(laid_out(model, right, said), model),
                 Contains(fmt::format("found offset {}", lie)));
    }
  }
}

TEST_CASE_METHOD(Layouts, "an alignment that is none is mended, whatever its type") {
  const auto with_key = [](std::uint64_t layout, auto set) {
    TinyGguf model = odd_model();
    model.alignment = layout;
    set(model);
    return model;
  };
  constexpr const char* kKey = "general.alignment";
  const std::vector<std::pair<std::uint64_t, std::function<void(TinyGguf&)>>> files = {
      {32, [](TinyGguf& m) { m.set(kKey, GgufType::kUint64, std::uint64_t{32}); }},
      {64, [](TinyGguf& m) { m.set(kKey, GgufType::kInt32, std::int32_t{64}); }},
      {16, [](TinyGguf& m) { m.set(kKey, GgufType::kUint8, std::uint8_t{16}); }},
      {16, [](TinyGguf& m) { m.set(kKey, GgufType::kInt64, std::int64_t{16}); }},
      {32, [](TinyGguf& m) { m.set(kKey, GgufType::kFloat32, 32.0F); }},
      {1, [](TinyGguf& m) { m.set_u32(kKey, 1); }},
      {4, [](TinyGguf& m) { m.set_u32(kKey, 4); }},
      {48, [](TinyGguf& m) { m.set_u32(kKey, 48); }},
      {32, [](TinyGguf& m) { m.set_u32(kKey, 0); }},
      {32, [](TinyGguf& m) { m.set_string(kKey, "32"); }},
      {32, [](TinyGguf& m) { m.set(kKey, GgufType::kInt32, std::int32_t{-1}); }},
      {1, [](TinyGguf& m) { m.set(kKey, GgufType::kUint8, std::uint8_t{1}); }}};
  for (std::size_t i = 0; i < files.size(); ++i) {
    CAPTURE(i);
    const TinyGguf model = with_key(files[i].first, files[i].second);
    CHECK_THAT(must_mend(model.bytes(), model), Contains(kKey));
  }
  // A valid value that is not the layout's.
  TinyGguf other = odd_model();
  const auto told = [&](std::uint32_t value) {
    TinyGguf wrong = other;
    wrong.set_u32(kKey, value);
    wrong.alignment = 32;
    return must_mend(wrong.bytes(), wrong);
  };
  told(64);
  told(4096);
  // By one that is smaller tensors seem to begin too early where a header ends so.
  for (std::size_t pad = 0; pad < 32; ++pad) {
    TinyGguf padded = other;
    padded.set_string("general.name", std::string(pad, 'n'));
    padded.set_u32(kKey, 8);
    padded.alignment = 32;
    const auto strict = GgufFile::parse(padded.bytes());
    if (!strict.ok() || strict->trailing_bytes() == 0) continue;
    CAPTURE(pad);
    must_mend(padded.bytes(), padded);
  }
}

TEST_CASE_METHOD(Layouts, "a file that was cut is never mended into another") {
  TinyGguf unaligned = odd_model();
  unaligned.alignment = 1;
  for (const TinyGguf& model : {odd_model(), unaligned}) {
    const auto whole = model.bytes();
    for (std::size_t cut = 1; cut < 200; ++cut) {
      CAPTURE(cut, model.alignment);
      const std::string out = path("out.gguf");
      std::filesystem::remove(out);
      const auto bytes = std::span(whole).first(whole.size() - cut);
      const auto found = require_ok(examine(write("cut.gguf", bytes), {.threads = 1, .fix = out}));
      if (!found.written) continue;
      // Only padding can have gone.
      require_tensors(out, model);
    }
  }
}

/// Sets `key` to `value` in a type; false where it does not fit.
template <GgufType kType, typename T>
bool set_as(TinyGguf& model, const std::string& key, double value) {
  constexpr auto kMost = static_cast<double>(std::numeric_limits<T>::max());
  if (value < static_cast<double>(std::numeric_limits<T>::lowest()) || value >= kMost) return false;
  const auto as = static_cast<T>(value);
  if (static_cast<double>(as) != value) return false;
  model.set(key, kType, as);
  return true;
}

using SetAs = bool (*)(TinyGguf& model, const std::string& key, double value);
constexpr std::pair<GgufType, SetAs> kNumberTypes[] = {
    {GgufType::kUint8, set_as<GgufType::kUint8, std::uint8_t>},
    {GgufType::kInt8, set_as<GgufType::kInt8, std::int8_t>},
    {GgufType::kUint16, set_as<GgufType::kUint16, std::uint16_t>},
    {GgufType::kInt16, set_as<GgufType::kInt16, std::int16_t>},
    {GgufType::kUint32, set_as<GgufType::kUint32, std::uint32_t>},
    {GgufType::kInt32, set_as<GgufType::kInt32, std::int32_t>},
    {GgufType::kUint64, set_as<GgufType::kUint64, std::uint64_t>},
    {GgufType::kInt64, set_as<GgufType::kInt64, std::int64_t>},
    {GgufType::kFloat32, set_as<GgufType::kFloat32, float>},
    {GgufType::kFloat64, set_as<GgufType::kFloat64, double>}};

/// A model of `architecture` that has every key which loaders of it read as a number or a switch.
TinyGguf with_all_keys(const std::string& architecture) {
  TinyGguf model = of_architecture(architecture);
  set_bool(model, "tokenizer.ggml.add_bos_token", true);
  set_bool(model, "tokenizer.ggml.add_eos_token", false);
  set_bool(model, "tokenizer.ggml.add_space_prefix", true);
  model.set_u32("general.file_type", 1);
  return model;
}

TEST_CASE_METHOD(Layouts, "bad input 114: numbers of a wrong type whose value fits") {
  std::set<std::string> tried;  // without the architecture's name: the rule is one for all
  for (const std::string& architecture : TinyGguf::architectures()) {
    const TinyGguf good = with_all_keys(architecture);
    const std::string healthy = write("good.gguf", good.bytes());
    INFO(doctor_text("GOOD", require_ok(examine(healthy, {}))));
    REQUIRE(require_ok(examine(healthy, {})).healthy());
    const auto parsed = require_ok(open_gguf_file(healthy));
    for (const GgufEntry& entry : parsed.gguf.entries()) {
      const GgufValue& value = entry.value;
      if (gguf_fixed_size(value.type) == 0) continue;
      if (!tried.emplace(entry.key.substr(entry.key.find('.'))).second) continue;
      double number = 0;
      visit_gguf_number(value.type, value.bytes,
                        [&](auto found) { number = static_cast<double>(found); });
      for (const auto& [type, set] : kNumberTypes) {
        TinyGguf wrong = good;
        const std::string key(entry.key);
        if (type == value.type || !set(wrong, key, number)) continue;
        CAPTURE(architecture, key, gguf_type_name(type));
        const std::string told = must_mend(wrong.bytes(), good);
        CHECK_THAT(told,
                   Contains(fmt::format("[values] {}: found {} ", key, gguf_type_name(type))));
        CHECK_THAT(told, Contains(fmt::format("need {}", gguf_type_name(value.type))));
        // The copy is the file that it should have been, byte for byte.
        REQUIRE(
            read(path("out.gguf")) ==
            std::string(reinterpret_cast<const char*>(good.bytes().data()), good.bytes().size()));
      }
    }
  }
}

TEST_CASE_METHOD(Layouts, "arrays of a wrong type whose values fit are mended") {
  const TinyGguf good = chat_model();
  const auto kinds = require_ok(open_gguf_file(write("good.gguf", good.bytes())));
  const auto values = require_ok(kinds.gguf.get_ints("tokenizer.ggml.token_type"));
  const auto with = [&]<typename T>(GgufType type, T) {
    std::vector<T> other;
    for (std::size_t i = 0; i < values.size(); ++i) other.push_back(static_cast<T>(values[i]));
    TinyGguf wrong = good;
    wrong.set_array("tokenizer.ggml.token_type", type, other);
    CHECK_THAT(must_mend(wrong.bytes(), good),
               Contains("[values] tokenizer.ggml.token_type: found ARRAY of "));
  };
  with(GgufType::kUint8, std::uint8_t{});
  with(GgufType::kInt8, std::int8_t{});
  with(GgufType::kUint16, std::uint16_t{});
  with(GgufType::kInt16, std::int16_t{});
  with(GgufType::kUint32, std::uint32_t{});
  with(GgufType::kUint64, std::uint64_t{});
  with(GgufType::kInt64, std::int64_t{});
  with(GgufType::kFloat32, float{});
  with(GgufType::kFloat64, double{});
  TinyGguf wrong = good;
  std::vector<double> scores;
  for (const float score : TinyGguf::scores()) scores.push_back(static_cast<double>(score));
  wrong.set_array("tokenizer.ggml.scores", GgufType::kFloat64, scores);
  must_mend(wrong.bytes(), good);
  // One count for each layer, where the loader takes such an array.
  for (const GgufType type : {GgufType::kUint64, GgufType::kUint16}) {
    TinyGguf layers = good;
    if (type == GgufType::kUint64) {
      layers.set_array<std::uint64_t>("llama.feed_forward_length", type, {256, 256});
    } else {
      layers.set_array<std::uint16_t>("llama.feed_forward_length", type, {256, 256});
    }
    must_mend(layers.bytes(), good);
  }
}

TEST_CASE_METHOD(Layouts, "what no number is, or none that fits, is told as it was found") {
  const std::string key = "llama.context_length";
  const auto told = [&](const std::function<void(TinyGguf&)>& set, std::string_view words) {
    TinyGguf model = chat_model();
    set(model);
    const std::string out = path("out.gguf");
    std::filesystem::remove(out);
    const auto found =
        require_ok(examine(write("in.gguf", model.bytes()), {.threads = 1, .fix = out}));
    const std::string text = doctor_text("FILE", found);
    CHECK_THAT(text, Contains(std::string(words)));
    CHECK_THAT(text, !Contains("found none"));
    CHECK_FALSE(found.written);
  };
  told([&](TinyGguf& m) { m.set_string(key, "64"); }, "found STRING \"64\", need UINT32");
  told([&](TinyGguf& m) { m.set_f32(key, 64.5F); }, "found FLOAT32 64.5, need UINT32");
  told([&](TinyGguf& m) { set_bool(m, key, true); }, "found BOOL true, need UINT32");
  told([&](TinyGguf& m) { m.set(key, GgufType::kInt32, std::int32_t{-5}); }, "found -5");
  told([&](TinyGguf& m) { m.set(key, GgufType::kUint64, std::uint64_t{1} << 40); },
       "found 1099511627776");
  told(
      [](TinyGguf& m) { m.set("tokenizer.ggml.add_bos_token", GgufType::kUint8, std::uint8_t{2}); },
      "found UINT8");
  told([](TinyGguf& m) { m.set_string("tokenizer.ggml.add_bos_token", "true"); },
       "found STRING \"true\", need BOOL");
}

}  // namespace
}  // namespace llm::test
