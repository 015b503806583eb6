# As conda's and clusters' wrappers do: sets the environment up, then runs what it was given.
export BENCH_WRAPPED=1
"$@"
exit $?
