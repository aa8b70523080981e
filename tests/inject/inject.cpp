// A shared object that tests load into a program by LD_PRELOAD: the k-th call of a kind fails.
//
//   LLM_INJECT=memory:17         the 17th request for memory is refused
//   LLM_INJECT=memory,map:17+    of requests and mappings, the 17th and all after it
//   LLM_INJECT_STATE=FILE        the plan and the count stand in FILE, mapped, so that another
//                                process may read and change them (struct State); it exists, with
//                                its size
//
// Calls count from main() on: what libraries need before it, they end the process without. A kind
// is what the system refuses for one reason; kNames has their names.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

enum Kind { kMemory, kMap, kThread, kRead, kWrite, kSync, kRename, kOpen };
constexpr std::string_view kNames[] = {"memory", "map",  "thread", "read",
                                       "write",  "sync", "rename", "open"};

struct State {
  std::atomic<std::uint64_t> kinds;  // that count, as bits; 0: none
  std::atomic<std::uint64_t> first;  // the call that fails; 0: none
  std::atomic<std::uint64_t> for_good;
  std::atomic<std::uint64_t> count;  // calls so far
};

State own_state{};
State* state = &own_state;
std::atomic<bool> is_in_main = false;
int (*real_main)(int, char**, char**) = nullptr;

void read_plan(std::string_view text) {
  std::uint64_t kinds = 0;
  const std::string_view names = text.substr(0, text.find(':'));
  for (std::string_view rest = names; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    for (unsigned i = 0; i < std::size(kNames); ++i) {
      if (kNames[i] == name) kinds |= std::uint64_t{1} << i;
    }
  }
  const std::string_view number = text.substr(names.size() < text.size() ? names.size() + 1 : 0);
  state->first = std::strtoull(number.data(), nullptr, 10);
  state->for_good = !number.empty() && number.back() == '+' ? 1 : 0;
  state->kinds = kinds;
}

int counted_main(int argc, char** argv, char** environment) {
  if (const char* path = std::getenv("LLM_INJECT_STATE")) {
    const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0));
    const long mapped =
        syscall(SYS_mmap, nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (mapped == -1) return 99;  // no code of the tools
    state = reinterpret_cast<State*>(mapped);
  }
  if (const char* plan = std::getenv("LLM_INJECT")) read_plan(plan);
  is_in_main = true;
  return real_main(argc, argv, environment);
}

bool fails(Kind kind, int number) {
  if (!is_in_main || (state->kinds >> kind & 1) == 0) return false;
  const std::uint64_t first = state->first;
  const std::uint64_t k = ++state->count;
  if (first == 0 || (state->for_good != 0 ? k < first : k != first)) return false;
  errno = number;
  return true;
}

template <typename Function>
Function* next_of(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// NAME(PARAMETERS), which calls the next one with ARGUMENTS, or fails.
#define LLM_CALL(kind, number, failed, result, name, parameters, ...)             \
  result name parameters {                                                        \
    static auto* const next = next_of<result parameters>(#name);                  \
    return fails(kind, number) ? static_cast<result>(failed) : next(__VA_ARGS__); \
  }

extern "C" {

// What a program's start calls: initializers first, then main.
int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                      void (*fini)(), void (*loader_fini)(), void* stack_end) {
  real_main = main;
  return next_of<decltype(__libc_start_main)>("__libc_start_main")(counted_main, argc, argv, init,
                                                                   fini, loader_fini, stack_end);
}

void* malloc(std::size_t size) { return fails(kMemory, ENOMEM) ? nullptr : __libc_malloc(size); }

void* calloc(std::size_t count, std::size_t size) {
  return fails(kMemory, ENOMEM) ? nullptr : __libc_calloc(count, size);
}

void* realloc(void* old, std::size_t size) {
  return fails(kMemory, ENOMEM) ? nullptr : __libc_realloc(old, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return fails(kMemory, ENOMEM) ? nullptr : __libc_memalign(alignment, size);
}

int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  if (fails(kMemory, ENOMEM)) return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}

void* mmap(void* at, std::size_t size, int protection, int flags, int file, off_t offset) {
  if (fails(kMap, ENOMEM)) return MAP_FAILED;
  const long mapped = syscall(SYS_mmap, at, size, protection, flags, file, offset);
  return reinterpret_cast<void*>(mapped);  // MAP_FAILED is -1
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  static auto* const next = next_of<decltype(pthread_create)>("pthread_create");
  return fails(kThread, EAGAIN) ? EAGAIN : next(thread, attributes, start, argument);
}

LLM_CALL(kRead, EIO, -1, ssize_t, read, (int file, void* to, std::size_t n), file, to, n)
LLM_CALL(kRead, EIO, -1, ssize_t, pread, (int file, void* to, std::size_t n, off_t at), file, to, n,
         at)
LLM_CALL(kRead, ECONNRESET, -1, ssize_t, recv, (int file, void* to, std::size_t n, int flags), file,
         to, n, flags)
LLM_CALL(kRead, ECONNRESET, -1, ssize_t, recvmsg, (int file, msghdr* to, int flags), file, to,
         flags)

LLM_CALL(kWrite, ENOSPC, -1, ssize_t, write, (int file, const void* from, std::size_t n), file,
         from, n)
LLM_CALL(kWrite, ENOSPC, -1, ssize_t, pwrite, (int file, const void* from, std::size_t n, off_t at),
         file, from, n, at)
LLM_CALL(kWrite, ENOSPC, -1, ssize_t, writev, (int file, const iovec* from, int n), file, from, n)
LLM_CALL(kWrite, ENOSPC, -1, int, ftruncate, (int file, off_t size), file, size)
LLM_CALL(kWrite, ECONNRESET, -1, ssize_t, send,
         (int file, const void* from, std::size_t n, int flags), file, from, n, flags)
LLM_CALL(kWrite, ECONNRESET, -1, ssize_t, sendmsg, (int file, const msghdr* from, int flags), file,
         from, flags)

LLM_CALL(kSync, EIO, -1, int, fsync, (int file), file)
LLM_CALL(kSync, EIO, -1, int, fdatasync, (int file), file)

LLM_CALL(kRename, EIO, -1, int, rename, (const char* from, const char* to), from, to)
LLM_CALL(kRename, EIO, -1, int, linkat,
         (int at, const char* from, int to_at, const char* to, int flags), at, from, to_at, to,
         flags)

LLM_CALL(kOpen, EMFILE, -1, int, socket, (int domain, int type, int protocol), domain, type,
         protocol)
LLM_CALL(kOpen, EMFILE, -1, int, accept, (int file, sockaddr* from, socklen_t* n), file, from, n)
LLM_CALL(kOpen, EMFILE, -1, int, accept4, (int file, sockaddr* from, socklen_t* n, int flags), file,
         from, n, flags)
LLM_CALL(kOpen, EMFILE, -1, int, epoll_create1, (int flags), flags)
LLM_CALL(kOpen, EMFILE, -1, int, eventfd, (unsigned int value, int flags), value, flags)
LLM_CALL(kOpen, EMFILE, -1, int, timerfd_create, (clockid_t clock, int flags), clock, flags)
LLM_CALL(kOpen, EMFILE, nullptr, FILE*, fopen, (const char* path, const char* mode), path, mode)

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  static auto* const next = next_of<decltype(open)>("open");
  return fails(kOpen, EMFILE) ? -1 : next(path, flags, mode);
}
}
