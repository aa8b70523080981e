#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/state/kv_groups.h"

namespace llm {

using RequestId = std::uint64_t;

struct SchedulerOptions {
  std::size_t step_tokens = 256;  ///< most tokens of a step; not below `parallel`
  std::size_t parallel = 16;      ///< most requests that run at once
  std::size_t queue = 1024;       ///< most requests that wait
  std::size_t context = 0;        ///< most positions of a request
  std::size_t kv_pages = 0;       ///< pages that all running requests share
  KvGroups kv_groups = {};        ///< how many of them a request needs
};

/// The result of submitting a request.
enum class Admission {
  kAccepted,
  kQueueFull,  ///< no more may wait
  kTooLong,    ///< exceeds the context, or all pages
};

/// A request's part of a step: its tokens [first, first + n_tokens).
struct StepPart {
  RequestId id;
  std::size_t first;           ///< positions stored before, by the request or by others alike
  std::size_t n_tokens;        ///< 1 or more
  bool wants_logits;           ///< of the last token, for the next one: no known token is left
  std::size_t n_proposed = 0;  ///< tokens that may follow them, evaluated with them on trial

  bool operator==(const StepPart&) const = default;
};

struct Step {
  std::vector<RequestId> preempted;  ///< give back their pages before the step is evaluated
  std::vector<StepPart> parts;       ///< empty: nothing to do until a request is submitted
  std::size_t n_tokens = 0;          ///< of all parts
};

/// Decides what is evaluated next: which requests run, with how many tokens each, and which wait.
/// Counts only tokens and pages, without clock, threads, model or text, so a server, a load test
/// and a simulation decide equally.
///
///   first come, first served  running requests are older than waiting ones, always
///   decoding goes first       every running request with one known token left is in every step
///   chunked prefill           the rest of `step_tokens` goes to prompts, the oldest first; those
///                             that do not fit into one step (long ones) come last, and a quarter
///                             of `step_tokens` is theirs
///   admission                 when there are pages for all of a request's known tokens, as many
///                             as it holds at most during a step, which are then set aside for
///                             it; no request overtakes one that waits for pages; of long
///                             prompts two run at most
///   shared prefixes           before each part of a prompt it is asked how much of it is stored
///                             already; that is no part of any step, though its pages count
///   proposals                 a step of decoding requests alone takes tokens on trial, as many as
///                             its room and the requests' own pages hold
///   preemption                a request that needs one more page preempts the youngest running
///                             one, which waits before all younger ones and is recomputed later
///
/// No request may need more than all pages, so the oldest always continues: none starves.
/// Use: submit() and cancel() at any time; next(), evaluate it, complete(); again.
class Scheduler {
 public:
  /// Errors: kUsage naming the option that is 0, or step_tokens below parallel.
  static Result<Scheduler> create(const SchedulerOptions& options);

  /// The most tokens that may follow n_prompt: the last of them is never evaluated, so it needs no
  /// position. 0: the prompt alone exceeds the context.
  static std::size_t most_new(std::size_t context, std::size_t n_prompt) {
    return n_prompt > context ? 0 : context - n_prompt + 1;
  }
  /// Pages that are set aside for a request of `n_tokens`.
  static std::size_t pages_for(const SchedulerOptions& options, std::size_t n_tokens) {
    return options.kv_groups.most_pages(n_tokens, options.step_tokens);
  }
  /// Whether a request exceeds neither the context nor all pages. @pre n_new > 0
  static bool fits(const SchedulerOptions& options, std::size_t n_prompt, std::size_t n_new);

  /// @param id  larger than all before
  /// @param n_prompt  tokens known now, 1 or more
  /// @param n_new  tokens to generate at most, 1 or more
  Admission submit(RequestId id, std::size_t n_prompt, std::size_t n_new);

  /// Forgets a request, whatever it is at; of a step under way it has no part any more.
  /// @return false when there is none, or it has finished
  bool cancel(RequestId id);
  /// Forgets all requests, and the step under way.
  void reset();

