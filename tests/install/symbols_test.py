"""The installed library exports what its headers declare, and nothing else.

usage: python3 symbols_test.py librenorm.so include/renorm
"""
import pathlib
import re
import subprocess
import sys

library, headers = sys.argv[1], pathlib.Path(sys.argv[2])
text = "\n".join(path.read_text() for path in headers.rglob("*.h"))
symbols = subprocess.run(["nm", "--dynamic", "--defined-only", "--demangle", library], check=True,
                         capture_output=True, text=True).stdout
exported = sorted({line.split(" ", 2)[2] for line in symbols.splitlines()})
own = re.compile(r"(?:typeinfo for |typeinfo name for |vtable for )?((?:\w+::)*~?\w+)")

problems = []
names = set()
for symbol in exported:
    match = own.match(symbol)
    found = match.group(1).replace("~", "").split("::") if match else []
    if found[:1] != ["renorm"] or any(not re.search(rf"\b{name}\b", text) for name in found):
        problems.append(f"exported, but not declared in the headers: {symbol}")
    names.update(found)
declared = re.findall(r"(?:class|struct) RENORM_API (\w+)", text)
declared += re.findall(r"^RENORM_API [^;(]*?(\w+)\(", text, re.MULTILINE)
problems += [f"declared in the headers, but not exported: {name}" for name in declared if name not in names]
if len(declared) < 20:
    problems.append(f"only {len(declared)} declarations found in {headers}")

print(f"{len(exported)} exported symbols, {len(declared)} declarations")
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
