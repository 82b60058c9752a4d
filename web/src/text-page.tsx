import { useEffect, useState } from "react";
import { Markdown } from "./components/markdown";
import { loadReader } from "./components/markdown-reader";
import type { Settings } from "./settings";
import { ReaderFrame } from "./ui/reader-frame";

/** A path below the page, such as `docs/serving.md`: no other host, and no way out of its directory. */
const PATH = /^(?:[\w-]+\/)*[\w-]+\.md$/;

/** A text in Markdown that the server offers: the documentation to which the demo's answers link. */
export function TextPage({ settings, path }: { settings: Settings; path: string }) {
  const [text, setText] = useState<string>();
  const [failure, setFailure] = useState<string>();
  useEffect(() => {
    const failed = () => setFailure("There is no such page.");
    if (!PATH.test(path)) return failed();
    fetch(path, { headers: { accept: "text/plain" } })
      .then(async (response) => {
        if (!response.ok) return failed();
        await loadReader(); // the text is drawn at once then, and has the section to which the address leads
        setText(await response.text());
      })
      .catch(() => setFailure("The server cannot be reached. Reload the page to try again."));
  }, [path]);
  useEffect(() => {
    if (text === undefined) return;
    document.title = `${/^# (.+)$/m.exec(text)?.[1] ?? path} · ${settings.title}`;
    const showSection = () => document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
    showSection();
    addEventListener("hashchange", showSection);
    return () => removeEventListener("hashchange", showSection);
  }, [text, path, settings]);
  return (
    <ReaderFrame title={<a href=".">{settings.title}</a>} note="Documentation">
      <div className="flex-1 overflow-y-auto" tabIndex={0} role="region" aria-label="Text">
        <article className="mx-auto w-full max-w-3xl px-4 py-8">
          {failure && <p role="alert">{failure}</p>}
          {text !== undefined && <Markdown text={text} streaming={false} anchors />}
        </article>
      </div>
    </ReaderFrame>
  );
}
