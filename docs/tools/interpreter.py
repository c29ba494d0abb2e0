"""Executes the Python blocks of a page as they come, a JSON text a line, and answers with what each printed."""

import ast
import contextlib
import io
import json
import sys
import traceback
import warnings
from typing import Any


def plain_warnings() -> None:
    """Warnings in the stream of the page, as one line each."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        print(f"{category.__name__}: {message}")

    warnings.showwarning = show  # type: ignore[assignment]


def execute(code: str, space: dict[str, Any]) -> tuple[str, str]:
    """What the code printed, with the value of a last expression, and the name of the error that ended it or ""."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(tree, "<page>", "exec"), space)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "<page>", "eval"), space)
                if value is not None:
                    print(value if hasattr(value, "to_string") or isinstance(value, str) else repr(value))
        except Exception as error:
            name = type(error).__name__
            lines = traceback.format_exception_only(error)
            print(lines[-1].split(":", 1)[0].rsplit(".", 1)[-1] + ": " + str(error))
            return printed.getvalue(), name
    return printed.getvalue(), ""


def main() -> None:
    """Read until the page ends."""
    sys.path[0] = ""
    out = sys.stdout
    sys.stdout = sys.stderr
    plain_warnings()
    import pandas as pd

    pd.set_option("display.width", 100)
    pd.set_option("display.max_columns", 20)
    space: dict[str, Any] = {"__name__": "__main__"}
    for line in sys.stdin:
        text, error = execute(json.loads(line), space)
        print(json.dumps({"text": text, "error": error}), file=out, flush=True)


if __name__ == "__main__":
    main()
