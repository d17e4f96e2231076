"""A page about one run, while it goes on or afterwards: a web server that reads the run's folder and nothing else.

The run does not know of it. It writes its folder as always; the page is a process of its own that looks at the folder
20 times a second and sends what is new to the browsers that are connected. So a run never waits for a page.

    follow    the folder, part by part, each with a version that grows when it changes
    server    HTTP and WebSocket; who may ask
    beside    the process beside a run
    static/   page.html, page.css, page.js; uPlot 1.6.32 (MIT, uPlot.LICENSE) draws the curves

Folders may be a stranger's: files are read within bounds (`hardware.foundation`), no code of theirs is imported,
and the page shows text as text.
"""
