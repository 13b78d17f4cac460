// The five tiles: figure, rule, and what to do when red.
import { commands, text } from "./format.js";

export function tiles(list) {
  return list.map((t) => `
    <section class="tile ${t.ok ? (t.late ? "late" : "") : "bad"}" data-tile="${text(t.key)}">
      <h2 class="name">${text(t.name)}</h2>
      <div class="figure">${text(t.figure)}</div>
      ${t.about ? `<div class="about"><a href="#/table/${encodeURIComponent(t.about)}">${text(t.about)}</a>${t.detail ? ` ${text(t.detail)}` : ""}</div>` : t.detail ? `<div class="about">${text(t.detail)}</div>` : ""}
      <div class="word">${t.ok ? (t.late ? "look soon" : "in order") : "look here"}</div>
      ${t.ok && !t.late ? `<div class="rule">${text(t.rule)}</div>` : ""}
      ${t.ok && !t.late ? "" : `<div class="advice">${commands(t.advice)}${t.page ? ` <a href="${text(t.page)}">Show</a>` : ""}</div>`}
    </section>`).join("");
}
