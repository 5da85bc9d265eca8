// A library that is no plugin.
extern "C" __attribute__((visibility("default"))) int needle_fake_nothing() { return 0; }
