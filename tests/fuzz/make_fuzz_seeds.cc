// make_fuzz_seeds FOLDER: writes FOLDER/<target>/..., small valid files of every kind that each
// reader knows, so that the fuzzer starts behind each parser's last check and not before its first.
// The golden files themselves are too large to mutate well; these are models of a few kB.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/str_cat.h"
#include "format/adapter.h"
#include "format/cact.h"
#include "format/checkpoint.h"
#include "format/pickle.h"
#include "format/safetensors.h"
#include "text/tokenizer.h"

namespace needle {
namespace {

[[noreturn]] void Stop(const Error& error) {
  std::fprintf(stderr, "make_fuzz_seeds: %s\n", error.message().c_str());
  std::exit(1);
}

template <class T>
T Must(Result<T> result) {
  if (!result.ok()) Stop(result.error());
  return std::move(result).value();
}

class Corpus {
 public:
  explicit Corpus(std::string folder) : folder_(std::move(folder)) {}
  void Add(const std::string& target, const std::string& name,
           const std::vector<uint8_t>& bytes) const {
    const Status written = WriteFileAtomically(JoinPath(JoinPath(folder_, target), name),
                                               std::span<const uint8_t>(bytes));
    if (!written.ok()) Stop(written.error());
  }

 private:
  std::string folder_;
};

std::vector<uint8_t> Golden(const std::string& name) {
  return Must(ReadFile(std::string(NEEDLE_GOLDEN_DIR) + "/" + name));
}

std::vector<Piece> SmallPieces() {
  std::vector<Piece> pieces = {{"<pad>", 0, PieceType::kControl},
                               {"</s>", 0, PieceType::kControl},
                               {"<s>", 0, PieceType::kControl},
                               {"<unk>", 0, PieceType::kUnknown}};
  for (const std::string_view marker : kChatMarkers)
    pieces.push_back({std::string(marker), 0, PieceType::kUserDefined});
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(b));
    pieces.push_back({text, 0, PieceType::kByte});
  }
  const std::string space = "\xE2\x96\x81";
  for (const std::string& text : {space, space + "c", std::string("a"), std::string("ca"),
                                  std::string("\xC3\xA9"), std::string("f\xC3\xA9")})
    pieces.push_back({text, -static_cast<float>(pieces.size()), PieceType::kNormal});
  return pieces;
}

ModelConfig SmallConfig(int vocab) {
  ModelConfig c;
  c.vocab_size = vocab;
  c.d_model = 4;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.num_layers = 2;
  c.max_seq_len = 32;
  c.contrastive_dim = 2;
  c.engram_orders = {2, 3};
  c.engram_heads = 1;
  c.engram_slots = 3;
  c.engram_layers = {1};
  c.mhc_lanes = 2;
  return c;
}

Checkpoint WithoutHeads(Checkpoint c) {
  for (auto it = c.params.begin(); it != c.params.end();)
    it = it->first.find("_head/") == std::string::npos ? std::next(it) : c.params.erase(it);
  return c;
}

Adapter SmallAdapter(const Checkpoint& base) {
  Adapter a;
  a.rank = 1;
  a.qat_bits = 4;
  a.qat_bits_map = "default=4,embedding=2";
  a.base = "base.pkl";
  for (const ParamSpec& target : LoraTargets(base))
    a.lora[target.path] = {Tensor(DType::kF32, {target.shape[0], target.shape[1], 1}),
                           Tensor(DType::kF32, {target.shape[0], 1, target.shape[2]})};
  return a;
}

void AddCheckpoints(const Corpus& corpus, const Checkpoint& small) {
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    Checkpoint c = small;
    for (auto& named : c.params) named.second = named.second.As(type);
    corpus.Add("checkpoint", StrCat(Name(type), ".pkl"), CheckpointToPickle(c));
    corpus.Add("checkpoint", StrCat(Name(type), ".safetensors"), CheckpointToSafeTensors(c));
  }
  corpus.Add("checkpoint", "no_heads.pkl", CheckpointToPickle(WithoutHeads(small)));
  corpus.Add("safetensors", "checkpoint", CheckpointToSafeTensors(small));
  corpus.Add("pickle", "checkpoint", CheckpointToPickle(small));
}

void AddAdapters(const Corpus& corpus, const Adapter& adapter) {
  Adapter plain = adapter;
  plain.qat_bits = 0;
  plain.qat_bits_map.clear();
  plain.lora.erase(std::next(plain.lora.begin()), plain.lora.end());
  for (const auto& named : {std::pair<std::string, const Adapter*>("mixed", &adapter),
                            std::pair<std::string, const Adapter*>("plain", &plain)}) {
    corpus.Add("adapter", named.first + ".pkl", AdapterToPickle(*named.second));
    corpus.Add("adapter", named.first + ".safetensors", AdapterToSafeTensors(*named.second));
  }
  corpus.Add("pickle", "adapter", AdapterToPickle(adapter));
  corpus.Add("safetensors", "adapter", AdapterToSafeTensors(adapter));
}

