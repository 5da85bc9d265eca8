find_package(rapidcheck REQUIRED)
target_link_libraries(data_test PRIVATE rapidcheck)
