import { ChevronRight, CircleCheck, CircleX } from "lucide-react";
import { Collapsible } from "radix-ui";
import { useEffect, useState } from "react";
import { asEventStream, type Exchange, isRefusal } from "../frames";
import { fetchAsUser } from "../token";
import { classes } from "../ui/classes";

type Severity = "error" | "warning" | "note";

interface Problem {
  rule: string;
  severity: Severity;
  frame: number | null;
  text: string;
  fix: string;
  sdks: string[];
}

/** The JSON of `usechat check --format json`. */
interface Report {
  verdicts: Record<string, { ok: boolean; error?: string | null }>;
  problems: Problem[];
}

/** The report of `usechat check` on a completed stream: for the release that was asked for, then for the others. */
export function Verdict({ exchange, url, showFrame }: {
  exchange: Exchange | undefined;
  url: string;
  showFrame: (number: number) => void;
}) {
  const [report, setReport] = useState<Report | string>("Checking…");
  const end = exchange?.end?.how;
  const asked = exchange?.release ?? AI_SDK_RELEASE;
  useEffect(() => {
    if (!exchange || !end) {
      setReport(exchange ? "The answer is checked once it is complete." : "No answer to check yet. Send a message.");
      return;
    }
    if (isRefusal(exchange)) {
      setReport(`The request was refused with status ${exchange.status}; there is no stream to check.`);
      return;
    }
    if (end === "left") {
      setReport("The page stopped reading before the end of the answer, so it is not checked.");
      return;
    }
    const request = { method: "POST", headers: { "content-type": "text/event-stream" } };
    fetchAsUser(`${url}?sdk=${encodeURIComponent(asked)}`, { ...request, body: asEventStream(exchange) })
      .then(async (response) => setReport(response.ok ? ((await response.json()) as Report) : await response.text()))
      .catch(() => setReport("The server cannot be reached."));
  }, [exchange?.number, end, url, asked]);
  if (typeof report === "string") return <p className="text-sm text-soft">{report}</p>;
  const { [asked]: verdict, ...others } = report.verdicts;
  const problems = report.problems.filter((problem) => problem.sdks.includes(asked));
  const elsewhere = report.problems.filter((problem) => !problem.sdks.includes(asked));
  return (
    <div className="min-h-0 space-y-4 overflow-auto text-sm" role="status">
      <p className="text-soft">
        The page requested AI SDK {asked}, so the stream was encoded for that release.
      </p>
      {verdict && <Release name={asked} {...verdict} asked />}
      {problems.length === 0 ? <p>No problems found.</p> : <Problems problems={problems} showFrame={showFrame} />}
      <Collapsible.Root>
        <Collapsible.Trigger className="group flex items-center gap-1 rounded font-medium hover:text-accent">
          <ChevronRight aria-hidden="true" className="size-4 transition-transform group-data-[state=open]:rotate-90" />
          Would other releases accept it?
        </Collapsible.Trigger>
        <Collapsible.Content className="mt-2 space-y-3 pl-5">
          {Object.entries(others).map(([name, each]) => (
            <Release key={name} name={name} {...each} asked={false} />
          ))}
          <Problems problems={elsewhere.map((problem) => ({ ...problem, severity: "note" }))} showFrame={showFrame} />
        </Collapsible.Content>
      </Collapsible.Root>
    </div>
  );
}

/** The verdict for one release. That of a release which the page did not ask for is a note, whatever it says. */
function Release({ name, ok, error, asked }: { name: string; ok: boolean; error?: string | null; asked: boolean }) {
  const Icon = ok ? CircleCheck : CircleX;
  return (
    <p className={classes("flex gap-2", ok ? "text-good" : asked ? "text-bad" : "text-soft")}>
      <Icon aria-hidden="true" className="mt-0.5 size-4 shrink-0" />
      <span>
        AI SDK {name}: {ok ? "accepted" : `rejected: ${error ?? "the page shows no answer"}`}
      </span>
    </p>
  );
}

const COLOURS: Record<Severity, string> = { error: "text-bad", warning: "text-busy", note: "text-soft" };

function Problems({ problems, showFrame }: { problems: Problem[]; showFrame: (number: number) => void }) {
  return (
    <ul className="space-y-3">
      {problems.map(({ rule, severity, frame, text, fix, sdks }, index) => (
        <li key={index} className={COLOURS[severity]}>
          <b className="font-mono font-medium">{rule}</b> {severity}{" "}
          {frame !== null && (
            <button type="button" className="underline underline-offset-2" onClick={() => showFrame(frame)}>
              frame {frame}
            </button>
          )}{" "}
          <span className="text-ink">{text}</span>
          <p className="text-soft">
            {fix} ({sdks.map((sdk) => `AI SDK ${sdk}`).join(", ")})
          </p>
        </li>
      ))}
    </ul>
  );
}
