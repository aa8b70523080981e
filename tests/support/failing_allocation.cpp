// A shared object that tests load into a tool by LD_PRELOAD: memory runs out at the k-th request.
//
//   LLM_FAIL_ALLOCATION=17     the 17th request is refused
//   LLM_FAIL_ALLOCATION=17+    that one and all after it
//   LLM_COUNT_ALLOCATIONS=FILE how many there were is written there at the end
//
// Requests are those of malloc, calloc, realloc, aligned_alloc, posix_memalign and mmap, so those
// of operator new and of libraries too, from main() on: what libraries need before it, they end the
// process without. glibc's own functions do the work (__libc_malloc, ...).

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

std::atomic<std::uint64_t> requests = 0;
std::atomic<bool> is_in_main = false;
int (*real_main)(int, char**, char**) = nullptr;

int counted_main(int argc, char** argv, char** environment) {
  is_in_main = true;
  return real_main(argc, argv, environment);
}

struct Plan {
  std::uint64_t first = 0;  // 0: none fails
  bool from_there_on = false;
};

Plan read_plan() {
  Plan plan;
  const char* text = std::getenv("LLM_FAIL_ALLOCATION");
  for (; text != nullptr && *text >= '0' && *text <= '9'; ++text)
    plan.first = plan.first * 10 + static_cast<std::uint64_t>(*text - '0');
  plan.from_there_on = text != nullptr && *text == '+';
  return plan;
}

bool refused() {
  if (!is_in_main) return false;
  static const Plan plan = read_plan();
  const std::uint64_t k = ++requests;
  const bool fails = plan.first != 0 && (plan.from_there_on ? k >= plan.first : k == plan.first);
  if (fails) errno = ENOMEM;
  return fails;
}

struct AtEnd {
  ~AtEnd() {
    const char* path = std::getenv("LLM_COUNT_ALLOCATIONS");
    const int file = path == nullptr ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0) return;
    char digits[20];
    std::size_t at = sizeof digits;
    for (std::uint64_t n = requests; n > 0; n /= 10) digits[--at] = static_cast<char>('0' + n % 10);
    const ssize_t ignored = write(file, digits + at, sizeof digits - at);
    static_cast<void>(ignored);
    close(file);
  }
} at_end;

}  // namespace

extern "C" {

// What a program's start calls: initializers first, then main.
int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                      void (*fini)(), void (*loader_fini)(), void* stack_end) {
  real_main = main;
  const auto start =
      reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(counted_main, argc, argv, init, fini, loader_fini, stack_end);
}

void* malloc(std::size_t size) { return refused() ? nullptr : __libc_malloc(size); }

void* calloc(std::size_t count, std::size_t size) {
  return refused() ? nullptr : __libc_calloc(count, size);
}

void* realloc(void* old, std::size_t size) {
  return refused() ? nullptr : __libc_realloc(old, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return refused() ? nullptr : __libc_memalign(alignment, size);
}

int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  if (refused()) return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}

void* mmap(void* at, std::size_t size, int protection, int flags, int file, off_t offset) {
  if (refused()) return MAP_FAILED;
  const long mapped = syscall(SYS_mmap, at, size, protection, flags, file, offset);
  return reinterpret_cast<void*>(mapped);  // MAP_FAILED is -1
}
}
