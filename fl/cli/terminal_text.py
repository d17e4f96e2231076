"""Text of files, of radios and of other programs, for a terminal.

A terminal takes some characters for orders: to change its title, to hide what stands there, to type for the user.
"""

_CONTROLS = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")}
"""C0, DEL and C1, but for the end of a line and the tabulator."""
_TURNS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
"""Of the direction of writing: they make a text read as another."""
_SHOWN = dict.fromkeys(_CONTROLS | _TURNS, "\N{REPLACEMENT CHARACTER}")


def visible(text: str) -> str:
    """`text` with a sign in place of each character that a terminal would obey."""
    return text.translate(_SHOWN)
