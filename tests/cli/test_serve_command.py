"""`holdfast serve` on the command line: tokens, and what it refuses before it listens."""

import json

import pytest


def test_a_token_is_shown_once_listed_and_revoked(holdfast, state):
    code, out, err = holdfast("serve", "token", "create", "ana", "--role", "operator", "--expires", "2d")
    assert code == 0 and out.startswith("holdfast_") and "not shown again" in err
    code, listed, _ = holdfast("serve", "token", "list")
    assert code == 0 and "ana" in listed and "operator" in listed and out.strip() not in listed
    assert holdfast("serve", "token", "create", "ana", "--role", "viewer")[0] == 1
    assert holdfast("serve", "token", "revoke", "ana")[0] == 0
    assert holdfast("serve", "token", "revoke", "ana")[0] == 1
    code, out, _ = holdfast("serve", "token", "list", "--json")
    assert json.loads(out) == {"tokens": []}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("token", "create", "ana", "--role", "king"), "king"),
        (("token", "create", "a b", "--role", "viewer"), "a b"),
        (("token", "create", "ana", "--role", "viewer", "--expires", "400d"), "366d"),
        (("--address", "here:there"), "here:there"),
        (("--root-path", "holdfast"), "/holdfast"),
        (("--user-header", "X-User"), "--trusted-proxy"),
        (("--tls-key", "key.pem"), "--tls-cert"),
        (("--trusted-proxy", "proxy.example", "--user-header", "X-User"), "proxy.example"),
        (("--user-role", "king"), "king"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_do(holdfast, state, words, told):
    code, _, err = holdfast("serve", *words)
    assert code in (1, 2) and told in err
