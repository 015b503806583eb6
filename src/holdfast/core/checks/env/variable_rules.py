"""Lists environment variables whose value alone is a problem, with its effect and advice. Pure.

A rule fires only if the value certainly has a cost on such a node, because many images set others on purpose.
"""

from msgspec import Struct

from holdfast.model.signatures import Words

# What a rule requires of the node.
ANYWHERE, GPUS, GPU_PAIRS, FABRIC = "", "gpus", "gpu pairs", "fabric"


class VariableRule(Struct, frozen=True, kw_only=True):
    """A value of an environment variable that is a problem.

    `value`: pattern of the whole value in lower case.

    `where`: the kind of node to which it applies, one of the above.
    """

    name: str
    value: str
    does: Words
    advice: Words
    where: str = ANYWHERE
    category: str = "config_error"


_ON = r"1|true|yes|y|on"
UNSET = Words(en="Unset it unless it is intended.", zh="若非有意设置请取消。")

RULES = (
    VariableRule(
        name="NCCL_P2P_DISABLE",
        value=_ON,
        does=Words(en="GPUs copy through host memory, not directly", zh="GPU 间改走主机内存，不再直连"),
        advice=Words(
            en="Unset it, unless direct copies hang or corrupt on this machine (ACS, IOMMU).",
            zh="请取消；除非本机直连拷贝会挂起或出错（ACS、IOMMU）。",
        ),
        where=GPU_PAIRS,
        category="p2p_failure",
    ),
    VariableRule(
        name="NCCL_P2P_LEVEL",
        value=r"loc|0",
        does=Words(en="GPUs copy through host memory, not directly", zh="GPU 间改走主机内存，不再直连"),
        advice=UNSET,
        where=GPU_PAIRS,
        category="p2p_failure",
    ),
    VariableRule(
        name="NCCL_SHM_DISABLE",
        value=_ON,
        does=Words(en="ranks of a node communicate through the network card", zh="节点内通信改走网络"),
        advice=Words(
            en="Unset it; enlarge /dev/shm if that is why it was set.",
            zh="请取消；若因 /dev/shm 过小，请扩大它。",
        ),
        where=GPU_PAIRS,
    ),
    VariableRule(
        name="NCCL_IB_DISABLE",
        value=_ON,
        does=Words(
            en="nodes communicate over TCP although RDMA ports of this node are up",
            zh="本节点 RDMA 端口可用，但节点间改走 TCP",
        ),
        advice=Words(
            en="Unset it, and confirm with NCCL_DEBUG=INFO that NET/IB is used.",
            zh="请取消，并用 NCCL_DEBUG=INFO 确认使用 NET/IB。",
        ),
        where=FABRIC,
        category="nccl_config_error",
    ),
    VariableRule(
        name="NCCL_PROTO",
        value=r"(?:[a-z0-9:;]*,)?ll128(?:,.*)?",
        does=Words(
            en="the protocol LL128 is forced, which corrupts data on machines that do not support it",
            zh="强制使用 LL128 协议，在不支持的机器上会损坏数据",
        ),
        advice=Words(
            en="Unset it: NCCL uses the protocol by itself if the machine supports it.",
            zh="请取消，由 NCCL 自行选择。",
        ),
        where=GPUS,
        category="nccl_config_error",
    ),
    VariableRule(
        name="NCCL_MAX_NCHANNELS",
        value=r"[12]",
        does=Words(en="collectives have one or two channels only", zh="集合通信仅有一两个通道"),
        advice=UNSET,
        where=GPU_PAIRS,
    ),
    VariableRule(
        name="NCCL_COMM_ID",
        value=r".+",
        does=Words(
            en="all communicators are set up through one fixed address", zh="所有通信域都经同一固定地址建立"
        ),
        advice=UNSET,
        where=GPUS,
        category="nccl_init_failure",
    ),
    VariableRule(
        name="NCCL_DEBUG",
        value=r"trace",
        does=Words(en="NCCL writes a line for each of its calls", zh="NCCL 会为每次调用输出日志"),
        advice=Words(en="Set it to WARN or INFO.", zh="请设为 WARN 或 INFO。"),
        where=GPUS,
    ),
    VariableRule(
        name="NCCL_IB_TIMEOUT",
        value=r"0|3[2-9]|[4-9]\d|\d{3,}",
        does=Words(
            en="the timeout is outside 1 to 31, the range of InfiniBand",
            zh="超时超出 InfiniBand 的 1–31 范围",
        ),
        advice=Words(en="Set it to 18 to 23, or unset it.", zh="请设为 18–23 或取消。"),
        where=FABRIC,
        category="nccl_config_error",
    ),
    VariableRule(
        name="CUDA_LAUNCH_BLOCKING",
        value=r"1",
        does=Words(
            en="each kernel runs synchronously, so the run is slow", zh="每个 kernel 同步执行，训练变慢"
        ),
        advice=Words(en="Unset it; it is for debugging only.", zh="请取消，仅用于排查错误。"),
        where=GPUS,
    ),
    VariableRule(
        name="TORCH_DISTRIBUTED_DEBUG",
        value=r"detail",
        does=Words(
            en="each collective is checked among all ranks first, so the run is slow",
            zh="每次集合通信先全局校验，训练变慢",
        ),
        advice=Words(
            en="Unset it, or set it to INFO; it is for debugging only.",
            zh="请取消或设为 INFO，仅用于排查错误。",
        ),
    ),
    *(
        VariableRule(
            name=name,
            value=r"0",
            does=Words(
                en="a collective that fails or times out leaves its ranks hanging",
                zh="集合通信失败或超时后 rank 会一直挂起",
            ),
            advice=UNSET,
            where=GPUS,
            category="collective_timeout",
        )
        for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
    ),
    *(
        VariableRule(
            name=name,
            value=_ON,
            does=Words(en="each collective blocks its rank until it ends", zh="每次集合通信都会阻塞 rank"),
            advice=UNSET,
            where=GPUS,
        )
        for name in ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
    ),
    VariableRule(
        name="PYTORCH_NO_CUDA_MEMORY_CACHING",
        value=r"1",
        does=Words(
            en="the driver allocates memory for every tensor, which makes the run slow",
            zh="每个张量都由驱动重新分配，训练变慢",
        ),
        advice=UNSET,
        where=GPUS,
    ),
    VariableRule(
        name="CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        value=r"[1-9]?\d(?:\.\d+)?",
        does=Words(en="a process may use only this share of a GPU", zh="进程只能使用该比例的 GPU"),
        advice=UNSET,
        where=GPUS,
    ),
)

# Variables that name a file, which must exist.
FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE")
# Variables whose values must be equal on all ranks: otherwise collectives fail or become slow.
SAME_ON_ALL = (
    *("NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET"),
    *("NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
    *("NCCL_CROSS_NIC", "NCCL_NTHREADS", "NCCL_COLLNET_ENABLE", "TORCH_DISTRIBUTED_DEBUG", "OMP_NUM_THREADS"),
)
LISTED = (
    *(
        "NCCL_",
        "RCCL_",
        "CUDA_",
        "TORCH_",
        "PYTORCH_",
        "OMP_",
        "GOMP_",
        "KMP_",
        "MKL_",
        "GLOO_",
        "UCX_",
        "FI_",
    ),
    *(
        "HCCL_",
        "ASCEND_",
        "HIP_",
        "ROCR_",
        "HSA_",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "PYTHONPATH",
        "PYTHONHOME",
    ),
    *("PET_", "TORCHELASTIC_"),
)
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy")
