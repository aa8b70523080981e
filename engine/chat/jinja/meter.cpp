#include "engine/chat/jinja/meter.h"

#include <fmt/format.h>

#include <ctime>
#include <exception>
#include <optional>

#include "base/bounded_stack.h"
#include "engine/chat/jinja/lexer.h"

namespace llm::jinja {
namespace {

constexpr std::size_t kLookUnits = 4096 * Meter::kStepUnits;

[[noreturn]] void exceed(std::string limit) { throw Exceeded{std::move(limit)}; }

std::chrono::nanoseconds thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

constinit thread_local Meter* meter_here = nullptr;

Meter::Meter(std::size_t most_bytes, const RenderLimits& limits)
    : most_bytes_(most_bytes),
      limits_(limits),
      begin_(std::chrono::steady_clock::now()),
      next_look_(kLookUnits) {
  meter_here = this;
}

Meter::~Meter() { meter_here = nullptr; }

void Meter::look() {
  next_look_ = units_ + kLookUnits;
  if (units_ > kMaxSteps * kStepUnits)
    exceed(fmt::format("found more than {} steps, need fewer", kMaxSteps));
  if (thread_time() > limits_.most_work)  // the thread is the meter's own
    exceed(fmt::format("found more than {} ms of work, need less", limits_.most_work.count()));
  if (std::chrono::steady_clock::now() - begin_ > limits_.most_time)
    exceed(fmt::format("found more than {} ms, need fewer", limits_.most_time.count()));
  if (limits_.is_given_up && limits_.is_given_up())
    exceed("found that no client waits for the result");
}

void Meter::take(std::size_t bytes) {
  if (bytes > most_bytes_ || bytes_ > most_bytes_ - bytes)
    exceed(fmt::format("found more than {} MiB of memory, need less", most_bytes_ >> 20));
  bytes_ += bytes;
}

void Meter::enter() {
  if (levels_ >= kMaxLevels) {
    exceed(fmt::format("found more than {} evaluations inside each other, need fewer", kMaxLevels));
  }
  ++levels_;
}

Status metered(std::size_t most_bytes, const RenderLimits& limits,
               const std::function<Status(Meter&)>& work) {
  std::optional<Status> result;
  LLM_RETURN_IF_ERROR(run_on_stack(Meter::kStackBytes, [&] {
    Meter meter(most_bytes, limits);
    try {
      result = work(meter);
    } catch (const Exceeded& exceeded) {
      result = template_error(ErrorCode::kResource, meter.line, exceeded.limit);
    }
  }));
  return *std::move(result);
}

}  // namespace llm::jinja
