#ifndef FRESHET_RUNLOG_REPORT_STYLE_H_
#define FRESHET_RUNLOG_REPORT_STYLE_H_

namespace freshet {

// Style sheet of report.html. Series colors have at least 3:1 contrast on both backgrounds and are
// distinguishable with common color vision deficiencies (after Okabe and Ito).
inline constexpr char kReportStyle[] = R"css(
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1b2330;--soft:#5b6676;--line:#dfe3ea;
--grid:#e8ebf0;--c0:#0067b1;--c1:#c65100;--c2:#007f5f;--c3:#a8418a;--c4:#8a6d00;--c5:#3f8fd0;
--c6:#7b8494;--good:#007f5f}
@media (prefers-color-scheme:dark){:root{--bg:#11151b;--card:#191f28;--ink:#e6eaf0;--soft:#98a3b3;
--line:#2b3440;--grid:#252d38;--c0:#5fb0f2;--c1:#f2914a;--c2:#3fc79a;--c3:#dd8ac3;--c4:#d9b93b;
--c5:#9cc8f0;--c6:#8e99a9;--good:#3fc79a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:32px 20px 48px}
h1{font-size:26px;line-height:1.25;margin:0;letter-spacing:-.01em}
h2{font-size:18px;margin:36px 0 12px}
h3{font-size:15px;margin:0}
header p{margin:4px 0 0;color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(180px,1fr));gap:12px;
margin:22px 0 0;padding:0;list-style:none}
.tiles li{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px}
.tiles .name{display:block;color:var(--soft);font-size:12.5px}
.tiles .value{display:block;font-size:19px;font-weight:600;font-variant-numeric:tabular-nums;
white-space:nowrap}
.tiles .more{display:block;color:var(--soft);font-size:12.5px}
.charts{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:14px 16px 8px;display:flex;flex-direction:column}
figure.wide{grid-column:1/-1}
figcaption p{margin:2px 0 6px;color:var(--soft);font-size:13px}
svg{width:100%;height:auto;display:block;margin-top:auto}
figure.wide svg{max-width:860px;margin-inline:auto}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 14px;margin:0 0 4px;padding:0;
font-size:12.5px}
.swatch{display:inline-block;width:14px;height:3px;border-radius:2px;margin-right:6px;
vertical-align:middle}
.swatch.dash{background-image:linear-gradient(90deg,transparent 40%,var(--card) 40%,
var(--card) 60%,transparent 60%)}
.b0{background-color:var(--c0)}.b1{background-color:var(--c1)}.b2{background-color:var(--c2)}
.b3{background-color:var(--c3)}.b4{background-color:var(--c4)}.b5{background-color:var(--c5)}
.b6{background-color:var(--c6)}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}
.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}
.f5{fill:var(--c5)}.f6{fill:var(--c6)}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.faint{stroke-width:1;opacity:.35}
.limit{stroke-dasharray:6 6;stroke-linecap:butt}
.area{stroke:var(--card);stroke-width:.6}
.hit{opacity:0}.hit:hover{opacity:1}
.grid{stroke:var(--grid)}.axis{stroke:var(--soft);stroke-opacity:.6}
text{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
text.label{font-size:12px}text.note{fill:var(--ink)}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;padding:7px 14px;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}
th{color:var(--soft);font-weight:500;font-size:12.5px;white-space:nowrap}
td.num,th.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.text{white-space:pre-wrap;overflow-wrap:anywhere;min-width:220px;
font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:13px}
td.text .new{color:var(--good)}
tr.sep td{background:var(--bg);color:var(--soft);font-size:12.5px;padding:4px 14px}
details{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 16px}
summary{cursor:pointer;font-weight:500}
pre{overflow-x:auto;font:13px/1.45 ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}
footer{margin-top:32px;color:var(--soft);font-size:12.5px}
@media (max-width:820px){.charts{grid-template-columns:minmax(0,1fr)}}
@media print{body{background:#fff}figure,.scroll{break-inside:avoid}}
)css";

}  // namespace freshet

#endif  // FRESHET_RUNLOG_REPORT_STYLE_H_
