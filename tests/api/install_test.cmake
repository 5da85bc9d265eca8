# Installs the build into a folder of its own, then configures, builds and runs a separate project
# against it: once through find_package, once through pkg-config.
#   cmake -DBUILD=... -DCONSUMER=... -DGOLDEN=... -DWORK=... -DCXX=... -DFLAGS=... -P install_test.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out
    COMMAND_ECHO NONE)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${status}\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}/run" "${WORK}/run2")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix")
run("${CMAKE_COMMAND}" -S "${CONSUMER}" -B "${WORK}/build" "-DCMAKE_PREFIX_PATH=${WORK}/prefix"
  "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}" -DCMAKE_BUILD_TYPE=Debug)
run("${CMAKE_COMMAND}" --build "${WORK}/build")

set(tools "[{\"name\":\"set_lamp\",\"parameters\":{\"type\":\"object\",\"properties\":{\"level\":{\"type\":\"integer\"}},\"required\":[\"level\"]}}]")
file(WRITE "${WORK}/data.jsonl" "{\"query\":\"lamp to 3\",\"tools\":${tools},\"answers\":[{\"name\":\"set_lamp\",\"arguments\":{\"level\":3}}]}\n")
set(arguments "${GOLDEN}/nano/nano.pkl" "${WORK}/data.jsonl" "${tools}")
run("${WORK}/build/consumer" ${arguments} "${WORK}/run")
if(NOT out MATCHES "needle [0-9.]+: \\[")
  message(FATAL_ERROR "the consumer printed: ${out}")
endif()
message(STATUS "find_package: ${out}")

run("${WORK}/prefix/bin/needle" inspect "${WORK}/run/m.cact" --json)
find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  file(GLOB_RECURSE pc "${WORK}/prefix/needle_train.pc")
  get_filename_component(pc_folder "${pc}" DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} "${pc_folder}")
  run(${PKG_CONFIG} --cflags --libs needle_train)
  string(STRIP "${out}" flags)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  separate_arguments(extra UNIX_COMMAND "${FLAGS}")
  get_filename_component(lib "${pc_folder}" DIRECTORY)
  run("${CXX}" -std=c++20 ${extra} "${CONSUMER}/main.cc" -o "${WORK}/consumer2" ${flags} "-Wl,-rpath,${lib}")
  run("${WORK}/consumer2" ${arguments} "${WORK}/run2")
  message(STATUS "pkg-config: ${out}")
endif()
