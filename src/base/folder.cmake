# Opening libraries at run time; part of the C library where it is empty.
target_link_libraries(${name} PUBLIC ${CMAKE_DL_LIBS})
