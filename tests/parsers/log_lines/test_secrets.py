"""Secrets in text: what is masked, what is left alone, and what must hold for any text."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.log_lines.secrets import MASK, masked

LETTERS = string.ascii_letters + string.digits
# Put together here, so that no scanner of repositories takes these lines for a leak.
AWS = "AKIA" + "Q3EXAMPLE7KEYABC"
HF = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
GITHUB = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
WANDB = "0123456789abcdef" * 2 + "01234567"
JWT = "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiJhZGEifQ" + ".c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"using key {AWS} for s3", "using key *** for s3"),
        (f"AWS_SECRET_ACCESS_KEY={'abc/def+' * 5}", "AWS_SECRET_ACCESS_KEY=***"),
        (f"login with {HF}.", "login with ***."),
        (f"git clone https://{GITHUB}@github.com/a/b", "git clone https://***@github.com/a/b"),
        (f"wandb: WANDB_API_KEY={WANDB}", "wandb: WANDB_API_KEY=***"),
        (f"  wandb_api_key ................ {WANDB}", "  wandb_api_key ................ ***"),
        ("redis://ada:hunter2@10.0.0.1:6379/0", "redis://ada:***@10.0.0.1:6379/0"),
        ("redis://:hunter2@10.0.0.1", "redis://:***@10.0.0.1"),
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("{'Authorization': 'Basic YWRhOmh1bnRlcjI='}", "{'Authorization': 'Basic ***'}"),
        (f"curl -H 'X: bearer {JWT}'", "curl -H 'X: bearer ***'"),
        (f"got {JWT}", "got ***"),
        ("Cookie: session=1; theme=dark", "Cookie: ***"),
        ("--password hunter2 --lr 0.1", "--password *** --lr 0.1"),
        ("['train.py', '--hf_token', 'abc', '--lr', '1']", "['train.py', '--hf_token', '***', '--lr', '1']"),
        ('{"password": "a b c", "user": "ada"}', '{"password": "***", "user": "ada"}'),
        (r"{\"password\": \"a b\", \"user\": 1}", r"{\"password\": \"***\", \"user\": 1}"),
        ("Namespace(api_key='x1', seed=3)", "Namespace(api_key='***', seed=3)"),
        ("MYSQL_PASSWORD: hunter2", "MYSQL_PASSWORD: ***"),
        ("token: 3f2a9c8b7d6e5f4a3b2c1d0e", "token: ***"),
        (
            "https://oapi.dingtalk.com/robot/send?access_token=ab1",
            "https://oapi.dingtalk.com/robot/send?access_token=***",
        ),
        (
            "https://open.feishu.cn/open-apis/bot/v2/hook/11-22",
            "https://open.feishu.cn/open-apis/bot/v2/hook/***",
        ),
        (
            "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=a-b",
            "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=***",
        ),
        ("s3://b/x?X-Amz-Signature=abc&y=2", "s3://b/x?X-Amz-Signature=***&y=2"),
    ],
)
def test_a_secret_is_masked_and_the_rest_is_left(text, left):
    assert masked(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "eos_token='<|end|>' pad_token=</s> max_tokens=2048 token_type=3 tokens: 12345678901234567890",
        "tokens per second: 1234.5, token_throughput=88231",
        "  hf_token ........................ None",
        "cat: /etc/passwd: No such file or directory",
        "PWD=/home/ada/train/run-2024-01-01-abc",
        "Permission denied (publickey,password).",
        "password:",
        "KeyError: 'password'",
        "ssh://git@github.com/x",
        "[--hub_token HUB_TOKEN] [--seed SEED]",
        'MountVolume.SetUp failed for volume "x" : secret "foo" not found',
        "use_auth_token=True",
        "ProcessGroupNCCL.cpp:633] [Rank 3] Watchdog caught collective operation timeout",
    ],
)
def test_what_is_no_secret_is_left_alone(text):
    assert masked(text) == text


def test_a_private_key_is_masked_line_by_line():
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{'MIIE' * 16}\n{'abcd' * 16}\n-----END RSA PRIVATE KEY-----\nloss 2.1"
    assert masked(key).split("\n") == [
        "-----BEGIN RSA PRIVATE KEY-----",
        MASK,
        MASK,
        "-----END RSA PRIVATE KEY-----",
        "loss 2.1",
    ]
    assert "MIIE" not in masked(key.partition("-----END")[0]), "cut off in the middle"


PIECES = st.sampled_from(
    [
        *("password=", "token: ", "Authorization: Bearer ", "://", "@", ":", "'", '"', "\\", "\n", " ", "--api-key "),
        *("hf_", "AKIA", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "?key=", "***", "cookie: ", "="),
    ]
) | st.text(max_size=24)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_text_keeps_its_lines_and_is_masked_once_for_all(text):
    once = masked(text)
    assert once.count("\n") == text.count("\n")
    assert masked(once) == once


@given(
    st.text(LETTERS, min_size=20, max_size=40),
    st.sampled_from(
        [
            "HF_TOKEN={}",
            "password: {}",
            "--api-key {}",
            '"secret": "{}"',
            "https://a:{}@h/x",
            "hf_{}",
            "ghp_{}",
        ]
    ),
    st.text(string.ascii_lowercase + " .,\n", max_size=16),
)
def test_no_secret_is_left_wherever_it_stands(secret, form, around):
    assert secret not in masked(f"{around} {form.format(secret)} {around}")
