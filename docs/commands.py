"""The command-line reference, from the click commands themselves."""

from __future__ import annotations

from collections.abc import Iterable

import click

from patchkit.cli import cli
from patchkit.manual import Verb
from patchkit.page import escaped
from patchkit.serve_cli import bench, serve


def reference_of_patchkit() -> str:
    """Return the reference of patchkit: the shared options once, then every verb with its own."""
    context = _context(cli, "patchkit")
    shared = cli.get_params(context)
    parts = [*_synopsis(cli, context), "## Options", "They may stand before the verb or after it.", _options(shared)]
    parts.append("## Verbs")
    names = {option.name for option in shared}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        with click.Context(command, parent=context, info_name=name) as inner:
            own = [param for param in command.get_params(inner) if param.name not in names]
            parts += [f"### {name}", _usage(command, inner), _prose(command), *filter(None, [_options(own)])]
            assert isinstance(command, Verb)
            parts += [_exits(command), _examples(command)]
            parts += _inner(command, inner, names)
    return "\n\n".join(parts) + "\n"


def reference_of_serve() -> str:
    """Return the reference of patchkit-serve and its bench."""
    context = _context(serve, "patchkit-serve")
    parts = [*_synopsis(serve, context), "## Options", _options(serve.get_params(context)), "## Bench"]
    inner = _context(bench, "patchkit-serve bench")
    first, second = serve.get_params(context), bench.get_params(inner)
    names, others = ({param.name for param in params} for params in (first, second))
    without = ", ".join(f"`{param.opts[0]}`" for param in first if param.name not in others)
    parts += [_usage(bench, inner), _prose(bench), f"It takes the options above, without {without}, and these:"]
    parts.append(_options(param for param in second if param.name not in names))
    return "\n\n".join(parts) + "\n"


def _inner(command: click.Command, context: click.Context, taken: set[str | None]) -> list[str]:
    """Return the reference of the verbs of a verb."""
    parts: list[str] = []
    for name, verb in sorted(command.commands.items()) if isinstance(command, click.Group) else ():
        with click.Context(verb, parent=context, info_name=name) as inner:
            own = [param for param in verb.get_params(inner) if param.name not in taken]
            assert isinstance(verb, Verb)
            parts += [f"#### {command.name} {name}", _usage(verb, inner), _prose(verb), _options(own)]
            parts += [_exits(verb), _examples(verb)]
    return parts


def _exits(command: Verb) -> str:
    return "\n".join(f"- exit code {code}: {escaped(meaning)}" for code, meaning in enumerate(command.exits))


def _examples(command: Verb) -> str:
    return "\n\n".join(f"    {line}\n\n{escaped(purpose)}" for line, purpose in command.examples)


def _context(command: click.Command, name: str) -> click.Context:
    return click.Context(command, info_name=name, **command.context_settings)


def _synopsis(command: click.Command, context: click.Context) -> list[str]:
    return ["## Synopsis", _usage(command, context), "## Description", _prose(command)]


def _usage(command: click.Command, context: click.Context) -> str:
    words = [context.command_path, *command.collect_usage_pieces(context)]
    return f"    {' '.join(words)}"


def _prose(command: click.Command) -> str:
    paragraphs = (command.help or "").strip().split("\n\n")
    return "\n\n".join(escaped(" ".join(paragraph.split())) for paragraph in paragraphs)


def _options(params: Iterable[click.Parameter]) -> str:
    """Return the options as a definition list."""
    entries = []
    for param in params:
        record = param.get_help_record(click.Context(cli))
        if record is not None and record[1]:  # an argument is in the usage, and its words are in the description
            entries.append(f"`{record[0]}`\n: {escaped(record[1])}")
    return "\n\n".join(entries)
