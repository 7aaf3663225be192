// Choices between named alternatives: an enum with one table of names, from which flags, files, help and
// messages are made.
#pragma once

#include <string>
#include <vector>

#include "base/errors.h"
#include "base/text.h"

namespace renorm {

template <typename Enum>
struct Choice {
  Enum value;
  const char* name;
  const char* help = "";  // may be empty
};

// Specialized beside each enum with `kWhat`, the noun of messages ("optimizer"), and `kAll`, an array with
// one Choice per enumerator.
template <typename Enum>
struct Choices;

template <typename Enum>
std::string name_of(Enum value) {
  for (const Choice<Enum>& choice : Choices<Enum>::kAll) {
    if (choice.value == value) return choice.name;
  }
  return "";
}

template <typename Enum>
std::vector<std::string> choice_names() {
  std::vector<std::string> names;
  for (const Choice<Enum>& choice : Choices<Enum>::kAll) names.emplace_back(choice.name);
  return names;
}

// Throws UsageError "unknown optimizer 'adam'; did you mean 'adamw'?".
template <typename Enum>
Enum parse_choice(const std::string& text) {
  for (const Choice<Enum>& choice : Choices<Enum>::kAll) {
    if (text == choice.name) return choice.value;
  }
  throw UsageError(unknown_name(Choices<Enum>::kWhat, text, choice_names<Enum>()));
}

// "rmsprop-tf (epsilon inside the root), rmsprop, sgd or adamw"
template <typename Enum>
std::string choice_help() {
  std::string text;
  size_t left = std::size(Choices<Enum>::kAll);
  for (const Choice<Enum>& choice : Choices<Enum>::kAll) {
    text += choice.name;
    if (*choice.help != '\0') text += std::string(" (") + choice.help + ")";
    --left;
    if (left > 0) text += left == 1 ? " or " : ", ";
  }
  return text;
}

}  // namespace renorm
