// The files that llmload reads: lengths and calibrations, good, hostile, and of something else.

#include "tests/support/json.h"
#include "tests/support/test.h"
#include "tools/llmload/calibration.h"
#include "tools/llmload/lengths.h"

namespace llm::test {
namespace {

Calibration some_calibration() {
  Calibration c;
  c.subject = {.model_sha256 = "ab",
               .compute = "int8",
               .kv = "f16",
               .cpu = "x",
               .isa = "avx2",
               .threads = 2,
               .step_tokens = 256,
               .parallel = 16,
               .context = 400};
  c.costs = CostModel({1e-4, 3e-5, 2e-5, 2e-5, 1e-5, 1e-8, 4e-7, 1e-5, 3e-5});
  Residuals::Group group{.up_to = 1e-3, .ratios = {}};
  group.ratios.fill(1.25);
  c.residuals = Residuals({group, {.up_to = 2e-3, .ratios = group.ratios}});
  c.fit = {.r2 = 0.99, .median_error = 0.02, .p95_error = 0.1};
  c.n_steps = 120;
  return c;
}

}  // namespace

TEST_CASE("a hostile file of lengths is refused by place, value and rule", "[llmload][bad_input]") {
  const auto refused = [](const std::string& text, const std::string& part) {
    CAPTURE(text.substr(0, 200), part);
    must_fail(LengthDistribution::parse(text), ErrorCode::kMalformed, {part});
  };
  const auto with = [](const std::string& weight, const std::string& prompt) {
    return R"([{"prompt": [1, 2], "output": [1, 2]}, {"weight": )" + weight + R"(, "prompt": )" +
           prompt + R"(, "output": [1, 2]}])";
  };
  refused("", "lengths: found no JSON");
  refused("[{", "lengths: found no JSON");
  refused("\xff\xfe", "lengths: found no JSON");
  refused("{}", "lengths: found object, need a JSON array of 1..100000 classes");
  refused("[]", "lengths: found 0 classes");
  refused("[7]", "[0]: found number, need an object");
  refused(with("0", "[1, 2]"), "[1].weight: found 0, need a number above 0");
  refused(with("-1", "[1, 2]"), "[1].weight: found -1");
  refused(with("1e300", "[1, 2]"), "[1].weight: found 1e+300");
  refused(with("1e999", "[1, 2]"), "lengths: found no JSON");
  refused(with("\"1\"", "[1, 2]"), "[1].weight: found \"1\"");
  refused(with("null", "[1, 2]"), "[1].weight: found null");
  refused(with("1", "[2, 1]"), "[1].prompt: found [2,1], need [lowest, highest] in 1..1048576");
  refused(with("1", "[0, 1]"), "[1].prompt: found [0,1]");
  refused(with("1", "[1, 1048577]"), "[1].prompt: found [1,1048577]");
  refused(with("1", "[1, 99999999999999999999]"), "[1].prompt: found [1,");
  refused(with("1", "[1.5, 2]"), "[1].prompt: found [1.5,2]");
  refused(with("1", "[1]"), "[1].prompt: found [1]");
  refused(with("1", "[-1, 2]"), "[1].prompt: found [-1,2]");
  refused(with("1", "5"), "[1].prompt: found 5");
  refused(with("1", "{}"), "[1].prompt: found object");
  refused(R"([{"prompt": [1, 2]}])", "[0].output: found null");
  refused(R"([{"prompt": [1, 2], "output": [1, 2], "wieght": 2}])", "[0].wieght: unknown");
  // Deep nesting costs no stack.
  const std::size_t deep = effort<std::size_t>(1000000, 100000);
  refused(with("1", std::string(deep, '[') + std::string(deep, ']')), "[1].prompt: found array");
  std::string many = "[";
  for (std::size_t i = 0; i <= LengthDistribution::kMostClasses; ++i) many += "0,";
  refused(many + "0]", "found 100002 classes");

  const ScratchDirectory directory;
  const auto file = LengthDistribution::read(directory.write("bad.json", std::string("[]")));
  REQUIRE_THAT(file.error().to_string(), Contains("bad.json: lengths: found 0 classes"));
  REQUIRE(LengthDistribution::read(directory / "none").error().code == ErrorCode::kIo);
}

TEST_CASE("a calibration comes back from its file as it was", "[llmload]") {
  const Calibration saved = some_calibration();
  const auto read = require_ok(Calibration::parse(saved.to_json()));
  REQUIRE(read.to_json() == saved.to_json());
  REQUIRE(read.costs.seconds() == saved.costs.seconds());
}

TEST_CASE("a calibration of something else is refused by name", "[llmload][bad_input]") {
  const Calibration calibration = some_calibration();
  const auto refused = [&](auto change, const std::string& part, bool in_simulation) {
    CalibrationSubject wanted = calibration.subject;
    change(wanted);
    const Status status = calibration.check_fits(wanted, true);
    REQUIRE_FALSE(status.ok());
    REQUIRE(status.error().code == ErrorCode::kIntegrity);
    REQUIRE_THAT(status.error().to_string(), Contains(part));
    REQUIRE(calibration.check_fits(wanted, false).ok() != in_simulation);
  };
  REQUIRE(calibration.check_fits(calibration.subject, true).ok());
  using Subject = CalibrationSubject;
  refused([](Subject& s) { s.model_sha256 = "cd"; }, "model_sha256: found ab, need cd", true);
  refused([](Subject& s) { s.compute = "f32"; }, "compute: found int8, need f32", true);
  refused([](Subject& s) { s.kv = "f32"; }, "kv: found f16, need f32", true);
  refused([](Subject& s) { s.cpu = "y"; }, "cpu: found x, need y", false);
  refused([](Subject& s) { s.isa = "scalar"; }, "isa: found avx2, need scalar", false);
  refused([](Subject& s) { s.threads = 1; }, "threads: found 2, need 1", false);
  refused([](Subject& s) { s.step_tokens = 257; }, "step_tokens: found 256, need 257 or more",
          true);
  refused([](Subject& s) { s.parallel = 17; }, "parallel: found 16, need 17 or more", true);
  refused([](Subject& s) { s.context = 401; }, "context: found 400, need 401 or more", true);
}

TEST_CASE("a hostile calibration is refused by member, value and rule", "[llmload][bad_input]") {
  const Json good = test::parse_json(some_calibration().to_json());
  const auto refused = [](const std::string& text, ErrorCode code, const std::string& part) {
    CAPTURE(text, part);
    must_fail(Calibration::parse(text), code, {part});
  };
  refused("", ErrorCode::kMalformed, "calibration: found no JSON object");
  refused("[]", ErrorCode::kMalformed, "calibration: found no JSON object");
  refused(std::string(100000, '['), ErrorCode::kMalformed, "calibration: found no JSON object");
  for (const auto& [name, value] : good.items()) {
    Json without = good;
    without.erase(name);
    refused(json_text(without), ErrorCode::kMalformed, name);
    for (const Json& wrong : {Json(), Json(-1.5), Json::array({1}), Json(true)}) {
      if (wrong.is_number() && value.is_number_float()) continue;
      Json bad = good;
      bad[name] = wrong;
      refused(json_text(bad), ErrorCode::kMalformed, name);
    }
  }
  for (const auto& [name, value] : good["seconds"].items()) {
    Json bad = good;
    bad["seconds"].erase(name);
    refused(json_text(bad), ErrorCode::kMalformed, name + ": found nothing, need a number");
  }
  Json bad = good;
  bad["threads"] = 5000000000;
  refused(json_text(bad), ErrorCode::kMalformed,
          "threads: found 5000000000, need an integer from 1");
  bad["threads"] = 0;
  refused(json_text(bad), ErrorCode::kMalformed, "threads: found 0, need an integer from 1");
  bad = good;
  bad["schema_version"] = 1;
  refused(json_text(bad), ErrorCode::kUnsupported, "schema_version: found 1, need 2");
  const auto residuals = [&](auto change, const std::string& part) {
    Json other = good;
    change(other["residuals"]);
    refused(json_text(other), ErrorCode::kMalformed, part);
  };
  residuals([](Json& r) { r.clear(); }, "residuals: found 0 groups");
  residuals([](Json& r) { r[0] = 5; }, "residuals: found number");
  residuals([](Json& r) { r[0]["up_to_seconds"] = 1; }, "residuals: found 0.002 after 1");
  residuals([](Json& r) { r[0].erase("up_to_seconds"); }, "up_to_seconds: found nothing");
  residuals([](Json& r) { r[1]["ratios"].erase(0); }, "residuals: found other ratios");
  residuals([](Json& r) { r[1]["ratios"][63] = -0.5; }, "residuals: found a ratio of -0.5");
  residuals([](Json& r) { r[1]["ratios"][0] = 1e9; }, "residuals: found a ratio of 1000000000");
  residuals([](Json& r) { r[1]["ratios"][0] = "1"; }, "residuals: found a ratio of string");
}

}  // namespace llm::test
