#include "corpus/toolset.h"

#include <algorithm>
#include <cctype>
#include <functional>

#include "corpus/words.h"

namespace needle::corpus {
namespace {

using Names = std::vector<std::string>;  // the words of a name

enum class Casing { kSnake, kCamel, kKebab, kDotted, kPascal };

struct Style {
  Casing tool = Casing::kSnake;
  Casing key = Casing::kSnake;
  double described_params = 0.4;
  double renamed = 0.06;  // parameters whose name is made up
};

Style MakeStyle(Rng& rng) {
  static constexpr Casing kTool[] = {Casing::kSnake, Casing::kCamel, Casing::kKebab,
                                     Casing::kDotted, Casing::kPascal};
  Style style;
  style.tool = kTool[rng.Weighted({72, 13, 5, 5, 5})];
  style.key = style.tool == Casing::kCamel || rng.Chance(0.05) ? Casing::kCamel : Casing::kSnake;
  style.described_params = rng.Chance(0.3) ? 0.0 : 0.55;
  return style;
}

Names WordsOf(const std::string& name) {
  Names words(1);
  for (const char c : name)
    if (c == '_')
      words.emplace_back();
    else
      words.back() += c;
  return words;
}

std::string InCase(const Names& words, Casing casing) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool capital = casing == Casing::kPascal || (casing == Casing::kCamel && i > 0);
    if (i > 0 && casing == Casing::kSnake) out += '_';
    if (i > 0 && casing == Casing::kKebab) out += '-';
    if (i > 0 && casing == Casing::kDotted) out += i == 1 ? '.' : '_';
    out += capital ? Capitalised(words[i]) : words[i];
  }
  return out;
}

bool IsReserved(const std::string& name) {
  const auto plain = [](const std::string& text) {
    std::string out;
    for (const char c : text)
      if (std::isalnum(static_cast<unsigned char>(c)) != 0)
        out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
  };
  const std::string candidate = plain(name);
  return std::any_of(ReservedNames().begin(), ReservedNames().end(),
                     [&](const std::string& reserved) { return plain(reserved) == candidate; });
}

// Entries that are not a part of one another, so that what is said names one of them.
void AddEntry(std::vector<std::string>& entries, const std::string& entry) {
  for (const std::string& have : entries)
    if (have == entry) return;
  entries.push_back(entry);
}

std::vector<std::string> MakeEntries(Source s, const std::string& pool) {
  std::vector<std::string> entries;
  const size_t n = static_cast<size_t>(s.rng.Between(2, s.rng.Chance(0.25) ? 8 : 5));
  const bool made_up = s.rng.Chance(0.15);
  for (size_t tries = 0; entries.size() < n && tries < 40; ++tries) {
    std::string entry = made_up || s.rng.Chance(0.08) ? AnyWord(s) : s.rng.Pick(Words(pool));
    if (made_up && s.rng.Chance(0.2)) entry += " " + Noun(s);
    AddEntry(entries, entry);
  }
  return entries;
}

bool HasPool(const ValueKind& kind) { return !kind.item.empty() && kind.item[0] == '#'; }

// A key; rarely a made-up word, if a description tells what it is.
std::string MakeKey(Source s, const Names& names, const Style& style, const std::string& said) {
  if (!said.empty() && s.rng.Chance(style.renamed)) return MadeUpWord(s);
  return InCase(WordsOf(s.rng.Chance(0.5) ? names[0] : s.rng.Pick(names)), style.key);
}

Field MakeField(Source s, const Param& param, const Style& style) {
  Field field;
  field.slot = param.names[0];
  field.type = param.type;
  field.kind = param.kind;
  field.required = param.required;
  if (!param.description.empty() && s.rng.Chance(style.described_params))
    field.description = param.description;
  field.key = MakeKey(s, param.names, style, field.description);
  // Now and then an enum is an ordinary string.
  if (HasPool(param.kind) && (param.type == Type::kStringList || s.rng.Chance(0.93)))
    field.entries = MakeEntries(s, param.kind.item);
  if (HasPool(param.kind) && field.entries.empty()) field.kind.name = "word";
  for (const Param& member : param.members) {
    if (!member.required && s.rng.Chance(0.15)) continue;
    field.members.push_back(MakeField(s, member, style));
  }
  return field;
}

