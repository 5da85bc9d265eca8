find_package(rapidcheck REQUIRED)
find_package(nlohmann_json REQUIRED)
target_link_libraries(json_test PRIVATE rapidcheck nlohmann_json::nlohmann_json)
