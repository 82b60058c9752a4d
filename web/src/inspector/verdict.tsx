import { useEffect, useState } from "react";
import { asEventStream, type Exchange } from "../frames";
import { authorization } from "../token";

/** The JSON of `usechat check --format json`. */
interface Report {
  verdicts: Record<string, { ok: boolean; error?: string | null }>;
  problems: { rule: string; severity: "error" | "warning"; frame: number | null; text: string; fix: string }[];
}

/** The report of `usechat check` on a completed stream. */
export function Verdict({ exchange, url }: { exchange: Exchange | undefined; url: string }) {
  const [report, setReport] = useState<Report | string>("Checking…");
  const ended = exchange?.ended ?? false;
  useEffect(() => {
    if (!exchange || !ended) {
      setReport("The answer is checked once it is complete.");
      return;
    }
    const request = { method: "POST", headers: { "content-type": "text/event-stream", ...authorization() } };
    fetch(url, { ...request, body: asEventStream(exchange.frames) })
      .then(async (response) => setReport(response.ok ? ((await response.json()) as Report) : await response.text()))
      .catch(() => setReport("The server cannot be reached."));
  }, [exchange?.number, ended, url]);
  if (typeof report === "string") return <p className="hint">{report}</p>;
  return (
    <div className="verdict" role="status">
      <ul className="releases">
        {Object.entries(report.verdicts).map(([sdk, { ok, error }]) => (
          <li key={sdk} className={ok ? "accepted" : "rejected"}>
            AI SDK {sdk}: {ok ? "accepted" : `rejected: ${error ?? "the page shows no answer"}`}
          </li>
        ))}
      </ul>
      {report.problems.length === 0 && <p>No problems found.</p>}
      <ul className="problems">
        {report.problems.map((problem, index) => (
          <li key={index} className={problem.severity}>
            <b>{problem.rule}</b> {problem.frame !== null && `frame ${problem.frame}: `}
            {problem.text}
            <div className="hint">{problem.fix}</div>
          </li>
        ))}
      </ul>
    </div>
  );
}