bool KeysDiffer(const std::vector<Field>& fields) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!KeysDiffer(fields[i].members)) return false;
    for (size_t j = 0; j < i; ++j)
      if (fields[i].key == fields[j].key) return false;
  }
  return true;
}

const Field* FindSlot(const std::vector<Field>& fields, const std::string& slot) {
  for (const Field& field : fields) {
    if (field.type == Type::kObject) {
      if (const Field* member = FindSlot(field.members, slot)) return member;
    } else if (field.slot == slot) {
      return &field;
    }
  }
  return nullptr;
}

// Drops optional parts and choices whose parameters are gone; false if the rest cannot be said.
bool Prune(Template& nodes, const std::vector<Field>& fields) {
  Template kept;
  for (Node& node : nodes) {
    if (node.what == Node::What::kSlot && FindSlot(fields, node.slot) == nullptr) return false;
    std::vector<Template> branches;
    for (Template& branch : node.branches)
      if (Prune(branch, fields)) branches.push_back(std::move(branch));
    const bool had = !node.branches.empty();
    node.branches = std::move(branches);
    if (had && node.branches.empty()) {
      if (node.what == Node::What::kOptional) continue;
      return false;
    }
    kept.push_back(std::move(node));
  }
  nodes = std::move(kept);
  return true;
}

void Mentions(const Template& nodes, std::vector<std::string>& slots) {
  for (const Node& node : nodes) {
    if (node.what == Node::What::kSlot) slots.push_back(node.slot);
    for (const Template& branch : node.branches) Mentions(branch, slots);
  }
}

bool SaysAllThatIsRequired(const Template& nodes, const std::vector<Field>& fields) {
  std::vector<std::string> slots;
  Mentions(nodes, slots);
  return std::all_of(fields.begin(), fields.end(), [&](const Field& field) {
    return !field.required || std::find(slots.begin(), slots.end(), field.slot) != slots.end();
  });
}

Tool DressShape(Source s, const Shape& shape, const Style& style) {
  while (true) {
    Tool tool;
    tool.name = InCase(WordsOf(s.rng.Pick(shape.names)), style.tool);
    if (s.rng.Chance(0.94)) tool.description = s.rng.Pick(shape.descriptions);
    for (const Param& param : shape.params)
      if (param.required || s.rng.Chance(0.82)) tool.fields.push_back(MakeField(s, param, style));
    const auto empty = [](const Field& f) { return f.type == Type::kObject && f.members.empty(); };
    tool.fields.erase(std::remove_if(tool.fields.begin(), tool.fields.end(), empty),
                      tool.fields.end());
    if (s.rng.Chance(0.15)) s.rng.Shuffle(tool.fields);
    if (IsReserved(tool.name) || !KeysDiffer(tool.fields)) continue;
    for (Template words : shape.templates)
      if (Prune(words, tool.fields) && SaysAllThatIsRequired(words, tool.fields))
        tool.templates.push_back(std::move(words));
    if (!tool.templates.empty()) return tool;
  }
}

Node PlainNode(const std::string& words) {
  Node node;
  node.words = words;
  return node;
}

Node SlotNode(const Field& field, bool quoted) {
  Node node;
  node.what = Node::What::kSlot;
  node.slot = field.slot;
  node.quoted = quoted;
  return node;
}

Node FlagNode(const Field& field, const std::string& constant, const std::string& words) {
  Node node = SlotNode(field, false);
  node.constant = constant;
  node.words = words;
  return node;
}

// A kind for a parameter of a made-up tool.
ValueKind MakeKind(Source s) {
  static const std::vector<std::string> kinds = {
      "word",       "made",       "label",     "person",       "city",        "title",
      "id",         "int(0,100)", "int(1,12)", "int(10,9999)", "num(0,99,2)", "num(0,1,2)",
      "time",       "date",       "bool",      "enum",         "enum",        "enum",
      "list(word)", "qtext",      "place",     "code",         "file",        "num(-30,60,1)",
      "elist",      "noun",       "slug",      "unit",         "person",      "int(1,99)"};
  ValueKind kind = ParseKind(s.rng.Pick(kinds));
  if (kind.name == "enum" || kind.name == "elist") kind.item = s.rng.Pick(PoolNames());
  return kind;
}

