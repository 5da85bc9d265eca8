// needle inspect: what a file holds.
#include "format/inspect.h"

#include "needle/command.h"

namespace needle::cli {

void AddInspect(Options& app, Command* chosen) {
  auto path = std::make_shared<std::string>();
  Options c =
      app.Group("inspect", "Say what a file holds: checkpoint, adapter, archive, tokenizer");
  c.Add("file", path.get(), "any .pkl, .safetensors, .cact or tokenizer").Required();
  c.AddJson();
  c.Runs(chosen, [path]() -> Status {
    NEEDLE_ASSIGN(const FileDescription description, DescribeFile(*path));
    if (JsonMode())
      PrintJson(ToJson(description));
    else
      PrintText(ToText(description));
    return {};
  });
}

}  // namespace needle::cli
