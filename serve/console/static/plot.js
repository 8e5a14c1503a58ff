/* What charts in SVG share: their width on the page, and their ticks. */

import { useEffect, useState } from "./vendor/preact-htm-3.1.1.module.js";

// The width in pixels that an element has now; 0 before it is drawn.
export function useWidth(element) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const resized = new ResizeObserver(() => setWidth(element.current.clientWidth));
    resized.observe(element.current);
    return () => resized.disconnect();
  }, []);
  return width;
}

// Round numbers from 0 to a maximum, about as many as wanted.
export function ticks(most, wanted) {
  const rough = most / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
  const count = Math.floor(most / step + 1e-9);
  return Array.from({ length: count + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}
