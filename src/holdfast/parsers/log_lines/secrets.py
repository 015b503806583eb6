"""Masks secrets in text that leaves the machine: tokens, keys, passwords. Pure.

Known forms of tokens are masked everywhere; other values only after a word that names them. What follows `token` must
also look random, because training logs are full of tokens that are no secrets. Line numbers stay valid. Secrets that
look like ordinary words are not found.
"""

import re

from holdfast.late_pattern import late

MASK = "***"
_RANDOM_CHARS_MIN = 16

# Sources: the issuers' pages on token formats; names of header and query fields: RFC 7235, AWS Signature V4.
_KNOWN = late(
    r"""(?<![A-Za-z0-9_-])(?:
        (?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}               # AWS access key
      | LTAI[0-9A-Za-z]{12,28}                            # Alibaba Cloud
      | AKID[0-9A-Za-z]{13,40}                            # Tencent Cloud
      | AIza[0-9A-Za-z_-]{35}                             # Google API key
      | ya29\.[0-9A-Za-z_-]{20,}                          # Google OAuth
      | hf_[0-9A-Za-z]{20,} | api_org_[0-9A-Za-z]{20,}    # Hugging Face
      | gh[pousr]_[0-9A-Za-z]{20,} | github_pat_\w{20,}   # GitHub
      | gl(?:pat|ptt|dt|rt|cbt)-[\w-]{16,}                # GitLab
      | sk-[A-Za-z0-9_-]{20,} | sk_(?:live|test)_\w{16,}  # OpenAI and the like, Stripe
      | xox[abeprs]-[0-9A-Za-z-]{10,} | xapp-[0-9A-Za-z-]{10,}  # Slack
      | wandb_v1_\w{20,}
      | pypi-[A-Za-z0-9_-]{20,} | npm_[0-9A-Za-z]{30,} | dckr_pat_[\w-]{20,} | glsa_\w{20,} | nvapi-[\w-]{20,}
      | eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*                # JSON Web Token
    )""",
    re.VERBOSE,
)
# ://user:password@host, and ://token@host
_URL_PASSWORD = late(r"(://[^\s/:@'\"]{0,256}:)[^\s/@'\"]{1,1024}(?=@)")
_URL_TOKEN = late(r"(://)[\w~%+-]{20,1024}(?=@)")
_HEADER = late(
    r"(?i)(\b(?:proxy-)?authorization\\?[\"']?[ \t]{0,3}[:=][ \t]{0,3}\\?[\"']?)"
    r"((?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)[ \t]+)?[^\s\"'\\,]+"
)
_BEARER = late(r"(?i)(\bbearer[ \t]+)([A-Za-z0-9_.~+/-]{16,}=*)")
_COOKIE = late(r"(?im)(^|[\"'\s>])((?:set-)?cookie:[ \t]?)[^\n]+")
_HOOK = late(
    r"(https?://(?:hooks\.slack\.com/services/|[\w.-]{1,100}/open-apis/bot/v2/hook/|[\w.-]{1,100}/api/webhooks/))"
    r"[\w/-]+"
)
_QUERY = late(
    r"(?i)([?&](?:[\w.-]{0,60}token|[\w.-]{0,60}signature|sig|key|access_?key(?:_?id)?|x-amz-credential|secret|password)=)"
    r"[^\s&\"'<>#]+"
)

_SAID = (
    r"password|(?<!/)passwd|passphrase|secret|credential|api[_-]?key|access[_-]?key(?:[_-]?(?:id|secret))?"
    r"|(?:secret|private|account|wandb|encryption|license)[_-]?key"
    r"|(?:hf|hub|access|auth|api|github|gitlab|wandb|login|bearer|refresh|security|session|registry|sas)[_-]?token"
)
_HINTED = r"token|pwd|cookie|session[_-]?key|\bsk|\bak|credentials"
_BETWEEN = r"(\\?[\"']?(?:[ \t]{0,3}(?:=>|:=|[=:])[ \t]{0,3}|[ \t]\.{2,}[ \t]))"
_AFTER_FLAG = r"([\"']?,?[ \t]{1,3})"
_VALUE = r"(\\?[\"'])((?:(?!\3)[^\n]){1,4096})(?=\3)|([^\s,;&|)\]}\"'\\]+)"
_SAID_VALUE = late(rf"(?i)((?:{_SAID})){_BETWEEN}(?:{_VALUE})")
_HINTED_VALUE = late(rf"(?i)((?:{_HINTED})){_BETWEEN}(?:{_VALUE})")
_FLAG_VALUE = late(rf"(?i)(--[\w-]{{0,60}}?(?:{_SAID}|token)){_AFTER_FLAG}(?:{_VALUE})")

