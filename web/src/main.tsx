import "./no-eval";
import type { ReactNode } from "react";
import { createRoot } from "react-dom/client";
import { isEmbedded, tokenOfHost } from "./embedding";
import { Entrance, refusalOf } from "./entrance";
import { Page } from "./page";
import { readSettings, applyAccent } from "./settings";
import { SharedChat } from "./shared-chat";
import { TextPage } from "./text-page";
import { comeBack, loadToken, saveToken } from "./token";
import "./styles.css";

const root = document.getElementById("root");
const query = new URLSearchParams(location.search);
const [shared, text] = [query.get("shared"), query.get("text")];
const settings = readSettings();
applyAccent(settings);
void shown().then((page) => root && createRoot(root).render(page));

async function shown(): Promise<ReactNode> {
  if (shared) return <SharedChat settings={settings} token={shared} />;
  if (text) return <TextPage settings={settings} path={text} />;
  if (!settings.auth) return <Page settings={settings} visit={1} away={false} signOut={undefined} />;
  const given = comeBack();
  if (given?.wanted) saveToken(given.token);
  let first = await refusalOf(settings, loadToken());
  if (first && isEmbedded()) {
    saveToken(await tokenOfHost(settings));
    if (loadToken()) first = await refusalOf(settings, loadToken());
  }
  return <Entrance settings={settings} given={given?.wanted ? undefined : given} first={first} />;
}
