#include "corpus/rows.h"

#include <algorithm>

#include "corpus/toolset.h"
#include "corpus/words.h"

namespace needle::corpus {
namespace {

constexpr size_t kLongestQuery = 400;  // bytes

// A value said in a request.
struct Mention {
  const Field* field = nullptr;
  std::string json;                // as it stands in the arguments
  std::string span;                // as it stands in the request, without quotes
  std::vector<std::string> items;  // of a list
  bool quoted = false;
  size_t begin = 0, end = 0;  // of the span in Call::words
};

struct Call {
  const Tool* tool = nullptr;
  std::string words;
  std::vector<Mention> mentions;
};

struct Quotes {
  std::string open, close;
};

// ---- Requests -------------------------------------------------------------------------------

std::string SpokenList(const std::vector<std::string>& items) {
  std::string out = items[0];
  for (size_t i = 1; i < items.size(); ++i)
    out += (i + 1 == items.size() ? " and " : ", ") + items[i];
  return out;
}

std::string JsonList(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const std::string& item : items) {
    if (out.size() > 1) out += ',';
    out += JsonString(item);
  }
  return out + "]";
}

Mention MakeList(Source s, const Field& field) {
  Mention mention;
  const size_t wanted = s.rng.Weighted({0, 40, 40, 20});
  for (size_t tries = 0; mention.items.size() < wanted && tries < 12; ++tries) {
    const std::string item = StringValue(s, field.kind.item, field.entries);
    if (std::find(mention.items.begin(), mention.items.end(), item) == mention.items.end())
      mention.items.push_back(item);
  }
  mention.span = SpokenList(mention.items);
  mention.json = JsonList(mention.items);
  return mention;
}

Mention MakeValue(Source s, const Field& field) {
  Mention mention;
  switch (field.type) {
    case Type::kInteger:
    case Type::kNumber:
      mention.span = mention.json = NumberValue(s, field.kind);
      return mention;
    case Type::kStringList:
      return MakeList(s, field);
    default:
      mention.span = StringValue(s, field.kind.name, field.entries);
      mention.json = JsonString(mention.span);
      return mention;
  }
}

const Field* FieldOf(const std::vector<Field>& fields, const std::string& slot) {
  for (const Field& field : fields) {
    if (field.type != Type::kObject && field.slot == slot) return &field;
    if (const Field* member = FieldOf(field.members, slot)) return member;
  }
  return nullptr;
}

void SayNodes(Source s, const Template& nodes, const Quotes& quotes, Call& call);

void SaySlot(Source s, const Node& node, const Quotes& quotes, Call& call) {
  const Field* field = FieldOf(call.tool->fields, node.slot);
  Mention mention;
  if (node.constant.empty()) {
    mention = MakeValue(s, *field);
  } else {
    mention.span = node.words;
    mention.json = node.constant;
  }
  mention.field = field;
  mention.quoted = node.quoted;
  if (node.quoted) call.words += quotes.open;
  mention.begin = call.words.size();
  call.words += mention.span;
  mention.end = call.words.size();
  if (node.quoted) call.words += quotes.close;
  call.mentions.push_back(std::move(mention));
}

void SayNodes(Source s, const Template& nodes, const Quotes& quotes, Call& call) {
  for (const Node& node : nodes) {
    switch (node.what) {
      case Node::What::kWords:
        call.words += node.words;
        break;
      case Node::What::kSlot:
        SaySlot(s, node, quotes, call);
        break;
      case Node::What::kOptional:
        if (s.rng.Chance(0.5)) SayNodes(s, node.branches[0], quotes, call);
        break;
      case Node::What::kChoice:
        SayNodes(s, s.rng.Pick(node.branches), quotes, call);
        break;
    }
  }
}

bool SaysOnce(const Call& call) {
  for (size_t i = 0; i < call.mentions.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (call.mentions[i].field == call.mentions[j].field) return false;
  return std::all_of(call.tool->fields.begin(), call.tool->fields.end(), [&](const Field& field) {
    return !field.required ||
           std::any_of(call.mentions.begin(), call.mentions.end(),
                       [&](const Mention& mention) { return mention.field == &field; });
  });
}

Call MakeCall(Source s, const Tool& tool, const Quotes& quotes) {
  while (true) {
    Call call;
    call.tool = &tool;
    SayNodes(s, s.rng.Pick(tool.templates), quotes, call);
    const size_t spaces = call.words.find_first_not_of(' ');
    call.words.erase(0, spaces);
    for (Mention& mention : call.mentions) mention.begin -= spaces, mention.end -= spaces;
    if (SaysOnce(call)) return call;
  }
}

// ---- Answers --------------------------------------------------------------------------------

std::string ArgumentsJson(const Call& call, const std::vector<Field>& fields) {
  std::string out = "{";
  for (const Field& field : fields) {
    std::string value;
    if (field.type == Type::kObject) {
      value = ArgumentsJson(call, field.members);
      if (value == "{}") continue;
    }
    for (const Mention& mention : call.mentions)
      if (mention.field == &field) value = mention.json;
    if (value.empty()) continue;
    if (out.size() > 1) out += ',';
    out += JsonString(field.key) + ":" + value;
  }
  return out + "}";
}

std::string AnswersJson(const std::vector<Call>& calls) {
  std::string out = "[";
  for (const Call& call : calls) {
    if (out.size() > 1) out += ',';
    out += "{\"name\":" + JsonString(call.tool->name) +
           ",\"arguments\":" + ArgumentsJson(call, call.tool->fields) + "}";
  }
  return out + "]";
}

// ---- The check of a row ---------------------------------------------------------------------

bool IsNumber(const std::string& text, bool whole) {
  size_t digits = 0, dots = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '-' && i == 0) continue;
    if (text[i] == '.')
      ++dots;
    else if (text[i] < '0' || text[i] > '9')
      return false;
    else
      ++digits;
  }
  return digits > 0 && dots <= (whole ? 0u : 1u);
}

