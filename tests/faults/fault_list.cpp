#include "tests/faults/fault_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "base/cpu_features.h"
#include "quant/formats/block_traits.h"

namespace llm::faults {
namespace {

using Words = std::initializer_list<const char*>;

constexpr const char* kMatrixOp = R"((L\d+/(q|k|v|attn_out|gate|up|ffn_out)|G/logits))";
constexpr int kLayers = 4;

class List {
 public:
  void add(char kind, std::string id, const char* checks, std::string names,
           const char* needs = "") {
    rows_.push_back({std::move(id), kind, checks, std::move(names), needs, ""});
  }
  /// A fault of a check, with one that it must find.
  void control(std::string id, const char* check, const std::string& control) {
    rows_.push_back({id + "," + control, 'l', check, "", "", control});
  }
  std::vector<Row> take() && {
    std::ranges::stable_sort(rows_, {}, &Row::kind);
    return std::move(rows_);
  }

 private:
  std::vector<Row> rows_;
};

bool is_float(std::string_view type) { return type == "F16" || type == "BF16" || type == "F32"; }
bool has_minimum(std::string_view type) {
  return type == "Q4_1" || type == "Q5_1" || type == "Q2_K" || type == "Q4_K" || type == "Q5_K";
}
/// Whether the instruction set's table has a product of its own for the type.
bool has_product(Isa isa, std::string_view type) {
  return isa != Isa::kAmx || (type.ends_with("_K") && !type.starts_with("Q8"));
}
/// Types that matrices have.
std::vector<std::string_view> types() {
  std::vector<std::string_view> names;
  for (const BlockTraits& traits : all_block_traits()) {
    if (traits.name != "Q8_K") names.push_back(traits.name);
  }
  return names;
}

std::string by_isa(std::string_view entry, Isa isa) {
  return fmt::format("kernel {}: .*{}", entry, isa_name(isa));
}

/// Of the matrix product, of each weight type.
void products(List& list) {
  constexpr const char* kSmall[] = {"last_code",   "ulp",        "sub_block_sign",
                                    "block_scale", "row_before", "sub_block"};
  constexpr const char* kTiles[] = {"token%8=7", "tokens%8=5:tokens_after=0",
                                    "tokens%2=1:tokens_after=0", "token%16=15",
                                    "tokens%3=0:token%3=2:tokens>48"};
  constexpr const char* kRows[] = {"row%16=15",      "rows_after=0", "panel_rows<16:rows_after=0",
                                   "panels_after=0", "row%32=31",    "panel>2"};
  constexpr const char* kDequantized[] = {"ulp", "last_code", "sub_block_sign"};
  constexpr const char* kAlike[] = {"sub_block", "sub_block_sign"};
  std::size_t i = 0;
  for (const std::string_view type : types()) {
    const std::string names = fmt::format("kernel matmul, {}:", type);
    const auto add = [&](char kind, const std::string& rest) {
      list.add(kind, fmt::format("matmul:side=kernel:type={}:{}", type, rest), "kernels", names);
    };
    add('e', "effect=sub_block_sign:tokens=1");
    add('e', "effect=sub_block:tokens>1:row%16=3");
    if (has_minimum(type)) add('e', "effect=min");
    for (std::size_t j = 0; const Isa isa : all_isas()) {
      if (!has_product(isa, type)) continue;
      list.add('d',
               fmt::format("matmul:side=kernel:isa={}:type={}:effect={}", isa_name(isa), type,
                           kSmall[(i + j++) % std::size(kSmall)]),
               "kernels", by_isa(fmt::format("matmul, {}", type), isa));
    }
    add('b', fmt::format("effect=ulp:{}", kTiles[i % std::size(kTiles)]));
    add('b', fmt::format("effect=last_code:{}", kTiles[(i + 1) % std::size(kTiles)]));
    add('c', fmt::format("effect=ulp:{}", kRows[i % std::size(kRows)]));
    add('c', fmt::format("effect=block_scale:{}", kRows[(i + 2) % std::size(kRows)]));
    if (!is_float(type))
      add('h', fmt::format("path=dequantized:effect={}:row%16=7", kDequantized[i % 3]));
    list.add('j', fmt::format("matmul:type={}:effect={}", type, kAlike[i % 2]), "definition layers",
             fmt::format(R"({} \[{}\]|definition of products, {},)", kMatrixOp, type, type));
    ++i;
  }
  for (const char* effect : {"stale", "ulp"}) {
    list.add('c',
             fmt::format("matmul:side=kernel:type=Q4_0:effect={}:panels>1500:panel%16=13", effect),
             "kernels shares", R"(shares of 24039 rows, Q4_0.*row \d+)");
  }
  for (const int workers : {2, 3, 7}) {
    list.add('f', fmt::format("tasks:workers={}:panels>1500", workers), "shares",
             fmt::format(R"(shares of 24039 rows.*team of {}.*panel 150\d)", workers));
  }
  for (const char* type : {"Q4_K", "F16"}) {
    list.add('h', fmt::format("matmul:side=kernel:type={}:effect=stale:add=1:row%32=31", type),
             "kernels", fmt::format("kernel matmul, {}:.*add", type));
  }
}

/// Of norms, RoPE, SiLU, exp, f16 and the quantizers of activations.
void rows_of_values(List& list) {
  const auto kernel = [&](char kind, const std::string& site, const std::string& rest,
                          std::string_view entry) {
    list.add(kind, fmt::format("{}:side=kernel:{}", site, rest), "kernels",
             fmt::format("kernel {}:", entry));
  };
  const auto alike = [&](char kind, const std::string& id, const char* checks,
                         const std::string& names) { list.add(kind, id, checks, names); };
  constexpr std::pair<const char*, const char*> kGates[] = {
      {"x>80", "zero"},  {"x>30", "ulp"},       {"x<-8", "zero"},
      {"x<-30", "zero"}, {"x<-30", "identity"}, {"x<-80", "ulp"}};
  for (const auto& [limit, effect] : kGates) {
    kernel('g', "silu_mul", fmt::format("{}:effect={}", limit, effect), "silu_mul");
    if (std::string_view(effect) != "ulp")
      alike('j', fmt::format("silu_mul:{}:effect={}", limit, effect), "definition layers",
            "definition of SiLU");
  }
  alike('j', "silu_mul:effect=exp_sign", "definition layers", "definition of SiLU");
  for (const Isa isa : all_isas()) {
    if (isa == Isa::kAmx) continue;  // has AVX-512 VNNI's
    const auto add = [&](const char* site, std::string_view entry, const char* rest) {
      list.add('d', fmt::format("{}:side=kernel:isa={}:{}", site, isa_name(isa), rest), "kernels",
               by_isa(entry, isa));
    };
    add("silu_mul", "silu_mul", "after=0:effect=ulp");
    add("rms_norm", "rms_norm", "effect=ulp");
    add("rope", "rope", "pairs_after=0:effect=ulp");
    add("to_half", "to_half", "x<0.0001:effect=truncate");
    add("attend", "attend", "position%16=15:effect=sum_ulp");
    add("merge", "merge", "rising=1:effect=max");
    add("finish", "finish", "effect=reciprocal");
    add("exp", "exp_distances", "after=0:effect=ulp");
    add("quantize", "quantize_q8k", "format=Q8_K:blocks_after=0:effect=last_code");
    add("quantize", "quantize_q8x32", "format=Q8_32:blocks_after=0:effect=scale_ulp");
  }
  constexpr std::pair<const char*, const char*> kExp[] = {
      {"x<-30", "zero"}, {"x<-80", "zero"}, {"x<-87.4", "ulp"}};
  for (const auto& [limit, effect] : kExp)
    kernel('g', "exp", fmt::format("{}:effect={}", limit, effect), "exp_distances");
  constexpr std::pair<const char*, const char*> kFormats[] = {{"Q8_K", "quantize_q8k"},
                                                              {"Q8_32", "quantize_q8x32"}};
  for (const auto& [format, entry] : kFormats) {
    for (const char* effect :
         {"amax128", "truncate", "clip126", "scale_f16", "scale_127", "zero", "sum"}) {
      const std::string_view what = effect;
      const std::string limit = what == "zero"                         ? ":amax<0.01"
                                : what == "sum" || what == "scale_f16" ? ":blocks_after=0"
                                                                       : "";
      const char kind = what == "zero" ? 'g' : 'c';
      kernel(kind, "quantize", fmt::format("format={}:effect={}{}", format, effect, limit), entry);
      if (what == "sum") continue;
      alike('j',
            fmt::format("quantize:format={}:effect={}{}", format, effect,
                        what == "zero" ? limit : ""),
            "definition layers", "definition of quantiz|preflight: .*quantiz");
    }
  }
  kernel('c', "rms_norm", "n%256=0:effect=last_weight", "rms_norm");
  kernel('c', "rms_norm", "n%16=1:effect=ulp", "rms_norm");
  kernel('c', "rms_norm", "effect=count", "rms_norm");
  for (const char* effect : {"eps", "no_eps"}) {
    kernel('g', "rms_norm", fmt::format("mean_square<0.0001:effect={}", effect), "rms_norm");
    alike('j', fmt::format("rms_norm:mean_square<0.0001:effect={}", effect), "definition layers",
          "definition of RMSNorm");
    alike('j', fmt::format("rms_norm:effect={}", effect), "definition layers",
          "definition of RMSNorm");
  }
  for (const char* effect : {"unrotated", "sin_sign"}) {
    kernel('c', "rope", fmt::format("pairs_after=0:effect={}", effect), "rope");
    alike('j', fmt::format("rope:pairs_after=0:effect={}", effect), "definition layers",
          R"(definition of RoPE |L\d+/[qk]_rope)");
    alike('j', fmt::format("rope:head=1:pair=0:effect={}", effect), "definition layers",
          R"(definition of RoPE |L\d+/[qk]_rope)");
  }
  kernel('c', "rope", "begin%16=8:effect=unrotated", "rope");
  for (const char* effect : {"truncate", "half_away", "flush", "saturate"}) {
    const bool extreme = std::string_view(effect).ends_with('e');
    kernel(extreme ? 'g' : 'h', "to_half", fmt::format("effect={}", effect), "to_half");
    if (!extreme && effect[0] == 't')
      alike('j', "to_half:effect=truncate", "layers", R"(L\d+/attn_ctx)");
  }
  kernel('c', "to_half", "after=0:n%16=3:effect=ulp", "to_half");
}

/// Of attention, of angles, and of what is stored.
void attention(List& list) {
  const auto kernel = [&](char kind, const char* site, const std::string& rest) {
    list.add(kind, fmt::format("{}:side=kernel:{}", site, rest), "kernels",
             fmt::format("kernel {}:", site));
  };
  for (const char* limit : {"chunk>0", "chunk>1", "chunk>2"}) {
    for (const char* effect : {"no_chunk", "fewer_keys", "last_dim"})
      kernel('a', "attend", fmt::format("{}:effect={}", limit, effect));
  }
  for (const char* position : {"%16=15", "%16=0", "%256=255"})
    kernel('c', "attend", fmt::format("position{}:effect=ulp", position));
  for (const char* rest :
       {"row%8=7:effect=head_before", "row%4=3:effect=sum_ulp:tokens>1", "tokens=1:effect=ulp",
        // A kernel that takes rows in pairs, and leaves one.
        "dim>32:n_rows%2=1:rows_after=0:heads=3:effect=ulp",
        "dim>32:n_rows%2=1:rows_after=0:heads=7:effect=ulp"})
    kernel('b', "attend", rest);
  kernel('h', "attend", "kv=f32:effect=last_dim:position>20");
  kernel('h', "attend", "kv=f16:effect=sum_ulp:position%64=63");
  for (const char* effect : {"last_dim", "ulp", "fewer_keys"})
    kernel('h', "attend", fmt::format("kv=q8:effect={}:position>20", effect));
  for (const char* effect : {"no_scale", "fewer_keys", "more_keys", "next_head", "last_dim"}) {
    list.add('j', fmt::format("attend:effect={}", effect), "layers", R"(L\d+/attn_ctx)");
    list.add('h', fmt::format("attend:side=kernel:effect={}:tokens=1", effect), "paths far",
             R"(attn_ctx|decode|one token)");
  }
  for (const char* effect : {"max", "sum", "last", "ulp"})
    kernel('a', "merge", fmt::format("rising={}:effect={}", effect[0] == 's' ? 0 : 1, effect));
  for (const char* effect : {"reciprocal", "last", "ulp"})
    kernel('c', "finish", fmt::format("dim%16=0:effect={}", effect));
  kernel('c', "finish", "dim%16=3:effect=last");
  for (const char* rest :
       {"position>255:effect=late", "position>511:effect=late", "position%256=255:effect=late",
        "position>255:effect=f32", "position>2047:effect=wrapped"})
    list.add(rest[8] == '>' ? 'a' : 'c', fmt::format("angle:{}", rest), "definition",
             "definition of RoPE's angles");
  for (const char* rest : {"effect=late", "effect=theta", "effect=exponent", "effect=f32",
                           "pairs_after=0:effect=late", "pair=0:position%16=15:effect=late"})
    list.add('j', fmt::format("angle:{}", rest), "definition layers",
             R"(definition of RoPE's angles|[qk]_rope)");
  list.add('a', "angle:fast=1:rows=1:effect=late", "paths far",
           R"([qk]_rope|one token per call \(decode\)|batches of 1:)");
}

void stored(List& list) {
  const char* stale = R"((cut back|\d+ sequences|one token|decode|k_rope|attn_ctx|1 threads?))";
  for (const char* rest :
       {"again=1:rows=1", "again=1:position%16=15", "position%256=0", "again=1:position%256=255",
        "position>511:again=1", "position>255:rows=1", "again=1:rows>1"})
    list.add('a', fmt::format("kv_store:effect=stale:fast=1:{}", rest), "paths far sequences",
             stale);
  list.add('a', "kv_store:effect=stale:again=1", "paths far", stale);
  list.add('f', "kv_store:effect=stale:fast=1:threads=3:position%16=5", "paths waits", "3 threads");
  for (const char* kv : {"f16", "f32", "q8"}) {
    const std::string checks = kv[1] == '1' ? "paths" : kv[1] == '3' ? "paths-f32" : "paths-q8";
    list.add('h', fmt::format("kv_store:effect=stale:fast=1:kv={}:layer=1:rows=1", kv),
             checks.c_str(), R"(one token per call \(decode\)|batches of 1|k_rope|attn_ctx)");
  }
  for (const char* effect : {"value_reversed", "value_of_key"}) {
    list.add('h', fmt::format("kv_store:fast=1:effect={}:layer=1", effect), "paths",
             R"(L001/attn_ctx|blk\.1)");
    list.add('j', fmt::format("kv_store:effect={}", effect), "layers", R"(L\d+/attn_ctx)");
  }
  for (const char* rest : {"", ":layer=1:position%16=3"})
    list.add('j', fmt::format("kv_store:effect=key_bit{}", rest), "layers", R"(L\d+/attn_ctx)");
  for (const char* effect :
       {"copy_none", "copy_half", "write_shared", "stay_published", "any_parent"})
    list.add('a', fmt::format("pages:effect={}", effect), "sequences",
             R"(sequences at once|whose pages are shared)");
  list.add('a', "adopt:tokens=256", "sequences", "256");
  list.add('a', "adopt:tokens=512", "sequences", "512");
  list.add('a', "attend:side=kernel:effect=other_pages", "sequences", R"(sequences at once)");
  for (const char* rest : {"effect=from_zero:segment=0:tokens>1:position>0",
                           "effect=position_before:tokens=1", "effect=position_before:segment>0"})
    list.add('a', fmt::format("segment:{}", rest), "paths sequences",
             R"(batches of|decode|sequences at once|one token)");
}

/// Between the ops of the fast forward pass; barriers; shares of threads.
void forward(List& list) {
  constexpr const char* kOps[] = {"embd",    "attn_norm", "q",           "k",     "v",
                                  "q_rope",  "attn_out",  "ffn_norm",    "gate",  "up",
                                  "ffn_act", "ffn_out",   "result_norm", "logits"};
  constexpr const char* kEffects[] = {"eighth", "row_before", "tail", "sign", "zero"};
  constexpr int kTeams[] = {2, 3, 7};
  for (std::size_t i = 0; i < std::size(kOps); ++i) {
    const std::string_view op = kOps[i];
    const bool in_layer = op != "embd" && op != "logits" && op != "result_norm";
    const bool by_row = !op.ends_with("norm");
    const int layer = static_cast<int>(i % 3);
    const std::string where = in_layer ? fmt::format(":layer={}", layer) : "";
    const auto effect = [&](std::size_t k) {
      const char* chosen = kEffects[(i + k) % std::size(kEffects)];
      const bool needs_rows = std::string_view(chosen) == "row_before";
      return needs_rows && (op == "embd" || !by_row || op.ends_with("rope") || op == "ffn_act")
                 ? "tail"
                 : chosen;
    };
    const auto add = [&](char kind, const std::string& rest, const char* checks,
                         const std::string& names) {
      list.add(kind, fmt::format("forward:op={}{}:{}", op, where, rest), checks, names);
    };
    const std::string named =
        in_layer
            ? fmt::format(R"(blk\.{}\.|L00{}/)", layer, layer)
            : fmt::format("{}", op == "embd" ? "token_embd|embd" : "output|result_norm|logits");
    if (by_row && (!in_layer || layer == 0)) {
      constexpr const char* kFar[] = {">255", ">511", ">300", ">2047"};
      add('a', fmt::format("effect={}:position{}", effect(0), kFar[i % 4]), "far",
          R"(\d+ positions)");
    }
    constexpr const char* kCounts[] = {"rows%8=3", "rows%16=1", "rows%32=31", "rows%2=1"};
    add('b',
        fmt::format("effect={}:{}{}", effect(1), kCounts[i % 4], by_row ? ":rows_after=0" : ""),
        "paths waits far", named + "|batches|337|wait at random|1 thread|one token|row");
    add('h', fmt::format("effect={}:compute={}", effect(3), i % 2 == 0 ? "int8" : "f32"),
        i % 2 == 0 ? "paths" : "paths-f32", named);
    add('h', fmt::format("effect={}:probe=0", effect(4)), "paths", R"(definition.*\(R1\))");
    add('f', fmt::format("effect={}:threads={}", effect(2), kTeams[i % 3]), "paths waits",
        fmt::format("{} threads", kTeams[i % 3]));
    add('d', fmt::format("effect={}:isa={}", effect(4), i % 2 == 0 ? "avx2" : "scalar"), "paths",
        i % 2 == 0     ? "avx2"
        : op == "embd" ? "."
                       : "scalar");
  }
  list.add('h', "logits_row:rows=1", "paths", "the last row of logits only");
  for (const char* op : {"attn_out", "ffn_out"}) {
    list.add('h', fmt::format("residual:op={}:layer=1", op), "paths", R"(definition.*\(R1\))");
  }
  list.add('j', "residual:side=definition", "layers paths", R"(L\d+/(ffn_inp|l_out)|definition)");
  // Before layer 0's keys and values, and behind them.
  const char* before = "by layer 0's keys and values|embd|attn_norm|[qkv]( |_rope)";
  const char* behind = "happens in layer 0 behind its keys and values";
  for (const char* op : {"embd", "attn_norm", "k", "v"})
    list.add('f', fmt::format("late:op={}", op), "waits", before);
  list.add('f', "late:op=quantize", "waits", before);
  for (const char* op : {"store", "attend", "attn_out", "ffn_norm", "gate", "up", "ffn_out"})
    list.add('f', fmt::format("late:op={}", op), "waits", behind);
  for (const char* rest :
       {"op=store:rows=1", "op=ffn_out:rows=1", "op=attend:threads=2", "op=attn_out:threads=3"})
    list.add('f', fmt::format("late:{}", rest), "waits", behind);
  for (const int workers : {2, 3, 4, 5, 7, 8})
    list.add('f', fmt::format("share:workers={}:odd=1", workers), "shares",
             fmt::format("shares of teams: .*{}", workers));
}

/// Tensors of equal shape exchanged; orders and sizes.
void tensors(List& list) {
  constexpr std::pair<const char*, const char*> kPairs[] = {{"attn_q", "attn_output"},
                                                            {"attn_k", "attn_v"},
                                                            {"ffn_gate", "ffn_up"},
                                                            {"attn_norm", "ffn_norm"}};
  constexpr const char* kTaps[] = {"(q|attn_out)", "(k|v)", "(gate|up)", "(attn_norm|ffn_norm)"};
  for (std::size_t i = 0; i < std::size(kPairs); ++i) {
    for (int layer = 0; layer < 2; ++layer) {
      const auto& [a, b] = kPairs[i];
      const bool by_bytes = layer == 1;
      list.add('i', fmt::format("exchange:role={}.weight:layer={}:with={}.weight", a, layer, b),
               by_bytes ? "matrices" : "layers",
               by_bytes ? fmt::format(R"(blk\.{}\.({}|{}))", layer, a, b)
                        : fmt::format(R"(L00{}/{}\b)", layer, kTaps[i]));
    }
  }
  constexpr std::pair<const char*, const char*> kRoles[] = {
      {"attn_norm", "attn_norm"},  {"attn_q", "q"},          {"attn_k", "k"},      {"attn_v", "v"},
      {"attn_output", "attn_out"}, {"ffn_norm", "ffn_norm"}, {"ffn_gate", "gate"}, {"ffn_up", "up"},
      {"ffn_down", "ffn_out"}};
  for (const auto& [role, tap] : kRoles)
    list.add('i', fmt::format("exchange:role={}.weight:layer=0:with_layer=1", role), "layers",
             fmt::format(R"(L00[01]/{}\b)", tap));
  list.add('i', "exchange:role=token_embd.weight:with=output.weight", "layers", "G/(embd|logits)");
  for (const char* effect : {"swapped", "next_pair", "halves"}) {
    for (const char* role : {"attn_q", "attn_k"})
      list.add('i', fmt::format("rows:role={}.weight:effect={}", role, effect), "layers",
               fmt::format(R"(L\d+/{}(_rope)? )", role[5]));
  }
  list.add('i', "rows:role=attn_k.weight:effect=swapped:head=1:dim<2", "matrices", "attn_k");
  list.add('i', "rows:role=attn_q.weight:effect=next_pair:dims_after<4", "layers", R"(L\d+/q)");
  for (const char* effect : {"last_again", "fields_reversed", "bit"})
    list.add('i', fmt::format("panel:role=ffn_up.weight:layer=1:effect={}", effect), "matrices",
             R"(blk\.1\.ffn_up)");
  for (const char* effect : {"eps", "theta", "rope_scale"})
    list.add('i', fmt::format("config:effect={}", effect), "layers",
             effect[0] == 'e' ? "preflight: eps|norm" : "preflight|[qk]_rope");
  for (const std::string_view type : types()) {
    if (is_float(type)) continue;
    for (const char* effect : {"nibbles", "sub_block_sign", "scale"})
      list.add('j', fmt::format("dequantize:type={}:effect={}", type, effect), "kernels layers",
               fmt::format(R"(kernel matmul, {}:)", type));
  }
}

/// Of what only some architectures have: biases, head norms.
void families(List& list) {
  const auto add = [&](char kind, const std::string& id, const char* checks, const char* names,
                       const char* needs) { list.add(kind, id, checks, names, needs); };
  for (const char* rest :
       {"c:op=q:rows_after=0:effect=dropped", "c:op=k:row%16=15:effect=next",
        "c:op=v:row%32=31:effect=twice", "b:op=q:tokens%8=5:tokens_after=0:effect=dropped",
        "b:op=v:tokens=1:row=8:effect=next", "h:op=q:effect=dropped"})
    add(rest[0], fmt::format("bias:side=kernel{}", rest + 1), "paths waits",
        R"([qkv]\b|decode|batches|one token)", "biases");
  add('f', "bias:side=kernel:op=q:threads=3:share_row=0:effect=dropped", "paths", "3 threads",
      "biases");
  const char* norm = R"([qk]_rope|attn_[qk])";
  for (const char* op : {"q_norm", "k_norm"}) {
    for (const char* effect : {"dropped", "twice", "last_weight"})
      add('c', fmt::format("rms_norm:side=kernel:op={}:effect={}", op, effect), "paths", norm,
          "head_norms");
  }
  add('f', "rms_norm:side=kernel:op=k_norm:threads=3:effect=dropped", "paths", "3 threads",
      "head_norms");
  for (const char* effect : {"dropped", "twice", "last_weight"})
    add('j', fmt::format("head_norm:side=definition:head=2:effect={}", effect), "paths", norm,
        "head_norms");
}

/// On the way from text to ids, from logits to a token, and of texts made of them.
void text(List& list) {
  const auto add = [&](const char* site, Words effects, const char* checks, const char* names) {
    for (const char* effect : effects)
      list.add('k', fmt::format("{}:effect={}", site, effect), checks, names);
  };
  add("tokenizer",
      {"rightmost", "left_not_offered", "right_not_offered", "longest", "longest_lost",
       "spaces_joined", "prefix_lost", "prefix_shared", "bytes_reversed", "bos_missing",
       "eos_added"},
      "tokenizer", "tokenizer: ids");
  add("byte_bpe", {"rightmost", "left_not_offered", "right_not_offered", "longest", "false_hit"},
      "tokenizer", "tokenizer: ids");
  add("split", {"newline_joined", "space_apart", "cut_in_two"}, "tokenizer", "tokenizer: ids");
  add("alphabet", {"exchanged"}, "tokenizer", "tokenizer: .*text");
  const auto of_sampler = [&](const char* effect, const char* names) {
    list.add('k', fmt::format("sampler:effect={}", effect), "sampler", names);
  };
  of_sampler("ties_to_higher", "sampler|draw");
  for (const char* effect :
       {"penalty_not_oldest", "penalty_not_newest", "penalty_repeats", "penalty_sign"})
    of_sampler(effect, "penalt");
  of_sampler("top_k_short", "top.k");
  for (const char* effect : {"top_p_short", "top_p_long"}) of_sampler(effect, "top.p");
  for (const char* effect : {"min_p_of_sum", "min_p_short"}) of_sampler(effect, "min.p");
  of_sampler("min_p_first", "all|together|top.p");
  of_sampler("temperature_late", "temperature|together|order|all");
  for (const char* effect : {"seed_16", "one_sequence", "position_late"})
    of_sampler(effect, "draw");
  add("shift", {"draws_repeat", "stale_rows", "bos_dropped", "drop_one_more"}, "shift",
      "context shift");
  add("proposals", {"accepted_unseen", "row_before", "rows_given_out", "draw_position"},
      "speculation", "proposals");
}

/// One for each stage of llmcheck --stages, which must be the first to fail; and one for the frozen
/// texts.
void stages_and_texts(List& list) {
  const auto add = [&](char kind, const char* id, const char* stage) {
    list.add(kind, id, "stages", stage);
  };
  add('j', "forward:op=embd:rows>1:effect=tail", "^stage 1, embedding");
  add('j', "angle:position>0:effect=theta", "^stage 2, layer 0");
  add('i', "exchange:role=attn_k.weight:layer=1:with=attn_v.weight", "^stage 3, all layers");
  add('h', "angle:fast=1:rows=1:effect=early", "^stage 4, second token");
  add('h', "forward:op=logits:effect=tail", "^stage 5, logits");
  list.add('h', "angle:rows=1:fast=1:effect=late", "equivalence", "frozen: greedy");
}

/// Of the checks: what each no longer sees, or says otherwise.
void gates(List& list) {
  list.control("gate:of=ops", "layers", "angle:effect=theta");
  list.control("gate:of=reference", "layers", "angle:effect=theta");
  list.control("gate:of=definition", "layers", "silu_mul:side=kernel:after=0:effect=ulp");
  for (const char* tap : {"up", "ffn_act", "attn_ctx"})
    list.add('l', fmt::format("tap:name={}", tap), "layers",
             fmt::format(R"(missing L\d+/{})", tap));
}

}  // namespace

std::vector<Row> all_faults() {
  List list;
  products(list);
  rows_of_values(list);
  attention(list);
  stored(list);
  forward(list);
  tensors(list);
  families(list);
  text(list);
  stages_and_texts(list);
  gates(list);
  return std::move(list).take();
}

}  // namespace llm::faults
