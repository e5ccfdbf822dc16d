// Fractional positions of list items: strings that sort like the items. See "Positions in lists" in
// the protocol of rooms. Numbers stay strings here, so that none is too large.

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const width = (head) => (head >= "a" ? head.charCodeAt(0) - 96 : 91 - head.charCodeAt(0));

export const FIRST = "a0";
const LENGTH_MAX = 48;
const DIGITS_MAX = 8;

function path(position) {
  const numbers = [];
  for (let place = 0; place < position.length; ) {
    const next = place + 1 + width(position[place]);
    numbers.push(position.slice(place, next));
    place = next;
  }
  return numbers;
}

// The next number or, with -1, the previous one.
export function stepped(number, by) {
  const [last, first] = by > 0 ? "z0" : "0z";
  const digits = [...number];
  for (let place = digits.length - 1; place > 0; place--) {
    if (digits[place] !== last) {
      digits[place] = DIGITS[DIGITS.indexOf(digits[place]) + by];
      return digits.join("");
    }
    digits[place] = first;
  }
  const passing = by > 0 ? "Za" : "aZ";
  const head =
    number[0] === passing[0] ? passing[1] : String.fromCharCode(number.charCodeAt(0) + by);
  return head + first.repeat(width(head));
}

// Whether a position is valid; otherwise its list must be renumbered.
export const fits = (position) =>
  position.length <= LENGTH_MAX && path(position).every((number) => number.length <= 1 + DIGITS_MAX);

export const following = (position) => stepped(path(position)[0], 1);

// A position after `low` and before `high`, where null is an end of the list.
export function between(low, high) {
  if (low === null) return high === null ? FIRST : stepped(path(high)[0], -1);
  if (high === null) return following(low);
  const under = path(low);
  const over = path(high);
  let same = 0;
  while (same < under.length && under[same] === over[same]) same++;
  if (same === under.length) return low + stepped(over[same], -1);
  const shared = under.slice(0, same).join("");
  const next = stepped(under[same], 1);
  if (next < over[same]) return shared + next;
  const rest = under[same + 1];
  return shared + under[same] + (rest ? stepped(rest, 1) : FIRST);
}
