"""Faults of a rank that uses a GPU. Each is a function of the rank's device."""

import ctypes
import os
import signal
import threading
import time

import torch

ENDLESS = "endless", 1 << 62
# Waits until the word at `flag` is not 0, at most `limit` reads.
SPIN_PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 flag, .param .u64 limit)
{
  .reg .pred %p<3>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [flag];
  ld.param.u64 %rd2, [limit];
  mov.u64 %rd3, 0;
again:
  ld.volatile.global.u32 %r1, [%rd1];
  add.u64 %rd3, %rd3, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra done;
  setp.lt.u64 %p2, %rd3, %rd2;
  @%p2 bra again;
done:
  ret;
}
"""
WILD_PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry wild()
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  mov.u64 %rd1, 4096;
  mov.u32 %r1, 7;
  st.global.u32 [%rd1], %r1;
  ret;
}
"""


def launch(ptx: bytes, name: bytes, *arguments: int) -> None:
    """Launches one thread of a kernel that the driver compiles, in PyTorch's context. raises: OSError"""
    torch.zeros(1, device="cuda")  # makes the context
    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    values = [ctypes.c_uint64(argument) for argument in arguments]
    pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
    answers = (
        driver.cuModuleLoadData(ctypes.byref(module), ptx),
        driver.cuModuleGetFunction(ctypes.byref(function), module, name),
        driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, pointers, None),
    )
    if any(answers):
        raise OSError(f"the driver refused the kernel {name.decode()}: {answers}")


def illegal_access(device: torch.device) -> None:
    launch(WILD_PTX, b"wild")
    torch.cuda.synchronize()


def device_assert(device: torch.device) -> None:
    table = torch.zeros(8, 8, device=device)
    torch.nn.functional.embedding(torch.tensor([99], device=device), table)
    torch.cuda.synchronize()


def out_of_memory(device: torch.device) -> None:
    kept = []
    while True:
        kept.append(torch.empty(1 << 30, device=device))


def out_of_memory_beside_another(device: torch.device) -> None:
    """Another process holds most of the memory by now: this allocation does not fit."""
    free, total = torch.cuda.mem_get_info(device)
    wanted = min(total // 2, free + (1 << 30))
    torch.empty(wanted, dtype=torch.uint8, device=device)
    raise RuntimeError(f"{wanted} bytes were allocated beside another process: nothing was out of memory")


def endless_kernel(device: torch.device) -> None:
    flag = torch.zeros(1, dtype=torch.int32, device=device)
    launch(SPIN_PTX, b"spin", flag.data_ptr(), ENDLESS[1])
    torch.cuda.synchronize()


def killed_in_a_kernel(device: torch.device) -> None:
    flag = torch.zeros(1, dtype=torch.int32, device=device)
    launch(SPIN_PTX, b"spin", flag.data_ptr(), ENDLESS[1])
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


def killed(device: torch.device) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stopped(device: torch.device) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def deadlock(device: torch.device) -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def exception(device: torch.device) -> None:
    raise ValueError("bad record in the batch")


FAULTS = {
    "illegal-access": illegal_access,
    "device-assert": device_assert,
    "out-of-memory": out_of_memory,
    "out-of-memory-other": out_of_memory_beside_another,
    "endless-kernel": endless_kernel,
    "kill-in-kernel": killed_in_a_kernel,
    "kill": killed,
    "sigstop": stopped,
    "deadlock": deadlock,
    "exception": exception,
}
