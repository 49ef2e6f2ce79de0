// The keyboard: everything that the mouse can do over time and streams.
"use strict";

const KEYS = [
  ["j k", "next, previous stream"], ["+ −", "zoom in, out"], ["← →", "earlier, later"], ["0", "whole time"],
  ["/", "search"], ["l", "logarithmic P99"], ["t", "light or dark"],
];

function listenToKeys(strips) {
  const press = (id) => () => byId(id).click();
  const actions = {
    j: () => strips.step(1), k: () => strips.step(-1),
    "+": press("zoom-in"), "=": press("zoom-in"), "-": press("zoom-out"), "−": press("zoom-out"),
    ArrowLeft: press("earlier"), ArrowRight: press("later"), 0: press("whole"), Escape: press("whole"),
    "/": () => byId("search").focus(), l: press("log"), t: press("theme"),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const inRows = strips.viewport.contains(event.target);
    const rows = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const action = inRows && rows ? () => strips.step(rows) : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  byId("keys").replaceChildren(...KEYS.flatMap(([keys, words]) =>
    [...keys.split(" ").map((key) => make("kbd", {}, key)), ` ${words}  `]));
}