std::string Spoken(const Names& words) { return InCase(words, Casing::kSnake); }

std::string WithSpaces(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

// What a made-up tool's parameter is called in a request, beside its field.
struct MadeUpParam {
  Field field;
  std::string said;
};

MadeUpParam MakeMadeUpParam(Source s, const Style& style) {
  MadeUpParam out;
  Names words = {AnyWord(s)};
  if (s.rng.Chance(0.3)) words.push_back(Noun(s));
  out.said = WithSpaces(Spoken(words));
  out.field.kind = MakeKind(s);
  out.field.type = TypeOf(out.field.kind);
  if (HasPool(out.field.kind)) out.field.entries = MakeEntries(s, out.field.kind.item);
  if (s.rng.Chance(0.22)) {  // only the description tells
    out.field.key = MadeUpWord(s);
    out.field.description = Capitalised(out.said) + ".";
  } else {
    out.field.key = InCase(words, style.key);
    if (s.rng.Chance(style.described_params * 0.4))
      out.field.description =
          s.rng.Chance(0.6) ? "The " + out.said + "." : Capitalised(Noun(s) + " of it.");
  }
  out.field.slot = out.field.key;
  return out;
}

// "level 7", "with level 7", "level: 7", "loud on"
Template SayParam(Source s, const MadeUpParam& param) {
  if (param.field.type == Type::kBoolean) {
    const bool on = s.rng.Chance(0.55);
    const std::string value = on ? "true" : "false";
    switch (s.rng.Below(3)) {
      case 0:
        return {FlagNode(param.field, value, (on ? "with " : "without ") + param.said)};
      case 1:
        return {FlagNode(param.field, value, param.said + (on ? " on" : " off"))};
      default:
        return {PlainNode(param.said + " "), FlagNode(param.field, value, on ? "true" : "false")};
    }
  }
  static const std::vector<std::string> links = {" ",    " ",    " ",        ": ",
                                                 " is ", " as ", " set to ", "="};
  const bool quoted =
      param.field.kind.name == "qtext" || (param.field.type == Type::kString && s.rng.Chance(0.06));
  return {PlainNode(param.said + s.rng.Pick(links)), SlotNode(param.field, quoted)};
}

Node MaybeLeftOut(Template nodes, bool optional) {
  Node node;
  node.what = optional ? Node::What::kOptional : Node::What::kChoice;
  node.branches.push_back(std::move(nodes));
  return node;
}

// "verb the noun VALUE with level 7, mode eco": the first parameter may stand without its name.
Template MadeUpRequest(Source s, const std::string& verb, const std::string& noun,
                       std::vector<MadeUpParam> params) {
  static const std::vector<std::string> firsts = {" with ", " at ", ", ", " using ", ": ", " and "};
  static const std::vector<std::string> others = {", ", " and ", ", ", " plus ", " with "};
  static const std::vector<std::string> articles = {" the ", " a ", " ", " my ", " "};
  const std::string article = s.rng.Pick(articles);
  Template out = {PlainNode(verb + article + noun)};
  size_t said = 0;
  const bool ends_in_text = params.back().field.kind.name == "text";
  if (params[0].field.type == Type::kString && params[0].field.kind.name != "text" &&
      s.rng.Chance(0.55)) {
    out.push_back(PlainNode(" "));
    out.push_back(SlotNode(params[0].field, params[0].field.kind.name == "qtext"));
    said = 1;
  }
  if (said == 0 && s.rng.Chance(0.4)) s.rng.Shuffle(params);
  const std::string last_text = ends_in_text ? params.back().field.slot : "";
  bool first = true;
  for (size_t i = said; i < params.size(); ++i) {
    if (params[i].field.kind.name == "text") continue;
    Template words = {PlainNode(first ? s.rng.Pick(firsts) : s.rng.Pick(others))};
    first = first && !params[i].field.required;
    for (Node& node : SayParam(s, params[i])) words.push_back(std::move(node));
    out.push_back(MaybeLeftOut(std::move(words), !params[i].field.required));
  }
  static const std::vector<std::string> colons = {": ", " that ", " saying ", " with the words "};
  for (const MadeUpParam& param : params) {
    if (param.field.kind.name != "text") continue;
    out.push_back(PlainNode(s.rng.Pick(colons)));
    out.push_back(SlotNode(param.field, s.rng.Chance(0.15)));
  }
  return out;
}

std::string MadeUpDescription(Source s, const std::string& verb, const std::string& noun) {
  switch (s.rng.Below(4)) {
    case 0:
      return Capitalised(verb) + " the " + noun + ".";
    case 1:
      return Capitalised(verb) + " one " + noun + ".";
    case 2:
      return "Use it to " + verb + " a " + noun + ".";
    default:
      return Capitalised(verb) + " a " + noun + " " + s.rng.Pick(Words("texts_after")) + ".";
  }
}

Tool MakeMadeUpTool(Source s, const Style& style) {
  while (true) {
    Tool tool;
    tool.shape = Shapes().size();
    const std::string verb =
        s.rng.Chance(0.75) ? s.rng.Pick(Vocabulary("verbs", s.part)) : MadeUpWord(s);
    const std::string noun = Noun(s);
    const bool verb_first = s.rng.Chance(0.8);
    tool.name = InCase(verb_first ? Names{verb, noun} : Names{noun, verb}, style.tool);
    if (s.rng.Chance(0.9)) tool.description = MadeUpDescription(s, verb, noun);
    std::vector<MadeUpParam> params;
    const size_t n = s.rng.Weighted({0, 26, 34, 24, 12, 4});
    for (size_t i = 0; i < n; ++i) params.push_back(MakeMadeUpParam(s, style));
    if (s.rng.Chance(0.3)) {
      params.back().field.kind = ParseKind("text");
      params.back().field.type = Type::kString;
      params.back().field.entries.clear();
    }
    for (size_t i = 0; i < n; ++i)
      params[i].field.required = i == 0 || params[i].field.kind.name == "text" || s.rng.Chance(0.4);
    for (const MadeUpParam& param : params) tool.fields.push_back(param.field);
    if (IsReserved(tool.name) || !KeysDiffer(tool.fields)) continue;
    const int requests = s.rng.Between(2, 3);
    for (int i = 0; i < requests; ++i)
      tool.templates.push_back(MadeUpRequest(s, verb, noun, params));
    return tool;
  }
}

bool ShapeInPart(const Shape& shape, Part part) {
  return (Hash(shape.names[0]) % 12 == 0) == (part == Part::kValid);
}

const std::vector<size_t>& ShapesOf(Part part) {
  static const std::vector<std::vector<size_t>> parts = [] {
    std::vector<std::vector<size_t>> out(2);
    for (const Part p : {Part::kTrain, Part::kValid})
      for (size_t i = 0; i < Shapes().size(); ++i)
        if (ShapeInPart(Shapes()[i], p)) out[static_cast<size_t>(p)].push_back(i);
    return out;
  }();
  return parts[static_cast<size_t>(part)];
}

bool Clashes(const Toolset& set, const Tool& tool) {
  return std::any_of(set.tools.begin(), set.tools.end(), [&](const Tool& other) {
    return other.name == tool.name || (tool.shape < Shapes().size() && other.shape == tool.shape);
  });
}

// ---- JSON -----------------------------------------------------------------------------------

std::string JsonStrings(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) {
    if (out.size() > 1) out += ',';
    out += JsonString(text);
  }
  return out + "]";
}

