// Draws the last step times of a job in the height of a line of text.

import { html } from "../ui.js";
import { duration } from "../format.js";
import { t } from "../language.js";

const HEIGHT = 16, BAR = 3, GAP = 1, SLOW = 1.5;

export function Spark({ values }) {
  if (!values?.length) return null;
  const sorted = [...values].sort((a, b) => a - b), median = sorted[sorted.length >> 1];
  const most = Math.max(Math.min(sorted[sorted.length - 1], median * 4), median * 1.6, 1e-9);
  const said = t("recent step times: {low} to {high}", { low: duration(sorted[0]), high: duration(sorted[sorted.length - 1]) });
  return html`<svg class="spark" role="img" aria-label=${said} width=${values.length * (BAR + GAP)} height=${HEIGHT}>
    <title>${said}</title>
    ${values.map((value, i) => {
      const tall = Math.max(2, Math.round((Math.min(value, most) / most) * HEIGHT));
      return html`<rect class=${value > median * SLOW ? "slow" : ""} x=${i * (BAR + GAP)} y=${HEIGHT - tall} width=${BAR} height=${tall} />`;
    })}
  </svg>`;
}
