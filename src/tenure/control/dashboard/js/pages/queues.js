// What waits, since when, within which limits; and what was given up.
import { discard, pause, replay, resume } from "../acts.js";
import { read } from "../api.js";
import { Asking, page } from "../asking.js";
import { icon } from "../icons.js";
import { Command, Empty, Freshness, JobLink, Missing, Section, Waiting } from "../parts.js";
import { to } from "../route.js";
import { may } from "../session.js";
import { html, live, signal } from "../view.js";
import { brief, count, moment, pretty, some } from "../words.js";

const opened = signal({}); // letters that are looked at, by id

export const Queues = page(
  () => ({
    queues: new Asking("queues"),
    thresholds: new Asking("thresholds", {}, { every: 15, when: () => may("thresholds") }),
    letters: new Asking("dead_letters", {}, { every: 8, when: () => may("dead_letters") }),
  }),
  ({ queues, thresholds, letters }) => {
    const found = queues.answer.value;
    return html`<div class="stack">
      <h1>Queues and dead letters</h1>
      <${Freshness} asking=${queues} /><${Missing} missing=${found?.missing} />
      <${Section} title="Queues">${found ? html`<${Table} queues=${found.queues} />` : html`<${Waiting} asking=${queues} what="the queues" />`}<//>
      <${Section} title="Dead letters"><${Letters} letters=${letters} /><//>
      <${Section} title="Stall thresholds"><${Thresholds} thresholds=${thresholds} /><//>
    </div>`;
  },
);

function Table({ queues }) {
  if (!queues.length) return html`<${Empty} title="No queue holds anything.">Queues come with the first job: <${Command} text="tenure submit WORKFLOW name=value --queue NAME" /><//>`;
  return html`<div class="scroll"><table>
    <thead><tr><th>queue</th><th class="num">held</th><th class="num">queued</th><th class="num">oldest waits</th><th class="num">running</th><th>limits</th><th><span class="sr">actions</span></th></tr></thead>
    <tbody>${queues.map((one) => html`<tr key=${one.name + (one.datacenter || "")}>
      <td><a href=${to("jobs", [], { queue: one.name })}>${one.name}</a> ${one.datacenter ? html`<span class="quiet">in ${one.datacenter}</span>` : null} ${one.paused && html`<span class="flag">${icon("cancelled")} paused</span>`}</td>
      <td class="num" title="They could go, and are held back: paused, full, or out of rate">${count(one.held)}</td>
      <td class="num" title="They wait for a worker">${count(one.queued)}</td>
      <td class="num">${one.oldest_s ? brief(one.oldest_s) : "–"}</td>
      <td class="num">${count(one.running)}</td>
      <td class="quiet">${limits(one)}</td>
      <td class="end">${one.paused ? resume(one) : pause(one)}</td>
    </tr>`)}</tbody></table></div>`;
}

function limits(one) {
  const found = [];
  if (one.max_running !== null) found.push(`at most ${count(one.max_running)} at once`);
  if (one.rate !== null) found.push(`${one.rate} a second`);
  if (one.job_timeout) found.push(`${brief(one.job_timeout)} for a job without a deadline of its own`);
  if (one.concurrency_key) found.push(`keys of ${one.concurrency_key} take turns`);
  if (one.max_per_key) found.push(`at most ${count(one.max_per_key)} of a key at once`);
  return found.join(", ") || "none";
}

const Letters = live(({ letters }) => {
  if (!may("dead_letters")) return html`<p class="quiet">Dead letters are shown to operators: they hold what was sent.</p>`;
  const found = letters.answer.value;
  if (!found) return html`<${Waiting} asking=${letters} what="dead letters" />`;
  if (!found.letters.length) return html`<${Empty} title="Nothing was given up.">A message that failed too often, or cannot be read, would be here, with what was found.<//>`;
  const again = () => letters.ask();
  return html`<${Freshness} asking=${letters} />
    ${found.count > found.letters.length ? html`<p class="quiet">The oldest ${count(found.letters.length)} of ${count(found.count)}.</p>` : null}
    ${found.letters.map((one) => html`<div class="workflow letter" key=${one.mailbox + one.id}>
      <div class="line"><strong>${one.cause}</strong> ${one.key ? html`<${JobLink} id=${one.key.split("/").slice(0, -1).join("/")} name=${one.key} />` : html`<code>${one.id}</code>`}
        <span class="quiet">${one.datacenter ? `${one.datacenter}, ` : ""}${one.mailbox}, died ${moment(one.died_at)}, ${some(one.deliveries, "delivery", "deliveries")}</span>
        <span class="actions"><button type="button" aria-expanded=${String(one.id in opened.value)} onClick=${() => look(one)}>Look</button> ${replay(one, again)} ${discard(one, again)}</span></div>
      <div>${one.reason}</div>
      ${one.id in opened.value && html`<pre tabindex="0">${opened.value[one.id]}</pre>`}
    </div>`)}`;
});

const Thresholds = live(({ thresholds }) => {
  if (!may("thresholds")) return html`<p class="quiet">Your token does not show thresholds.</p>`;
  const found = thresholds.answer.value;
  if (!found) return html`<${Waiting} asking=${thresholds} what="thresholds" />`;
  if (!found.thresholds.length) return html`<${Empty} title="Nothing was learned yet.">How long healthy attempts are silent is learned from those that ran for a second or more.<//>`;
  return html`<${Freshness} asking=${thresholds} /><div class="scroll"><table>
    <thead><tr><th>workflow</th><th class="num">attempts</th><th class="num">set</th><th class="num">learned</th><th class="num">holds</th><th>why</th><th class="num">wrong</th><th class="num">found sooner</th></tr></thead>
    <tbody>${found.thresholds.map((one) => html`<tr key=${one.name + one.version + (one.datacenter || "")}>
      <td>${one.name} <span class="quiet">${one.version}${one.datacenter ? ` in ${one.datacenter}` : ""}</span></td>
      <td class="num">${count(one.attempts)}</td>
      <td class="num">${one.set_s ? brief(one.set_s) : "–"}</td>
      <td class="num">${one.learned_s ? brief(one.learned_s) : "–"}</td>
      <td class="num">${one.holds_s ? brief(one.holds_s) : "–"}</td>
      <td class="quiet">${one.why}${[one.last_wrong, one.last_found].filter(Boolean).map((call) => html`<div><${JobLink} id=${call.job_id} name=${call.job_id} />: ${call.text}</div>`)}</td>
      <td class="num">${count(one.wrong)}</td>
      <td class="num">${count(one.found)}</td>
    </tr>`)}</tbody></table></div>`;
});

async function look({ mailbox, id, datacenter = "" }) {
  const { [id]: shown, ...rest } = opened.value;
  if (shown !== undefined) {
    opened.value = rest;
    return;
  }
  opened.value = { ...rest, [id]: "Reading …" };
  try {
    const reply = await read("dead_letter", { mailbox, id, datacenter });
    opened.value = { ...opened.value, [id]: reply.text || pretty(reply.body) };
  } catch (error) {
    opened.value = { ...opened.value, [id]: `${error.message}. ${error.remedy}` };
  }
}
