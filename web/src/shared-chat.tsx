import type { UIMessage } from "ai";
import { useEffect, useState } from "react";
import { Conversation } from "./components/conversation";
import { Message } from "./components/message";
import type { Settings } from "./settings";
import { ReaderFrame } from "./ui/reader-frame";

interface Shared {
  title: string;
  messages: UIMessage[];
}

const READ_ONLY = {
  approve: undefined,
  answer: undefined,
  edit: undefined,
  regenerate: undefined,
  showVersion: undefined,
  rate: undefined,
  setEditing: () => undefined,
};

/** A chat that somebody shared by a link: it can be read, and nothing else. */
export function SharedChat({ settings, token }: { settings: Settings; token: string }) {
  const [shared, setShared] = useState<Shared>();
  const [failure, setFailure] = useState<string>();
  useEffect(() => {
    const address = settings.api.replace(/[^/]*$/, `shared/${encodeURIComponent(token)}`);
    fetch(address)
      .then(async (response) => {
        if (response.ok) setShared((await response.json()) as Shared);
        else setFailure("There is no chat at this link, or it is no longer shared.");
      })
      .catch(() => setFailure("The server cannot be reached. Reload the page to try again."));
  }, [settings, token]);
  useEffect(() => {
    document.title = shared?.title ?? settings.title;
  }, [shared, settings]);
  return (
    <ReaderFrame title={<h1 className="truncate text-left" dir="auto">{shared?.title ?? settings.title}</h1>} note="Shared, read-only">
      <Conversation
        busy={false}
        messages={shared?.messages ?? []}
        draw={(message, index) => (
          <Message
            key={message.id}
            message={message}
            streaming={false}
            live={false}
            editing={false}
            failure={undefined}
            stopped={false}
            versions=""
            rating={undefined}
            followers={(shared?.messages.length ?? 0) - 1 - index}
            {...READ_ONLY}
          />
        )}
      >
        {failure && (
          <p role="alert" className="m-auto text-soft">
            {failure}
          </p>
        )}
      </Conversation>
    </ReaderFrame>
  );
}
