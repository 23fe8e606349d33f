#include "tests/emulation/fibers.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

// The sanitizers', where the program has them.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack,
                                                          const void* bottom,
                                                          size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake_stack,
                                                           const void** bottom,
                                                           size_t* size);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*,
                                                         size_t size);
__attribute__((weak)) void __tsan_acquire(void* place);
__attribute__((weak)) void __tsan_release(void* place);
__attribute__((weak)) void __tsan_ignore_thread_begin(void);
__attribute__((weak)) void __tsan_ignore_thread_end(void);
__attribute__((weak)) void* __tsan_get_current_fiber(void);
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void* fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}

// Turns are no business of TSan's: they order nothing.
#define UNSEEN __attribute__((no_sanitize_thread, noinline))

namespace emulation {

struct Fiber {
  ucontext_t context;
  uint32_t index;
  Fiber* next;  // in a queue
  const char* waits_for;
  const void* stack;
  size_t stack_bytes;
  void* fake_stack;  // ASan's
  void* of_tsan;
};

namespace {

constexpr size_t kStackBytes = 256 * 1024;
constexpr uint64_t kTurnsInVain = 10'000'000;
constexpr unsigned kNoSync = 1;  // __tsan_switch_to_fiber_no_sync

struct Turns {
  Fiber main = {};
  Fiber* running;  // null: no fibers
  Fiber* first;    // who can go on
  Fiber* last;
  Fiber* fibers;
  const std::function<void(uint32_t)>* body;
  uint32_t count, group, begun, ended;
  uint64_t in_vain;  // turns since somebody was woken
  uint32_t random;
};
Turns turns;
char ends;  // released by each

void Entry();

[[noreturn]] UNSEEN void Stuck(const char* how) {
  std::fprintf(stderr, "emulation: %s\n", how);
  uint32_t waiting = 0;
  for (uint32_t i = 0; i < turns.count; i++) {
    const char* what = turns.fibers[i].waits_for;
    if (what == nullptr || waiting++ >= 8) continue;
    std::fprintf(stderr, "  block %u, thread %u waits for %s\n",
                 i / turns.group, i % turns.group, what);
  }
  std::fprintf(stderr, "  %u wait in all\n", waiting);
  std::abort();
}

UNSEEN void PushBack(Fiber* fiber) {
  fiber->next = nullptr;
  (turns.first == nullptr ? turns.first : turns.last->next) = fiber;
  turns.last = fiber;
}

UNSEEN void PushFront(Fiber* fiber) {
  if (turns.first == nullptr) turns.last = fiber;
  fiber->next = turns.first;
  turns.first = fiber;
}

// By a coin first or last: the order is one that the kernel does not know.
UNSEEN void Push(Fiber* fiber) {
  turns.random ^= turns.random << 13;
  turns.random ^= turns.random >> 17;
  turns.random ^= turns.random << 5;
  (turns.random >> 16) % 2 != 0 ? PushFront(fiber) : PushBack(fiber);
}

UNSEEN Fiber* Next() {
  if (turns.ended == turns.count) return &turns.main;
  if (turns.first == nullptr || turns.in_vain > kTurnsInVain) {
    if (turns.begun == turns.count) {
      Stuck(turns.first == nullptr ? "all threads that are left wait"
                                   : "threads turn in circles");
    }
    for (uint32_t i = 0; i < turns.group && turns.begun < turns.count; i++) {
      PushBack(turns.fibers + turns.begun++);
    }
    turns.in_vain = 0;
  }
  Fiber* fiber = turns.first;
  turns.first = fiber->next;
  return fiber;
}

// fake_stack: where ASan keeps the one that is left; null: it is left for good.
UNSEEN void SwitchTo(Fiber* to, void** fake_stack) {
  Fiber* from = turns.running;
  if (to == from) return;
  turns.running = to;
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(fake_stack, to->stack, to->stack_bytes);
  }
  if (__tsan_switch_to_fiber != nullptr) {
    __tsan_switch_to_fiber(to->of_tsan, kNoSync);
  }
  swapcontext(&from->context, &to->context);
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
  }
}

