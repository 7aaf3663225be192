// Marks what the installed library exports. Everything else is hidden.
#pragma once

#if defined(_WIN32)
#define RENORM_API
#define RENORM_LOCAL
#else
#define RENORM_API __attribute__((visibility("default")))
#define RENORM_LOCAL __attribute__((visibility("hidden")))  // a part of an exported class that is not
#endif
