import { LogIn } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import type { Settings } from "./settings";
import { useTheme } from "./theme";
import { leaveForSignIn } from "./token";
import { Button } from "./ui/button";

interface Props {
  settings: Settings;
  /** Why the server refuses the user; empty for somebody who has only just come. */
  reason: string;
  /** A token that came with the address: the user decides whether to sign in with it. */
  given: string;
  enter: (token: string) => Promise<void>;
}

/** What comes before the chat where the server must know the user: a field for a token, or the way to another sign-in. */
export function SignIn({ settings, reason, given, enter }: Props) {
  useTheme();
  const [token, setToken] = useState(given);
  const [asking, setAsking] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (!asking && reason) field.current?.select();
  }, [asking, reason]);

  async function submit(): Promise<void> {
    setAsking(true);
    await enter(token.trim());
    setAsking(false);
  }

  return (
    <main className="fixed inset-0 z-50 flex overflow-y-auto bg-canvas p-4">
      <div className="m-auto flex w-full max-w-sm flex-col gap-6 py-8">
        <div className="flex flex-col items-center gap-2 text-center">
          {settings.logo && <img src={settings.logo} alt="" className="mb-1 h-12 max-w-40 object-contain" />}
          <h1 className="text-3xl font-semibold tracking-tight text-balance" dir="auto">{settings.title}</h1>
          <p className="text-soft text-balance" dir="auto">{settings.description || "Sign in to continue."}</p>
        </div>
        {reason && !asking && (
          <p id="refusal" role="alert" className="rounded-xl bg-bad-surface px-4 py-3 text-sm text-bad">
            {reason}
          </p>
        )}
        {settings.loginUrl && !given ? (
          <a
            href={settings.loginUrl}
            className="inline-flex min-h-11 items-center justify-center gap-2 rounded-lg bg-accent px-4 text-sm font-medium text-on-accent transition-opacity hover:opacity-90"
            onClick={leaveForSignIn}
            onAuxClick={leaveForSignIn}
          >
            <LogIn aria-hidden="true" className="size-4" />
            Sign in
          </a>
        ) : (
          <form
            className="flex flex-col gap-4"
            aria-label="Sign in"
            onSubmit={(event) => {
              event.preventDefault();
              void submit();
            }}
          >
            {given && (
              <p className="text-sm text-soft">
                This link has a token. Sign in with it only if you know who made the link: what you write goes to the owner of the token.
              </p>
            )}
            <label className="flex flex-col gap-1.5 text-sm font-medium">
              Access token
              <input
                ref={field}
                type="password"
                autoFocus
                required
                autoComplete="current-password"
                spellCheck={false}
                className="h-11 rounded-lg border border-line bg-canvas px-3 text-base font-normal text-ink aria-invalid:border-bad"
                aria-invalid={reason !== "" && !asking}
                aria-describedby={reason && !asking ? "refusal" : undefined}
                value={token}
                onChange={(event) => setToken(event.target.value)}
              />
            </label>
            <Button type="submit" kind="primary" className="min-h-11" disabled={asking}>
              {asking ? "Signing in…" : "Sign in"}
            </Button>
          </form>
        )}
      </div>
    </main>
  );
}
