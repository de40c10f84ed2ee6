// What all views are made with: preact's elements, written as htm's templates. Values in templates
// become text or properties, never markup.

import { createElement, Fragment, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { Component } from "../vendor/preact.js";
export {
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../vendor/preact-hooks.js";
export { Fragment, render };

export const html = htm.bind(createElement);
