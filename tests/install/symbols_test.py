"""The installed library exports what its headers declare, and nothing else.

usage: python3 symbols_test.py librenorm.so include/renorm
"""
import pathlib
import re
import subprocess
import sys


class Declarations:
    """Qualified names that C++ text declares for export, in the subset of C++ that the headers use."""

    def __init__(self, text):
        self.classes, self.functions, self.members = set(), set(), set()
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
        text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", "", text, flags=re.MULTILINE)
        scopes = []  # (names, exported, whether it is a class), or None inside of a body
        statement, depth = "", 0
        for char in text:
            depth += {"(": 1, ")": -1}.get(char, 0)
            if depth or char not in "{};":
                statement += char
                continue
            if char == "{":
                scopes.append(self.open(statement, scopes))
            else:
                self.close(statement, scopes)
                if char == "}":
                    scopes.pop()
            statement = ""

    def open(self, statement, scopes):
        if None in scopes:
            return None
        statement = self.plain(statement)
        names = [name for scope in scopes for name in scope[0]]
        namespace = re.match(r"namespace ([\w:]+)$", statement)
        if namespace:
            return namespace.group(1).split("::"), False, False
        found = re.match(r"(?:class|struct) (RENORM_API |RENORM_LOCAL )?(\w+)[^()]*$", statement)
        if not found:
            self.close(statement, scopes)
            return None
        within = bool(scopes) and scopes[-1][1]
        exported = found.group(1) == "RENORM_API " or (within and found.group(1) is None)
        if exported:
            self.classes.add("::".join(names + [found.group(2)]))
        return [found.group(2)], exported, True

    def close(self, statement, scopes):
        if None in scopes or not scopes:
            return
        statement = self.plain(statement)
        found = re.search(r"(operator[^\s\w(]+|~?\w+)\s*\(", statement)
        if not found or statement.startswith(("friend", "TORCH_")):
            return
        name = "::".join([part for scope in scopes for part in scope[0]] + [found.group(1)])
        if scopes[-1][2] and scopes[-1][1]:
            self.members.add(name)
        elif "RENORM_API" in statement:
            self.functions.add(name)

    @staticmethod
    def plain(statement):
        statement = re.sub(r"\b(?:public|protected|private)\s*:", "", statement)
        statement = re.sub(r"\btemplate\s*<[^<>]*>", "", statement)
        return " ".join(statement.split())

    def contains(self, name):
        scope, _, last = name.rpartition("::")
        return name in self.classes | self.functions | self.members or (
            scope in self.classes and last == "~" + scope.rpartition("::")[2])


def name_of(symbol):
    """renorm::ops::f of renorm::ops::f[abi:cxx11](int) const, or nothing."""
    found = re.match(r"(?:typeinfo for |typeinfo name for |vtable for |VTT for )?"
                     r"((?:\w+::)*(?:operator[^\s\w(]+|~?\w+))(?:\[abi:\w+\])?(?:\(|$)", symbol)
    return found.group(1) if found else ""


def check_itself():
    declared = Declarations("""
        namespace renorm::ops {
        // clipped(r, d) is a helper.
        class RENORM_API Layer : public Base<int> {
         public:
          explicit Layer(int count) : count_(count) {}
          template <class T> T as() const { return helper(T()); }
          bool operator==(const Layer& other) const;
         private:
          struct RENORM_LOCAL Account;
          friend RENORM_API void commit();
        };
        RENORM_API int run(const Layer& layer,
                           double share = sum({1, 2}));
        inline int hidden() { return 1; }
        }
        """)
    for name in ("Layer", "Layer::Layer", "Layer::~Layer", "Layer::as", "Layer::operator==", "run"):
        assert declared.contains("renorm::ops::" + name), name
    for name in ("clipped", "Layer::Account", "Layer::helper", "Layer::run", "Layer::commit", "hidden", "sum"):
        assert not declared.contains("renorm::ops::" + name), name
    assert name_of("renorm::ops::run[abi:cxx11](int) const") == "renorm::ops::run"
    assert name_of("typeinfo for renorm::ops::Layer") == "renorm::ops::Layer"


check_itself()
library, headers = sys.argv[1], pathlib.Path(sys.argv[2])
declared = Declarations("\n".join(path.read_text() for path in sorted(headers.rglob("*.h"))))
for leak in ("renorm::ops::clipped", "renorm::BatchRenormLayer::Account"):
    assert not declared.contains(leak), leak
symbols = subprocess.run(["nm", "--dynamic", "--defined-only", "--demangle", library], check=True,
                         capture_output=True, text=True).stdout
exported = sorted({line.split(" ", 2)[2] for line in symbols.splitlines()})
names = {name_of(symbol) for symbol in exported}
scopes = {name.rpartition("::")[0] for name in names}

problems = [f"exported, but not declared in the headers: {symbol}" for symbol in exported
            if not declared.contains(name_of(symbol))]
required = sorted(declared.functions | {name for name in declared.classes if name.count("::") < 2})
problems += [f"declared in the headers, but not exported: {name}" for name in required
             if name not in names | scopes]
if len(required) < 20:
    problems.append(f"only {len(required)} declarations found in {headers}")

print(f"{len(exported)} exported symbols, {len(required)} declarations")
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
