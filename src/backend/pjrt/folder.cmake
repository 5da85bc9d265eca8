# The program builder has a folder of its own.
file(GLOB pjrt_hlo_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/backend/pjrt/hlo/*.cc")
target_sources(needle_backend_pjrt PRIVATE ${pjrt_hlo_sources})
