"""The command line as a page of Markdown, from the commands themselves."""

from typing import Any

import typer

import pgbb.cli

KINDS = {"bool": "", "boolean": "", "str": "text", "integer": "int", "Path": "path"}


def page() -> str:
    """One section a command."""
    root: Any = typer.main.get_command(pgbb.cli.app)
    lines = [
        "# Command line",
        "",
        "Made from the commands by the build. `pgbb COMMAND --help` prints the same.",
        "",
        next(part for part in (pgbb.cli.__doc__ or "").split("\n\n") if part.startswith("Exit codes")),
        "",
    ]
    for name in root.commands:
        lines += _section(f"pgbb {name}", root.commands[name])
    return "\n".join(lines)


def _section(path: str, command: Any) -> list[str]:
    inside = getattr(command, "commands", None)
    if inside:
        lines = [f"## {path}", "", *_help(command), ""]
        for name in inside:
            lines += ["#" + line if i == 0 else line for i, line in enumerate(_section(f"{path} {name}", inside[name]))]
        return lines
    rows = [_row(p) for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    arguments = " ".join(p.name.upper() for p in command.params if p.param_type_name == "argument")
    lines = [f"## {path}", "", f"`{path} {arguments} [OPTIONS]`".replace("  ", " "), "", *_help(command), ""]
    if rows:
        lines += ["| | takes | default | |", "|---|---|---|---|", *rows, ""]
    return lines


def _help(command: Any) -> list[str]:
    """The docstring, with its examples set as code."""
    lines = []
    text = "\n\n".join(part for part in (command.help, command.epilog) if part).replace("\b\n", "")
    for paragraph in text.split("\n\n"):
        for line in paragraph.splitlines():
            head, found, example = line.partition("Example: ")
            if found or line.strip().startswith("pgbb "):
                lines += ([head] if head.strip() else []) + ["", f"    $ {(example or line).strip()}", ""]
            else:
                lines.append(line)
        lines.append("")
    return lines


def _row(parameter: Any) -> str:
    argument = parameter.param_type_name == "argument"
    names = [parameter.name.upper()] if argument else [*parameter.opts, *parameter.secondary_opts]
    kind = "" if getattr(parameter, "is_flag", False) else _kind(parameter)
    default = "required" if parameter.required else _default(parameter)
    text = (getattr(parameter, "help", "") or "").replace("|", "\\|")
    if getattr(parameter, "multiple", False):
        kind += " …"
    return f"| {', '.join(f'`{n}`' for n in names)} | {kind} | {default} | {text} |"


def _kind(parameter: Any) -> str:
    """What it takes, in one word; typer keeps an annotation, older versions a type of click."""
    descriptor = getattr(parameter, "type_descriptor", None)
    name = str(getattr(descriptor.annotation, "__name__", "text") if descriptor else parameter.type.name)
    return KINDS.get(name, name)


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or callable(value) or value is False or value == [] or value == ():
        return ""
    return f"`{value}`" if str(value) else ""
