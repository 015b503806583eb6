"""Texts of diagnoses without a cause: categories `unknown` and `none`. Data only, both languages."""

from holdfast.model.signatures import Words

UNKNOWN_TITLE = Words(en="the job failed, and the cause is unknown", zh="作业失败，现有知识无法解释原因")
UNKNOWN_EXPLANATION = Words(
    en="No known error was found. The most informative lines are shown as evidence.",
    zh="未发现已知的错误。最有提示作用的日志行已列为证据。",
)
UNKNOWN_ADVICE = Words(
    en="Read these lines. Add what is missing: the logs of all ranks, the kernel log, the scheduler's events.",
    zh="请查看所列日志行，并补充缺失的信息：所有 rank 的日志、内核日志、调度器事件。",
)
TELLING = Words(en="one of the most informative lines", zh="最有提示作用的日志行之一")
NONE_TITLE = Words(en="no problem was found", zh="未发现问题")
NO_END_TITLE = Words(
    en="no failure found, but the end of the job is not in the logs", zh="未见故障，也未见作业结束"
)
NONE_EXPLANATION = Words(
    en="No line shows a failure that ended the job.", zh="没有任何日志行表明作业因故障而中止。"
)
NONE_ADVICE = Words(en="Nothing to do.", zh="无需处理。")
NO_WORK_SEEN = Words(
    en=(
        "Nothing to do for the given logs. They do not show that a job succeeded either: if one failed, "
        "give its own logs too."
    ),
    zh="就所给内容而言无需处理。但其中也没有作业正常工作的迹象：若有作业失败，请同时提供该作业自身的日志。",
)
DOUBTFUL = Words(
    en="mentions a problem, but is not known to end a job", zh="看似异常，但未知其会导致作业中止"
)
NONE_IN_PART = Words(en="no problem was found in the logs that could be read", zh="可读取的日志中未发现问题")
READ_THE_REST = Words(
    en="Read the logs that are listed here as unread or partly read: they may contain the reason.",
    zh="请补充下列未读取或未读完的日志：原因可能就在其中。",
)
