#include "api/engine/model_impl.h"
#include "base/str_cat.h"
#include "json/json.h"
#include "kernels/isa.h"

namespace needle {

std::string_view Version() { return NEEDLE_VERSION; }

struct Agent::Impl {
  Session session;
};

Agent::Agent(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Agent::Agent(Agent&&) noexcept = default;
Agent& Agent::operator=(Agent&&) noexcept = default;
Agent::~Agent() = default;

Result<Answer> Agent::Complete(std::string_view query, const AskOptions& options) {
  CompleteOptions complete;
  complete.max_new_tokens = options.max_new_tokens;
  complete.max_reasoning_tokens = options.max_reasoning_tokens;
  complete.constrain = options.constrain;
  complete.on_text = options.on_text;
  NEEDLE_ASSIGN(Completion c, impl_->session.Complete(query, complete));
  Answer answer;
  answer.type = Name(c.type);
  answer.calls_json = json::Dump(c.calls);
  answer.json = json::Dump(ToJson(c));
  answer.reasoning = std::move(c.reasoning);
  answer.text = std::move(c.text);
  answer.tokens = std::move(c.tokens);
  answer.error_code = std::move(c.error_code);
  answer.error = std::move(c.error);
  return answer;
}

Result<Model> Model::Open(const std::string& path, const OpenOptions& options) {
  if (options.device)
    return Error(Code::kInvalidArgument,
                 StrCat(path,
                        ": an archive runs on the processor, in its own numerics; leave the "
                        "device out, or open the checkpoint that it was built from (OpenBase)"));
  NEEDLE_ASSIGN([[maybe_unused]] const Isa isa, ChooseIsa());
  EngineOptions engine_options;
  engine_options.threads = options.threads;
  NEEDLE_ASSIGN(std::shared_ptr<const Engine> engine, Engine::Open(path, engine_options));
  return Model(std::make_shared<Impl>(Impl{std::move(engine)}));
}

Result<Agent> Model::WithTools(std::string_view tools_json, std::string_view system) const {
  const Result<json::Value> tools = json::Parse(tools_json);
  if (!tools)
    return Error(Code::kInvalidArgument,
                 StrCat("the tools are no JSON: ", tools.error().message()));
  if (!tools->is_array())
    return Error(Code::kInvalidArgument,
                 "the tools are no JSON list; write a list, also for a single tool");
  Session session(impl_->engine);
  const Result<size_t> set = session.SetContext(system, *tools);
  if (!set) return set.error();
  return Agent(std::unique_ptr<Agent::Impl>(new Agent::Impl{std::move(session)}));
}

}  // namespace needle