bool FitsItsField(const Mention& mention) {
  const Field& field = *mention.field;
  const auto listed = [&](const std::string& text) {
    return field.entries.empty() ||
           std::find(field.entries.begin(), field.entries.end(), text) != field.entries.end();
  };
  switch (field.type) {
    case Type::kInteger:
    case Type::kNumber:
      return IsNumber(mention.json, field.type == Type::kInteger);
    case Type::kBoolean:
      return mention.json == "true" || mention.json == "false";
    case Type::kStringList:
      return !mention.items.empty() &&
             std::all_of(mention.items.begin(), mention.items.end(), listed);
    case Type::kString:
      return mention.json == JsonString(mention.span) && listed(mention.span);
    case Type::kObject:
      return false;
  }
  return false;
}

bool RowHolds(const std::string& query, const std::vector<Call>& calls) {
  size_t at = 0;
  for (const Call& call : calls) {
    const size_t found = query.find(call.words, at);
    if (found == std::string::npos || !SaysOnce(call)) return false;
    at = found + call.words.size();
    for (const Mention& mention : call.mentions)
      if (!FitsItsField(mention) ||
          query.substr(found + mention.begin, mention.span.size()) != mention.span)
        return false;
  }
  return true;
}

// ---- Reasoning ------------------------------------------------------------------------------

struct ReasoningStyle {
  size_t form = 0;  // 0 span to key; 1 key and value; 2 a sentence
  std::string arrow, open, close, between_values, between_calls, equals;
  double context = 0;  // how often a number's span takes a neighbouring word along
};

ReasoningStyle MakeReasoningStyle(Rng& rng) {
  static const std::vector<std::string> arrows = {" -> ", " -> ", " => ", " to ",
                                                  ": ",   " is ", " → "};
  static const std::vector<Quotes> quotes = {
      {"'", "'"}, {"'", "'"}, {"\"", "\""}, {"“", "”"}, {"", ""}};
  static const std::vector<std::string> betweens = {"; ", "; ", ", ", " + "};
  static const std::vector<std::string> calls = {" | ", " | ", " / ", " then ", "\n", ". "};
  static const std::vector<std::string> equals = {" = ", " ", ": ", "="};
  ReasoningStyle style;
  style.form = rng.Weighted({66, 17, 17});
  style.arrow = rng.Pick(arrows);
  const Quotes& q = rng.Pick(quotes);
  style.open = q.open;
  style.close = q.close;
  style.between_values = rng.Pick(betweens);
  style.between_calls = rng.Pick(calls);
  style.equals = rng.Pick(equals);
  style.context = rng.Chance(0.5) ? 0.5 : 0.0;
  return style;
}

// The span with the word that follows it, as in "4 passes", or that stands before it.
std::string WithNeighbour(const Call& call, const Mention& mention, bool after) {
  const std::string& words = call.words;
  if (after && mention.end + 1 < words.size() && words[mention.end] == ' ') {
    const size_t end = std::min(words.find(' ', mention.end + 1), words.size());
    return words.substr(mention.begin, end - mention.begin);
  }
  if (!after && mention.begin > 1 && words[mention.begin - 1] == ' ') {
    const size_t space = words.rfind(' ', mention.begin - 2);
    const size_t begin = space == std::string::npos ? 0 : space + 1;
    return words.substr(begin, mention.end - begin);
  }
  return mention.span;
}

