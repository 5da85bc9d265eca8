#include "api/device_tuning.h"

namespace needle {
namespace {

hlo::Precision PrecisionOf(DeviceTuning::Precision choice) {
  switch (choice) {
    case DeviceTuning::Precision::kTf32:
      return hlo::Precision::kTf32;
    case DeviceTuning::Precision::kBf16:
      return hlo::Precision::kBf16;
    case DeviceTuning::Precision::kHighest:
      break;
  }
  return hlo::Precision::kHighest;
}

}  // namespace

PjrtBackendOptions PjrtOptionsFor(pjrt::Kind kind, int found, const DeviceTuning& tuning) {
  const bool metal = kind == pjrt::Kind::kMetal, cpu = kind == pjrt::Kind::kXlaCpu;
  PjrtBackendOptions options;
  options.remat = tuning.remat.value_or(!metal && !cpu);
  options.unroll = tuning.unroll.value_or(metal);
  options.attention =
      tuning.flash.value_or(!metal) ? pjrt::Attention::kBlocked : pjrt::Attention::kPlain;
  options.precision = PrecisionOf(tuning.precision);
  // A processor gains nothing from larger blocks: small ones leave fewer rows free.
  if (cpu) options.limits.block_rows = 512;
  options.devices = tuning.devices > 0 ? tuning.devices : found;
  return options;
}

}  // namespace needle
