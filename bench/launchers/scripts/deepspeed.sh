# DeepSpeed's launcher on a machine without accelerators: two ranks on its CPUs.
export DS_ACCELERATOR=cpu
exec "$1" --num_gpus 2 --master_port "${MASTER_PORT:-29500}" "$2"
