#include <iostream>
#include <needle/needle.hpp>

int main(int, char** argv) {  // consumer CHECKPOINT DATA.jsonl TOOLS FOLDER
  const std::string folder = argv[4];
  const auto base = needle::BaseModel::Load({.checkpoint = argv[1]});
  if (!base) return std::cerr << base.error().message() << '\n', 1;
  const auto tuned = needle::Finetune(*base, argv[2], {.out = folder + "/a.pkl", .epochs = 1});
  if (!tuned) return std::cerr << tuned.error().message() << '\n', 1;
  const auto built = needle::Build(*base, {.lora = tuned->adapter, .out = folder + "/m.cact"});
  if (!built) return std::cerr << built.error().message() << '\n', 1;
  const auto model = needle::Model::Open(built->path);
  if (!model) return std::cerr << model.error().message() << '\n', 1;
  auto agent = model->WithTools(argv[3]);
  const auto answer = agent ? agent->Complete("lamp to 3") : agent.error();
  if (!answer) return std::cerr << answer.error().message() << '\n', 1;
  std::cout << "needle " << needle::Version() << ": " << answer->calls_json << '\n';
}