std::string TypeSchema(const Field& field);

std::string PropertiesJson(const std::vector<Field>& fields) {
  std::string out = "{";
  for (const Field& field : fields) {
    if (out.size() > 1) out += ',';
    out += JsonString(field.key) + ":{" + TypeSchema(field);
    if (!field.description.empty()) out += ",\"description\":" + JsonString(field.description);
    out += '}';
  }
  return out + "}";
}

// The members of a schema that say its type.
std::string TypeSchema(const Field& field) {
  const std::string listed = field.entries.empty() ? "" : ",\"enum\":" + JsonStrings(field.entries);
  switch (field.type) {
    case Type::kString:
      return "\"type\":\"string\"" + listed;
    case Type::kInteger:
      return "\"type\":\"integer\"";
    case Type::kNumber:
      return "\"type\":\"number\"";
    case Type::kBoolean:
      return "\"type\":\"boolean\"";
    case Type::kStringList:
      return "\"type\":\"array\",\"items\":{\"type\":\"string\"" + listed + "}";
    case Type::kObject:
      return "\"type\":\"object\",\"properties\":" + PropertiesJson(field.members);
  }
  return "";
}

std::string ToolJson(Source s, const Tool& tool) {
  std::string out = "{\"name\":" + JsonString(tool.name);
  if (!tool.description.empty()) out += ",\"description\":" + JsonString(tool.description);
  out += ",\"parameters\":{\"type\":\"object\",\"properties\":" + PropertiesJson(tool.fields);
  std::vector<std::string> required;
  for (const Field& field : tool.fields)
    if (field.required) required.push_back(field.key);
  if (!required.empty() || s.rng.Chance(0.5)) out += ",\"required\":" + JsonStrings(required);
  return out + "}}";
}

}  // namespace

