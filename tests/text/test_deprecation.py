from typing import Any

import pytest

from shortlist.text.deprecation import successor_of
from tests.fakes import tool

CREATES = "Create an invoice for a customer."
NOTICES = (
    *(
        "[DEPRECATED]",
        "Deprecated:",
        "**Deprecated**",
        "⚠️ DEPRECATED:",
        "Deprecated since v2.",
        "DEPRECATED_TOOL",
        "Obsolete.",
    ),
    *(
        "Deprecation notice: use create_invoice_v2.",
        "Replaced by create_invoice_v2.",
        "Superceded by create_invoice_v2.",
    ),
    *("No longer recommended.", "Will be removed in version 3.", "This tool has been deprecated.", "@deprecated"),
    *("已弃用。", "该接口已废弃，请使用新版。", "非推奨。", "このツールは非推奨です。", "더 이상 사용되지 않음."),
    *("Veraltet.", "Diese Funktion ist veraltet.", "Obsoleto.", "Esta herramienta está obsoleta.", "Obsolète."),
    *("Cet outil est obsolète.", "Questo strumento è deprecato.", "Descontinuado.", "Przestarzałe.", "Устарело."),
    *("Этот метод устарел.", "Kullanımdan kaldırıldı.", "Công cụ này đã lỗi thời.", "مهمل.", "यह टूल अप्रचलित है।"),
)
FIRST = ("Do not use.", "Do not use! Use create_invoice_v2 instead.", "Legacy endpoint, prefer create_invoice_v2.")
"""Notices at the start of a description."""
OTHERS = (
    *("Unlike the deprecated search_v0, it pages.", "List deprecated APIs of a project.", "Find deprecated packages."),
    *("Check if packages are deprecated", "Mark a package as deprecated.", "Filter by status (deprecated, active)."),
    *("Do not use for refunds.", "Do not use this tool unless asked.", "Replaces create_invoice, which is deprecated."),
    *("create_invoice is deprecated; this one is not.", "Tells whether this API is deprecated.", "查询已弃用的接口"),
    *(
        "非推奨のAPIを一覧",
        "Veraltete Pakete finden.",
        "Buscar código obsoleto.",
        "Legacy invoices and how they were paid.",
    ),
    *("Lines not provided will be removed.", "Words replaced by asterisks.", "Finds what is no longer supported."),
    *("It pages.\n\nArgs:\n  page: The page. Deprecated. Use cursor.", "Takes:\n- deprecated: whether to list them"),
)


@pytest.mark.parametrize("notice", NOTICES)
def test_a_notice_is_recognised_at_the_start_and_however_far_down(notice: str) -> None:
    for text in (f"{notice} {CREATES}", f"{CREATES} {'It adds up the lines. ' * 40}\n{notice}"):
        assert successor_of(tool("billing/create_invoice", text)) is not None


@pytest.mark.parametrize("notice", FIRST)
def test_some_notices_count_at_the_start(notice: str) -> None:
    assert successor_of(tool("billing/create_invoice", f"{notice} {CREATES}")) is not None


@pytest.mark.parametrize("text", OTHERS)
def test_what_speaks_of_something_else_is_no_notice(text: str) -> None:
    assert successor_of(tool("billing/create_invoice", text)) is None
    assert successor_of(tool("billing/create_invoice", f"{CREATES} {text}")) is None


@pytest.mark.parametrize("key", ["deprecated", "deprecatedHint"])
@pytest.mark.parametrize("place", ["annotations", "_meta", None])
def test_a_flag_is_a_notice(key: str, place: str | None) -> None:
    def flagged(value: bool) -> dict[str, Any]:
        return {key: value} if place is None else {place: {key: value}}

    assert successor_of(tool("billing/create_invoice", CREATES, **flagged(True))) == ""
    assert successor_of(tool("billing/create_invoice", CREATES, **flagged(False))) is None


def test_a_flag_may_name_its_owner_and_the_successor() -> None:
    more = {"_meta": {"example.com/deprecated": "Use create_invoice_v2."}}
    assert successor_of(tool("billing/create_invoice", CREATES, **more)) == "create_invoice_v2"


def test_a_deprecated_argument_does_not_make_its_tool_deprecated() -> None:
    schema = {"type": "object", "properties": {"deprecated": {"deprecated": True}}}
    assert successor_of(tool("billing/create_invoice", CREATES, inputSchema=schema)) is None


@pytest.mark.parametrize(
    ("name", "is_deprecated"),
    [("create_invoice_deprecated", True), ("createInvoiceDeprecated", True), ("list_deprecated", False)],
)
def test_a_name_may_end_in_it(name: str, is_deprecated: bool) -> None:
    assert (successor_of(tool(f"billing/{name}", CREATES)) is not None) == is_deprecated
    assert successor_of(tool(f"billing/{name}", "Mark an invoice as deprecated.")) is None


def test_a_successor_is_named_by_the_notice() -> None:
    text = f"Use the `limit` to page. {'It adds up. ' * 40}\nDeprecated: use `create_invoice_v2` instead."
    assert successor_of(tool("billing/create_invoice", text)) == "create_invoice_v2"
