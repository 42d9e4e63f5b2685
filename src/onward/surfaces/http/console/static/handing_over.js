// Following a conversation into its successor, and the list behind @. Loaded on the page of a session, after console.js.
//
// A page moves by itself only if its person would have done the same: a turn is being followed, the page is in view and
// stands at the end, nothing is being written or selected, no dialog is open, and nobody has touched it since the turn began. A page that somebody came back to
// stays where it is, for good. In every other case the page only says where the work went on; the card in the timeline does
// too, and for ever.
"use strict";

(() => {
  const main = document.getElementById("main");
  const timeline = document.getElementById("timeline");
  if (!main?.dataset.session || !timeline) return;
  const here = main.dataset.session;
  const SESSION = /^ses_[0-9A-Za-z]+$/;

  // Whether somebody came back to this page. Then it stays.
  let stays = performance.getEntriesByType("navigation")[0]?.type === "back_forward";
  addEventListener("pageshow", (event) => { if (event.persisted) stays = true; });

  // Whether the person has moved since the turn began. Only what people do counts: the page itself scrolls too.
  let moved = false;
  const touch = (event) => { if (event.isTrusted) moved = true; };
  for (const kind of ["wheel", "touchmove", "pointerdown"]) {
    addEventListener(kind, touch, { passive: true, capture: true });
  }
  addEventListener("keydown", (event) => {
    if (!["Shift", "Control", "Alt", "Meta"].includes(event.key)) touch(event);
  }, { capture: true });
  // The turn that is followed: one that waits or works. That it ended by going on elsewhere is what this is about.
  let turn = document.querySelector("#state .badge.busy") !== null;
  document.addEventListener("onward:state", (event) => {
    const state = event.detail?.state;
    if (state === "running") moved = false;
    if (["queued", "running"].includes(state)) turn = true;
    else if (state && state !== "continued") turn = false;
  });

  const written = () => document.querySelector("#composer textarea, #offers textarea")?.value.trim() ?? "";
  const open = () => document.querySelector("dialog[open], details.menu[open], details.event-menu[open], .mentions:not([hidden])");
  const atEnd = () => globalThis.onward?.atEnd() ?? false;
  const selected = () => !(getSelection()?.isCollapsed ?? true);

  function follows(following) {
    return following && turn && !stays && !moved && document.visibilityState === "visible" && !written() && !open() && !selected();
  }

  // Whether the page stood at the end before the last events came in: they themselves move the end away.
  let following = atEnd();
  addEventListener("scroll", () => { following = atEnd(); }, { passive: true });

  const gone = new Set();
  document.addEventListener("onward:continued", (event) => {
    const { successor = "", title = "" } = event.detail ?? {};
    if (!SESSION.test(successor) || gone.has(successor)) return;
    gone.add(successor);
    const memory = `onward followed ${here}`;
    const before = (() => { try { return sessionStorage.getItem(memory) ?? ""; } catch { return ""; } })();
    if (!before.split(" ").includes(successor) && follows(following || atEnd())) {
      try { sessionStorage.setItem(memory, `${before} ${successor}`); } catch { /* it is only remembered for this tab */ }
      location.assign(`/sessions/${successor}`);
      return;
    }
    notice(successor, title);
    instead();
  });

  // A quiet word, for eyes and for ears.
  function notice(successor, title) {
    const strip = document.getElementById("went-on");
    if (!strip) return;
    const told = document.createElement("span");
    told.textContent = `The work went on in “${title || "Untitled"}”.`;
    const link = document.createElement("a");
    link.href = `/sessions/${successor}`;
    link.textContent = "Open it";
    strip.replaceChildren(told, " ", link);
    strip.hidden = false;
  }

  // Where a message cannot be sent any more, the two things that can be done with it; what was written goes along.
  async function instead() {
    const composer = document.getElementById("composer");
    if (!composer) return;
    const answer = await fetch(location.pathname, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (!answer?.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const closed = page.querySelector(".composer.closed");
    if (!closed) return;
    const made = document.importNode(closed, true);
    const area = composer.querySelector("textarea");
    const focused = document.activeElement === area;
    const into = made.querySelector("textarea");
    if (into) into.value = area.value;
    composer.replaceWith(made);
    if (focused) into?.focus();
  }

  // What waits for a person, as soon as it does, and until it does not any more.
  const asks = () => [...timeline.querySelectorAll('[data-kind="approval"]')].map((one) => one.id).join(" ");
  let known = asks();
  document.addEventListener("onward:grown", async () => {
    const now = asks();
    const waits = document.getElementById("waits");
    if (now === known || !waits) return;
    known = now;
    if (waits.contains(document.activeElement)) return; // somebody is answering
    const answer = await fetch(location.pathname, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (!answer?.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const there = page.getElementById("waits");
    if (!there || waits.contains(document.activeElement)) return;
    const follow = atEnd();
    waits.replaceChildren(...[...there.childNodes].map((node) => document.importNode(node, true)));
    if (follow) globalThis.onward?.toEnd();
    const count = waits.querySelectorAll(".asked-card").length;
    if (count) globalThis.onward?.tell(count === 1 ? "Something waits for your answer" : `${count} things wait for your answer`);
    const badge = document.querySelector('[hx-get="/approvals/count"]');
    if (badge) globalThis.htmx?.ajax?.("GET", "/approvals/count", { target: badge, swap: "innerHTML" });
  });

  // Menus of events close when something else is done.
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.event-menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll("details.event-menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });

  // Words that came along: the cursor stands behind them, and the address forgets where they came from.
  if (new URLSearchParams(location.search).has("carried")) {
    const area = document.querySelector("#composer textarea");
    if (area) {
      area.focus({ preventScroll: true });
      area.setSelectionRange(area.value.length, area.value.length);
      area.scrollIntoView({ block: "nearest" });
    }
  }

  // The list behind @: a combo box over the composer. Words after the @ are looked for until something is chosen, a space
  // follows the @, or Escape is pressed.
  const field = document.querySelector(".composer-field[data-mentions]");
  const area = field?.querySelector("textarea");
  if (!area) return;
  const box = document.createElement("ul");
  box.className = "mentions";
  box.id = "mentions";
  box.hidden = true;
  box.setAttribute("role", "listbox");
  box.setAttribute("aria-label", "Sessions to mention");
  field.append(box);
  area.setAttribute("aria-controls", "mentions");
  area.setAttribute("aria-autocomplete", "list");
  area.setAttribute("aria-haspopup", "listbox");

  const MOST = 60;
  let token = null; // where the @ stands, and the words behind it
  let chosen = -1;
  let asked = 0;
  let latest = 0;
  let dismissed = -1;

  function typed() {
    const upto = area.value.slice(0, area.selectionStart);
    const at = upto.lastIndexOf("@");
    if (at < 0 || area.selectionStart !== area.selectionEnd) return null;
    const words = upto.slice(at + 1);
    if (at > 0 && !/[\s(]/.test(upto[at - 1])) return null;
    if (words.length > MOST || /^\s|[\n\[\]()@]/.test(words)) return null;
    return { at, words };
  }

  function close() {
    box.hidden = true;
    box.replaceChildren();
    chosen = -1;
    area.removeAttribute("aria-activedescendant");
  }

  function mark(number) {
    const options = [...box.querySelectorAll('[role="option"]')];
    if (!options.length) return;
    chosen = (number + options.length) % options.length;
    options.forEach((option, place) => option.setAttribute("aria-selected", String(place === chosen)));
    area.setAttribute("aria-activedescendant", options[chosen].id);
    options[chosen].scrollIntoView({ block: "nearest" });
  }

  async function look() {
    token = typed();
    if (!token || token.at === dismissed) { close(); return; }
    const mine = ++latest;
    const url = `${field.dataset.mentions}?q=${encodeURIComponent(token.words)}`;
    const answer = await fetch(url, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (mine !== latest || !answer?.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const options = [...page.querySelectorAll('li[role="option"]')];
    if (mine !== latest || !typed()) return;
    if (!options.length) { close(); return; }
    box.replaceChildren(...options.map((option) => document.importNode(option, true)));
    box.hidden = false;
    mark(0);
    globalThis.onward?.tell(options.length === 1 ? "1 session to mention" : `${options.length} sessions to mention`);
  }

  function choose(option) {
    const written = `${option.dataset.mention} `;
    area.setRangeText(written, token.at, area.selectionStart, "end");
    close();
    area.focus();
    area.dispatchEvent(new Event("input", { bubbles: true }));
  }

  area.addEventListener("input", () => {
    if (!typed()) dismissed = -1;
    clearTimeout(asked);
    asked = setTimeout(look, 120);
  });
  area.addEventListener("keydown", (event) => {
    if (box.hidden) return;
    if (event.key === "ArrowDown") mark(chosen + 1);
    else if (event.key === "ArrowUp") mark(chosen - 1);
    else if (event.key === "Home" && event.altKey) mark(0);
    else if ((event.key === "Enter" || event.key === "Tab") && !event.ctrlKey && !event.metaKey && !event.shiftKey && chosen >= 0) {
      choose(box.querySelectorAll('[role="option"]')[chosen]);
    } else if (event.key === "Escape") { dismissed = token?.at ?? -1; close(); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  box.addEventListener("pointerdown", (event) => {
    const option = event.target.closest('[role="option"]');
    if (!option) return;
    event.preventDefault();
    choose(option);
  });
  area.addEventListener("blur", () => setTimeout(() => { if (document.activeElement !== area) close(); }, 100));
})();
