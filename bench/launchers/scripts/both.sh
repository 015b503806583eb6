# Two ranks by hand: `sh both.sh COMMAND`, with RANK and WORLD_SIZE. Ends when one of them fails.
RANK=0 WORLD_SIZE=2 "$@" 0 &
RANK=1 WORLD_SIZE=2 "$@" 1 &
wait -n || exit $?
wait -n || exit $?
