# Its own default is one port for all jobs of a machine. Without a GPU only --multi_gpu starts more than one process.
exec "$1" launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no \
    --main_process_port "$MASTER_PORT" ddp.py