UNSEEN void LetNextRun() { SwitchTo(Next(), &turns.running->fake_stack); }

UNSEEN Fiber* Begin() {
  if (__sanitizer_finish_switch_fiber != nullptr) {
    const void* bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (turns.main.stack == nullptr) {  // the first comes from there
      turns.main.stack = bottom;
      turns.main.stack_bytes = size;
    }
  }
  return turns.running;
}

UNSEEN void End() {
  turns.ended++;
  turns.in_vain = 0;
  SwitchTo(Next(), nullptr);
}

void Entry() {
  (*turns.body)(Begin()->index);
  Release(&ends);
  End();
}

// Stacks of earlier runs serve again; each has a page below that nobody may touch.
const void* StackOf(uint32_t index) {
  static std::vector<uint8_t*> stacks;
  constexpr size_t kGuard = 4096;
  while (stacks.size() <= index) {
    void* memory = mmap(nullptr, kGuard + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) {
      std::perror("emulation: a stack");
      std::abort();
    }
    stacks.push_back(static_cast<uint8_t*>(memory) + kGuard);
  }
  return stacks[index];
}

void Prepare(uint32_t index, Fiber* fiber) {
  fiber->index = index;
  fiber->stack = StackOf(index);
  fiber->stack_bytes = kStackBytes;
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = const_cast<void*>(fiber->stack);
  fiber->context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber->context, Entry, 0);
  // Of a stack of known size ASan forgets what it knows at each switch.
  fiber->context.uc_stack.ss_size = 0;
  if (__asan_unpoison_memory_region != nullptr) {
    __asan_unpoison_memory_region(fiber->stack, kStackBytes);
  }
  // What was written before is there for the fiber.
  if (__tsan_create_fiber != nullptr) fiber->of_tsan = __tsan_create_fiber(0);
}

}  // namespace

void RunFibers(uint32_t count, uint32_t group,
               const std::function<void(uint32_t)>& body) {
  std::vector<Fiber> fibers(count);
  turns.running = &turns.main;
  turns.first = nullptr;
  turns.fibers = fibers.data();
  turns.body = &body;
  turns.count = count;
  turns.group = group;
  turns.begun = turns.ended = 0;
  turns.in_vain = 0;
  turns.random = 1;
  for (uint32_t i = 0; i < count; i++) Prepare(i, &fibers[i]);
  if (__tsan_get_current_fiber != nullptr) {
    turns.main.of_tsan = __tsan_get_current_fiber();
  }
  if (count != 0) LetNextRun();
  turns.running = nullptr;
  Acquire(&ends);
  if (__tsan_destroy_fiber != nullptr) {
    for (const Fiber& fiber : fibers) __tsan_destroy_fiber(fiber.of_tsan);
  }
}

UNSEEN uint32_t FiberIndex() { return turns.running->index; }
UNSEEN bool InFiber() { return turns.running != nullptr; }

UNSEEN void Yield() {
  Fiber* fiber = turns.running;
  fiber->waits_for = "memory to change";
  turns.in_vain++;
  PushBack(fiber);
  LetNextRun();
  fiber->waits_for = nullptr;
}

UNSEEN void Waiters::Wait(const char* what) {
  Fiber* fiber = turns.running;
  fiber->waits_for = what;
  fiber->next = first_;
  first_ = fiber;
  LetNextRun();
  fiber->waits_for = nullptr;
}

UNSEEN void Waiters::WakeAll() {
  if (first_ != nullptr) turns.in_vain = 0;
  while (first_ != nullptr) {
    Fiber* fiber = first_;
    first_ = fiber->next;
    Push(fiber);
  }
}

void Release(const void* place) {
  if (__tsan_release != nullptr) __tsan_release(const_cast<void*>(place));
}
void Acquire(const void* place) {
  if (__tsan_acquire != nullptr) __tsan_acquire(const_cast<void*>(place));
}

Unseen::Unseen() {
  if (__tsan_ignore_thread_begin != nullptr) __tsan_ignore_thread_begin();
}
Unseen::~Unseen() {
  if (__tsan_ignore_thread_end != nullptr) __tsan_ignore_thread_end();
}

}  // namespace emulation
