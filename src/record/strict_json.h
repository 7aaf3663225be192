// JSON from outside, with what nlohmann-json lets pass refused: names given twice and bottomless nesting.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace renorm::record {

constexpr int kDeepestJson = 32;

// `text` as one JSON value. Throws DataError "WHERE: ..." with what is wrong and at which byte.
nlohmann::json parse_json(const std::string& text, const std::string& where);

// nlohmann-json's words about an error without its own numbering, safe to print.
std::string json_problem(const nlohmann::json::exception& error);

}  // namespace renorm::record
