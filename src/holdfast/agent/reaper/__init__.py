"""Implements the reaper, a process between Holdfast and one worker's command: it starts the command, records
what happens to its processes, and ends them.

There is one small process for each attempt and worker. `boot` of `holdfast.agent.launch` runs this package
with `python -I -S`: standard library only, relative imports only. The reaper is the subreaper of all
processes that the command starts, so a process that double-forks or changes its session stays in its tree. It
outlives a Holdfast process that is killed, and then either ends the tree (default) or continues to record
(`detach`).

Its messages (facts) go as JSON lines to `reaper.jsonl` in the worker's folder and to every client of
`reaper.sock`. It makes no decisions: it stops the command on request, or when the pipe to Holdfast closes.
"""
