#include "validate/gguf_lint/doctor.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/shown_text.h"
#include "base/thread_team.h"
#include "engine/gguf/gguf_salvage.h"
#include "engine/gguf/gguf_writer.h"

namespace llm {
namespace {

struct Check {
  std::string_view name;
  void (*run)(LintContext& patient);
};

/// In the order of what rests on what: a later check sees what earlier ones have mended.
constexpr std::array kChecks = {
    Check{"file", check_file},
    Check{"values", check_values},
    Check{"vocabulary", check_tokens_listed},
    Check{"special-ids", check_special_ids},
    Check{"shapes", check_shapes},
    Check{"pre-tokenizer", check_pre_tokenizer},
    Check{"merges", check_merges},
    Check{"bos", check_bos},
    Check{"chat", check_chat},
    Check{"rope", check_rope},
    Check{"types", check_types},
};

/// A file that cannot be parsed, as the only finding; nothing where it is no GGUF, or not there, or
/// where the system refused to read it or the memory for that, which says nothing of the file.
std::optional<FileFinding> unreadable(const std::string& path, const Error& error) {
  const bool is_systems = error.code == ErrorCode::kIo || error.code == ErrorCode::kResource;
  if (is_systems && error.field != kSplitCount) return std::nullopt;
  const auto file = MappedFile::open(path);
  constexpr std::string_view kMagic = "GGUF";
  if (!file.ok() || file->bytes().size() < kMagic.size() ||
      std::memcmp(file->bytes().data(), kMagic.data(), kMagic.size()) != 0)
    return std::nullopt;
  const bool is_split = error.field == kSplitCount;
  FileFinding finding{.where = error.field.empty() ? "file" : error.field,
                      .what = error.message,
                      .why = "no program can read the file as it is",
                      .remedy = !error.hint.empty()
                                    ? error.hint
                                    : "download or convert the file again, and compare "
                                      "its size and hash with the publisher's",
                      .check = "file"};
  if (is_split) finding.why = "tensors of the model lie in files that are not there";
  if (finding.what.find("missing") != std::string::npos && !is_split) {
    finding.why = "the file is incomplete: a download or a copy was cut short";
    finding.remedy += "; download it again";
  }
  return finding;
}

void report_layout(LintContext& patient, LayoutFault fault) {
  patient.copy({.where = std::move(fault.where),
                .what = std::move(fault.what),
                .why = "programs reject the file, although all bytes of its tensors are there",
                .remedy = "the copy of --fix has them where they must be"},
               std::move(fault.mend));
}

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat of_a = {};
  struct stat of_b = {};
  return ::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0 &&
         of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

Status write_mended(const LintContext& patient, const std::string& path) {
  for (const MappedFile::Part& part : patient.file().parts()) {
    if (is_same_file(part.path, path))
      return Error{ErrorCode::kUsage, "--fix",
                   fmt::format("found {}, which is read, need another file", path)};
  }
  const GgufFile& gguf = patient.gguf();
  GgufWriter writer(gguf.alignment());
  for (const GgufEntry& entry : gguf.entries()) writer.add_entry(entry);
  for (const GgufTensor& tensor : gguf.tensors())
    writer.add_tensor(tensor.name, tensor.type, std::span(tensor.dims).first(tensor.n_dims));
  LLM_TRY(AtomicFile file, AtomicFile::create(path));
  GgufStream stream(writer, [&](std::span<const std::byte> bytes) { return file.write(bytes); });
  LLM_RETURN_IF_ERROR(stream.begin());
  for (const GgufTensor& tensor : gguf.tensors())
    LLM_RETURN_IF_ERROR(stream.write(gguf.tensor_data(tensor)));
  LLM_RETURN_IF_ERROR(stream.finish());
  LLM_RETURN_IF_ERROR(patient.file().check_unchanged());
  return file.commit();
}

std::string finding_text(const FileFinding& f) {
  constexpr std::size_t kLine = 400;
  std::string text = fmt::format("{} [{}] {}: {}\n    why: {}\n    remedy: {}\n",
                                 severity_name(f.severity), f.check, shown(f.where),
                                 shown(f.what, kLine), shown(f.why, kLine), shown(f.remedy, kLine));
  if (!f.mend.empty()) text += fmt::format("    --fix: {}\n", shown(f.mend));
  return text;
}

}  // namespace

std::size_t Examination::count(Severity severity) const {
  return static_cast<std::size_t>(std::ranges::count(findings, severity, &FileFinding::severity));
}

bool Examination::healthy() const { return count(Severity::kNote) == findings.size(); }

Result<Examination> examine(const std::string& path, const DoctorOptions& options) {
  auto open = open_gguf_file(path);
  std::vector<LayoutFault> faults;
  // Bytes that belong to no tensor may show that tensors lie elsewhere.
  if (!open.ok() || (open->file.parts().size() == 1 && open->gguf.trailing_bytes() > 0)) {
    auto salvaged = salvage_gguf_file(path);
    if (salvaged.ok() && !salvaged->faults.empty()) {
      open = std::move(salvaged->open);
      faults = std::move(salvaged->faults);
    }
  }
  if (!open.ok()) {
    std::optional<FileFinding> finding = unreadable(path, open.error());
    if (!finding) return std::move(open).error();
    return Examination{.findings = {*std::move(finding)}};
  }
  LintContext patient(std::move(open).value(), path);
  patient.begin_check("file");
  for (LayoutFault& fault : faults) report_layout(patient, std::move(fault));
  for (const Check& check : kChecks) {
    if (!patient.is_model() && check.run != check_file) continue;
    patient.begin_check(check.name);
    check.run(patient);
  }
  patient.begin_check("blocks");
  check_blocks(patient, options.threads > 0 ? options.threads : available_cpus(), options.progress);
  patient.begin_check("loads");
  if (patient.is_model()) check_loads(patient);
  LLM_RETURN_IF_ERROR(patient.file().check_unchanged());
  Examination done{.findings = patient.findings(), .n_tensors = patient.gguf().tensors().size()};
  std::ranges::stable_sort(done.findings, std::greater(), &FileFinding::severity);
  const auto has_mend = [](const FileFinding& finding) { return !finding.mend.empty(); };
  if (!options.fix.empty() && std::ranges::any_of(done.findings, has_mend)) {
    LLM_RETURN_IF_ERROR(write_mended(patient, options.fix));
    done.written = true;
  }
  return done;
}

std::string doctor_text(const std::string& path, const Examination& examination) {
  std::string text;
  for (const FileFinding& finding : examination.findings) text += finding_text(finding);
  const auto count = [&](Severity severity) { return examination.count(severity); };
  return text + fmt::format("{}: {}: {} errors, {} warnings, {} notes{}\n", shown(path),
                            examination.healthy() ? "nothing wrong" : "FAULTY",
                            count(Severity::kError), count(Severity::kWarning),
                            count(Severity::kNote),
                            examination.written ? "; repaired copy written" : "");
}

std::string doctor_json(const std::string& path, const Examination& examination) {
  OrderedJson findings = OrderedJson::array();
  for (const FileFinding& f : examination.findings) {
    findings.push_back({{"severity", severity_name(f.severity)},
                        {"check", f.check},
                        {"where", f.where},
                        {"what", f.what},
                        {"why", f.why},
                        {"remedy", f.remedy},
                        {"mend", f.mend}});
  }
  const OrderedJson all = {{"schema_version", 1},
                           {"file", path},
                           {"healthy", examination.healthy()},
                           {"written", examination.written},
                           {"findings", std::move(findings)}};
  return json_text(all, 2) + "\n";
}

}  // namespace llm