std::string ExplainSpan(Rng& rng, const ReasoningStyle& style, const Call& call,
                        const Mention& mention) {
  const std::string& key = mention.field->key;
  if (mention.field->type == Type::kBoolean)
    return style.open + mention.span + style.close + style.arrow + key + " " + mention.json;
  if (mention.quoted && rng.Chance(0.3)) return "the quote" + style.arrow + key;
  if (mention.field->type == Type::kStringList && rng.Chance(0.3)) return key + " as listed";
  const bool number = mention.field->type == Type::kInteger || mention.field->type == Type::kNumber;
  if (number && rng.Chance(style.context)) {
    const std::string span = WithNeighbour(call, mention, rng.Chance(0.7));
    if (span != mention.span)
      return style.open + span + style.close + style.arrow + key + " " + mention.json;
  }
  return style.open + mention.span + style.close + style.arrow + key;
}

std::string ExplainCall(Rng& rng, const ReasoningStyle& style, const Call& call) {
  std::vector<std::string> parts;
  for (const Mention& mention : call.mentions) {
    if (style.form == 0)
      parts.push_back(ExplainSpan(rng, style, call, mention));
    else
      parts.push_back(mention.field->key + style.equals +
                      (mention.field->type == Type::kBoolean ? mention.json : mention.span));
  }
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : style.between_values) + part;
  if (style.form == 0 && !out.empty()) return out;
  if (style.form == 1) return call.tool->name + (out.empty() ? "" : ": " + out);
  return "use " + call.tool->name + (out.empty() ? "" : " with " + out);
}

std::string Explain(Rng& rng, const std::vector<Call>& calls) {
  if (calls.empty()) {
    static const std::vector<std::string> none = {
        "none of the tools can do this",  "no tool here fits",
        "nothing listed covers this",     "no call is needed",
        "not a task for the given tools", "the tools do not help with this",
        "there is no matching tool",      "nothing to call"};
    return rng.Pick(none);
  }
  const ReasoningStyle style = MakeReasoningStyle(rng);
  std::string out;
  for (const Call& call : calls)
    out += (out.empty() ? "" : style.between_calls) + ExplainCall(rng, style, call);
  return out;
}

// ---- Whole requests -------------------------------------------------------------------------

Quotes MakeQuotes(Rng& rng) {
  static const std::vector<Quotes> quotes = {{"'", "'"},   {"'", "'"}, {"\"", "\""},
                                             {"\"", "\""}, {"“", "”"}, {"«", "»"}};
  return rng.Pick(quotes);
}

std::string Lead(Rng& rng) {
  static const std::vector<std::string> leads = {
      "please ",  "hey, ", "ok ",        "could you ",  "quickly ",
      "can you ", "hi, ",  "would you ", "kindly ",     "I want you to ",
      "now ",     "so, ",  "hello, ",    "let's see, ", "right, ",
      "next, ",   "um, ",  "then ",      "hey ",        "please, "};
  return rng.Chance(0.55) ? rng.Pick(leads) : "";
}

std::string Trail(Rng& rng) {
  static const std::vector<std::string> trails = {" please",    " thanks",    " now",     "!", ".",
                                                  " thank you", " asap",      ", please", "?", "!!",
                                                  ", thanks",   " right away"};
  return rng.Chance(0.55) ? rng.Pick(trails) : "";
}

std::string Joint(Rng& rng) {
  static const std::vector<std::string> joints = {
      " and ", " and then ",    ", also ", ", then ",    " and ",      ", and ",
      "; ",    ", after that ", " then ",  " and also ", ", and then "};
  return rng.Pick(joints);
}

std::string SmallTalk(Source s) {
  static const std::vector<std::string> asks = {"tell me about #",
                                                "how does # work",
                                                "what is #",
                                                "why do people like #",
                                                "compose a limerick on #",
                                                "give me three facts about #",
                                                "who discovered #",
                                                "when was # discovered",
                                                "summarise the history of #",
                                                "do you like #",
                                                "sing something about #",
                                                "how old is #",
                                                "what would happen without #",
                                                "is # dangerous",
                                                "help me understand #",
                                                "draft an essay about #",
                                                "are you interested in #",
                                                "teach me #",
                                                "what makes # special",
                                                "tell a joke about #",
                                                "describe # in one sentence",
                                                "which is better, # or @",
                                                "is there a link between # and @",
                                                "where can I read about #"};
  static const std::vector<std::string> withdrawn = {"scratch that, skip #",
                                                     "forget it, no more #",
                                                     "ignore what I said about #",
                                                     "no need for # any more",
                                                     "leave #, it is fine",
                                                     "don't bother with #",
                                                     "I changed my mind about #",
                                                     "drop the thing with #",
                                                     "nothing more on #",
                                                     "stop, it is not about #",
                                                     "actually nothing, leave # alone",
                                                     "cancel my question about #"};
  static const std::vector<std::string> greetings = {
      "good morning", "how are you",  "that was helpful", "you are great", "what is your name",
      "I am bored",   "good night",   "who are you",      "see you later", "that is all for today",
      "well done",    "I feel tired", "what can you do",  "are you there", "tell me something"};
  std::string text = s.rng.Chance(0.55)  ? s.rng.Pick(asks)
                     : s.rng.Chance(0.7) ? s.rng.Pick(withdrawn)
                                         : s.rng.Pick(greetings);
  for (const char mark : {'#', '@'})
    if (const size_t at = text.find(mark); at != std::string::npos)
      text.replace(at, 1,
                   s.rng.Chance(0.6) ? s.rng.Pick(Words("topics"))
                                     : StringValue(s, s.rng.Chance(0.5) ? "label" : "noun", {}));
  return text;
}

