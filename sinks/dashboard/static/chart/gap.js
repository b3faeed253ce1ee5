// Gaps of series: a line does not go on over a time in which nothing was measured.

export const SILENT_SECONDS = 6; // nodes report at least every four seconds, and measure once a second

// A series {times, values} in steps of so many seconds, with a point without values after each that the next one does not
// follow within a step and `silent` seconds.
export function gapped({ times, values }, step, silent = SILENT_SECONDS) {
  const whole = { times: [], values: values.map(() => []) };
  times.forEach((time, at) => {
    if (at && time - times[at - 1] >= step + silent) {
      whole.times.push(times[at - 1] + step);
      for (const column of whole.values) column.push(null);
    }
    whole.times.push(time);
    values.forEach((column, index) => whole.values[index].push(column[at]));
  });
  return whole;
}
