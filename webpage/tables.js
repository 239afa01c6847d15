// Tables of a page: sorted by a click on a head, filtered, saved as CSV, and folded where they are long. In: the tables that
// parts.html makes. Without this script they show all their rows in the order in which they were made.
"use strict";
(() => {
  const SHOWN = 20;
  const UNITS = {
    "%": 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, PiB: 2 ** 50,
    ms: 0.001, s: 1, min: 60, h: 3600, d: 86400, day: 86400, days: 86400,
  };

  // What a cell is sorted by: a number where it begins with one, in the unit that follows it; else its text.
  function valueOf(cell) {
    const text = cell.innerText.trim();
    const found = /^([+\-−]?[\d,]*\.?\d+(?:e[+-]?\d+)?)(?:\s*(%|[A-Za-z]+))?/.exec(text);
    if (!cell.classList.contains("n") || /^\d{4}-\d\d-\d\d/.test(text)) return text.toLowerCase();
    if (!found) return -Infinity;
    return parseFloat(found[1].replace(/,/g, "").replace("−", "-")) * (UNITS[found[2]] ?? 1);
  }

  // Each row with the note below it.
  function rowsOf(body) {
    const rows = [];
    for (const row of body.rows) {
      if (row.classList.contains("note")) rows.at(-1)?.push(row);
      else rows.push([row]);
    }
    return rows;
  }

  function compare(one, other) {
    if (typeof one === "number" && typeof other === "number") return one - other;
    return String(one).localeCompare(String(other));
  }

  function csvOf(table) {
    const quoted = (text) => `"${text.replace(/^([=+@\t\r]|-(?![\d.]))/, "'$1").replace(/"/g, '""')}"`;
    const lines = [[...table.tHead.rows[0].cells], ...rowsOf(table.tBodies[0]).map(([row]) => [...row.cells])];
    return lines.map((cells) => cells.map((cell) => quoted(cell.textContent.trim().replace(/\s+/g, " "))).join(",")).join("\r\n");
  }

  function dress(table) {
    const body = table.tBodies[0];
    const state = { filter: "", all: false };
    const bar = document.createElement("div");
    bar.className = "bar";
    const filter = Object.assign(document.createElement("input"), { type: "search", placeholder: "Filter", ariaLabel: "Filter rows" });
    const count = document.createElement("span");
    const all = Object.assign(document.createElement("button"), { type: "button" });
    const csv = Object.assign(document.createElement("button"), { type: "button", textContent: "CSV" });
    const rows = rowsOf(body);
    if (rows.length > 5) bar.append(filter);
    if (rows.length > SHOWN) bar.append(count, all);
    bar.append(csv);
    table.closest(".scroll").before(bar);

    function show() {
      let found = 0;
      for (const parts of rowsOf(body)) {
        const fits = !state.filter || parts.some((row) => row.textContent.toLowerCase().includes(state.filter));
        found += fits;
        for (const row of parts) row.hidden = !fits || (!state.all && !state.filter && found > SHOWN);
      }
      const shown = state.all || state.filter ? found : Math.min(found, SHOWN);
      count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
      all.textContent = state.all ? "Show fewer" : "Show all";
    }

    function sort(index, head) {
      const sorted = head.getAttribute("aria-sort");
      const down = sorted ? sorted === "ascending" : head.classList.contains("n");
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = rowsOf(body).map((parts) => [valueOf(parts[0].cells[index]), parts]);
      keyed.sort((one, other) => (down ? compare(other[0], one[0]) : compare(one[0], other[0])));
      body.append(...keyed.flatMap(([, parts]) => parts));
      show();
    }

    [...table.tHead.rows[0].cells].forEach((head, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(index, head));
      head.append(button);
    });
    filter.addEventListener("input", () => {
      state.filter = filter.value.trim().toLowerCase();
      show();
    });
    all.addEventListener("click", () => {
      state.all = !state.all;
      show();
    });
    csv.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([csvOf(table)], { type: "text/csv" }));
      link.download = `${table.closest("section")?.id || "table"}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
    show();
  }

  // A table that is wider than its frame says so, as scroll bars are hidden on many machines.
  function hint(frame) {
    const mark = () => frame.classList.toggle("more", frame.scrollLeft + frame.clientWidth < frame.scrollWidth - 1);
    frame.addEventListener("scroll", mark, { passive: true });
    addEventListener("resize", mark);
    frame.closest("details")?.addEventListener("toggle", mark);
    mark();
  }

  function unfold() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (const folded of target ? target.querySelectorAll(":scope > details") : []) folded.open = true;
    target?.scrollIntoView();
  }

  document.querySelectorAll(".scroll > table").forEach(dress);
  document.querySelectorAll(".scroll").forEach(hint);
  addEventListener("hashchange", unfold);
  if (location.hash) unfold();
  // What is folded is printed, too.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
})();
