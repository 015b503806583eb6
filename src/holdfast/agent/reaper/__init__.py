"""Stands between Holdfast and one worker's command: starts it, records what happens to it, ends it.

One small process per attempt and worker. `boot` of `holdfast.agent.launch` runs it as a package of its own with
`python -I -S`: standard library only, relative imports only. It is the subreaper of everything the command starts, so
a process that double-forks or changes its session stays in its tree. It outlives a Holdfast that is killed, and then
either ends the tree (default) or continues to record (`detach`).

Facts go as JSON lines to `reaper.jsonl` in the worker's folder and to every client of `reaper.sock`. It decides
nothing: it stops on request or when its lifeline closes.
"""
