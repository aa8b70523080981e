#include "tests/fault_injection/runner.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <regex>
#include <sstream>
#include <utility>

#include "base/check.h"

namespace llm::faults {
namespace {

constexpr int kMostSeconds = 60;

/// What a child writes after all that it said on stderr: whether a fault struck, then a complaint a
/// line.
constexpr std::string_view kStruck = "\n== struck\n";
constexpr std::string_view kQuiet = "\n== quiet\n";

std::string line_of(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text + "\n";
}

[[noreturn]] void run_child(const Bench& bench, const Row& row, const std::string& check, int out) {
  ::alarm(kMostSeconds);
  ::dup2(out, STDERR_FILENO);  // what one that aborts says
  plant(row.id);
  for (const auto& [needs, add] : kModelParts)
    if (row.needs == needs) add(*bench.model);
  const Complaints complaints = run_check(check, bench);
  std::string text(has_struck() ? kStruck : kQuiet);
  for (const std::string& complaint : complaints) text += line_of(complaint);
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(out, text.data() + at, text.size() - at);
    if (n <= 0) break;
    at += static_cast<std::size_t>(n);
  }
  ::_exit(0);
}

/// A check that runs in a process of its own.
struct Job {
  pid_t pid;
  int in;
  std::string text = {};
};

Job start(const Bench& bench, const Row& row, const std::string& check) {
  int ends[2];
  LLM_CHECK(::pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  LLM_CHECK(pid >= 0);
  if (pid == 0) {
    ::close(ends[0]);
    run_child(bench, row, check, ends[1]);
  }
  ::close(ends[1]);
  return {pid, ends[0]};
}

/// @return whether there is more to come
bool read_some(Job& job) {
  char buffer[4096];
  const ssize_t n = ::read(job.in, buffer, sizeof(buffer));
  if (n > 0) job.text.append(buffer, static_cast<std::size_t>(n));
  return n > 0;
}

Outcome finish(Job& job) {
  ::close(job.in);
  int status = 0;
  rusage used{};
  ::wait4(job.pid, &status, 0, &used);
  Outcome out;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  out.seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
  if (WIFSIGNALED(status)) {
    out.end = WTERMSIG(status) == SIGALRM ? fmt::format("no end after {} s", kMostSeconds)
                                          : fmt::format("signal {}", WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    out.end = fmt::format("exit code {}", WEXITSTATUS(status));
  }
  const std::size_t struck = job.text.find(kStruck);
  out.struck = struck != std::string::npos || !out.end.empty();
  if (out.end.empty())
    job.text.erase(0, out.struck ? struck + kStruck.size() : job.text.find(kQuiet) + kQuiet.size());
  std::istringstream lines(job.text);
  for (std::string line; std::getline(lines, line);) out.complaints.push_back(line);
  return out;
}

/// A fault on its way through its checks.
struct Trial {
  const Row* row;
  std::vector<std::string> checks;
  std::size_t at = 0;
  Job job;
  bool struck = false;
  double seconds = 0;
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

}  // namespace

bool Judgement::named() const {
  if (check.empty()) return false;
  if (!row->control.empty()) return true;
  const std::regex names(row->names);
  return std::ranges::any_of(outcome.complaints, [&](const std::string& complaint) {
    return std::regex_search(complaint, names);
  });
}

Outcome run_apart(const Bench& bench, const Row& row, const std::string& check) {
  Job job = start(bench, row, check);
  while (read_some(job)) {
  }
  return finish(job);
}

std::vector<Judgement> judge(const Bench& bench, const std::vector<Row>& rows, int jobs) {
  std::vector<Judgement> judged(rows.size());
  std::map<std::string, Outcome> controls;  // what a check says of a control fault
  for (const Row& row : rows) {
    if (row.control.empty()) continue;
    Row control = row;
    control.id = row.control;
    controls[row.id] = run_apart(bench, control, words_of(row.checks).front());
  }
  std::vector<Trial> running;
  std::size_t next = 0;
  const auto begin = [&](Trial& trial) {
    trial.job = start(bench, *trial.row, trial.checks[trial.at]);
  };
  while (next < rows.size() || !running.empty()) {
    while (next < rows.size() && running.size() < static_cast<std::size_t>(jobs)) {
      const Row& row = rows[next++];
      std::vector<std::string> checks = words_of(row.checks);
      std::erase_if(checks, [&](const auto& c) { return !has_reference(c, bench); });
      judged[next - 1].row = &row;
      if (checks.empty()) continue;
      running.push_back({.row = &row, .checks = std::move(checks), .job = {}});
      begin(running.back());
    }
    std::vector<pollfd> ends;
    for (const Trial& trial : running) ends.push_back({trial.job.in, POLLIN, 0});
    ::poll(ends.data(), ends.size(), -1);
    for (std::size_t i = ends.size(); i-- > 0;) {
      if (ends[i].revents == 0 || read_some(running[i].job)) continue;
      Trial& trial = running[i];
      const Row& row = *trial.row;
      Outcome outcome = finish(trial.job);
      trial.struck = trial.struck || outcome.struck;
      trial.seconds += outcome.seconds;
      const bool found = row.control.empty() ? outcome.found() && outcome.struck
                                             : outcome.complaints != controls[row.id].complaints;
      if (!found && ++trial.at < trial.checks.size()) {
        begin(trial);
        continue;
      }
      Judgement& judgement = judged[static_cast<std::size_t>(&row - rows.data())];
      judgement.check = found ? trial.checks[trial.at] : "";
      judgement.outcome = std::move(outcome);
      judgement.struck = trial.struck || !row.control.empty();
      judgement.seconds = trial.seconds;
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return judged;
}

}  // namespace llm::faults
