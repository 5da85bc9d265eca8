# Sourced: installs the system packages that a build needs, when they are missing.
#   needle_packages          what the program needs
#   needle_packages tests    and what its tests need
# On a system without apt it names what it wants and goes on; CMake then says what is missing.

needle_packages() {
  local wanted=(build-essential cmake ninja-build pkg-config libhwy-dev libcli11-dev libfmt-dev
    libcpp-httplib-dev libssl-dev libsentencepiece-dev python3)
  if [[ ${1:-} == tests ]]; then
    wanted+=(libgtest-dev librapidcheck-dev nlohmann-json3-dev zlib1g-dev openssl python3-pip)
  fi
  needle_install "${wanted[@]}"
}

# Installs those of the named packages that are missing.
needle_install() {
  if ! command -v apt-get >/dev/null; then
    echo "no apt-get here; the build needs what these Debian packages hold: $*" >&2
    return 0
  fi
  local missing=() package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == "install ok installed" ]] ||
      missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0
  local root=()
  if [[ $(id -u) -ne 0 ]]; then root=(sudo); fi
  echo "== installing ${missing[*]}"
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# Jobs for a build: the processors, but one for each GB of memory at most (the largest sources
# need about that much).
needle_jobs() {
  local cpus memory
  cpus=$(nproc)
  memory=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo 2>/dev/null || echo "$cpus")
  if ((memory < 1)); then memory=1; fi
  echo $((cpus < memory ? cpus : memory))
}