_RANDOM = late(rf"(?=[^\n]*\d)(?=[^\n]*[A-Za-z])[A-Za-z0-9_.~+/=-]{{{_RANDOM_CHARS_MIN},}}")
# No value at all, or its placeholder in a help text: HUB_TOKEN, <token>, ${TOKEN}.
_HARMLESS = late(
    r"(?i:none|null|nil|true|false|empty|unset|not|missing|\*+|\.+|<[\w -]*>|\$\{?\w+\}?|[\[({].*)"
    r"|[A-Z]+(?:_[A-Z]+)+"
)
_PEM = late(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)((?:(?!-----)[\s\S]){0,16384})")
_PEM_TEXT = late(r"[A-Za-z0-9+/=]{8,}")

# Substrings, in lower case, one of which is in every line that a rule can match; most lines contain none.
_SIGNS = (
    *(
        "akia",
        "asia",
        "abia",
        "acca",
        "ltai",
        "akid",
        "aiza",
        "ya29.",
        "hf_",
        "api_org_",
        "ghp_",
        "gho_",
        "ghu_",
    ),
    *(
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "glptt-",
        "gldt-",
        "glrt-",
        "glcbt-",
        "sk-",
        "sk_live",
        "sk_test",
    ),
    *(
        "xox",
        "xapp-",
        "wandb_v1_",
        "pypi-",
        "npm_",
        "dckr_pat_",
        "glsa_",
        "nvapi-",
        "eyj",
        "://",
        "authorization",
    ),
    *("bearer", "cookie", "hook", "token", "signature", "sig=", "key", "credential", "secret", "pass", "pwd"),
    *("sk=", "sk:", "sk'", 'sk"', "ak=", "ak:", "ak'", 'ak"'),
)


def masked(text: str) -> str:
    """Returns the text with each secret replaced by `***`; the number of lines is unchanged."""
    small = text.lower()
    signs = [sign for sign in _SIGNS if sign in small]
    if not signs:
        return text
    text = _PEM.sub(lambda found: found[1] + _PEM_TEXT.sub(MASK, found[2]), text)
    return "\n".join(
        _masked_line(line) if any(sign in small for sign in signs) else line
        for line, small in ((line, line.lower()) for line in text.split("\n"))
    )


def _masked_line(text: str) -> str:
    text = _HOOK.sub(rf"\1{MASK}", text)
    text = _URL_PASSWORD.sub(rf"\1{MASK}", text)
    text = _URL_TOKEN.sub(rf"\1{MASK}", text)
    text = _HEADER.sub(lambda found: f"{found[1]}{found[2] or ''}{MASK}", text)
    text = _COOKIE.sub(rf"\1\2{MASK}", text)
    text = _BEARER.sub(lambda found: found[1] + (MASK if _is_random(found[2]) else found[2]), text)
    text = _QUERY.sub(rf"\1{MASK}", text)
    text = _KNOWN.sub(MASK, text)
    text = _SAID_VALUE.sub(_without_value, text)
    text = _FLAG_VALUE.sub(_without_value, text)
    return _HINTED_VALUE.sub(_without_random_value, text)


def _without_value(found: re.Match[str]) -> str:
    value = found[4] or found[5]
    if _HARMLESS.fullmatch(value) or (value.startswith("-") and found[2].strip() == ""):
        return found[0]
    return f"{found[1]}{found[2]}{found[3] or ''}{MASK}"


def _without_random_value(found: re.Match[str]) -> str:
    return _without_value(found) if _is_random(found[4] or found[5]) else found[0]


def _is_random(value: str) -> bool:
    """Returns whether a value looks random: long, with digits and letters mixed, and no path."""
    return bool(_RANDOM.fullmatch(value)) and not value.startswith(("/", "./", "../", "~"))
