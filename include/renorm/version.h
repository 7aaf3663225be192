// The version of these headers. CMake checks that it is the project's.
#pragma once

#define RENORM_VERSION_MAJOR 0
#define RENORM_VERSION_MINOR 1
#define RENORM_VERSION_PATCH 0
#define RENORM_VERSION "0.1.0"
