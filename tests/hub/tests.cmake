# The server of the TLS test, and the certificate that it makes for itself.
if(NEEDLE_HTTP)
  target_link_libraries(${name}_test PRIVATE PkgConfig::NEEDLE_HTTPLIB OpenSSL::SSL OpenSSL::Crypto)
  target_compile_definitions(${name}_test PRIVATE NEEDLE_HTTP)
endif()
if(WIN32)
  target_link_libraries(${name}_test PRIVATE ws2_32)  # the sockets of fake_hub.h
endif()
