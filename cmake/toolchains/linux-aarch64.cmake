# Linux aarch64 with Debian's cross g++. qemu-user runs what is built, with the loader and the shared
# libraries of the cross packages.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)

# Libraries for the target only: those of Debian's packages, and what scripts/cross_check.sh puts
# into NEEDLE_FOREIGN_PREFIX.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NEEDLE_FOREIGN_PREFIX)
set(CMAKE_FIND_ROOT_PATH "${NEEDLE_FOREIGN_PREFIX}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
