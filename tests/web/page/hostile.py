"""Fifty texts that try to be more than text: markup, terminal sequences, control and direction marks, templates."""

MARKUP = (
    "<img src=x onerror=document.title='owned'>",
    "</script><script>document.title='owned'</script>",
    "<svg/onload=document.title='owned'>",
    "'\"><svg/onload=document.title='owned'>",
    "<iframe srcdoc='<script>parent.document.title=1</script>'></iframe>",
    "<a href=javascript:document.title='owned'>click</a>",
    "<style>body{display:none}</style>",
    "<body onload=document.title='owned'>",
    "<!-- comment --> <b>bold</b>",
    "<math><mi//xlink:href='data:x,<script>document.title=1</script>'>",
    "&lt;b&gt; &amp; &#x3c;b&#x3e; &copy;",
    "<template><script>document.title='owned'</script></template>",
    "<meta http-equiv=refresh content='0;url=http://example.invalid/'>",
    "<form action=http://example.invalid/><input name=token>",
    "<base href=http://example.invalid/>",
    "]]><![CDATA[<script>document.title='owned'</script>",
    "<link rel=stylesheet href=http://example.invalid/x.css>",
    "<object data=http://example.invalid/x></object>",
)
ADDRESSES = (
    "javascript:document.title='owned'",
    "data:text/html,<script>document.title='owned'</script>",
    "http://example.invalid/?q=<script>",
    "//example.invalid/path",
    "file:///etc/passwd",
    "../../../../etc/passwd",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "vbscript:msgbox(1)",
)
TEMPLATES = (
    "{{constructor.constructor('document.title=1')()}}",
    "${document.title='owned'} #{7*7} <%= 7*7 %>",
    "{name} {n} {time} {ranks}",
    "__proto__ constructor toString",
    "\\u003cscript\\u003edocument.title=1\\u003c/script\\u003e",
    "'; DROP TABLE jobs; --",
    "$(touch owned) `touch owned` ; touch owned | touch owned",
)
TERMINAL = (
    "\x1b]0;owned\x07\x1b[2J\x1b[1;31mred\x1b[0m \x1b[38;5;196mpalette\x1b[0m \x1b[48;2;1;2;3mrgb\x1b[0m",
    "".join(f"\x1b[{31 + n % 6}mx" for n in range(4000)),
    "\x1b]8;;http://example.invalid/\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[31",
    "\x1b[999999999999;99999m text \x1b[38;5m \x1b[38;2;1m end",
    "\x1bP+q544e\x1b\\ device string",
    "\x9b31m one byte sequence",
    "\x1b[1A\x1b[2K overwritten",
)
MARKS = (
    "user \u202eexe.txt\u202c and \u2066isolate\u2069",
    "zero\u200bwidth\u200djoin\u2060er",
    "null\x00 bell\x07 back\x08space carriage\rreturn vertical\x0btab",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 rank 5",
    "\ufeffbyte order mark and \uffff and \ufff9annotation\ufffb",
    "e\u0301" + "\u0300\u0316" * 60,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 family, \U0001f600",
    "x" * 10_000,
    "\u2028line\u2029paragraph",
)
HOSTILE = MARKUP + ADDRESSES + TEMPLATES + TERMINAL + MARKS
assert len(HOSTILE) == len(set(HOSTILE)) == 50