std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

Toolset MakeToolset(Source s, int mean_chars) {
  Toolset set;
  const Style style = MakeStyle(s.rng);
  const double made_up = s.rng.Chance(0.15) ? 0.9 : 0.3;
  const size_t budget = static_cast<size_t>(s.rng.Between(mean_chars / 3, mean_chars * 5 / 3));
  set.json = "[";
  while (set.tools.size() < 6) {
    Tool tool;
    if (s.rng.Chance(made_up)) {
      tool = MakeMadeUpTool(s, style);
    } else {
      const size_t shape = s.rng.Pick(ShapesOf(s.part));
      tool = DressShape(s, Shapes()[shape], style);
      tool.shape = shape;
    }
    if (Clashes(set, tool)) continue;
    const std::string json = ToolJson(s, tool);
    if (!set.tools.empty() && set.json.size() + json.size() > budget + 80) break;
    if (!set.tools.empty()) set.json += ',';
    set.json += json;
    set.tools.push_back(std::move(tool));
  }
  set.json += ']';
  return set;
}

Toolset MakeDrillSet(Source s) {
  static const std::vector<std::string> kinds = {"drill", "drill",        "label",
                                                 "id",    "num(0,999,2)", "made"};
  static const std::vector<std::string> links = {": ", " ", " with ", " that "};
  Toolset set;
  Tool tool;
  tool.shape = Shapes().size();
  const std::string verb = AnyWord(s);
  do tool.name = InCase({verb, Noun(s)}, Casing::kSnake);
  while (IsReserved(tool.name));
  Template request = {PlainNode(verb + s.rng.Pick(links))};
  const size_t n = static_cast<size_t>(s.rng.Between(1, 2));
  while (tool.fields.size() < n) {
    Field field;
    field.kind = ParseKind(tool.fields.empty() ? "drill" : s.rng.Pick(kinds));
    field.type = TypeOf(field.kind);
    field.key = field.slot = AnyWord(s);
    field.required = true;
    if (!tool.fields.empty() && tool.fields[0].key == field.key) continue;
    if (!tool.fields.empty()) request.push_back(PlainNode(", " + field.key + " "));
    request.push_back(SlotNode(field, s.rng.Chance(0.2) && field.type == Type::kString));
    tool.fields.push_back(std::move(field));
  }
  tool.templates.push_back(std::move(request));
  set.json = "[" + ToolJson(s, tool) + "]";
  set.tools.push_back(std::move(tool));
  return set;
}

Tool MakeForeignTool(Source s, const Toolset& besides) {
  while (true) {
    const size_t shape = s.rng.Pick(ShapesOf(s.part));
    Tool tool = DressShape(s, Shapes()[shape], Style());
    tool.shape = shape;
    if (!Clashes(besides, tool)) return tool;
  }
}

const std::vector<std::string>& ReservedNames() {
  static const std::vector<std::string> names = {
      "get_weather", "add_event",      "send_message",     "set_lights",
      "set_timer",   "set_thermostat", "play_music",       "create_note",
      "log_reading", "plan_route",     "convert_currency", "translate_text"};
  return names;
}

}  // namespace needle::corpus
