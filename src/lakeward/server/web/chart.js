// Lag curves as SVG text, the freshness line drawn in.
const HOUR_MS = 3600000;

const points = (samples, width, height, top, from, to) =>
  samples.map(([at, value]) => `${((at - from) / (to - from || 1) * width).toFixed(1)},${(height - Math.min(value, top) / top * height).toFixed(1)}`).join(" ");

const lastHour = (samples) => {
  const to = samples.at(-1)[0];
  return samples.filter(([at]) => at >= to - HOUR_MS);
};

// The same hour for every row, so that curves can be compared.
export function spark(held, limit, now, label) {
  const samples = (held ?? []).filter(([at]) => at >= now - HOUR_MS && at <= now);
  if (samples.length < 2) return '<span class="soft">no history yet</span>';
  const [w, h] = [150, 34];
  const top = Math.max(limit * 1.25, ...samples.map((s) => s[1])) || 1;
  const line = h - limit / top * h;
  return `<svg class="spark" viewBox="0 0 ${w} ${h}" preserveAspectRatio="none" role="img" aria-label="${label}">
    <line x1="0" x2="${w}" y1="${line}" y2="${line}" stroke="var(--limit)" stroke-dasharray="3 3" stroke-width="1"/>
    <polyline fill="none" stroke="var(--curve)" stroke-width="1.5" points="${points(samples, w, h, top, now - HOUR_MS, now)}"/></svg>`;
}

// Drawn at the width it is shown in, so that letters keep their size on a phone.
export function curve(held, limit, width, duration, clock) {
  if (!held || held.length < 2) return '<p class="empty">No samples yet: the first come within half a minute.</p>';
  const samples = lastHour(held);
  const [w, h, left, low] = [Math.max(260, Math.round(width)), width < 600 ? 140 : 180, 56, 20];
  const top = Math.max(limit * 1.25, ...samples.map((s) => s[1])) || 1;
  const [from, to] = [samples[0][0], samples.at(-1)[0]];
  const plot = h - low;
  const y = (v) => plot - Math.min(v, top) / top * plot;
  const label = (v, color) => `<text x="${left - 8}" y="${Math.max(11, y(v) + 4)}" text-anchor="end" font-size="12" fill="${color}">${duration(v)}</text>`;
  return `<svg class="big" viewBox="0 0 ${w} ${h}" role="img" aria-label="lag over the last hour, with the freshness">
    <g transform="translate(${left} 0)">
      <line x1="0" x2="${w - left}" y1="${plot}" y2="${plot}" stroke="var(--line)"/>
      <line x1="0" x2="${w - left}" y1="${y(limit)}" y2="${y(limit)}" stroke="var(--limit)" stroke-dasharray="5 4"/>
      <polyline fill="none" stroke="var(--curve)" stroke-width="2" points="${points(samples, w - left, plot, top, from, to)}"/>
      <text x="0" y="${h - 4}" font-size="12" fill="var(--soft)">${clock(from)} UTC</text>
      <text x="${w - left}" y="${h - 4}" text-anchor="end" font-size="12" fill="var(--soft)">${clock(to)} UTC</text>
    </g>${label(limit, "var(--limit)")}${label(0, "var(--soft)")}</svg>
    <div class="legend"><span><i style="background:var(--curve)"></i>lag of the oldest waiting row</span><span><i style="background:var(--limit)"></i>freshness ${duration(limit)}</span></div>`;
}
