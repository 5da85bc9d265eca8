// Test support: reads the uncompressed .npz archives that upstream's arrays come in (and deflated
// ones).
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace needle::test {

struct NpyArray {
  std::string descr;  // "<f4"
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
  size_t size() const {
    size_t n = 1;
    for (int64_t d : shape) n *= static_cast<size_t>(d);
    return n;
  }
  template <class To, class From>
  std::vector<To> Cast() const {
    std::vector<To> out(size());
    for (size_t i = 0; i < out.size(); ++i) {
      From v;
      std::memcpy(&v, &bytes[i * sizeof(From)], sizeof(From));
      out[i] = static_cast<To>(v);
    }
    return out;
  }
  /// Values converted to T, whatever the stored type.
  template <class T>
  std::vector<T> As() const {
    if (descr == "<f4") return Cast<T, float>();
    if (descr == "<f8") return Cast<T, double>();
    if (descr == "<i4") return Cast<T, int32_t>();
    if (descr == "<i8") return Cast<T, int64_t>();
    if (descr == "<u4") return Cast<T, uint32_t>();
    if (descr == "<u2") return Cast<T, uint16_t>();
    if (descr == "|u1") return Cast<T, uint8_t>();
    if (descr == "|b1") return Cast<T, uint8_t>();
    throw std::runtime_error("npy type " + descr);
  }
};

using Npz = std::map<std::string, NpyArray>;

inline NpyArray ParseNpy(const std::vector<uint8_t>& file) {
  NpyArray a;
  const size_t header_at = file.at(6) == 1 ? 10 : 12;
  const size_t header_len = file[6] == 1 ? file[8] | (size_t{file[9]} << 8)
                                         : file[8] | (size_t{file[9]} << 8) |
                                               (size_t{file[10]} << 16) | (size_t{file[11]} << 24);
  const std::string header(file.begin() + static_cast<long>(header_at),
                           file.begin() + static_cast<long>(header_at + header_len));
  const size_t d = header.find("'descr'");
  const size_t q = header.find('\'', d + 8);
  a.descr = header.substr(q + 1, header.find('\'', q + 1) - q - 1);
  size_t p = header.find('(', header.find("'shape'")) + 1;
  while (header[p] != ')') {
    if (header[p] >= '0' && header[p] <= '9') {
      size_t used = 0;
      a.shape.push_back(std::stoll(header.substr(p), &used));
      p += used;
    } else {
      ++p;
    }
  }
  a.bytes.assign(file.begin() + static_cast<long>(header_at + header_len), file.end());
  return a;
}

/// Reads a .npz; throws with the path when it is absent or odd.
inline Npz ReadNpz(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path);
  const std::vector<uint8_t> f((std::istreambuf_iterator<char>(in)), {});
  const auto u16 = [&](size_t at) { return f.at(at) | (size_t{f.at(at + 1)} << 8); };
  const auto u32 = [&](size_t at) { return u16(at) | (u16(at + 2) << 16); };
  const auto u64 = [&](size_t at) { return u32(at) | (u32(at + 4) << 32); };
  size_t end = f.size() - 22;
  while (u32(end) != 0x06054b50) --end;
  size_t at = u32(end + 16);
  Npz out;
  for (size_t i = 0, n = u16(end + 10); i < n; ++i) {
    const size_t method = u16(at + 10), name_len = u16(at + 28), extra = u16(at + 30),
                 comment = u16(at + 32);
    size_t packed = u32(at + 20), size = u32(at + 24), local = u32(at + 42);
    std::string name(f.begin() + static_cast<long>(at + 46),
                     f.begin() + static_cast<long>(at + 46 + name_len));
    for (size_t e = at + 46 + name_len; e < at + 46 + name_len + extra; e += 4 + u16(e + 2)) {
      if (u16(e) != 1) continue;
      size_t v = e + 4;
      if (size == 0xFFFFFFFF) size = u64(v), v += 8;
      if (packed == 0xFFFFFFFF) packed = u64(v), v += 8;
      if (local == 0xFFFFFFFF) local = u64(v);
    }
    const size_t data = local + 30 + u16(local + 26) + u16(local + 28);
    std::vector<uint8_t> bytes(size);
    if (method == 0) {
      std::memcpy(bytes.data(), &f.at(data), size);
    } else {
      z_stream z{};
      inflateInit2(&z, -15);
      z.next_in = const_cast<uint8_t*>(&f.at(data));
      z.avail_in = static_cast<unsigned>(packed);
      z.next_out = bytes.data();
      z.avail_out = static_cast<unsigned>(size);
      inflate(&z, Z_FINISH);
      inflateEnd(&z);
    }
    if (name.size() > 4 && name.substr(name.size() - 4) == ".npy") name.resize(name.size() - 4);
    out[name] = ParseNpy(bytes);
    at += 46 + name_len + extra + comment;
  }
  return out;
}

inline std::string Golden(const std::string& name) {
  return std::string(NEEDLE_GOLDEN_DIR) + "/" + name;
}

}  // namespace needle::test
