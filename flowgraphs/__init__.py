"""GNU Radio flowgraphs, and what compiles and starts them.

The `*.grc` files are drawn in GNU Radio Companion's format from stock blocks only, so that everybody can open them and
swap parts. Nothing here imports GNU Radio: the graphs are compiled by `grcc` and run in processes of their own.

Conventions of the graphs:

* A stream is complex64 without gaps: sample k is sample k, and silence is sent as zeros.
* Streams travel over ZeroMQ with GNU Radio's tag header, which carries the absolute number of a message's first sample:
  that is how losses are found. Sinks bind (parameters `…_out`), sources connect (parameters `…_in`).
* Every parameter can be set and read by XML-RPC at `control_address` and `control_port` while a graph runs.
* Alternatives are drawn side by side and named `<group>_<choice>_…`; one is enabled, the others are disabled.
* A graph without a window ends when its standard input ends: it never outlives whoever started it.

`source` reads the graphs and makes variants of them, `build` compiles those, `runtime` runs what was compiled.
"""