  /// Asked before a part of a prompt gets its size: how many leading tokens of the request are
  /// stored, by whomever. `n_stored` of them are as far as the scheduler knows, 0 of a request that
  /// was just admitted. @return n_stored or more, fewer than it has
  using StoredPrefix = std::function<std::size_t(RequestId, std::size_t n_stored)>;

  /// Asked of each request of a step in which all have one known token left: how many tokens behind
  /// it are worth a trial. @return at most `most`
  using Proposed = std::function<std::size_t(RequestId, std::size_t most)>;

  /// The next step. @pre the last one was completed
  /// @param stored_prefix  empty: no request has tokens in common with another
  /// @param proposed  empty: nothing is tried
  /// @param most_long  1 or more: the most tokens of long prompts in a step with decoding requests
  Step next(const StoredPrefix& stored_prefix = {}, const Proposed& proposed = {},
            std::size_t most_long = SIZE_MAX);

  /// Of a part's proposed tokens, how many its request went on with.
  using Accepted = std::function<std::size_t(const StepPart&)>;

  /// The step of next() was evaluated: each part that wanted logits has a token more, and before it
  /// the proposed ones that were right.
  /// @param stopped  requests whose new token was their last (end of text, stop word)
  /// @param accepted  asked of parts with proposed tokens
  /// @return requests that are done, those among `stopped` and those with all their tokens
  std::vector<RequestId> complete(std::span<const RequestId> stopped = {},
                                  const Accepted& accepted = {});

  const SchedulerOptions& options() const { return options_; }
  std::size_t n_running() const { return n_running_; }
  std::size_t n_waiting() const { return requests_.size() - n_running_; }
  /// Pages set aside for running requests; what is stored never needs more.
  std::size_t pages_in_use() const { return pages_in_use_; }
  std::uint64_t preemptions() const { return preemptions_; }

 private:
  struct Request {
    RequestId id;
    std::size_t n_tokens;  ///< known: prompt and generated
    std::size_t most_tokens;
    std::size_t stored = 0;
    std::size_t pages = 0;
    bool is_long = false;  ///< since it was admitted, had more tokens left than a step takes

    bool is_prompt() const { return left() > 1; }
    std::size_t left() const { return n_tokens - stored; }
  };

  explicit Scheduler(const SchedulerOptions& options) : options_(options) {}

  std::size_t free_pages() const { return options_.kv_pages - pages_in_use_; }
  void set_pages(Request& request, std::size_t pages);
  /// Gives every running request the pages of its known tokens, the oldest first.
  void grow_pages(Step& step);
  /// @return false when none waits, or it must wait on
  bool admit_oldest();
  /// Asks how much of a prompt is stored, and whether the rest is long.
  void look_at(Request& request, const StoredPrefix& stored_prefix) const;
  /// As many of the request's tokens as the step has room for, if it takes no more than
  /// `step_tokens`.
  static void add_part(Step& step, const Request& request, std::size_t step_tokens);
  /// @param stored_prefix  asked of the first n_asked requests
  void add_long_parts(Step& step, std::size_t most, const StoredPrefix& stored_prefix,
                      std::size_t n_asked);
  /// Running requests with a long prompt that is not yet evaluated.
  std::size_t n_long() const;
  /// The most tokens of a step before long prompts get theirs.
  std::size_t short_tokens() const;
  void add_proposals(Step& step, const Proposed& proposed);
  std::vector<Request>::iterator find(RequestId id);
  void erase(std::vector<Request>::iterator request);

  SchedulerOptions options_;
  std::vector<Request> requests_;  ///< by age, so by id; the first n_running_ run
  std::size_t n_running_ = 0;
  std::size_t pages_in_use_ = 0;
  std::uint64_t preemptions_ = 0;
  std::vector<StepPart> under_way_;
};

}  // namespace llm
