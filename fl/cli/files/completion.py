"""Completion for a shell: commands, options, shipped names, files. bash: `source <(airdp completion bash)`.

zsh: `source <(airdp completion zsh)`; fish: `source (airdp completion fish | psub)`. The script holds all names, so
that completing starts no Python. Make it again after an update.
"""

import argparse
import shlex
from collections.abc import Iterator

_FOR_CONFIGS = ("run", "sweep", "configs")
_BASH = """\
_airdp() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} words=''
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    [ "$COMP_CWORD" -eq 1 ] && words={commands}
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [ "$COMP_CWORD" -gt 1 ] && [ "${{current#-}}" = "$current" ]; then COMPREPLY+=($(compgen -f -- "$current")); fi
}}
complete -o filenames -F _airdp airdp
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="for which shell")


def call(options: argparse.Namespace) -> int:
    """Print the script."""
    words = {name: sorted(found) for name, found in _words()}
    if options.shell == "fish":
        print("\n".join(_fish(words)))
        return 0
    cases = "\n".join(f"        {name}) words={shlex.quote(' '.join(found))} ;;" for name, found in words.items())
    script = _BASH.format(cases=cases, commands=shlex.quote(" ".join(words)))
    print("autoload -U +X bashcompinit && bashcompinit\n" + script if options.shell == "zsh" else script, end="")
    return 0


def _words() -> Iterator[tuple[str, list[str]]]:
    """Each command, with its options, its choices and the shipped names that it takes."""
    from fl.cli.main import build_parser
    from fl.run.config import shipped_configs
    from fl.sweep.plan import shipped_sweeps
    from hardware.lab.file import shipped_labs

    names = {name: [*shipped_configs(), *(() if name == "run" else shipped_sweeps())] for name in _FOR_CONFIGS}
    labs = {name: [*shipped_labs()] for name in ("calibrate", "validate", "emulate")}
    (commands,) = (a.choices for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.items():
        found = [*names.get(name, ()), *labs.get(name, ())]
        for action in command._actions:
            found += [*action.option_strings, *(str(choice) for choice in action.choices or ())]
        yield name, found


def _fish(words: dict[str, list[str]]) -> Iterator[str]:
    yield f"complete -c airdp -n __fish_use_subcommand -a {shlex.quote(' '.join(words))}"
    for name, found in words.items():
        seen = f"__fish_seen_subcommand_from {name}"
        plain = " ".join(word for word in found if not word.startswith("-"))
        if plain:
            yield f"complete -c airdp -n {shlex.quote(seen)} -a {shlex.quote(plain)}"
        for option in (word for word in found if word.startswith("--")):
            yield f"complete -c airdp -n {shlex.quote(seen)} -l {option[2:]}"
