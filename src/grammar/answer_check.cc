#include "grammar/answer_check.h"

#include <string_view>
#include <utility>

#include "base/str_cat.h"

namespace needle::grammar {
namespace {

constexpr size_t kShown = 40;                    // bytes shown on either side of the place
constexpr size_t kMostLists = 256;               // tool lists whose automatons are kept
constexpr size_t kMostStates = size_t{1} << 16;  // of one automaton before it begins anew

bool InsideCodePoint(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

// The text between the call markers; nothing when they are missing.
std::optional<std::string_view> CallsOf(std::string_view target) {
  constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
  const size_t end = target.rfind(kClose);
  const size_t begin = end == std::string_view::npos ? end : target.rfind(kOpen, end);
  if (begin == std::string_view::npos) return std::nullopt;
  return target.substr(begin + kOpen.size(), end - begin - kOpen.size());
}

std::string Before(std::string_view text, size_t at) {
  size_t from = at > kShown ? at - kShown : 0;
  while (InsideCodePoint(text, from)) ++from;
  return StrCat(from > 0 ? "..." : "", text.substr(from, at - from));
}

std::string After(std::string_view text, size_t at) {
  size_t to = at + kShown < text.size() ? at + kShown : text.size();
  while (to > at && InsideCodePoint(text, to)) --to;
  return StrCat(text.substr(at, to - at), to < text.size() ? "..." : "");
}

std::optional<std::string> Refused(ByteAutomaton& automaton, std::string_view calls) {
  ByteAutomaton::State state = automaton.Start();
  for (size_t i = 0; i < calls.size(); ++i) {
    state = automaton.Next(state, static_cast<uint8_t>(calls[i]));
    if (state != ByteAutomaton::kDead) continue;
    size_t at = i;
    while (at > 0 && InsideCodePoint(calls, at)) --at;
    return StrCat("after ", at == 0 ? "<tool_call>" : Before(calls, at),
                  " the schemas of its tools do not allow ", After(calls, at));
  }
  if (automaton.Accepts(state)) return std::nullopt;
  return StrCat("its list of calls ends too early, after ", Before(calls, calls.size()));
}

}  // namespace

struct AnswerCheck::Known {
  std::unique_ptr<ByteAutomaton> automaton;
  std::string why_none;
};

AnswerCheck::AnswerCheck() = default;
AnswerCheck::~AnswerCheck() = default;

std::optional<std::string> AnswerCheck::Misfit(const std::string& tools_text,
                                               const json::Value& tools,
                                               const std::string& target) {
  if (known_.size() > kMostLists) known_.clear();
  std::unique_ptr<Known>& known = known_[tools_text];
  if (known == nullptr) {
    known = std::make_unique<Known>();
    Result<SchemaGraph> graph = CompileCalls(tools);
    if (graph.ok())
      known->automaton = std::make_unique<ByteAutomaton>(
          std::make_shared<const SchemaGraph>(std::move(graph).value()));
    else
      known->why_none = graph.error().message();
  }
  if (known->automaton == nullptr)
    return StrCat("no grammar can be made of its tools: ", known->why_none);
  const std::optional<std::string_view> calls = CallsOf(target);
  if (!calls) return "its target holds no <tool_call>";
  std::optional<std::string> refused = Refused(*known->automaton, *calls);
  if (known->automaton->size() > kMostStates) known->automaton->Compact(known->automaton->Start());
  return refused;
}

}  // namespace needle::grammar