struct Request {
  std::string query;
  std::vector<Call> calls;
};

Request MakeRefusal(Source s, const Toolset& set) {
  Request request;
  std::string body;
  if (s.rng.Chance(0.75)) {
    body = SmallTalk(s);
  } else {
    const Tool foreign = MakeForeignTool(s, set);
    const Quotes quotes = MakeQuotes(s.rng);
    body = MakeCall(s, foreign, quotes).words;
  }
  request.query = Lead(s.rng) + body;
  request.query += Trail(s.rng);
  return request;
}

Request MakeRequest(Source s, const Toolset& set) {
  while (true) {
    Request request;
    const size_t n = s.rng.Weighted({0, 62, 23, 9, 3, 2, 1});
    const Quotes quotes = MakeQuotes(s.rng);
    request.query = Lead(s.rng);
    const std::string joint = Joint(s.rng);
    for (size_t i = 0; i < n; ++i) {
      if (i > 0) request.query += s.rng.Chance(0.8) ? joint : Joint(s.rng);
      request.calls.push_back(MakeCall(s, s.rng.Pick(set.tools), quotes));
      request.query += request.calls.back().words;
    }
    request.query += Trail(s.rng);
    if (request.query.size() <= kLongestQuery && RowHolds(request.query, request.calls))
      return request;
  }
}

std::string SystemLine(Source s) {
  switch (s.rng.Below(6)) {
    case 0:
      return "The user is in " + StringValue(s, "city", {}) + ".";
    case 1:
      return "The date is " + StringValue(s, "date", {}) + ".";
    case 2:
      return "You are the assistant of " + StringValue(s, "company", {}) + ".";
    case 3:
      return "Answer with calls only.";
    case 4:
      return "The user is called " + StringValue(s, "person", {}) + ".\nBe brief.";
    default:
      return Capitalised(FreeText(s)) + ".";
  }
}

std::string EscapedNewlines(std::string json) {
  for (size_t at = 0; (at = json.find('\n', at)) != std::string::npos; at += 2)
    json.replace(at, 1, "\\n");
  return json;
}

std::string RowJson(Source s, const CorpusOptions& options, const Request& request,
                    const std::string& tools, const std::string& system) {
  std::string answers = AnswersJson(request.calls);
  if (s.rng.Chance(0.03)) answers = JsonString(answers);
  std::string out = "{\"query\":" + JsonString(request.query) + ",\"tools\":" + tools;
  out += s.rng.Chance(0.02) ? ",\"function_calls\":" : ",\"answers\":";
  out += answers;
  if (s.rng.Chance(options.reasoning))
    out += ",\"reasoning\":" + EscapedNewlines(JsonString(Explain(s.rng, request.calls)));
  if (!system.empty()) out += ",\"system\":" + EscapedNewlines(JsonString(system));
  return out + "}";
}

}  // namespace

std::vector<std::string> MakeGroup(const CorpusOptions& options, uint64_t index) {
  Rng seeds(options.seed * 0x9e3779b97f4a7c15u + index);
  Rng rng(seeds.Next() ^ (options.part == Part::kValid ? 0x5bd1e995u : 0u));
  const Source s{rng, options.part};
  const bool drill = seeds.Chance(options.drills);
  const Toolset set = drill ? MakeDrillSet(s) : MakeToolset(s, options.mean_tools_chars);
  const std::string tools = rng.Chance(0.04) ? JsonString(set.json) : set.json;
  const std::string system = rng.Chance(options.system) ? SystemLine(s) : "";
  std::vector<std::string> rows;
  for (int i = 0; i < options.queries_per_toolset; ++i) {
    const Request request =
        rng.Chance(drill ? 0 : options.refusals) ? MakeRefusal(s, set) : MakeRequest(s, set);
    rows.push_back(RowJson(s, options, request, tools, system));
  }
  return rows;
}

}  // namespace needle::corpus
