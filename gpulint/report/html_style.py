"""How the HTML report looks, in light and dark, on a desk and in a hand."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #dcdce2;
  --page: #ffffff; --card: #f7f7f9; --link: #0a6cbd; --mark: #ffe2a8; --near: #dbe8ff;
  --plus: #d7f4df; --minus: #ffdede; --error: #c62828; --warning: #a15c00;
  --note: #2f6fb4; }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --soft: #a2a7b0;
  --line: #363b42; --page: #15171a; --card: #1c1f24; --link: #70b8ff; --mark: #6b4a00;
  --near: #24406b; --plus: #143d25; --minus: #54201f; --error: #ff8a80;
  --warning: #ffb74d; --note: #82b8f2; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--page); max-width: 64rem; margin: 0 auto;
  padding: 1.5rem 1rem 4rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
h3 { font: 600 1rem/1.4 ui-monospace, monospace; margin: 2rem 0 .5rem;
  overflow-wrap: anywhere; }
p { margin: .4rem 0; } .soft { color: var(--soft); }
code, pre { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
:not(pre) > code { overflow-wrap: anywhere; }
.chips { display: flex; flex-wrap: wrap; gap: .5rem; margin: .75rem 0; padding: 0; }
.chips li { list-style: none; border: 1px solid var(--line); border-radius: 1rem;
  padding: .1rem .75rem; white-space: nowrap; }
.error { color: var(--error); } .warning { color: var(--warning); }
.note { color: var(--note); }
.tables { display: grid; gap: 0 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
table { border-collapse: collapse; width: 100%; }
th { color: var(--soft); font-weight: 500; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; width: 3rem;
  padding-right: 0; padding-left: .5rem; overflow-wrap: normal; white-space: nowrap; }
article { border: 1px solid var(--line); border-radius: .5rem; margin: .75rem 0;
  padding: .75rem 1rem; background: var(--card); overflow: hidden; }
article header { font-weight: 600; overflow-wrap: anywhere; }
header code { font-weight: inherit; }
article .meta { font-size: .87rem; color: var(--soft); overflow-wrap: anywhere; }
pre { background: var(--page); border: 1px solid var(--line); border-radius: .35rem;
  margin: .5rem 0; padding: .4rem 0; overflow-x: auto; }
pre > span { display: block; width: max-content; min-width: 100%; padding: 0 .6rem; }
pre.doc { padding: .4rem .6rem; }
.at { color: var(--soft); display: inline-block; user-select: none; min-width: 2.2rem;
  text-align: right; padding-right: .9rem; }
mark { background: var(--mark); color: inherit; border-radius: .15rem; }
mark.near { background: var(--near); }
.said { color: var(--soft); font-style: italic; padding-left: 1.2rem; }
.plus { background: var(--plus); } .minus { background: var(--minus); }
summary { cursor: pointer; margin-top: .5rem; overflow-wrap: anywhere; }
.rule { border-top: 1px solid var(--line); padding-top: .25rem; }
.rule h4 { margin: 1rem 0 .25rem; font-size: .95rem; }
:target { outline: 2px solid var(--link); outline-offset: 4px; border-radius: .2rem; }
@media (max-width: 40rem) { body { padding: 1rem .75rem 3rem; }
  article { padding: .6rem .7rem; } .at { min-width: 1.6rem; padding-right: .6rem; } }
@media print { pre { white-space: pre-wrap; } pre > span { width: auto; } }
"""
