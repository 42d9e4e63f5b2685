"""Everybody can use every page: narrow and wide, light and dark, with keys alone, with little motion, read aloud."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from playwright.sync_api import BrowserContext, Page, expect
from tests.browser.addresses import addresses
from tests.browser.conftest import NARROW, WIDE, Visiting
from tests.browser.furnishing import Furnished
from tests.browser.housing import House

AXE: Final = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
COLOURS: Final = """async () => (await axe.run(document, {
  resultTypes: ["violations"], runOnly: ["color-contrast", "link-in-text-block"], preload: false,
})).violations"""
OVERFLOW: Final = """() => {
  const page = document.scrollingElement;
  if (page.scrollWidth <= innerWidth) return "";
  const wide = [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > innerWidth + 1);
  return wide.slice(0, 4).map((one) => `${one.tagName}.${one.className} ${one.getBoundingClientRect().right}`).join("; ");
}"""
REACHABLE: Final = """() => [...document.querySelectorAll(
  "a[href], button, input, select, textarea, summary, [tabindex]"
)].filter((one) =>
  one.tabIndex >= 0 && !one.disabled && one.type !== "hidden" && one.checkVisibility({ visibilityProperty: true })
).map((one, number) => { one.dataset.reach = number; return one.outerHTML.slice(0, 120); })"""
FOCUSED: Final = """() => {
  const one = document.activeElement;
  const box = one.getClientRects()[0] ?? one.getBoundingClientRect();
  const look = getComputedStyle(one);
  const ring = (look.outlineStyle !== "none" && parseFloat(look.outlineWidth) > 0) || look.boxShadow !== "none";
  const x = Math.min(Math.max(box.left + Math.min(box.width / 2, 8), 0), innerWidth - 1);
  const y = Math.min(Math.max(box.top + Math.min(box.height / 2, 8), 0), innerHeight - 1);
  const top = document.elementFromPoint(x, y);
  return {
    reach: one.dataset.reach ?? "", name: one.outerHTML.slice(0, 120), ring,
    seen: box.bottom > 0 && box.top < innerHeight && Boolean(top && (one.contains(top) || top.contains(one))),
    body: one === document.body,
  };
}"""


def faults(address: str, found: list[Any]) -> list[str]:
    """Return what keeps people out, each in a line that says where."""
    return [
        f"{address}: {one['id']} ({one['help']}): {'; '.join(node['html'][:160] for node in one['nodes'][:3])}"
        for one in found
    ]


def test_nothing_on_any_page_keeps_anybody_out(
    visiting: Callable[..., BrowserContext],
    home: House,
    there: Furnished,
    size: dict[str, int],
    need: Callable[[str], Any],
) -> None:
    context = visiting(home, viewport=size, color_scheme="light")
    context.add_init_script(path=need("axe"))
    page = context.new_page()
    found = []
    for address in ["/login", *addresses(home, there)]:
        page.goto(address)
        found += faults(address, page.evaluate(AXE))
        if wide := page.evaluate(OVERFLOW):
            found.append(f"{address}: is wider than the window: {wide}")
        # In the dark the same page has other colours, and nothing else is another.
        page.emulate_media(color_scheme="dark")
        found += faults(f"{address}, dark", page.evaluate(COLOURS))
        page.emulate_media(color_scheme="light")
    assert not found, "\n".join(dict.fromkeys(found))


def test_with_everything_unfolded_nothing_keeps_anybody_out(
    visiting: Callable[..., BrowserContext],
    home: House,
    there: Furnished,
    size: dict[str, int],
    need: Callable[[str], Any],
) -> None:
    context = visiting(home, viewport=size)
    context.add_init_script(path=need("axe"))
    page = context.new_page()
    for address in (
        f"/sessions/{there.every}",
        f"/sessions/{there.origin}",
        f"/manifests/{there.manifest}",
        "/",
    ):
        page.goto(address)
        page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        found = faults(address, page.evaluate(AXE))
        assert not found, "\n".join(found)
        assert page.evaluate(OVERFLOW) == "", address


def test_every_control_is_reached_by_tab_in_order_and_shows_that_it_is(
    visit: Visiting, there: Furnished, size: dict[str, int]
) -> None:
    page = visit(viewport=size)
    for address in (
        "/",
        f"/sessions/{there.every}",
        f"/sessions/{there.origin}",
        f"/manifests/{there.manifest}",
        f"/sessions/{there.asking}/continue?purpose=Move+it",
        "/approvals",
    ):
        page.goto(address)
        expect(page.locator("main")).to_be_visible()
        wanted: list[str] = page.evaluate(REACHABLE)
        seen: dict[str, Any] = {}
        order: list[int] = []
        page.evaluate("() => { document.activeElement?.blur(); scrollTo(0, 0); }")
        for _ in range(len(wanted) + 5):
            page.keyboard.press("Tab")
            now = page.evaluate(FOCUSED)
            if now["body"] or now["reach"] in seen:
                break
            seen[now["reach"]] = now
            order.append(int(now["reach"] or -1))
        missed = [name for number, name in enumerate(wanted) if str(number) not in seen]
        assert not missed, f"{address}: never reached: {missed[:5]}"
        assert order == sorted(order), f"{address}: the order of keys is not that of the page"
        bare = [one["name"] for one in seen.values() if not one["ring"]]
        assert not bare, f"{address}: nothing shows that these have the keys: {bare[:5]}"
        hidden = [one["name"] for one in seen.values() if not one["seen"]]
        assert not hidden, f"{address}: out of sight while they have the keys: {hidden[:5]}"


def test_the_first_key_offers_to_skip_to_the_content(visit: Visiting) -> None:
    page = visit()
    page.goto("/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_menus_open_and_close_by_keys_and_give_the_keys_back(visit: Visiting, there: Furnished) -> None:
    page = visit()
    page.goto(f"/sessions/{there.origin}")
    menu = page.locator("summary[aria-label='Look and account']")
    menu.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Dark")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Dark")).to_be_hidden()
    expect(menu).to_be_focused()


def test_the_look_is_chosen_and_kept(visiting: Callable[..., BrowserContext], home: House) -> None:
    context = visiting(home, color_scheme="light")
    page = context.new_page()
    page.goto("/search?q=offset")
    paper = "() => getComputedStyle(document.documentElement).backgroundColor + getComputedStyle(document.body).color"
    light = page.evaluate(paper)
    page.locator("summary[aria-label='Look and account']").click()
    page.get_by_role("button", name="Dark").click()
    expect(page).to_have_url(f"{home.url}/search?q=offset")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    dark = page.evaluate(paper)
    assert dark != light
    other = context.new_page()
    other.goto("/")
    assert other.evaluate(paper) == dark


def test_who_wants_little_motion_gets_none(visit: Visiting, there: Furnished) -> None:
    page = visit(reduced_motion="reduce")
    for address in (f"/sessions/{there.origin}", f"/manifests/{there.manifest}", "/"):
        page.goto(address)
        moving = page.evaluate(
            """() => [...document.querySelectorAll("*")].filter((one) => {
              const look = getComputedStyle(one);
              const lasts = (text) => text.split(",").some((part) => parseFloat(part) > 0.01);
              return (look.animationName !== "none" && lasts(look.animationDuration)) || lasts(look.transitionDuration)
                || look.scrollBehavior === "smooth";
            }).map((one) => one.outerHTML.slice(0, 100))"""
        )
        assert moving == [], address


def test_with_forced_colours_everything_stays_readable(visit: Visiting, there: Furnished) -> None:
    page = visit(forced_colors="active", viewport=NARROW)
    page.goto(f"/sessions/{there.origin}")
    for meter in page.locator("meter").all():
        expect(meter).to_be_visible()
    assert page.evaluate(OVERFLOW) == ""


def test_at_twice_the_text_size_nothing_is_cut_off(visit: Visiting, there: Furnished) -> None:
    page: Page = visit(viewport=WIDE)
    for address in (f"/sessions/{there.origin}", "/", f"/manifests/{there.manifest}"):
        page.goto(address)
        page.evaluate("() => { document.documentElement.style.fontSize = '200%'; }")
        assert page.evaluate(OVERFLOW) == "", address
