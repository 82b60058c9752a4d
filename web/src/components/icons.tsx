/** Decorative icons; the element around each has a label. */
const PATHS = {
  add: "M12 5v14M5 12h14",
  attach: "m20 11-8.5 8.5a5 5 0 0 1-7-7L13 4a3.3 3.3 0 0 1 4.7 4.7l-8.5 8.5a1.7 1.7 0 0 1-2.4-2.4L14.5 7",
  check: "m5 12 5 5L20 7",
  chevron: "m9 6 6 6-6 6",
  close: "m6 6 12 12M18 6 6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  down: "M12 5v14m-6-6 6 6 6-6",
  edit: "m4 20 1-4L16 5l3 3L8 19zM14 7l3 3",
  flow: "M4 5h6v5H4zM14 14h6v5h-6zM7 10v6.5h7",
  inspect: "M8 6 3 12l5 6m8-12 5 6-5 6m-3-14-2 16",
  key: "M14 10a4 4 0 1 0-3.5 4L12 15.5h2v2h2v2h3v-3z",
  menu: "M4 7h16M4 12h16M4 17h16",
  moon: "M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10z",
  redo: "M19 12a7 7 0 1 1-2-5l2 2m0-5v5h-5",
  send: "M12 19V5m-6 6 6-6 6 6",
  stop: "M7 7h10v10H7z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2m0 16v2M2 12h2m16 0h2M5 5l1.500 1.500m11 11L19 19M5 19l1.500-1.500m11-11L19 5",
  tool: "M14 7a4 4 0 0 1 5-3l-2.500 2.500 1 2 2 1L22 7a4 4 0 0 1-6 5l-8 8-3-3 8-8z",
  trash: "M5 7h14M10 7V4h4v3m-7 0 1 13h8l1-13",
} as const;

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
