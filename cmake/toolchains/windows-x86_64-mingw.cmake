# Windows x86-64 with Debian's mingw-w64; its "posix" flavour has std::thread. What is linked carries
# the compiler's libraries inside, so that it starts on a machine without mingw-w64.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static")
# A library must not hand out what it carries of the compiler: the next one carries it too.
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-static -Wl,--exclude-libs,libgcc_eh.a:libpthread.a:libwinpthread.a")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-static")
set(CMAKE_CROSSCOMPILING_EMULATOR wine)

# Libraries for the target only: those of Debian's packages, and what scripts/cross_check.sh puts
# into NEEDLE_FOREIGN_PREFIX.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NEEDLE_FOREIGN_PREFIX)
set(CMAKE_FIND_ROOT_PATH "${NEEDLE_FOREIGN_PREFIX}" /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
