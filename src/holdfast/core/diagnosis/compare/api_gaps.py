"""Whose mistake it is that a name, an attribute or an argument is not there: the code's, or that of versions which do
not fit. A library that is installed has no such mistakes of its own: what it misses, another package should have. Pure.
"""

from holdfast.core.diagnosis.candidates import Candidate
from holdfast.late_pattern import late

CALLS = frozenset({"unexpected-keyword", "missing-positional"})
ATTRIBUTE, NAME, NONE = "object-has-no-attribute", "name-not-defined", "none-has-no-attribute"
DEVICES = "tensors-on-different-devices"
INSTALLED = late(r"[/\\](?:site|dist)-packages[/\\]")
# These hand on what they were given; all other libraries call with the arguments of their own version.
HANDS_ON = late(
    r"[/\\](?:torch|torch_xla|torch_npu|functorch|fire|hydra|click|typer|absl|joblib|multiprocess|ray|jax|jaxlib|flax|haiku|wrapt|decorator|gradio|pydantic"
    r"|mmengine[/\\]registry|mmcv[/\\]utils|accelerate[/\\](?:utils|hooks)|datasets[/\\]arrow_dataset|tensorflow[/\\]python[/\\](?:autograph|eager|util)|lightning_utilities)[/\\.]"
)
# Where a library reads what its command was told, or was not.
COMMANDS = late(
    r"[/\\](?:commands?|cli|launchers?|cmd)[/\\]|[/\\](?:launch|run|cli|arg_utils|arguments|arg_parser)\.py:"
)
# Classes of libraries whose arguments and attributes change from version to version.
CLASSES = (
    r"\w*TrainingArguments|(?:Seq2Seq|SFT|DPO|PPO|GRPO|KTO|ORPO|Reward)Trainer|(?:SFT|DPO|PPO|GRPO|KTO|ORPO)Config|Accelerator\w*|Lora\w*Config|Peft\w*Config"
    r"|BitsAndBytesConfig|GenerationConfig|DataLoaderConfiguration|FullyShardedDataParallelPlugin|DeepSpeedPlugin|ModelCheckpoint|LLM|(?:Async)?LLMEngine|EngineArgs|SamplingParams"
)
# What a user's trainer overrides has a name of its own library, and is called by that.
OF_A_CLASS = late(
    rf"(?:{CLASSES})\.\w+|\w*Trainer\.(?:_\w+|compute_loss|training_step|prediction_step|get_\w+|create_\w+)(?<!__init__)"
)
# Such arguments came, or went, with a version of the library that names them.
ARGUMENTS = frozenset(
    {
        *("eval_strategy", "evaluation_strategy", "save_strategy", "processing_class", "num_items_in_batch"),
        *("padding_mask", "cache_position", "position_embeddings", "attn_implementation", "use_auth_token"),
        *("dispatch_batches", "even_batches", "use_seedable_sampler", "autocast_handler", "logits_to_keep"),
        *("early_stop_callback", "checkpoint_callback", "progress_bar_refresh_rate", "distributed_backend"),
        *("truncated_bptt_steps", "weights_only", "weights_summary", "dataset_text_field", "max_seq_length"),
        *("quantization_config", "load_in_4bit", "load_in_8bit", "use_dora", "use_rslora"),
    }
)
FAMILIES = (
    r"Llama|Qwen|Mistral|Mixtral|Gemma|Phi|ChatGLM|GLM|GPT|Bloom|OPT|Falcon|Baichuan|InternLM|Deepseek|Yi|Cohere|MPT|T5|Bart|Bert|Albert|Electra|Deberta"
    r"|Roberta|DistilBert|XLM|Longformer|Pegasus|Marian|Whisper|Wav2Vec2|CLIP|ViT|Swin|Mamba"
)
PARTS = r"\w*?(?:Config|Attention2?|SdpaAttention|DecoderLayer|RotaryEmbedding|Cache)"
TYPES = late(
    rf"{CLASSES}|\w+Tokenizer(?:Fast)?|\w*Processor|(?:Dynamic|Static|Hybrid|EncoderDecoder)Cache|Adam\w?|AdamW\w*|SGD|Adafactor|GradScaler"
    rf"|(?:{FAMILIES}){PARTS}"
)
# What a user's own code mostly hands to a library, or Python does.
OF_USERS = late(
    r"[a-z]\w*|\w*(?:Model|Net|Module|Dataset|Dict|Loader|Wrapper|Parallel|Trainer|Args|Namespace|Tensor|Callback|Logger|NoneType|For[A-Z]\w+)"
)
# Where an optional package or a compiled extension could not be imported, its names are just not there.
OPTIONAL = late(
    r"_C|\w+_(?:C|cuda|ext|ops|cpp)|flash_attn\w*|xformers|apex|amp|bnb|bitsandbytes|deepspeed|peft|wandb|triton|init_empty_weights"
)
OF_A_MODULE = late(r"AttributeError: module '[\w.]+' has no attribute '\w+'")
# What builds objects out of a config names the class before its own complaint.
BUILT = late(
    r"TypeError(?:: (?:class )?[`'\"]?[\w.]+[`'\"]?(?: in [\w./]+)?: |\([\"'])[\w.]+\(\) (?:got an unexpected keyword|missing \d+ required)"
)
TWO_GPUS = late(r"two devices, (?:cuda|npu|xpu|hip):\d+ and (?:cuda|npu|xpu|hip):\d+")


def of_api_gap(root: Candidate) -> str:
    """An action; empty where the code's own mistake is as likely."""
    match, raised = root.match, root.match.innermost
    name, argument = match.captures.get("name", ""), match.captures.get("argument", "")
    if root.signature.id in CALLS:
        is_librarys = OF_A_CLASS.fullmatch(name) or argument in ARGUMENTS or _calls(raised)
        return "fix_env" if is_librarys else ""
    if root.signature.id == ATTRIBUTE:
        kind = match.captures.get("type", "").rpartition(".")[2]
        is_of_versions = TYPES.fullmatch(kind) or _calls(raised) and not OF_USERS.fullmatch(kind)
        return "fix_env" if kind and is_of_versions else ""
    if root.signature.id == NAME:
        return "fix_env" if name and (OPTIONAL.fullmatch(name) or INSTALLED.search(raised)) else ""
    if root.signature.id == NONE:  # nobody told the launcher what it asks for
        return "fix_config" if INSTALLED.search(raised) and COMMANDS.search(raised) else ""
    if root.signature.id == DEVICES:  # a model that one process spreads over all GPUs it sees
        return "fix_config" if root.writer.rank is None and TWO_GPUS.search(match.text) else ""
    if BUILT.search(match.text):
        return "fix_config"
    return "fix_env" if OF_A_MODULE.search(match.text) and INSTALLED.search(raised) else ""


def _calls(raised: str) -> bool:
    """Whether it was a library that called, with arguments of its own choice."""
    return INSTALLED.search(raised) is not None and HANDS_ON.search(raised) is None
