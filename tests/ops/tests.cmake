find_package(rapidcheck REQUIRED)
target_link_libraries(ops_test PRIVATE rapidcheck)