void AddNumpyFiles(const Corpus& corpus) {
  for (const char* name :
       {"numpy1_p2.pkl", "numpy1_p3.pkl", "numpy1_p4.pkl", "numpy1_p5.pkl", "numpy2_p2.pkl",
        "numpy2_p3.pkl", "numpy2_p4.pkl", "numpy2_p5.pkl", "config_p2.pkl",
        "config_reconstructor.pkl", "config_reduce.pkl", "config_newobj.pkl",
        "config_newobj_ex.pkl", "bad_big_endian.pkl", "bad_records.pkl"})
    corpus.Add("pickle", name, Golden(std::string("pickle/") + name));
}

void AddArrays(const Corpus& corpus) {
  SafeTensors file;
  for (const DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI32,
                        DType::kI64, DType::kU8, DType::kU32, DType::kBool})
    file.tensors[std::string(Name(t))] = Tensor(t, {1, 3});
  file.tensors["scalar"] = Tensor(DType::kF32, {});
  file.tensors["none"] = Tensor(DType::kF32, {0});
  file.metadata["note"] = "text";
  corpus.Add("safetensors", "all_types", WriteSafeTensors(file));
}

void AddArchives(const Corpus& corpus, const Checkpoint& small, const Tokenizer& tokenizer) {
  const std::vector<uint8_t> blob = tokenizer.ToBlob();
  for (const Bits bits : {Bits::k2, Bits::k3, Bits::k4, Bits::kTernary})
    for (const bool heads : {true, false})
      corpus.Add(
          "cact", StrCat("w", Name(bits), heads ? "_heads" : ""),
          Must(EncodeCact(heads ? small : WithoutHeads(small), BitMap::Uniform(bits), blob)));
}

/// A seed that its reader refuses would leave the fuzzer in front of the first check.
void CheckAccepted(const std::string& folder) {
  namespace fs = std::filesystem;
  const auto each = [&](const char* target, auto parse) {
    for (const auto& file : fs::directory_iterator(JoinPath(folder, target)))
      if (file.path().filename().string().rfind("bad_", 0) != 0)
        Must(parse(Must(ReadFile(file.path().string())), file.path().string()));
  };
  each("checkpoint", ParseCheckpoint);
  each("adapter", ParseAdapter);
  each("safetensors", ParseSafeTensors);
  each("pickle", pickle::Document::Parse);
  each("tokenizer_model", Tokenizer::FromModelProto);
  each("tokenizer_blob", Tokenizer::FromBlob);
  each("cact", CactModel::FromBytes);
}

/// Each line of a golden data file alone, and several together.
void AddLines(const Corpus& corpus) {
  for (const char* name : {"text/edge.jsonl", "data/traj.jsonl"}) {
    const std::vector<uint8_t> bytes = Golden(name);
    std::vector<uint8_t> line;
    int number = 0;
    for (const uint8_t b : bytes) {
      line.push_back(b);
      if (b != '\n') continue;
      if (line.size() < 4096) {
        corpus.Add("jsonl", StrCat(BaseName(name), ".", number), line);
        line.pop_back();
        corpus.Add("json", StrCat(BaseName(name), ".", number), line);
      }
      ++number;
      line.clear();
    }
    corpus.Add(
        "jsonl", BaseName(name),
        {bytes.begin(), bytes.begin() + std::min<long>(8192, static_cast<long>(bytes.size()))});
  }
}

void WriteAll(const Corpus& corpus) {
  const Tokenizer tokenizer = Must(Tokenizer::FromPieces(SmallPieces()));
  corpus.Add("tokenizer_model", "small", tokenizer.ToModelProto());
  corpus.Add("tokenizer_model", "nano", Golden("nano/tokenizer.model"));
  corpus.Add("tokenizer_blob", "small", tokenizer.ToBlob());
  corpus.Add("tokenizer_blob", "golden", Golden("text/tokenizer_1024.blob"));
  const Checkpoint model =
      RandomCheckpoint(SmallConfig(static_cast<int>(tokenizer.size())), 1, DType::kF16);
  const Checkpoint small = RandomCheckpoint(SmallConfig(5), 1, DType::kF16);
  AddCheckpoints(corpus, small);
  AddAdapters(corpus, SmallAdapter(small));
  AddNumpyFiles(corpus);
  AddArrays(corpus);
  AddArchives(corpus, model, tokenizer);
  AddLines(corpus);
}

}  // namespace
}  // namespace needle

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_fuzz_seeds FOLDER\n");
    return 2;
  }
  needle::WriteAll(needle::Corpus(argv[1]));
  needle::CheckAccepted(argv[1]);
  return 0;
}
