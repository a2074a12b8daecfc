from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import PatchError
from builder.patch.diff import read
from builder.patch.mail import parse_bytes
from builder.patch.paths import unquote

GOOD = b"""diff --git a/x b/x
index 1111111..2222222 100644
--- a/x
+++ b/x
@@ -1,2 +1,2 @@ head
 a
-b
+c
"""


def test_reads_ids_modes_and_hunks() -> None:
    (item,) = read(GOOD, name="p")
    assert (item.old, item.new, item.old_blob, item.new_mode) == ("x", "x", "1111111", "100644")
    (hunk,) = item.hunks
    assert (hunk.old, hunk.new, hunk.heading) == ((b"a\n", b"b\n"), (b"a\n", b"c\n"), "head")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD[:-3], "ends inside"),
        (GOOD.replace(b"-1,2", b"-1,3"), "ends inside a hunk"),
        (GOOD.replace(b"-1,2", b"-1,1"), "a hunk with more lines"),
        (GOOD.replace(b" a\n", b"?a\n"), "begins with none of"),
        (GOOD.replace(b"@@ -1,2", b"@@ -x,2"), "cannot be read"),
        (GOOD[: GOOD.index(b"@@")], "without a hunk"),
        (GOOD[GOOD.index(b"@@") :], "without a file name"),
        (b"diff --git a/x b/x\nBinary files a/x and b/x differ\n", "without its data"),
        (b"diff --git a/x b/x\nGIT binary patch\n", "data is missing"),
        (GOOD.replace(b"a/x", b"a/../x").replace(b"b/x", b"b/../x"), "outside the tree"),
        (GOOD.replace(b"a/x", b"a//etc/x").replace(b"b/x", b"b//etc/x"), "outside the tree"),
        (GOOD.replace(b"a/x", b"a/.git/x").replace(b"b/x", b"b/.git/x"), "outside the tree"),
    ],
)
def test_damaged(text: bytes, words: str) -> None:
    with pytest.raises(PatchError, match=words):
        parse_bytes(text, name="p.patch")


def section(name: bytes, mode: bytes = b"100644") -> bytes:
    return (
        b"diff --git a/%b b/%b\nnew file mode %b\nindex 0000000..257cc56\n--- /dev/null\n+++ b/%b\n"
        b"@@ -0,0 +1 @@\n+foo\n" % (name, name, mode, name)
    )


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace(b"diff --git", b"dhff --git").replace(b"--- a/x", b"-- a/x"),
        b"dhff --git a/e b/e\nnew file mode 100644\nindex 0000000..e69de29\n" + section(b"f"),
        b"dhff --git a/e b/e\nold mode 100644\nnew mode 100755\n" + section(b"f"),
        section(b"f", b"100755").replace(b"diff", b"dhff"),
        GOOD + b"@A -9,1 +9,1 @@\n-x\n+y\n",
        GOOD + b"some text\n" + section(b"f"),
        GOOD + b"-- \n2.39\n" + section(b"f"),
    ],
)
def test_a_flipped_byte_in_a_head_never_drops_a_change(text: bytes) -> None:
    with pytest.raises(PatchError):
        parse_bytes(text, name="p")


def test_a_cut_between_two_files_is_noticed_by_the_summary() -> None:
    mail = (
        b"From: a <a@b.c>\nSubject: s\n\nwhy\n---\n f | 1 +\n g | 1 +\n"
        b" 2 files changed, 2 insertions(+)\n\n" + section(b"f") + section(b"g")
    )
    assert len(parse_bytes(mail, name="p")[0].files) == 2
    with pytest.raises(PatchError, match=r"says 2 files, \+2 -0, it holds 1 files, \+1 -0"):
        parse_bytes(mail[: mail.index(b"diff --git a/g")], name="p")


def test_error_names_the_line_of_the_file() -> None:
    mail = b"From: a <a@b.c>\nSubject: s\n\nwhy\n---\n" + GOOD.replace(b" a\n", b"?a\n")
    with pytest.raises(PatchError, match=r"^p\.patch:11: "):
        parse_bytes(mail, name="p.patch")


@pytest.mark.parametrize(
    ("quoted", "plain"),
    [(b"a b", "a b"), (b'"gr\\303\\266\\303\\237e"', "größe"), (b'"t\\tq\\"b\\\\"', 't\tq"b\\')],
)
def test_quoting(quoted: bytes, plain: str) -> None:
    assert unquote(quoted) == plain


def result_or_error(text: bytes) -> None:
    """Reading ends with changes that can be applied, or with an error that helps."""
    caught: PatchError | None = None
    mails = []
    try:
        mails = parse_bytes(text, name="p")
    except PatchError as error:
        caught = error
    assert caught.fix if caught else all(mail.files for mail in mails)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_result_or_an_error(noise: bytes) -> None:
    for text in (noise, GOOD + noise, GOOD[:40] + noise):
        result_or_error(text)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_any_changed_byte_gives_a_result_or_an_error(at: int, byte: int) -> None:
    text = bytearray(GOOD)
    text[at] = byte
    result_or_error(bytes(text))
