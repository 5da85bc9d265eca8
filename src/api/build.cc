#include <set>

#include "api/adapted.h"
#include "api/base_model_impl.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "format/cact.h"

namespace needle {
namespace {

std::string SchemeOf(const BitMap& bits) {
  if (bits.uniform()) return StrCat("W", Name(bits.fallback()));
  return StrCat("mixed[", bits.text(), "]");
}

/// `where` the text stands, for the error.
Result<ArchiveBits> Parsed(const std::string& text, bool from_adapter, const char* where) {
  const Result<BitMap> bits = BitMap::Parse(text);
  if (!bits.ok()) return bits.error().In(StrCat(where, " ", text));
  return ArchiveBits{*bits, SchemeOf(*bits), from_adapter};
}

Error OtherBits(const std::string& asked, const std::string& trained) {
  return Error(Code::kInvalidArgument,
               StrCat("the adapter was trained for ", trained, ", but --bits ", asked,
                      " would run it in other numerics; leave --bits out, or fine-tune again with "
                      "the --qat-bits that you want"));
}

// Refuses a map that names a tensor which the archive does not hold in codes: most likely a typo,
// and what it was meant for would get the default width.
Status CheckNames(const BitMap& bits, const CactModel& archive) {
  std::set<std::string> names;  // layers share theirs
  for (const CactTensor& tensor : archive.tensors)
    if (tensor.type == CactType::kCodes) names.insert(CanonicalName(tensor.name));
  const std::vector<std::string> unused = bits.Unused({names.begin(), names.end()});
  if (unused.empty()) return {};
  std::string known;
  for (const std::string& name : names) known += StrCat(known.empty() ? "" : ", ", name);
  return Error(Code::kInvalidArgument,
               StrCat("--bits ", bits.text(), ": \"", unused.front(),
                      "\" begins the name of no quantised tensor of this model; they are ", known));
}

}  // namespace

Result<ArchiveBits> ChooseBits(const AdaptedModel& model, const std::string& asked) {
  if (model.adapter && !model.adapter->qat_bits_map.empty()) {
    const std::string& map = model.adapter->qat_bits_map;
    if (!asked.empty() && asked != map) return OtherBits(asked, StrCat("the mixed widths ", map));
    return Parsed(map, true, "the adapter's qat_bits_map");
  }
  if (model.adapter && model.adapter->qat_bits != 0) {
    const std::string trained = StrCat(model.adapter->qat_bits);
    if (!asked.empty() && asked != trained) return OtherBits(asked, StrCat(trained, " bits"));
    return Parsed(trained, true, "the adapter's qat_bits");
  }
  if (!asked.empty()) return Parsed(asked, false, "--bits");
  const std::string& own = model.merged.config.weight_bits;
  return Parsed(own.empty() ? "4" : own, false, "the checkpoint's weight_bits");
}

Result<BuildReport> Build(const BaseModel& base, const BuildOptions& options) {
  NEEDLE_ASSIGN(const AdaptedModel model, Adapt(base, options.lora));
  NEEDLE_ASSIGN(const ArchiveBits bits, ChooseBits(model, options.bits));
  BuildReport report;
  report.path = options.out.empty() ? Stem(BaseName(base.name())) + ".cact" : options.out;
  const Result<std::vector<uint8_t>> encoded =
      EncodeCact(model.merged, bits.bits, base.impl().tokenizer.ToBlob());
  if (!encoded.ok()) return encoded.error().In(report.path);
  const std::vector<uint8_t>& bytes = *encoded;
  NEEDLE_ASSIGN(const CactModel archive, CactModel::FromBytes(bytes, report.path));
  if (!options.bits.empty()) NEEDLE_TRY(CheckNames(bits.bits, archive));
  NEEDLE_TRY(WriteFileAtomically(report.path, bytes));
  report.bytes = bytes.size();
  report.tensors = archive.tensors.size();
  report.scheme = bits.scheme;
  report.from_adapter = bits.from_adapter;
  report.merged = model.adapter ? model.adapter->lora.size() : 0;
  return report;
}

}  // namespace needle
