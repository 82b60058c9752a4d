import { useEffect, useState } from "react";
import { newId } from "./chats";
import { isEmbedded, tokenOfHost } from "./embedding";
import { Page } from "./page";
import type { Settings } from "./settings";
import { SignIn } from "./sign-in";
import { authorization, hasTokenInAddress, loadToken, onRefused, reasonOf, saveToken, type GivenToken } from "./token";

/** Why the server does not let a user in; empty if the user has only not signed in yet. */
export interface Refusal {
  reason: string;
}

/** Ask the server whether it knows the user with this token, or by a cookie. Every chat server has the route to resume. */
export async function refusalOf(settings: Settings, token: string): Promise<Refusal | undefined> {
  try {
    const response = await fetch(`${settings.api}/${newId()}/stream`, { headers: authorization(token) });
    if (response.status === 401 && !token) return { reason: "" };
    const refuses = [401, 403, 429].includes(response.status) || response.status >= 500;
    return refuses ? { reason: await reasonOf(response) } : undefined;
  } catch {
    return { reason: "The server cannot be reached." };
  }
}

interface Props {
  settings: Settings;
  /** What the server said when the page was loaded. */
  first: Refusal | undefined;
  /** A token that came with the address, and that the user has not asked for. */
  given: GivenToken | undefined;
}

/** The page behind a sign-in. A user who is signed out later finds everything as it was after signing in again. */
export function Entrance({ settings, first, given }: Props) {
  const [refusal, setRefusal] = useState(first);
  const [visit, setVisit] = useState(first ? 0 : 1);
  useEffect(
    () =>
      onRefused((reason) => {
        setRefusal((known) => known ?? { reason });
        if (isEmbedded()) void tokenOfHost(settings).then((token) => (token ? enter(token) : undefined));
      }),
    [],
  );
  useEffect(() => {
    const listener = () => hasTokenInAddress() && location.reload();
    addEventListener("hashchange", listener);
    return () => removeEventListener("hashchange", listener);
  }, []);

  async function enter(token: string): Promise<void> {
    const refused = await refusalOf(settings, token);
    setRefusal(refused);
    if (refused) return;
    saveToken(token);
    setVisit((count) => count + 1);
  }

  function leave(): void {
    saveToken("");
    setVisit(0);
    setRefusal({ reason: "" });
  }

  return (
    <>
      {refusal && <SignIn settings={settings} reason={refusal.reason} given={given?.token ?? ""} enter={enter} />}
      {visit > 0 && (
        <div className="contents" inert={refusal !== undefined}>
          <Page settings={settings} visit={visit} away={refusal !== undefined} signOut={loadToken() ? leave : undefined} />
        </div>
      )}
    </>
  );
}
