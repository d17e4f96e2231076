"""The report: one HTML page about sweeps and runs, recomputed from their folders alone.

    sources      folders, read and checked         statistics   means over trials, paired differences
    privacy      epsilon from every ledger         power        back-off, clipping, jammer
    baseline     epsilon as Liu and Simeone count  theory       the convergence bound, term by term
    timing       wall and CPU time                 settings     configs and how they differ
    provenance   versions, commands                summary      all of these, and as JSON
    curves       figures                           page         the HTML page
    radio        pictures of a radio uplink        writing      from folders to files

The page needs no other file, no network and no script. Beside it lie its figures as PNG and PDF.
"""

from fl.report.writing import Report, build_report, write_report

__all__ = ["Report", "build_report", "write_report"]
