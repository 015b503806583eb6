"""Stands between Holdfast and one worker's command: starts it, records what happens to it, ends it.

One small process per attempt and worker. `boot` of `holdfast.agent.launch` runs it as a package of its own with
`python -I -S`: standard library only, relative imports only. It is the subreaper of everything the command starts, so
a process that double-forks or changes its session stays in its tree. It outlives a Holdfast that is killed, and then
either ends the tree (default) or continues to record (`detach`).

Facts go as JSON lines to `reaper.jsonl` in the worker's folder and to every client of `reaper.sock`. It decides
nothing: it stops on request or when its lifeline closes.

One small process per attempt and worker. It is run as a package of its own, by `boot` of
`holdfast.agent.launch`, with `python -I -S`: standard library only, nothing of Holdfast, so that its
modules import each other relatively and nothing else. It is the subreaper of everything the command
starts, so a process that double-forks or changes its session still is in its tree. It outlives a
Holdfast that is killed, and then either ends the tree (default) or goes on recording (`detach`).

Facts go one JSON object a line to `reaper.jsonl` in the worker's folder and to every client of
`reaper.sock`. It never decides anything: it is told to stop, or its lifeline is cut.
"""
