"""What people look at in a notebook: graphs, a job's figures, records, plots; in a terminal what
there is of it in text.

`views` is what the package's root registers (`core.shown`). IPython and matplotlib, the extra
`notebook`, are loaded where they are used.
"""
