// Everything a user of the library needs.
#pragma once

#include <renorm/nn/batch_renorm.h>
#include <renorm/nn/clip_schedule.h>
#include <renorm/nn/convert.h>
#include <renorm/nn/model.h>
#include <renorm/ops/batch_renorm.h>
#include <renorm/ops/sync_batch_renorm.h>
#include <renorm/version.h>
