#include "format/cact.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/str_cat.h"
#include "format/cact_bytes.h"

namespace needle {
namespace {

using cact::Header;
using cact::Record;
using Bytes = std::span<const uint8_t>;

template <class N>
N Read(Bytes bytes, size_t at) {
  N value;
  std::memcpy(&value, &bytes[at], sizeof(N));
  return value;
}

bool FiniteHalf(uint16_t h) { return (h & 0x7C00u) != 0x7C00u; }

// Reads one archive: each step checks what the next relies on.
class Reader {
 public:
  Reader(Bytes bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

  Status ReadInto(CactModel& model) {
    NEEDLE_TRY(ReadHeader());
    NEEDLE_TRY(ReadConfig(model));
    NEEDLE_TRY(CheckCodebooks());
    NEEDLE_TRY(ReadDirectory());
    NEEDLE_TRY(ReadHeads(model));
    const std::vector<CactEntry> layout = CactLayout(model.config, model.heads);
    for (size_t i = 0; i < layout.size(); ++i) {
      NEEDLE_ASSIGN(CactTensor tensor, ReadTensor(layout[i], i));
      model.tensors.push_back(std::move(tensor));
    }
    return CheckTokenizer(model);
  }

 private:
  template <class... Pieces>
  Error Corrupt(const Pieces&... pieces) const {
    return {Code::kCorruptFile, StrCat(origin_, ": ", pieces...)};
  }

  Status ReadHeader() {
    if (bytes_.size() >= sizeof(uint32_t)) {
      const auto tag = Read<uint32_t>(bytes_, 0);
      if (tag == kCactNeedle3Tag)
        return Corrupt("this is a Needle 3 archive; only Needle 2 archives can be opened");
      if (tag != kCactTag) return Corrupt("not a .cact archive (its tag is ", tag, ")");
    }
    if (bytes_.size() < cact::kDirectoryAt)
      return Corrupt("the file ends after ", bytes_.size(), " bytes; the header of an archive ",
                     "alone takes ", cact::kDirectoryAt);
    header_ = Read<Header>(bytes_, 0);
    const size_t records = (bytes_.size() - cact::kDirectoryAt) / cact::kRecordBytes;
    if (header_.tensors > records || header_.tensors < header_.layers)
      return Corrupt("the header counts ", header_.tensors, " tensors and ", header_.layers,
                     " layers; the file of ", bytes_.size(), " bytes cannot hold that");
    return {};
  }

  static int ToInt(uint64_t v) { return static_cast<int>(std::min<uint64_t>(v, INT_MAX)); }

  template <size_t n>
  Result<std::vector<int>> ReadList(std::string_view what, uint32_t count,
                                    const std::array<uint32_t, n>& values) const {
    if (count > n) return Corrupt("the header counts ", count, " ", what, "; at most 4 fit");
    std::vector<int> out;
    for (size_t i = 0; i < n; ++i) {
      if (i < count) out.push_back(ToInt(values[i]));
      if (i >= count && values[i] != 0)
        return Corrupt("the header counts ", count, " ", what, " but holds more");
    }
    return out;
  }

  Status ReadConfig(CactModel& model) const {
    const Header& h = header_;
    ModelConfig& c = model.config;
    c.vocab_size = ToInt(h.vocab);
    c.d_model = ToInt(h.width);
    c.attn_dim = ToInt(uint64_t{h.heads} * h.head_size);
    c.num_heads = ToInt(h.heads);
    c.num_kv_heads = ToInt(h.kv_heads);
    c.num_layers = ToInt(h.layers);
    c.max_seq_len = ToInt(h.max_seq_len);
    c.rope_theta = h.rope_theta;
    c.dtype = "float32";
    NEEDLE_ASSIGN(c.engram_orders, ReadList("n-gram orders", h.orders, h.order));
    NEEDLE_ASSIGN(c.engram_layers, ReadList("engram sites", h.sites, h.site));
    if (h.orders == 0 || h.tables == 0 || h.tables % h.orders != 0)
      return Corrupt("the header has ", h.tables, " engram tables for ", h.orders,
                     " n-gram orders; each order needs equally many, at least one");
    c.engram_heads = ToInt(h.tables / h.orders);
    c.engram_slots = ToInt(h.slots);
    c.mhc_lanes = ToInt(h.lanes);
    c.kv_window = ToInt(h.kv_window);
    c.kv_bits = ToInt(h.kv_bits);
    const Status valid = c.Validate();
    if (!valid.ok())
      return Corrupt("the header does not describe a model: ", valid.error().message());
    NEEDLE_TRY(CheckDerived("head size", h.head_size, c.HeadDim()));
    NEEDLE_TRY(CheckDerived("Hadamard size", h.hadamard, c.HadamardSize()));
    NEEDLE_TRY(CheckDerived("engram table width", h.sub, c.EngramSub()));
    NEEDLE_TRY(CheckDerived("number of convolution taps", h.taps, kConvTaps));
    NEEDLE_TRY(CheckDerived("convolution dilation", h.dilation, c.ConvDilation()));
    model.kv_window = c.EffectiveWindow();
    return {};
  }

  Status CheckDerived(std::string_view what, uint32_t found, int wanted) const {
    if (found == static_cast<uint32_t>(wanted)) return {};
    return Corrupt("the header gives a ", what, " of ", found, "; its other sizes make it ",
                   wanted);
  }

  Status CheckCodebooks() const {
    const std::vector<float> known = cact::Codebooks();
    const Bytes stored = bytes_.subspan(cact::kHeaderBytes, known.size() * sizeof(float));
    if (header_.codebook_entries != cact::kCodebookEntries ||
        std::memcmp(stored.data(), known.data(), stored.size()) != 0)
      return Corrupt("its codebooks (bytes ", cact::kHeaderBytes, " to ", cact::kDirectoryAt,
                     ") are not those of Needle 2");
    return {};
  }

  // Offsets ascend, are aligned, do not overlap and stay inside the file, which ends with the last.
  Status ReadDirectory() {
    uint64_t end = cact::kDirectoryAt + uint64_t{header_.tensors} * cact::kRecordBytes;
    for (uint32_t i = 0; i < header_.tensors; ++i) {
      const size_t at = cact::kDirectoryAt + i * cact::kRecordBytes;
      Record r = {};
      r.type = bytes_[at];
      r.dims = bytes_[at + 1];
      r.zero = Read<uint16_t>(bytes_, at + 2);
      r.shape = Read<std::array<uint32_t, 4>>(bytes_, at + 4);
      r.offset = Read<uint64_t>(bytes_, at + 20);
      r.bytes = Read<uint64_t>(bytes_, at + 28);
      r.group = Read<uint32_t>(bytes_, at + 36);
      r.bits = Read<uint32_t>(bytes_, at + 40);
      if (r.offset % cact::kAlignment != 0 || r.offset < end)
        return Corrupt("tensor ", i, " (record at byte ", at, ") begins at byte ", r.offset,
                       "; it must begin at a multiple of ", cact::kAlignment, " from ", end, " on");
      if (r.offset > bytes_.size() || r.bytes > bytes_.size() - r.offset)
        return Corrupt("tensor ", i, " takes ", r.bytes, " bytes from byte ", r.offset,
                       "; the file has ", bytes_.size(), " bytes (was it cut short?)");
      end = r.offset + r.bytes;
      records_.push_back(r);
    }
    if (end != bytes_.size())
      return Corrupt("the last tensor ends at byte ", end, " of ", bytes_.size(),
                     "; nothing may follow it");
    return {};
  }

  // The manifest says which heads there are; the contrastive projection says how wide it is.
  Status ReadHeads(CactModel& model) const {
    const size_t without = CactLayout(model.config, {}).size(), found = records_.size();
    const size_t manifest = without - 1;  // it stands where the tokenizer would
    if (found == without) return {};
    const size_t heads = found == without + 4 ? 1 : found == without + 7 ? 2 : 0;
    if (heads == 0)
      return Corrupt("the archive has ", found, " tensors; a model of this config has ", without,
                     ", or ", without + 4, " and ", without + 7, " with one and two heads");
    const Record& r = records_[manifest];
    if (r.bytes != heads * 2)
      return Corrupt("the manifest of the heads takes ", r.bytes, " bytes; ", heads * 2,
                     " are wanted");
    for (size_t i = 0; i < heads; ++i) {
      const float mark = F16ToF32(Read<uint16_t>(bytes_, r.offset + 2 * i));
      bool& head =
          mark == cact::kContrastiveMark ? model.heads.contrastive : model.heads.confidence;
      if ((mark != cact::kContrastiveMark && mark != cact::kConfidenceMark) || head ||
          (mark == cact::kContrastiveMark && model.heads.confidence))
        return Corrupt("the manifest of the heads holds ", mark, " at place ", i,
                       "; it lists 1 (contrastive) and 2 (confidence), each once, in this order");
      head = true;
    }
    if (model.heads.contrastive) {
      model.config.contrastive_dim = ToInt(records_[manifest + 2].shape[0]);
      const Status valid = model.config.Validate();
      if (!valid.ok())
        return Corrupt("the contrastive head is not usable: ", valid.error().message());
    }
    return {};
  }

  Result<CactTensor> ReadTensor(const CactEntry& wanted, size_t i) const {
    const Record& r = records_[i];
    CactTensor t;
    t.name = wanted.name;
    t.type = wanted.type;
    t.shape = wanted.shape;
    t.offset = r.offset;
    t.bytes = bytes_.subspan(r.offset, r.bytes);
    NEEDLE_TRY(CheckRecord(wanted, r));
    if (t.type == CactType::kRaw) return t;
    if (t.type == CactType::kCodes) {
      const std::optional<Bits> bits = WidthOf(r);
      if (!bits)
        return Wrong(wanted, "has groups of ", r.group, " and width ", r.bits,
                     "; groups of 128 and widths 2, 3, 4 and 5 (ternary) exist");
      t.bits = *bits;
    } else if (r.group != 0 || r.bits != 0) {
      return Wrong(wanted, "has a group or a width though it holds plain numbers");
    }
    const uint64_t size = cact::BlobBytes(t.type, t.shape, t.bits);
    if (r.bytes != size)
      return Wrong(wanted, "takes ", r.bytes, " bytes; its shape ", ToText(t.shape), " takes ",
                   size);
    NEEDLE_TRY(CheckValues(wanted, t));
    return t;
  }

  template <class... Pieces>
  Error Wrong(const CactEntry& e, const Pieces&... pieces) const {
    return Corrupt("tensor ", e.name, " ", pieces...);
  }

  Status CheckRecord(const CactEntry& wanted, const Record& r) const {
    if (r.type != static_cast<uint8_t>(wanted.type))
      return Wrong(wanted, "has type ", int{r.type}, "; type ", static_cast<int>(wanted.type), " (",
                   Name(wanted.type), ") is wanted");
    Shape shape;
    for (size_t i = 0; i < std::min<size_t>(r.dims, 4); ++i) shape.push_back(r.shape[i]);
    bool rest_is_zero = r.zero == 0;
    for (size_t i = shape.size(); i < 4; ++i) rest_is_zero = rest_is_zero && r.shape[i] == 0;
    if (r.dims != wanted.shape.size() || shape != wanted.shape)
      return Wrong(wanted, "has shape ", ToText(shape), " in ", int{r.dims},
                   " dimensions; the header asks for ", ToText(wanted.shape));
    if (!rest_is_zero)
      return Wrong(wanted, "has numbers where its record must be zero; the file is damaged");
    return {};
  }

  static std::optional<Bits> WidthOf(const Record& r) {
    if (r.group != kGroup || r.bits < 2 || r.bits > 5) return std::nullopt;
    return static_cast<Bits>(r.bits);
  }

  Status CheckValues(const CactEntry& e, const CactTensor& t) const {
    const bool codes = t.type == CactType::kCodes;
    const Bytes halves = codes ? t.norm_bytes() : t.bytes;
    for (size_t i = 0; i < halves.size(); i += 2) {
      const auto half = Read<uint16_t>(halves, i);
      const bool negative_norm = codes && (half & 0x8000u) != 0;
      if (!FiniteHalf(half) || negative_norm)
        return Wrong(e, "holds ", F16ToF32(half), codes ? " as a norm" : " as a value", " at byte ",
                     t.offset + static_cast<uint64_t>(halves.data() - t.bytes.data()) + i);
    }
    if (t.bits != Bits::kTernary) return {};
    const Bytes packed = t.packed();
    for (size_t i = 0; i < packed.size(); ++i) {
      const unsigned high = packed[i] & 0xAAu, low = packed[i] & 0x55u;
      if ((high & ~(low << 1)) != 0)
        return Wrong(e, "holds the pattern 10, which is no ternary code, at byte ", t.offset + i);
    }
    return {};
  }

  // The blob begins with the number of pieces and the ids of padding, end, begin and unknown.
  Status CheckTokenizer(CactModel& model) const {
    const Bytes blob = model.tokenizer_blob();
    if (blob.size() < 2 * sizeof(uint32_t))
      return Corrupt("the tokenizer takes ", blob.size(), " bytes, too few to be one");
    const auto pieces = Read<uint32_t>(blob, 0), pad = Read<uint32_t>(blob, sizeof(uint32_t));
    if (pieces != header_.vocab)
      return Corrupt("the tokenizer has ", pieces, " pieces; the header gives a vocabulary of ",
                     header_.vocab);
    if (pad >= pieces) return Corrupt("the tokenizer's padding id ", pad, " is outside its pieces");
    model.config.pad_token_id = static_cast<int>(pad);
    return {};
  }

  Bytes bytes_;
  const std::string& origin_;
  Header header_ = {};
  std::vector<Record> records_;
};

// The inverse of the writer's gathering: the entry's values go to their place in the leaf.
void Scatter(const CactEntry& e, const std::vector<float>& values, std::vector<float>& leaf,
             size_t matrix_rows) {
  const size_t n = values.size(), first = e.layer < 0 ? 0 : static_cast<size_t>(e.layer) * n;
  if (!e.transposed) {
    std::copy(values.begin(), values.end(), leaf.begin() + static_cast<std::ptrdiff_t>(first));
    return;
  }
  const auto in = static_cast<size_t>(e.shape[1]), rows = static_cast<size_t>(e.shape[0]);
  for (size_t r = 0; r < rows; ++r) {
    const size_t matrix = r / matrix_rows, o = r % matrix_rows;
    for (size_t i = 0; i < in; ++i)
      leaf[first + (matrix * in + i) * matrix_rows + o] = values[r * in + i];
  }
}

}  // namespace

std::string_view Name(CactType t) {
  switch (t) {
    case CactType::kFp16:
      return "float16";
    case CactType::kFp32:
      return "float32";
    case CactType::kCodes:
      return "codes";
    case CactType::kRaw:
      return "raw";
  }
  return "?";
}

QuantizedMatrix ToQuantized(const CactTensor& t) {
  assert(t.type == CactType::kCodes);
  QuantizedMatrix q;
  q.rows = t.rows();
  q.cols = t.cols();
  q.bits = t.bits;
  q.codes = UnpackCodes(t.packed(), q.rows, q.padded_cols(), q.bits).value();  // checked on opening
  q.norms.resize(t.norm_bytes().size() / 2);
  std::memcpy(q.norms.data(), t.norm_bytes().data(), t.norm_bytes().size());
  return q;
}

std::vector<float> ToFloats(const CactTensor& t) {
  assert(t.type != CactType::kRaw);
  std::vector<float> out(static_cast<size_t>(ElementCount(t.shape)));
  if (t.type == CactType::kCodes) {
    Dequantize(ToQuantized(t), {out.data(), t.rows(), t.cols()});
  } else {
    for (size_t i = 0; i < out.size(); ++i) out[i] = F16ToF32(Read<uint16_t>(t.bytes, 2 * i));
  }
  return out;
}

Result<CactModel> CactModel::Open(const std::string& path) {
  NEEDLE_ASSIGN(MappedFile opened, MappedFile::Open(path));
  const auto file = std::make_shared<MappedFile>(std::move(opened));
  CactModel model;
  model.memory_ = file;
  model.file_size_ = file->bytes().size();
  NEEDLE_TRY(Reader(file->bytes(), path).ReadInto(model));
  return model;
}

Result<CactModel> CactModel::FromBytes(std::span<const uint8_t> bytes, const std::string& origin) {
  const auto copy = std::make_shared<std::vector<uint8_t>>(bytes.begin(), bytes.end());
  CactModel model;
  model.memory_ = copy;
  model.file_size_ = copy->size();
  NEEDLE_TRY(Reader(*copy, origin).ReadInto(model));
  return model;
}

const CactTensor* CactModel::Find(std::string_view name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(),
                               [&](const CactTensor& t) { return t.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

TensorMap CactModel::ToParams() const {
  std::map<std::string, Shape> shapes;
  for (const ParamSpec& p : ModelParams(config)) shapes[p.path] = p.shape;
  std::map<std::string, std::vector<float>> leaves;
  const std::vector<CactEntry> layout = CactLayout(config, heads);
  for (size_t i = 0; i < layout.size(); ++i) {
    const CactEntry& e = layout[i];
    if (e.path.empty()) continue;
    const Shape& shape = shapes.at(e.path);
    std::vector<float>& leaf = leaves[e.path];
    leaf.resize(static_cast<size_t>(ElementCount(shape)));
    Scatter(e, ToFloats(tensors[i]), leaf, e.transposed ? static_cast<size_t>(shape.back()) : 0);
  }
  TensorMap out;
  for (auto& leaf : leaves)
    out.emplace(leaf.first, Tensor::FromFloats(shapes.at(leaf.first), leaf.second));
  return out;
}

}  // namespace needle
