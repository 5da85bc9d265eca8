#include "api/bundled.h"

#include <cstddef>

#ifdef NEEDLE_BUNDLED_CHECKPOINT
// The assembler reads the files, so no tool and no intermediate source is needed. `name`_begin and
// `name`_end enclose the bytes.
#if defined(__APPLE__)
#define NEEDLE_SECTION ".const_data\n"
#define NEEDLE_SYMBOL(name) "_" #name
#elif defined(_WIN32)
#define NEEDLE_SECTION ".section .rdata,\"dr\"\n"
#define NEEDLE_SYMBOL(name) #name
#else
#define NEEDLE_SECTION ".section .rodata\n"
#define NEEDLE_SYMBOL(name) #name
#endif
#if defined(__ELF__)
#define NEEDLE_HIDE(name) ".hidden " #name "\n"
#else
#define NEEDLE_HIDE(name)
#endif
#define NEEDLE_EMBED(name, file)                                                              \
  asm(NEEDLE_SECTION ".balign 16\n"                                                         \
      ".globl " NEEDLE_SYMBOL(name##_begin) "\n" NEEDLE_HIDE(name##_begin)                  \
      NEEDLE_SYMBOL(name##_begin) ":\n"                                                     \
      ".incbin \"" file "\"\n"                                                              \
      ".globl " NEEDLE_SYMBOL(name##_end) "\n" NEEDLE_HIDE(name##_end)                      \
      NEEDLE_SYMBOL(name##_end) ":\n"                                                       \
      ".byte 0\n.text\n"); \
  extern "C" const uint8_t name##_begin[], name##_end[]

NEEDLE_EMBED(needle_bundled_checkpoint, NEEDLE_BUNDLED_CHECKPOINT);
NEEDLE_EMBED(needle_bundled_tokenizer, NEEDLE_BUNDLED_TOKENIZER);

namespace needle {

bool HasBundledBase() { return true; }
std::span<const uint8_t> BundledCheckpoint() {
  return {needle_bundled_checkpoint_begin, needle_bundled_checkpoint_end};
}
std::span<const uint8_t> BundledTokenizer() {
  return {needle_bundled_tokenizer_begin, needle_bundled_tokenizer_end};
}

}  // namespace needle
#else
namespace needle {

bool HasBundledBase() { return false; }
std::span<const uint8_t> BundledCheckpoint() { return {}; }
std::span<const uint8_t> BundledTokenizer() { return {}; }

}  // namespace needle
#endif
