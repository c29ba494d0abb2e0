/* What the theme leaves out for those who read by ear or keyboard: names of its parts, and blocks that scroll by key. */
function mend(root) {
  for (const part of root.querySelectorAll(".md-search[role=dialog]")) part.setAttribute("aria-label", "Search");
  for (const nav of root.querySelectorAll(".md-code__nav")) {
    const id = nav.closest("pre")?.id || nav.closest("[id]")?.id || "";
    nav.setAttribute("aria-label", `Block ${id.replace(/\D/g, "")}`);
  }
  for (const block of root.querySelectorAll("pre > code, math[display=block], .md-typeset__scrollwrap")) {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
  }
}
mend(document);
new MutationObserver(() => mend(document)).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", () => mend(document));
